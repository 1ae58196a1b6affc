"""What a step costs through a Replicator or a TensorBowSession, against the plain session, in one run.

    python benchmarks/replicator_overhead.py [--batch-size 16] [--steps 12] [--windows 15] [--json FILE]

One replica trains LeNet on made-up pictures, in turns: windows of so many steps by `session.run` of the plain
session, of a NonReplicator's result, and of a TensorBowSession of one replica. Given are medians over windows
of the time per step, and the median over windows of each pair's ratio, so that a drift of the machine goes
out. A second table holds a `Stepper` against `LearningEngine.run` on the null device, which computes nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import tensorbow as tb
from scheduler import BatchSource, ReadyBatch, Stepper
from tensorbow.devices import LaunchLog, NullDevice

TARGET = 1.03


def batch(size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(size, 28, 28, 1)).astype(np.float32), rng.integers(0, 10, size)


def loss_of(images: Any, labels: Any) -> Any:
    return tb.models.LeNet().heads(images, labels, 10).loss


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
    """A source whose batches are all there at once."""

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--windows", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        ways = {
            "plain session": plain(stack, tb.Session, arguments.batch_size),
            "NonReplicator": replicated(stack, arguments.batch_size),
            "TensorBowSession": plain(
                stack, tb.TensorBowSession, arguments.batch_size, replicas_per_device=1
            ),
        }
        for step in ways.values():
            timed(step, 3)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for window in range(arguments.windows):
            order = list(ways)
            for name in order[window % 3 :] + order[: window % 3]:
                times[name].append(timed(ways[name], arguments.steps))
    report: dict[str, Any] = {"batch_size": arguments.batch_size, "ms_per_step": {}, "ratio": {}}
    for name, values in times.items():
        ratios = [ours / base for ours, base in zip(values, times["plain session"], strict=True)]
        report["ms_per_step"][name] = round(statistics.median(values), 3)
        report["ratio"][name] = round(statistics.median(ratios), 4)
        verdict = "" if statistics.median(ratios) <= TARGET else f"  over the target of {TARGET}"
        print(f"{name:18} {statistics.median(values):8.3f} ms  {statistics.median(ratios):.4f}{verdict}")
    report["us_per_task"] = {}
    for replicas in (1, 4):
        figures = stepper_overhead(replicas, 300, 5)
        report["us_per_task"][replicas] = {name: round(value, 1) for name, value in figures.items()}
        print(f"{replicas} replicas: " + ", ".join(f"{n} {v:.1f} us per task" for n, v in figures.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
