"""A program that trains asynchronously: workers and a shard are killed on the way. Writes what came of it.

With a second argument it does a few steps in which nobody dies.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tensorbow as tb


def batches(context: Any) -> Any:
    random = np.random.default_rng(context.replica_id)
    while True:
        images = random.normal(size=(16, 4)).astype(np.float32)
        yield images, (images[:, 0] > 0).astype(np.int32)


def few(context: Any) -> Any:
    stream = batches(context)
    return [next(stream) for _ in range(3)]


def failing(context: Any) -> Any:
    stream = batches(context)
    yield next(stream)
    if context.replica_id == 1:
        raise ValueError("no more of these")
    yield from stream


def main(folder: Path) -> None:
    said: dict[str, Any] = {}
    replicator = tb.MultiWorkerAsyncReplicator(3, 2, staleness=4, folder=folder, save_every=20)

    def step(images: Any, labels: Any) -> Any:
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))
        counter = tb.get_variable("counter", [], tb.int64, initializer="zeros", trainable=False)
        hidden = tb.layers.dense(images, 8, activation=tb.nn.relu, name="hidden")
        loss = tb.losses.sparse_softmax_cross_entropy(labels, tb.layers.dense(hidden, 2, name="logits"))
        return loss, optimizer.minimize(loss, global_step=counter)

    losses = []
    for number, (loss, _) in enumerate(replicator.train(step, batches, 600)):
        losses.append(float(loss[0]))
        processes = replicator._processes
        if number == 0:
            numbers = processes.process_numbers
        if number == 100:
            os.kill(numbers[1], signal.SIGKILL)
        if number == 300:
            os.kill(numbers[3], signal.SIGKILL)
    said["losses"] = [sum(losses[:20]) / 20, sum(losses[-20:]) / 20, len(losses)]
    said["by worker"] = replicator.steps_by_worker
    values = replicator.central_values()
    said["counter"] = int(values["counter"])
    path = folder / "saved.safetensors"
    said["saved"] = replicator.save(path)

    other = tb.MultiWorkerAsyncReplicator(2)
    said["restored"] = other.restore(path)
    said["ended"] = len([*other.train(step, few)])  # each worker has three batches
    said["counter after"] = int(other.central_values()["counter"])
    try:
        list(other.train(step, failing, 100))
    except tb.errors.AbortedError as error:
        said["error"] = str(error)
    (folder / "said.json").write_text(json.dumps(said))


def short(folder: Path) -> None:
    """Two workers do a few steps, and nobody dies."""
    replicator = tb.MultiWorkerAsyncReplicator(2, folder=folder)

    def step(images: Any, labels: Any) -> Any:
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
        loss = tb.losses.sparse_softmax_cross_entropy(labels, tb.layers.dense(images, 2, name="logits"))
        return loss, optimizer.minimize(loss)

    losses = [float(loss[0]) for loss, _ in replicator.train(step, batches, 40)]
    said = {"losses": losses, "by worker": replicator.steps_by_worker}
    (folder / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    (main if len(sys.argv) == 2 else short)(Path(sys.argv[1]))
