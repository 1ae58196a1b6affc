"""Asynchronous workers beside synchronous replicas, with and without workers that die.

    python benchmarks/asynchronous.py [--small]

A network of 784-128-10 units on the digits, b=16. Four asynchronous workers around one
parameter shard, with a bound on staleness of 4, without one, and with one worker killed (SIGKILL) every few
seconds; beside them four replicas of one process that average gradients every step. Rates and accuracies are
of equally many steps in all; a push of one worker has a quarter of the rate. The way with kills goes on until
all kills are done.

Each step tells its worker and the time at which it began, which is when the worker's last push was answered.
The gap of a worker is the longest time between two of its steps; a gap in which the worker was killed itself
does not count. The gap of all is the longest time between two steps of any workers, after a kill of any but
the killed one. Gaps of asynchronous workers count from a few seconds after the first step on. Those without
kills tell how much is the machine's own. Needs the extra `async`.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
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
STEPS, KILLS, KILLED_EVERY_S = 20_000, 30, 10.0
SMALL_STEPS, SMALL_KILLS, SMALL_EVERY_S = 2000, 2, 6.0
BEGINS_S = 3.0  # after the first step: from then on gaps count
GAP_S = 0.5  # target for a worker's longest gap while others are killed
WAYS = ("synchronous", "asynchronous", "staleness 4", "one killed every {every:g} s")


def batches(replica_id: int) -> Iterator[Any]:
    """Batches, each with its worker, the worker's process and the time in nanoseconds."""
    (images, _), order = tb.data.load("digits"), np.random.default_rng(replica_id)
    while True:
        drawn = images.batch(order.integers(0, len(images), BATCH_SIZE))
        yield *drawn, np.array([replica_id, os.getpid(), time.monotonic_ns()])


def step_of(replicator: Any, rate: float) -> Any:
    def step(images: Any, labels: Any, begun: Any) -> Any:
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(rate, 0.9))
        loss = tb.models.get_model("mlp")(images, labels, training=True, classes=10).loss
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss), tb.identity(begun)

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


@dataclass
class Begun:
    """Steps as they began: times by worker, and the process that each worker has now.

    Without the first step of each process, whose inputs are drawn while it is built.
    """

    times_s: list[list[float]] = field(default_factory=lambda: [[] for _ in range(WORKERS)])
    processes: dict[int, int] = field(default_factory=dict)

    def add(self, worker: int, process: int, time_ns: int) -> None:
        if self.processes.get(worker) == process:
            self.times_s[worker].append(time_ns / 1e9)
        self.processes[worker] = process


class Killer(threading.Thread):
    """Kills the workers in turn, and ends after the time of the last kill."""

    def __init__(self, begun: Begun, kills: int, every_s: float):
        super().__init__(daemon=True)
        self._begun, self._kills, self._every_s = begun, kills, every_s
        self.kills: list[tuple[int, float]] = []  # worker and time

    def run(self) -> None:
        for number in range(self._kills):
            time.sleep(self._every_s)
            worker = number % WORKERS
            try:
                os.kill(self._begun.processes[worker], signal.SIGKILL)
            except ProcessLookupError:  # it has not come back from its last kill
                continue
            self.kills.append((worker, time.monotonic()))
        time.sleep(self._every_s)


def longest_gaps(
    times_s: Sequence[list[float]], kills: Sequence[tuple[int, float]], begins_s: float
) -> tuple[float, float]:
    """The longest times between two steps of one worker, and of any, without the workers killed in between.

    times_s: of the steps of each worker, in order. kills: worker and time. begins_s: time after the first
    step from which on gaps count.
    """
    first_s = min(times[0] for times in times_s) + begins_s
    of_one = [
        after - before
        for worker, times in enumerate(times_s)
        for before, after in pairwise(times)
        if before > first_s and not any(who == worker and before <= at < after for who, at in kills)
    ]
    of_any = list[float]()
    for (killed, begin_s), (_, end_s) in pairwise([(-1, first_s), *kills, (-1, math.inf)]):
        others = [times for worker, times in enumerate(times_s) if worker != killed]
        between = sorted(at for times in others for at in times if at < end_s)
        of_any += [after - before for before, after in pairwise(between) if after > begin_s]
    return max(of_one), max(of_any)


def measured(way: str, steps: int, kills: int, every_s: float) -> dict[str, Any]:
    """Rate, accuracy and longest gaps of one way of training after a number of steps."""
    replicator: Any
    killer, begun, begins_s = None, Begun(), BEGINS_S
    if way == "synchronous":
        replicator = tb.MultiGpuReplicator(["/cpu:0"], WORKERS, sync="ssgd")
        loop = replicator.train(step_of(replicator, RATE), batches, steps // WORKERS, prefetch=0)
        begins_s = 0.0
    else:
        replicator = tb.MultiWorkerAsyncReplicator(WORKERS, staleness=4 if way == "staleness 4" else None)
        killer = Killer(begun, kills, every_s) if "killed" in way else None
        step = step_of(replicator, RATE / WORKERS)
        loop = replicator.train(step, batches, None if killer else steps, prefetch=0)
    done = 0
    values, started_s, taken_s = dict[str, Any](), 0.0, 0.0
    for losses, stamps in loop:
        assert np.isfinite(losses).all()
        for stamp in stamps:
            begun.add(*map(int, stamp))
        if not done:
            started_s = time.monotonic()
            if killer:
                killer.start()
        before, done = done, done + len(losses)
        if before < steps <= done:
            taken_s = time.monotonic() - started_s
            values = replicator.central_values()
        if killer and values and not killer.is_alive():
            break
    loop.close()
    gap_s, gap_of_all_s = longest_gaps(begun.times_s, killer.kills if killer else [], begins_s)
    return {
        "way": way,
        "steps": done,
        "kills": len(killer.kills) if killer else 0,
        "steps_per_second": round(steps / taken_s, 1),
        "longest_gap_s": round(gap_s, 3),
        "longest_gap_of_all_s": round(gap_of_all_s, 3),
        "accuracy": round(accuracy(values), 4),
    }


def draw(figure: Figure, result: dict[str, Any]) -> None:
    rows = result["details"]["rows"]
    figure.set_size_inches(WIDTH, 3.0)
    names = [row["way"] for row in rows]
    colours = [GREY, *[CONTESTANTS["TensorBow"]] * (len(rows) - 1)]
    panels = ("steps_per_second", "accuracy", "longest_gap_s")
    titles = ("steps per second", "test accuracy", "longest gap of a worker [s]")
    for axes, key, title in zip(figure.subplots(1, 3, sharey=True), panels, titles, strict=True):
        axes.barh(names, [row[key] for row in rows], color=colours)
        finish_axes(axes, title, "", "")
    figure.axes[0].set_yticks(range(len(names)), names)
    figure.axes[0].set_ylim(len(names) - 0.5, -0.5)


def table(details: dict[str, Any]) -> Table:
    rows = []
    for row in details["rows"]:
        reached = None if not row["kills"] else "yes" if row["longest_gap_s"] <= GAP_S else MISSED
        shown = (row["way"], row["steps"], row["kills"], row["steps_per_second"], row["accuracy"])
        rows.append([*shown, row["longest_gap_of_all_s"], row["longest_gap_s"], reached])
    gaps = ("longest gap of all [s]", "of a worker [s]", f"at most {GAP_S:g} s")
    remark = f"Rates and accuracies after {details['measured_steps']:,} steps; gaps of workers not killed."
    return Table(["way", "steps", "kills", "steps/s", "test accuracy", *gaps], rows, [remark])


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    cases = (SMALL_STEPS, SMALL_KILLS, SMALL_EVERY_S) if options.small else (STEPS, KILLS, KILLED_EVERY_S)
    rows = [measured(way.format(every=cases[2]), *cases) for way in WAYS]
    details = {"measured_steps": cases[0], "rows": rows}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
