"""Asynchronous workers beside synchronous replicas, with and without workers that die.

    python benchmarks/asynchronous.py [--small]

A network of 784-128-10 units on the digits (64 inputs here), b=16. Four asynchronous workers around one
parameter shard, with a bound on staleness of 4, without one, and with one worker killed (SIGKILL) every few
seconds; beside them four replicas of one process that average gradients every step. All take equally many
steps in all; a push of one worker has a quarter of the rate. The gap is the longest time between two results
while others are killed. Needs the extra `async`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from drawing import CONTESTANTS, WIDTH, finish_axes
from harness import parser, save
from results_page import MISSED, Table

import tensorbow as tb
from tensorbow.pictures import GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "asynchronous"
WORKERS, BATCH_SIZE = 4, 16
RATE = 0.02  # of the mean of all workers' gradients; a push of one has a quarter
KILLED_EVERY_S = 10.0
GAP_S = 0.5  # asked: the longest, while others are killed
WAYS = ("synchronous", "asynchronous", "staleness 4", "one killed every 10 s")


def batches(worker: int) -> Iterator[Any]:
    (images, _), order = tb.data.load("digits"), np.random.default_rng(worker)
    while True:
        yield images.batch(order.integers(0, len(images), BATCH_SIZE))


def step_of(replicator: Any, rate: float) -> Any:
    def step(images: Any, labels: Any) -> Any:
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(rate, 0.9))
        loss = tb.models.get_model("mlp")(images, labels, training=True, classes=10).loss
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    return step


def accuracy(values: dict[str, Any]) -> float:
    _, test = tb.data.load("digits")
    images, labels = test.batch(np.arange(len(test)))
    with tb.Graph().as_default():
        fed = tb.placeholder(tb.float32, images.shape)
        wanted = tb.placeholder(tb.int32, labels.shape)
        made = tb.models.get_model("mlp")(fed, wanted, training=False, classes=10)
        with tb.Session() as session:
            session.load_variables(values)
            correct = session.run(made.metrics["accuracy"], {fed: images, wanted: labels})
    return float(correct)


def measured(way: str, steps: int, kill_every_s: float) -> dict[str, Any]:
    """Losses over time of one way, its rate without the start, the longest gap and the accuracy."""
    replicator: Any
    if way == "synchronous":
        replicator = tb.MultiGpuReplicator(["/cpu:0"], WORKERS, sync="ssgd")
        loop = replicator.train(
            step_of(replicator, RATE), lambda replica_id: batches(replica_id), steps // WORKERS
        )
        per_result = WORKERS
    else:
        replicator = tb.MultiWorkerAsyncReplicator(WORKERS, staleness=4 if way == "staleness 4" else None)
        loop = replicator.train(
            step_of(replicator, RATE / WORKERS), lambda replica_id: batches(replica_id), steps
        )
        per_result = 1
    times, kills = [], list[int]()
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(kill_every_s):
            kills.append(replicator._processes.process_numbers[len(kills) % WORKERS])
            os.kill(kills[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    for loss in loop:
        times.append(time.perf_counter())
        assert np.isfinite(loss).all()
        if "killed" in way and len(times) == 1:
            killer.start()
        if len(times) * per_result == steps:
            ended.set()
    if kills:
        killer.join()
    gaps = np.diff(times)
    return {
        "way": way,
        "steps": steps,
        "kills": len(kills),
        "steps_per_second": round((len(times) - 1) * per_result / (times[-1] - times[0]), 1),
        "longest_gap_s": round(float(gaps.max()), 3),
        "accuracy": round(accuracy(replicator.central_values()), 4),
    }


def draw(figure: Figure, result: dict[str, Any]) -> None:
    rows = result["details"]["rows"]
    figure.set_size_inches(WIDTH, 3.0)
    names = [row["way"] for row in rows]
    colours = [GREY, *[CONTESTANTS["TensorBow"]] * (len(rows) - 1)]
    panels = ("steps_per_second", "accuracy", "longest_gap_s")
    titles = ("steps per second", "test accuracy", "longest gap [s]")
    for axes, key, title in zip(figure.subplots(1, 3, sharey=True), panels, titles, strict=True):
        axes.barh(names, [row[key] for row in rows], color=colours)
        finish_axes(axes, title, title, "")
    figure.axes[0].invert_yaxis()


def table(details: dict[str, Any]) -> Table:
    rows = []
    for row in details["rows"]:
        reached = None if not row["kills"] else "yes" if row["longest_gap_s"] <= GAP_S else MISSED
        shown = (row["way"], row["steps"], row["kills"], row["steps_per_second"], row["accuracy"])
        rows.append([*shown, row["longest_gap_s"], reached])
    columns = ["way", "steps", "kills", "steps/s", "test accuracy", "longest gap [s]", f"at most {GAP_S:g} s"]
    return Table(columns, rows, [])


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    steps, every = (1500, 4.0) if options.small else (20_000, KILLED_EVERY_S)
    rows = [measured(way, steps, every) for way in WAYS]
    details = {"rows": rows}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
