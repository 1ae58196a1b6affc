"""Cost of a step through a Replicator or a TensorBowSession, compared with the plain session in one run.

    python benchmarks/replicator_overhead.py [--small] [--output FOLDER]

One replica trains LeNet on made-up pictures, in turn: windows of so many steps by `session.run` of the plain
session, of a NonReplicator's result, and of a TensorBowSession with one replica. The results are medians over
windows of the time per step, and the median over windows of each pair's ratio, which cancels a drift of the
machine. Remarks compare a `Stepper` with `LearningEngine.run` on the null device, which computes nothing, and
give what a collective in a step costs eight replicas of a device, and how long a step takes whose inputs take
0.1 s like itself. With `TENSORBOW_CPU=reference` it measures NumPy kernels.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from drawing import WIDTH, lighter
from harness import parser, save
from results_page import MISSED, Table

import tensorbow as tb
from scheduler import BatchSource, ReadyBatch, Stepper
from tensorbow.devices import CpuDevice, Device, LaunchLog, NullDevice
from tensorbow.pictures import BLUE, LIMIT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "replicator_overhead"
TARGET = 1.03  # times the plain session's step
BATCH = 16
PLAIN = "plain session"
REPLICAS, COLLECTIVES = 8, 8
INPUT_S = 0.1


def batch(size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(size, 28, 28, 1)).astype(np.float32), rng.integers(0, 10, size)


def loss_of(images: Any, labels: Any) -> Any:
    return tb.models.LeNet()(images, labels, classes=10).loss


def plain(stack: ExitStack, kind: type[Any], size: int, **options: Any) -> Callable[[], Any]:
    graph = tb.Graph()
    with graph.as_default():
        images = tb.placeholder(tb.float32, [None, 28, 28, 1])
        labels = tb.placeholder(tb.int64, [None])
        loss = loss_of(images, labels)
        update = tb.train.MomentumOptimizer(0.005, 0.9).minimize(loss)
        initializer = tb.global_variables_initializer()
    session = stack.enter_context(kind(graph=graph, **options))
    session.run(initializer)
    x, y = batch(size)
    return lambda: session.run([loss, update], {images: x, labels: y})


def replicated(stack: ExitStack, size: int) -> Callable[[], Any]:
    graph = tb.Graph()
    replicator = stack.enter_context(tb.NonReplicator())
    optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.005, 0.9))

    def step(images: Any, labels: Any) -> Any:
        loss = loss_of(images, labels)
        return loss, optimizer.minimize(loss)

    with graph.as_default():
        results = replicator.run(step, lambda: batch(size))
    session = stack.enter_context(tb.Session(graph=graph))
    replicator.init(session)
    return lambda: session.run(results)


def timed(step: Callable[[], Any], steps: int) -> float:
    started = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - started) / steps * 1e3


class Instant:
    """Source whose batches are always ready."""

    def __init__(self, inputs: list[tuple[Any, ...]]) -> None:
        self.inputs = inputs

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> BatchSource:
        for round in range(start, stop):
            for replica, arrays in enumerate(self.inputs):
                on_ready(ReadyBatch(replica, round, arrays, lambda: None))
        return self

    def close(self) -> None:
        """Nothing to end."""


def stepper_overhead(replicas: int, rounds: int, windows: int) -> dict[str, float]:
    graph = tb.Graph()
    with graph.as_default():
        images = tb.placeholder(tb.float32, [16, 8])
        weights = tb.Variable(np.zeros((8, 4), np.float32))
        loss = tb.reduce_mean(tb.square(tb.matmul(images, weights)))
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    program = tb.StepProgram((images,), loss, update, {})
    device = NullDevice("/null:0", log=LaunchLog(0))
    inputs = [(np.zeros((16, 8), np.float32),)] * replicas
    times: dict[str, list[float]] = {"run": [], "stepper": []}
    with tb.LearningEngine(program, 16, [device], replicas) as engine:
        engine.initialize({weights.op.name: np.zeros((8, 4), np.float32)})
        first = 0
        for _ in range(windows):
            started = time.perf_counter()
            engine.run(Instant(inputs).open, first, first + rounds, lambda results: None)
            times["run"].append((time.perf_counter() - started) / rounds / replicas * 1e6)
            with Stepper(engine, start=first + rounds) as stepper:
                started = time.perf_counter()
                for _ in range(rounds):
                    stepper.step(inputs)
                times["stepper"].append((time.perf_counter() - started) / rounds / replicas * 1e6)
            first += 2 * rounds
    device.close()
    return {name: statistics.median(values) for name, values in times.items()}


def chained(collectives: int) -> tb.StepProgram:
    """A small step with so many sums over all replicas, each of which needs the one before."""
    with tb.Graph().as_default():
        images = tb.placeholder(tb.float32, [16, 8])
        weights = tb.Variable(np.zeros((8, 4), np.float32), name="weights")
        outputs = tb.matmul(images, weights)
        for _ in range(collectives):
            outputs = outputs + tb.all_sum(tb.reduce_sum(outputs, axis=0)) * 0.01
        loss = tb.reduce_mean(tb.square(outputs))
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        return tb.StepProgram((images,), loss, update, {})


def collective_cost(make_device: Callable[[], Device], rounds: int, windows: int) -> float:
    """Microseconds per collective and replica, of eight replicas on one device."""
    inputs = [(np.zeros((16, 8), np.float32),)] * REPLICAS
    times: dict[int, list[float]] = {0: [], COLLECTIVES: []}
    with ExitStack() as stack:
        engines = {}
        for count in times:
            device = make_device()
            stack.callback(device.close)
            engine = tb.LearningEngine(chained(count), 16, [device], REPLICAS, tb.Synchronisation("none"))
            engines[count] = stack.enter_context(engine)
            engine.initialize({"weights": np.zeros((8, 4), np.float32)})
        for window in range(windows):
            for count, engine in engines.items():
                started = time.perf_counter()
                engine.run(Instant(inputs).open, window * rounds, (window + 1) * rounds, lambda results: None)
                times[count].append((time.perf_counter() - started) / rounds)
    pairs = zip(times[COLLECTIVES], times[0], strict=True)
    return statistics.median(some - none for some, none in pairs) / COLLECTIVES / REPLICAS * 1e6


def drawn_ahead(steps: int) -> tuple[float, float]:
    """Seconds of a step whose inputs take 0.1 s, and of the step alone, which takes about as long."""
    side, times = 1472, []
    for seconds in (INPUT_S, 0.0):

        def inputs(seconds: float = seconds) -> Iterator[Any]:
            while True:
                time.sleep(seconds)
                yield np.full((side, side), 1e-3, np.float32)

        def step(x: Any) -> Any:
            y = x
            for _ in range(2):
                y = tb.matmul(y, x)
            return tb.reduce_sum(y)

        with tb.Graph().as_default(), tb.NonReplicator() as replicator:
            training = replicator.train(step, inputs)
            for _ in range(3):
                next(training)
            times.append(timed(lambda training=training: next(training), steps) / 1e3)
            training.close()
    return times[0], times[1]


def measured(steps: int, windows: int) -> list[dict[str, Any]]:
    """Row for each kind of call: ms per step, and the ratio to the plain session in the same turn."""
    with ExitStack() as stack:
        ways = {
            PLAIN: plain(stack, tb.Session, BATCH),
            "NonReplicator": replicated(stack, BATCH),
            "TensorBowSession": plain(stack, tb.TensorBowSession, BATCH, replicas_per_device=1),
        }
        for step in ways.values():
            timed(step, 3)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for window in range(windows):
            order = list(ways)
            for name in order[window % 3 :] + order[: window % 3]:
                times[name].append(timed(ways[name], steps))
    rows = []
    for name, values in times.items():
        ratios = [ours / base for ours, base in zip(values, times[PLAIN], strict=True)]
        rows.append(
            {
                "way": name,
                "ms_per_step": round(statistics.median(values), 4),
                "ratio": round(statistics.median(ratios), 4),
                "ratios": [round(ratio, 4) for ratio in ratios],
            }
        )
    return rows


def draw(figure: Figure, result: dict[str, Any]) -> None:
    details = result["details"]
    figure.set_size_inches(WIDTH, 3)
    axes = figure.add_subplot()
    for line, row in enumerate(details["rows"]):
        window, median = ("a window", "median") if line == 0 else (None, None)
        places = [line] * len(row["ratios"])
        axes.plot(row["ratios"], places, "o", color=lighter(BLUE, 0.5), markersize=4, label=window)
        axes.plot([row["ratio"]] * 2, [line - 0.3, line + 0.3], color=BLUE, linewidth=2, label=median)
    target = details["target"]
    axes.axvline(target, color=LIMIT, linestyle="--", linewidth=1.2, label=f"to stay below: {target:g}")
    axes.set_yticks(range(len(details["rows"])), [row["way"] for row in details["rows"]])
    axes.set_ylim(len(details["rows"]) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("times the plain session's step in the same turn")
    axes.set_title(f"LeNet b={details['batch_size']}, one replica, {details['windows']} windows")
    figure.legend(loc="outside lower center", ncols=3)


def table(details: dict[str, Any]) -> Table:
    rows = [
        [
            row["way"],
            row["ms_per_step"],
            f"{row['ratio'] - 1:+.1%}",
            "yes" if row["ratio"] <= details["target"] else MISSED,
        ]
        for row in details["rows"]
    ]
    columns = ["way", "ms per step", "over the plain session", f"at most {details['target'] - 1:.0%}"]
    remarks = [f"Medians of {details['windows']} windows of {details['steps_per_window']} steps in turn."]
    for replicas, spent in details["us_per_task"].items():
        stepped, ran = spent["stepper"], spent["run"]
        remarks.append(
            f"{replicas} replicas on a null device: {stepped:g} us per task by `Stepper`, {ran:g} by `run`."
        )
    for name, spent in details["us_per_collective"].items():
        remarks.append(
            f"A collective in the step of {REPLICAS} replicas on a {name} device: {spent:g} us per replica."
        )
    both, alone = details["drawn_ahead_s"]
    remarks.append(f"A step of {alone:g} s whose inputs take {INPUT_S:g} s: {both:g} s.")
    return Table(columns, rows, remarks)


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    steps, windows, rounds = (4, 3, 50) if options.small else (12, 31, 300)
    rows = measured(steps, windows)
    us_per_task = {}
    for replicas in (1, 4):
        figures = stepper_overhead(replicas, rounds, 5)
        us_per_task[replicas] = {name: round(value, 1) for name, value in figures.items()}
    details = {
        "batch_size": BATCH,
        "steps_per_window": steps,
        "windows": windows,
        "target": TARGET,
        "rows": rows,
        "us_per_task": us_per_task,
        "us_per_collective": {
            "CPU": round(collective_cost(lambda: CpuDevice("/cpu:0"), rounds, 15), 2),
            "null": round(collective_cost(lambda: NullDevice("/null:0", log=LaunchLog(0)), rounds, 15), 2),
        },
        "drawn_ahead_s": [round(seconds, 4) for seconds in drawn_ahead(steps)],
    }
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
