"""Time of a step of S-SGD against the number of backup workers, with stragglers (OSDI 2016, figure 8).

    python benchmarks/backup_workers.py [--small]

Every replica computes the gradient of the same small step, and sleeps before, so long as a machine of a
shared cluster might take: 20 ms times a lognormal number (median 1, sigma 0.25), and with a probability of
3 % for 80 ms more, drawn by its number and the round. A round takes 8 gradients, and there are 0 to 5
backups. The sleeps stand for the computing of 8 machines, which two cores do not have. `expected` is the
median of the 8th smallest of 8 + b such times, without any work. The paper's normalised speedup t(0) / t(b)
* n / (n + b), of medians, discounts the resources that the backups cost; n = 8.

In the paper each backup up to the fourth shortens the median step of 50 workers, and the fifth lengthens
it, as its gradient, too, goes to the parameter tasks. In one process nothing is sent, so that each further
one gains less and none costs time.

The same is measured with the replicas shared out to 3 processes that MPI starts, where the extra mpi is
there: what a round costs besides is some messages, and a sum over the processes whose gradients count.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
import numpy as np
from results_page import Table

import tensorbow as tb
from scheduler import LearningEngine, ReadyBatch, StepProgram, Synchronisation
from tensorbow.graph import Kernel, KernelCall
from tensorbow.ops.definition import define_op

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "backup_workers"
WORKERS, BACKUPS, SIZE = 8, (0, 1, 2, 3, 4, 5), 1000
USUAL_S, SIGMA, LATE_S, LATE = 0.020, 0.25, 0.080, 0.03
ROUNDS = 150
PROCESSES, SERVE = 3, "serve"


def _compute(call: KernelCall) -> None:
    time.sleep(float(call.inputs[1]))
    np.copyto(call.outputs[0], call.inputs[0])


Computed = define_op(
    "BenchmarkSleep",
    spec=lambda inputs, attrs: inputs[0],
    gradient=lambda op, g: [g, None],
    inputs=("value", "seconds"),
    kernel=Kernel(run=_compute),
    doc="The value, after some seconds.",
)


def program() -> StepProgram:
    """A step whose gradient is w - x, after a sleep."""
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [SIZE], name="x")
        seconds = tb.placeholder(tb.float32, [], name="seconds")
        w = tb.Variable(np.zeros(SIZE, np.float32), name="w")
        loss = tb.reduce_mean(tb.square(w - Computed(x, seconds)))
        return StepProgram((x, seconds), loss, tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss), {})


def drawn(rng: np.random.Generator, count: int) -> Any:
    """Seconds that a number of gradients takes."""
    return USUAL_S * rng.lognormal(0.0, SIGMA, count) + LATE_S * (rng.random(count) < LATE)


def expected_ms(backup: int) -> float:
    """Median milliseconds of the 8th smallest of 8 + backup times."""
    times = drawn(np.random.default_rng(1), 20_000 * (WORKERS + backup)).reshape(-1, WORKERS + backup)
    return float(1e3 * np.median(np.sort(times)[:, WORKERS - 1]))


class Sleeps:
    """Source of batches, all of which are there, with the time that each one takes."""

    def __init__(self, replicas: int, seed: int, first: int = 0) -> None:
        self._replicas, self._seed, self._first = replicas, seed, first

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> Sleeps:
        x = np.ones(SIZE, np.float32)
        for round in range(start, stop):
            for replica in range(self._replicas):
                rng = np.random.default_rng((self._seed, round, self._first + replica))
                seconds = np.float32(drawn(rng, 1)[0])
                on_ready(ReadyBatch(replica, round, (x, seconds), lambda: None))
        return self

    def close(self) -> None:
        """Does nothing: nothing is open."""


def times_of(backup: int, rounds: int, seed: int) -> list[float]:
    """Seconds of each round's step; of several workers each has a share of the replicas."""
    step, ended, group = program(), list[float](), tb.worker_group()
    counts = [len(own) for own in np.array_split(np.arange(WORKERS + backup), group.size)]
    replicas, first = counts[group.rank], sum(counts[: group.rank])
    specs = [tb.TensorSpec((SIZE,), tb.float32), tb.TensorSpec((), tb.float32)]
    options = Synchronisation("ssgd", backup=backup)
    with LearningEngine(step, specs, ("/cpu:0",), replicas, options, workers=group) as engine:
        engine.initialize()
        source = Sleeps(replicas, seed, first)
        engine.run(source.open, 0, 5)
        engine.run(source.open, 5, 5 + rounds, lambda results: ended.append(max(results.times_s)))
    return [later - earlier for earlier, later in pairwise(ended)]


def times_of_processes(backup: int, rounds: int, seed: int) -> list[float] | None:
    """`times_of` by worker 0 of several processes; None without MPI."""
    found = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        return None
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    start = [found, "-n", str(PROCESSES), "--oversubscribe", "--bind-to", "none"]
    command = [*start, sys.executable, __file__, SERVE, str(backup), str(rounds), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{NAME}: {PROCESSES} workers failed:\n{done.stderr}")
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def draw(figure: Figure, result: dict[str, Any]) -> None:
    from drawing import SYNCHRONISERS, NotDrawableError, finish_axes, finish_figure

    from tensorbow.pictures import GOLD

    rows = result["details"]["rows"]
    if any("expected_ms" not in row for row in rows):
        raise NotDrawableError("its result is of a version without expected times; measure it anew")
    left, right = figure.subplots(1, 2)
    backups, colour = [row["backup"] for row in rows], SYNCHRONISERS["ssgd"]
    left.plot(backups, [row["median_ms"] for row in rows], "o-", color=colour, label="median step")
    left.plot(backups, [row["expected_ms"] for row in rows], ":", color="grey", label="expected median")
    left.plot(backups, [row["p90_ms"] for row in rows], "o--", color=colour, label="90th percentile")
    left.plot(backups, [row["mean_ms"] for row in rows], "o-", color=GOLD, label="mean step")
    if all("processes_ms" in row for row in rows):
        medians, label = [row["processes_ms"] for row in rows], f"median step, {PROCESSES} processes"
        left.plot(backups, medians, "s--", color=colour, label=label)
    finish_axes(left, "time of a step", "backup workers", "milliseconds", backups)
    right.plot(backups, [row["speedup"] for row in rows], "o-", color=colour)
    finish_axes(right, "normalised speedup", "backup workers", "t(0) / t(b) * n / (n + b)", backups)
    right.set_ylim(top=1.06 * max(row["speedup"] for row in rows))
    title = f"S-SGD with {WORKERS} workers and backups; {LATE:.0%} of the gradients take 80 ms more"
    finish_figure(figure, title, 3.8)


def table(details: dict[str, Any]) -> Table:
    keys = ("backup", "median_ms", "expected_ms", "mean_ms", "p90_ms", "speedup")
    columns = [
        "backups",
        "median [ms]",
        "expected [ms]",
        "mean [ms]",
        "90th percentile [ms]",
        "normalised speedup of the median",
    ]
    if all("processes_ms" in row for row in details["rows"]):
        keys, columns = (*keys, "processes_ms"), [*columns, f"median of {PROCESSES} processes [ms]"]
    remark = f"{details['rounds']} steps each; a gradient takes {USUAL_S * 1e3:.0f} ms in the median."
    return Table(columns, [[row[key] for key in keys] for row in details["rows"]], [remark])


def serve(backup: int, rounds: int, seed: int) -> None:
    """Runs the steps of a worker; worker 0 prints their times."""
    times = times_of(backup, rounds, seed)
    if tb.worker_group().rank == 0:
        print(json.dumps(times))


def main() -> None:
    options = harness.parser(__doc__, NAME).parse_args()
    rounds, backups = (20, BACKUPS[:2]) if options.small else (ROUNDS, BACKUPS)
    rows = list[dict[str, Any]]()
    for backup in backups:
        taken = sorted(1e3 * seconds for seconds in times_of(backup, rounds, 7))
        mean = statistics.fmean(taken)
        row = {"backup": backup, "median_ms": statistics.median(taken), "mean_ms": mean}
        row |= {"p90_ms": taken[int(0.9 * len(taken))], "expected_ms": expected_ms(backup)}
        first = rows[0] if rows else row
        row["speedup"] = first["median_ms"] / row["median_ms"] * WORKERS / (WORKERS + backup)
        if (by_processes := times_of_processes(backup, rounds, 7)) is not None:
            row["processes_ms"] = 1e3 * statistics.median(by_processes)
        rows.append({name: round(value, 4) for name, value in row.items()})
    details = {"rounds": rounds, "rows": rows}
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        serve(*map(int, sys.argv[2:]))
    else:
        main()
