"""Training rates of one checkout, asked for over standard input: the contestant of `against_commit.py`.

    python benchmarks/against_commit_contestant.py CHECKOUT

Its first line of output has the names of the cases. Every line of input, a case and seconds as JSON, trains
for about so long and is answered by the rate. Only `ours.training_window` and names of TensorFlow 1 are used,
so that older checkouts can answer, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

TRAINED = (("logreg", 16), ("lenet", 4), ("lenet", 16), ("resnet32", 16))
SESSION = "session.run, 784-128-10, b=16"


def windows_of(stack: ExitStack) -> dict[str, Callable[[float], float]]:
    """Window for each case, in images per second: two replicas with averages, and a step of a session."""
    from harness import paced
    from ours import training_window

    windows: dict[str, Callable[[float], float]] = {
        f"{model} b={size}": stack.enter_context(training_window(model, size, 2)) for model, size in TRAINED
    }
    step = session_step(stack)

    def run_steps(count: int) -> None:
        for _ in range(count):
            step()

    return {**windows, SESSION: paced(run_steps, 16)}


def session_step(stack: ExitStack) -> Callable[[], Any]:
    """Training step of a small network by `session.run`, whose own cost is a large part of it."""
    import numpy as np

    import tensorbow as tb

    graph = tb.Graph()
    with graph.as_default():
        images = tb.placeholder(tb.float32, [16, 784])
        labels = tb.placeholder(tb.int64, [16])
        hidden = tb.layers.dense(images, 128, activation=tb.nn.relu)
        outputs = tb.layers.dense(hidden, 10)
        losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)
        loss = tb.reduce_mean(losses)
        update = tb.train.MomentumOptimizer(0.001, 0.9).minimize(loss)
        initializer = tb.global_variables_initializer()
    session = stack.enter_context(tb.Session(graph=graph))
    session.run(initializer)
    draws = np.random.default_rng(0)
    feeds = {images: draws.normal(size=(16, 784)).astype(np.float32), labels: draws.integers(0, 10, 16)}
    return lambda: session.run([loss, update], feeds)


def main() -> None:
    checkout = Path(sys.argv[1])
    sys.path[:0] = [str(checkout), str(checkout / "benchmarks")]
    with ExitStack() as stack:
        windows = windows_of(stack)
        print(json.dumps(list(windows)), flush=True)
        for line in sys.stdin:
            case, seconds = json.loads(line)
            print(json.dumps(windows[case](seconds)), flush=True)


if __name__ == "__main__":
    main()
