"""Training of a language model over parameter tasks, as in figure 9 of TensorFlow (OSDI 2016).

    python benchmarks/language_model.py [--small] [--output FOLDER]

LSTM-512-512 predicts the next of 40,000 made-up words, in batches of sequences of 20. The embedding and the
weights of the softmax are cut into as many parts as there are parameter tasks, processes of their own; a
part's products and gradients are computed where it is. The full softmax multiplies with all weights, the
sampled softmax and noise-contrastive estimation with those of 512 drawn words and the true ones. Without
parameter tasks everything is in one process, and cut into as many parts, on virtual devices.

The second picture has the perplexity on held-out words, of the softmax over all, while one process trains
with each loss on a vocabulary of 10,000 words.

The paper's tasks are machines of a shared cluster. Here all processes share one machine: a second parameter
task brings no more cores, so compare the losses, and what the parts cost.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from cluster_null_steps import cluster_of, serving
from drawing import finish_axes, finish_figure, grouped
from harness import parser, save
from results_page import Table

import tensorbow as tb
from tensorbow.models import LSTMLanguageModel
from tensorbow.pictures import BLUE, GOLD, PURPLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tensorbow.data import ArrayDataset

NAME = "language_model"
SOFTMAXES = {"full": BLUE, "sampled": GOLD, "nce": PURPLE}
TITLES = {"full": "full softmax", "sampled": "sampled softmax", "nce": "noise-contrastive estimation"}
TASKS = "parameter tasks"
DEVICES = "virtual devices"
STEPS, BATCH, SAMPLED = 20, 16, 512
UNITS, LARGE, USUAL = 512, 40_000, 10_000
PARTS = (1, 2, 4)
WARM_UP, LEAST_STEPS, LONGEST_S = 2, 5, 10.0
RATE, CLIPPED = 1.0, 5.0  # of gradient descent, as Zaremba et al. (2014) train such models
LONGEST_COURSE_S, EVERY_S, EVALUATED = 180.0, 10.0, 200


class Sizes:
    """Sizes of the model and its data: in full, or small ones, with which the same code runs quickly."""

    def __init__(self, small: bool):
        self.units = 24 if small else UNITS
        self.large, self.usual = (600, 300) if small else (LARGE, USUAL)
        self.sampled = 64 if small else SAMPLED
        self.parts = PARTS[:2] if small else PARTS
        self.words = 20_000 if small else 900_000
        self.seconds = 0.3 if small else LONGEST_S
        self.course_s, self.every_s = (1.5, 0.5) if small else (LONGEST_COURSE_S, EVERY_S)


def model_of(softmax: str, parts: int, sizes: Sizes) -> LSTMLanguageModel:
    """The model with each table in a number of parts."""
    return LSTMLanguageModel(sizes.units, 2, softmax=softmax, num_sampled=sizes.sampled, shards=parts)


def minimised(loss: Any) -> Any:
    """The update of a step."""
    variables = tb.trainable_variables()
    gradients, _ = tb.clip_by_global_norm(tb.gradients(loss, variables), CLIPPED)
    optimizer = tb.train.GradientDescentOptimizer(RATE)
    return optimizer.apply_gradients(zip(gradients, variables, strict=True))


def place_of(kind: str, parts: int) -> Any:
    """Device of an operation by its variable's number: the parts go around, all others are the worker's."""

    def place(op: Any) -> str:
        _, found, number = op.name.partition("/part_")
        whole = op.type == "Variable" and not found
        task = int(number.split("/")[0]) if found and op.type == "Variable" else 0
        if kind == TASKS:
            return f"/job:ps/task:{task % parts}" if found or whole else "/job:worker/task:0"
        return f"/cpu:{task % parts}" if found else "/cpu:0"

    return place


@contextmanager
def session_of(kind: str, parts: int) -> Iterator[tb.Session]:
    """A session on parameter tasks of their own, or on this process's devices."""
    if kind == DEVICES:
        with tb.Session() as session:
            yield session
        return
    with serving(cluster_of(parts, 1)) as server, tb.Session(server.target) as session:
        yield session


def words_per_second(kind: str, softmax: str, parts: int, data: ArrayDataset, sizes: Sizes) -> dict[str, Any]:
    """Rates of some steps of one way to train, in words a second."""
    rng = np.random.default_rng(1)
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        with tb.device(place_of(kind, parts)):
            tokens, labels = (tb.placeholder(tb.int32, [BATCH, STEPS]) for _ in range(2))
            loss = model_of(softmax, parts, sizes)(tokens, labels, True, sizes.large).loss
            step = minimised(loss)
        with session_of(kind, parts) as session:
            session.run(tb.global_variables_initializer())
            rates: list[float] = []
            started = 0.0
            while len(rates) < WARM_UP + LEAST_STEPS or time.perf_counter() - started < sizes.seconds:
                rows = rng.integers(0, len(data), BATCH)
                feeds = {tokens: data.inputs[rows], labels: data.labels[rows]}
                if len(rates) == WARM_UP:
                    started = time.perf_counter()
                before = time.perf_counter()
                session.run(step, feeds)
                rates.append(BATCH * STEPS / (time.perf_counter() - before))
    low, middle, high = np.percentile(rates[WARM_UP:], [10, 50, 90])
    found = {"words_per_second": middle, "tenth": low, "ninetieth": high}
    row = {"kind": kind, "softmax": softmax, "parts": parts}
    print(f"{TITLES[softmax]}, {parts} {kind}: {middle:,.0f} words/s", flush=True)
    return {**row, **{name: float(f"{value:.4g}") for name, value in found.items()}}


def course(softmax: str, train: ArrayDataset, test: ArrayDataset, sizes: Sizes) -> list[dict[str, Any]]:
    """Perplexity on held-out words while one process trains, over the seconds of training and its words."""
    rng = np.random.default_rng(1)
    held_out = slice(0, EVALUATED)
    points = []
    with tb.Graph().as_default(), tb.Session() as session:
        tb.set_random_seed(1)
        tokens, labels = (tb.placeholder(tb.int32, [None, STEPS]) for _ in range(2))
        model = model_of(softmax, 1, sizes)
        step = minimised(model(tokens, labels, True, sizes.usual).loss)
        with tb.variable_scope("", reuse=True):
            evaluated = model(tokens, labels, False, sizes.usual).loss
        session.run(tb.global_variables_initializer())

        def trained() -> None:
            rows = rng.integers(0, len(train), BATCH)
            session.run(step, {tokens: train.inputs[rows], labels: train.labels[rows]})

        trained()  # compiles the step
        spent, words = 0.0, BATCH * STEPS
        while True:
            loss = session.run(evaluated, {tokens: test.inputs[held_out], labels: test.labels[held_out]})
            perplexity = float(f"{math.exp(min(float(loss), 30)):.5g}")
            point = {"seconds": round(spent, 2), "words": words, "perplexity": perplexity}
            points.append({"softmax": softmax, **point})
            if spent >= sizes.course_s:
                break
            begun = time.perf_counter()
            while time.perf_counter() - begun < sizes.every_s:
                trained()
                words += BATCH * STEPS
            spent += time.perf_counter() - begun
    print(f"{TITLES[softmax]}: perplexity {points[-1]['perplexity']:,.1f} after {words:,} words", flush=True)
    return points


def draw(figure: Figure, result: dict[str, Any]) -> None:
    details = result["details"]
    left, right = figure.subplots(1, 2)
    for line in grouped(details["rows"], "kind", "softmax"):
        kind, softmax = line[0]["kind"], line[0]["softmax"]
        middles = [row["words_per_second"] for row in line]
        low = [row["words_per_second"] - row["tenth"] for row in line]
        high = [row["ninetieth"] - row["words_per_second"] for row in line]
        style = {"color": SOFTMAXES[softmax], "linestyle": "-" if kind == TASKS else "--", "marker": "o"}
        label = f"{TITLES[softmax]}, {kind}"
        left.errorbar([row["parts"] for row in line], middles, (low, high), label=label, capsize=2.5, **style)
    for line in grouped(details["course"], "softmax"):
        softmax = line[0]["softmax"]
        style = {"color": SOFTMAXES[softmax], "linestyle": ":", "label": f"{TITLES[softmax]}, perplexity"}
        right.plot([row["seconds"] for row in line], [row["perplexity"] for row in line], **style)
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    right.set_yscale("log")
    finish_axes(
        left, "training", "parts of the tables", "words/s", sorted({r["parts"] for r in details["rows"]})
    )
    finish_axes(right, "held-out words", "seconds of training", "perplexity")
    finish_figure(
        figure, "Language model with a large vocabulary", 5.2, "points: medians; lines: 10 % to 90 %"
    )


def table(details: dict[str, Any]) -> Table:
    columns = ["loss", "where", "parts", "words/s", "10 %", "90 %", "relative to one part", "perplexity"]
    last = {row["softmax"]: row for row in details["course"]}
    rows: list[list[Any]] = []
    for line in grouped(details["rows"], "kind", "softmax"):
        for row in line:
            speed = row["words_per_second"]
            relative = speed / line[0]["words_per_second"]
            ends = [speed, row["tenth"], row["ninetieth"], relative]
            rows.append([TITLES[row["softmax"]], row["kind"], row["parts"], *ends, None])
    for softmax, row in last.items():
        speed = row["words"] / row["seconds"] if row["seconds"] else None
        where = f"one process, {details['usual']:,} words, after {row['seconds']:.0f} s"
        rows.append([TITLES[softmax], where, 1, speed, None, None, None, row["perplexity"]])
    seconds = statistics.fmean(row["seconds"] for row in last.values())
    remarks = [
        f"LSTM-{details['units']}-{details['units']}, batches of {BATCH} sequences of {STEPS} words, "
        f"vocabulary {details['large']:,}; {details['sampled']} words drawn for a batch. Medians of steps, "
        "and what 10 % and 90 % of them reach.",
        "All processes share the cores of one machine, so more parameter tasks bring no more processors, "
        "which the paper's do.",
        f"Perplexity: of the softmax over all words, on held-out text, after {seconds:.0f} s of training.",
    ]
    return Table(columns, rows, remarks)


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    sizes = Sizes(options.small)
    data, _ = tb.data.make_word_text(sizes.large, sizes.words, 4_000, steps=STEPS)
    rows = [
        words_per_second(kind, softmax, parts, data, sizes)
        for kind in (TASKS, DEVICES)
        for softmax in SOFTMAXES
        for parts in sizes.parts
    ]
    train, test = tb.data.make_word_text(sizes.usual, sizes.words, 4_000, steps=STEPS)
    points = [point for softmax in SOFTMAXES for point in course(softmax, train, test, sizes)]
    facts = {name: getattr(sizes, name) for name in ("units", "large", "usual", "sampled")}
    details = {**facts, "rows": rows, "course": points}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
