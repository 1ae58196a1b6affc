"""Model of the time of a round with 2 to 1,024 workers, held against measured rounds of 1 to 8 over MPI.

    python benchmarks/scaling_model.py [--small] [--gigabits 10] [--latency-us 50]

A worker's step takes c, of which the slowest of W workers counts. Before each exchange workers sum one
number, m(W) = 2 (W - 1) latency; an exchange of N bytes takes x(W) = 2 (W - 1) latency + 2 (W - 1) / W * N
/ bandwidth, as a ring does, and p of work on each worker: the pass over its replicas, and that of z.

    ssgd                        c + p + m + x          every step waits for the mean gradient
    sma                         max(c + p + m, x)      z is moved before the next averaging
    sma, tau                    max(tau c + p + m, x) / tau
    diloco, tau                 c + (p + m + x) / tau  replicas wait for the new z
    diloco, tau, staleness 1    max(tau c + p + m, x) / tau

These are the native path's: one thread of each worker looks for the end of an exchange, and computes
nothing. c is measured with one worker, latency, bandwidth and p with two, by S-SGD; the rest is predicted.
LeNet (b=16) is measured with one and two workers, whose steps compute; with four and eight, of which there
are more than cores, steps of 8 ms sleep in native code, and what they compute beside they do in turn, so
that p, m and the bytes of x count W / cores times. Both exchange LeNet's 1,111,946 numbers. The curves for
2 to 1,024 workers are of LeNet on machines of their own with a link of the given rate and latency.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
import numpy as np
from llvmlite import ir
from ours import training_window
from results_page import Table

import tensorbow as tb
from scheduler import LearningEngine, ReadyBatch, StepProgram, Synchronisation
from scheduler.engine.results import RoundResults
from scheduler.workers.find import worker_group
from tensorbow.devices import usable_cores
from tensorbow.graph import NOT_DIFFERENTIABLE, Kernel, KernelCall
from tensorbow.kernels.native.codegen.emitter import Emitter, index
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.rounds.words import copy_bytes
from tensorbow.ops.definition import define_op
from tensorbow.program.plan import Group

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "scaling_model"
SIZE, SLEEP_US = 1_111_946, 8_000  # float32 numbers that are exchanged, the weights of LeNet; of a step
BATCH_SIZE, CHUNK = 16, 4  # of LeNet; rounds of a sample of its steps
LENET, SLEEPS = "lenet", "sleeps"
WAYS: dict[str, dict[str, Any]] = {
    "ssgd": {"sync": "ssgd"},
    "sma": {"sync": "sma"},
    "sma, tau 4": {"sync": "sma", "tau": 4},
    "diloco, tau 12": {"sync": "diloco", "tau": 12},
    "diloco, tau 12, staleness 1": {"sync": "diloco", "tau": 12, "staleness": 1},
}
ROUNDS, MANY = 240, tuple(2**n for n in range(1, 11))
WORKERS = {LENET: (1, 2), SLEEPS: (1, 2, 4, 8)}
WARM, WITHIN = 12, 0.15  # WARM: rounds before those that are measured, at least


@dataclass(frozen=True)
class Costs:
    """Seconds of steps of one worker (samples), of a message, of a byte, and of the work at an exchange.

    cores: that workers share, or None where each has its own.
    """

    steps: Sequence[float]
    latency: float
    byte: float
    work: float
    cores: int | None = None

    def exchange(self, workers: int) -> float:
        """Seconds of an exchange of SIZE numbers."""
        share = self.byte * 4 * SIZE * 2 * (workers - 1) / workers
        return 2 * (workers - 1) * self.latency + share * self._in_turn(workers)

    def round(self, way: str, workers: int) -> float:
        """Seconds of a round."""
        options = WAYS[way]
        tau, step = options.get("tau", 1), self._slowest(workers, options.get("tau", 1))
        if workers == 1:
            return step
        work = (self.work + 2 * (workers - 1) * self.latency) * self._in_turn(workers)
        exchange = self.exchange(workers)
        if options["sync"] == "sma" or options.get("staleness"):
            return max(tau * step + work, exchange) / tau
        return step + (work + exchange) / tau

    def _slowest(self, workers: int, tau: int) -> float:
        """Mean of the slowest of so many workers; deviations of tau steps add up by their root."""
        ordered, count = sorted(self.steps), len(self.steps)
        mean = statistics.fmean(ordered)
        shares = [((n + 1) / count) ** workers - (n / count) ** workers for n in range(count)]
        slowest = sum(value * share for value, share in zip(ordered, shares, strict=True))
        return mean + (slowest - mean) / tau**0.5

    def _in_turn(self, workers: int) -> float:
        return 1.0 if self.cores is None else max(1.0, workers / self.cores)


# Measuring ------------------------------------------------------------------------------------------


def _wait(call: KernelCall) -> None:
    time.sleep(SLEEP_US * 1e-6)
    np.copyto(call.outputs[0], call.inputs[0])


def _wait_in_native_code(emitter: Emitter, group: Group) -> None:
    b, (source,), (result,) = emitter.builder, group.inputs, group.outputs
    name, kind = "usleep", ir.FunctionType(ir.IntType(32), [ir.IntType(32)])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    b.call(function, [ir.Constant(ir.IntType(32), SLEEP_US)])
    copy_bytes(b, emitter.address(result), emitter.address(source), index(source.nbytes))


Waited = define_op(
    "BenchmarkWait",
    spec=lambda inputs, attrs: inputs[0],
    gradient=NOT_DIFFERENTIABLE,
    inputs=("value",),
    kernel=Kernel(run=_wait),
    stateful=True,
    doc="The value, after a while.",
)
lower(Waited, Lowering(_wait_in_native_code))


class NoInputs:
    """Source for a step without inputs."""

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> NoInputs:
        for round in range(start, stop):
            on_ready(ReadyBatch(0, round, (), lambda: None))
        return self

    def close(self) -> None:
        """Does nothing: nothing is open."""


def serve(what: str, rounds: int) -> None:
    """Measures as a worker of a job; worker 0 prints the figures."""
    group, vector = worker_group(), np.zeros(SIZE, np.float32)
    figures: dict[str, Any] = {"exchange": timed(group, vector, 20), "message": timed(group, vector[:2], 100)}
    for name, options in WAYS.items():
        with engine_of(what, options, group) as (engine, source):
            tau, told = options.get("tau", 1), list[RoundResults]()
            began_with = -(-WARM // tau) * tau
            engine.run(source.open, 0, began_with)
            group.barrier()
            began = time.perf_counter()
            engine.run(source.open, began_with, began_with + rounds, told.append)
            group.barrier()
            figures[name] = (time.perf_counter() - began) / rounds
        times = [max(results.times_s) for results in told][::CHUNK]
        figures[f"{name} steps"] = [(later - earlier) / CHUNK for earlier, later in itertools.pairwise(times)]
    if group.rank == 0:
        print(json.dumps(figures))


@contextmanager
def engine_of(what: str, options: dict[str, Any], group: Any) -> Iterator[tuple[LearningEngine, Any]]:
    """An engine of one replica in each worker, and what gives its batches."""
    if what == LENET:
        more = dict(options)
        training = training_window(
            LENET,
            BATCH_SIZE,
            1,
            sync=more.pop("sync"),
            tau=more.pop("tau", 1),
            synchronisation=more,
            engine_options={"workers": group},
        )
        with training.engine as engine:
            yield engine, training.batches
        return
    with tb.Graph().as_default():
        w = tb.Variable(np.zeros(SIZE, np.float32), name="w")
        loss = tb.reduce_sum(Waited(w[:1]))
        with tb.control_dependencies([loss]):
            step = tb.train.GradientDescentOptimizer(0.1).apply_gradients([(tb.identity(w), w)])
    program, how = StepProgram((), loss, step), Synchronisation(**options)
    with LearningEngine(program, [], ["/cpu:0"], 1, how, workers=group, launch_ahead=2) as engine:
        engine.initialize()
        yield engine, NoInputs()


def timed(group: Any, vector: Any, times: int) -> float:
    """Median seconds of a sum over all workers."""
    taken = list[float]()
    for _ in range(times):
        group.barrier()
        began = time.perf_counter()
        group.all_sum(vector)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def measured(what: str, workers: int, rounds: int) -> dict[str, Any]:
    """Figures of a job of so many workers."""
    command = [sys.executable, __file__, "serve", what, str(rounds)]
    environment = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1"}
    if workers > 1:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        environment["TENSORBOW_EXCHANGE"] = "mpi"  # as between machines
        start = [shutil.which("mpirun", path=path) or "mpirun", "-n", str(workers)]
        command = [*start, "--oversubscribe", "--bind-to", "none", *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{NAME}: {workers} workers failed:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def costs_of(one: dict[str, Any], two: dict[str, Any], cores: int) -> Costs:
    """Costs of this machine, by jobs of one and of two workers."""
    latency = two["message"] / 2
    byte = max(two["exchange"] - two["message"], 0.0) / (4 * SIZE)
    mine = Costs(one["ssgd steps"], latency, byte, 0.0, cores)
    return Costs(mine.steps, latency, byte, max(two["ssgd"] - mine.round("ssgd", 2), 0.0), cores)


# Results --------------------------------------------------------------------------------------------


def draw(figure: Figure, result: dict[str, Any]) -> None:
    from drawing import NotDrawableError, finish_axes, finish_figure

    from tensorbow.pictures import BLUE, GOLD, GREY, PURPLE, TEAL

    details = result["details"]
    if any("steps" not in row for row in details["held"]):
        raise NotDrawableError("its result is of a version with one kind of steps; measure it anew")
    left, right = figure.subplots(1, 2)
    colours = dict(zip(WAYS, (PURPLE, BLUE, TEAL, GOLD, GREY), strict=True))
    for way, colour in colours.items():
        held = [row for row in details["held"] if (row["steps"], row["way"]) == (SLEEPS, way)]
        workers = [row["workers"] for row in held]
        left.plot(
            workers, [row["predicted_ms"] for row in held], "-", color=colour, label=f"{way}, predicted"
        )
        left.plot(workers, [row["measured_ms"] for row in held], "o", color=colour, label=f"{way}, measured")
        curve = details["curves"][way]
        right.plot(details["workers"], curve, "-", color=colour, label=f"{way}, predicted")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
    right.set_yscale("log", base=2)
    finish_axes(left, "this machine, steps that sleep", "workers", "milliseconds of a round", WORKERS[SLEEPS])
    link = f"{details['gigabits']:g} Gbit/s, {details['latency_us']:g} us"
    finish_axes(right, link, "workers", "rate over that of one worker", MANY[::3])
    finish_figure(figure, "A round by the model and as measured", 4.4)


def table(details: dict[str, Any]) -> Table:
    rows = [
        [row["steps"], row["way"], row["workers"], row["predicted_ms"], row["measured_ms"], row["error"]]
        for row in details["held"]
    ]
    columns = ["steps", "synchroniser", "workers", "predicted [ms]", "measured [ms]", "error"]
    worst = max(abs(row["error"]) for row in details["held"])
    remark = f"Greatest error {worst:.0%}; {WITHIN:.0%} are asked. S-SGD with two workers is part of the fit."
    return Table(columns, rows, [remark])


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
        return
    made = harness.parser(__doc__, NAME)
    made.add_argument("--gigabits", type=float, default=10.0, help="rate of the link of the curves, Gbit/s")
    made.add_argument("--latency-us", type=float, default=50.0, help="its latency, microseconds")
    options = made.parse_args()
    cores, rounds, held = usable_cores(), 24 if options.small else ROUNDS, list[dict[str, Any]]()
    fitted = dict[str, Costs]()
    for what, counts in WORKERS.items():
        found = {
            workers: measured(what, workers, rounds) for workers in counts[: 2 if options.small else None]
        }
        costs = fitted[what] = costs_of(found[1], found[2], cores)
        for way, (workers, figures) in itertools.product(WAYS, found.items()):
            predicted, had = costs.round(way, workers), figures[way]
            row = {"steps": what, "way": way, "workers": workers, "predicted_ms": round(1e3 * predicted, 2)}
            held.append({**row, "measured_ms": round(1e3 * had, 2), "error": round(predicted / had - 1, 4)})
    costs = fitted[LENET]
    apart = Costs(costs.steps, options.latency_us * 1e-6, 8e-9 / options.gigabits, costs.work)
    curves = {
        way: [round(workers * apart.round(way, 1) / apart.round(way, workers), 3) for workers in MANY]
        for way in WAYS
    }
    link = {"gigabits": options.gigabits, "latency_us": options.latency_us}
    known = {
        what: {"latency_s": each.latency, "byte_s": each.byte, "work_s": each.work, "cores": cores}
        for what, each in fitted.items()
    }
    details = {**link, "fitted": known, "held": held, "workers": MANY, "curves": curves}
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
