"""Model of the time of a round with 2 to 1,024 workers, held against measured rounds of 1 to 8 over MPI.

    python benchmarks/scaling_model.py [--small] [--gigabits 10] [--latency-us 50]

A worker's step takes c, of which the slowest of W workers counts. Before each exchange workers sum one
number, m(W) = 2 (W - 1) latency; an exchange of N bytes takes x(W) = 2 (W - 1) latency + 2 (W - 1) / W * N
/ bandwidth, as a ring does, and p of work on each worker: the pass over its replicas, and that of z.

    ssgd                        c + p + m + x          every step waits for the mean gradient
    sma                         max(c, x) + p + m      z is moved before the next averaging
    sma, tau                    (max(tau c, x) + p + m) / tau
    diloco, tau                 c + (p + m + x) / tau  replicas wait for the new z
    diloco, tau, staleness 1    (max(tau c, x) + p + m) / tau

So it is between machines, where the next rounds run while a sum is exchanged, and a message waits for looks
of both workers: 2/3 of the time between two looks in the mean. Workers of one machine, and more than 16,
wait for their exchanges: then each takes c + (p + m + x) / tau.
Latency, bandwidth and p are measured with two workers, by S-SGD; c with as many workers at once as compute,
which never exchange, since they share the memory's bandwidth; the rest is predicted. LeNet (b=16) is
measured with one and two workers, which wait; with four and eight, of which there are more than cores,
steps of 8 ms sleep in native code, exchanges run beside them, and what they compute they do in turn, so
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
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
from scheduler.workers.mpi import rest_s
from scheduler.workers.overlapped_sums import OVERLAP_WORKERS
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
APART = "none"  # without exchanges
ROUNDS, WINDOWS = 48, 9  # ROUNDS: of a window, a multiple of each tau
MANY = tuple(2**n for n in range(1, 11))
WORKERS = {LENET: (1, 2), SLEEPS: (1, 2, 4, 8)}
LATER = 2 / 3  # mean of the later of two looks, in times between looks
WAKING_S = 8e-5  # that a sleep takes longer than it should
REPEATED = 50  # estimates of the time that an exchange takes and of the rests in it, each by the other
WITHIN = 0.15


@dataclass(frozen=True)
class Costs:
    """Seconds of steps of one worker (samples), of the work at an exchange, of a message, and of a byte.

    overlaps: exchanges run beside the next rounds where they may; workers look whether a message has come.
    cores: that workers share, or None where each has its own.
    """

    steps: Sequence[float]
    work: float
    latency: float
    byte: float
    overlaps: bool
    cores: int | None = None

    def _exchange(self, workers: int, is_looked_for: bool = False) -> float:
        """Seconds of an exchange of SIZE numbers."""
        share = self.byte * 4 * SIZE * 2 * (workers - 1) / workers
        messages = 2 * (workers - 1)
        awaited = taken = messages * self.latency + share * self._in_turn(workers)
        for _ in range(REPEATED if is_looked_for else 0):  # the longer it takes the longer workers rest
            taken = awaited + messages * LATER * (rest_s(taken / 2) + WAKING_S)
        return taken

    def round(self, way: str, workers: int) -> float:
        """Seconds of a round."""
        options = WAYS[way]
        tau, step = options.get("tau", 1), self._slowest(workers, options.get("tau", 1))
        if workers == 1:
            return step
        work = (self.work + 2 * (workers - 1) * self.latency) * self._in_turn(workers)
        if self.overlaps and (options["sync"] == "sma" or options.get("staleness")):
            return (max(tau * step, self._exchange(workers, True)) + work) / tau
        return step + (work + self._exchange(workers)) / tau

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


def serve(what: str, windows: int) -> None:
    """Measures as a worker of a job, all ways in turn; worker 0 prints the medians, and the steps' times."""
    group, vector = worker_group(), np.zeros(SIZE, np.float32)
    taken = defaultdict[str, list[float]](list)
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(engine_of(what, options, group))
            for name, options in {**WAYS, APART: {"sync": "none"}}.items()
        }
        for engine, source in engines.values():
            engine.run(source.open, 0, ROUNDS)
        for window in range(1, windows + 1):
            taken["exchange"].append(timed(group, vector, 5))
            taken["message"].append(timed(group, vector[:2], 50))
            for name, (engine, source) in engines.items():
                told = list[RoundResults]()
                group.barrier()
                began = time.perf_counter()
                engine.run(source.open, window * ROUNDS, (window + 1) * ROUNDS, told.append)
                group.barrier()
                taken[name].append((time.perf_counter() - began) / ROUNDS)
                times = [max(results.times_s) for results in told][::CHUNK]
                steps = [(later - earlier) / CHUNK for earlier, later in itertools.pairwise(times)]
                taken[f"{name} steps"] += steps
    if group.rank == 0:
        figures = {name: each if "steps" in name else statistics.median(each) for name, each in taken.items()}
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


def measured(what: str, workers: int, windows: int) -> dict[str, Any]:
    """Figures of a job with a number of workers."""
    command = [sys.executable, __file__, "serve", what, str(windows)]
    environment = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1"}
    if workers > 1:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        environment["TENSORBOW_EXCHANGE"] = "allreduce"  # as between machines
        environment["TENSORBOW_OVERLAP"] = "always" if what == SLEEPS else "never"
        start = [shutil.which("mpirun", path=path) or "mpirun", "-n", str(workers)]
        command = [*start, "--oversubscribe", "--bind-to", "none", *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{NAME}: {workers} workers failed:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def costs_of(found: dict[int, dict[str, Any]], cores: int, overlaps: bool) -> dict[int, Costs]:
    """Costs of this machine by number of workers, given their jobs' figures."""
    two = found[2]
    latency, byte = two["message"] / 2, max(two["exchange"] - two["message"], 0.0) / (4 * SIZE)

    def costs(workers: int, work: float) -> Costs:
        return Costs(found[workers][f"{APART} steps"], work, latency, byte, overlaps, cores)

    work = max(two["ssgd"] - costs(2, 0.0).round("ssgd", 2), 0.0)
    return {workers: costs(workers, work) for workers in found}


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
    cores, windows, held = usable_cores(), 1 if options.small else WINDOWS, list[dict[str, Any]]()
    fitted = dict[str, Costs]()
    for what, counts in WORKERS.items():
        found = {
            workers: measured(what, workers, windows) for workers in counts[: 2 if options.small else None]
        }
        costs = costs_of(found, cores, what == SLEEPS)
        fitted[what] = costs[1]
        for way, (workers, figures) in itertools.product(WAYS, found.items()):
            if workers == 1:
                continue
            predicted, had = costs[workers].round(way, workers), figures[way]
            row = {"steps": what, "way": way, "workers": workers, "predicted_ms": round(1e3 * predicted, 2)}
            held.append({**row, "measured_ms": round(1e3 * had, 2), "error": round(predicted / had - 1, 4)})
    costs = fitted[LENET]
    link = options.latency_us * 1e-6, 8e-9 / options.gigabits
    apart = {workers: Costs(costs.steps, costs.work, *link, workers <= OVERLAP_WORKERS) for workers in MANY}
    curves = {
        way: [
            round(workers * each.round(way, 1) / each.round(way, workers), 3)
            for workers, each in apart.items()
        ]
        for way in WAYS
    }
    known = {
        what: {"latency_s": each.latency, "byte_s": each.byte, "work_s": each.work}
        for what, each in fitted.items()
    }
    details = {
        "gigabits": options.gigabits,
        "latency_us": options.latency_us,
        "fitted": {**known, "cores": cores},
        "held": held,
        "workers": MANY,
        "curves": curves,
    }
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
