"""What the scheduler and dispatch cost per learning task: the whole engine on the null device.

    python benchmarks/scheduler_overhead.py [--rounds 1000] [--windows 7] [--json FILE]

The null device takes every launch, record and wait and computes nothing, so all that is left is the host's
share: state machine, inbox, enqueueing, events, results. The yardstick, measured in turns with it, is a
bare stream that is given the same two launches and one event in a loop. All of it runs in one thread, whose
processor time is what is counted. The table gives medians.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tensorbow as tb
from scheduler import BatchSource, LearningEngine, ReadyBatch, StepProgram, Synchronisation
from tensorbow.devices import LaunchLog, NullDevice

# (devices, replicas per device, sync)
CASES = [(1, k, sync) for k in (1, 2, 4, 8) for sync in ("sma", "none")] + [(2, 4, "sma")]
TARGET_US = 100.0

Window = Callable[[int], float]
"""Runs so many rounds; returns microseconds per task."""


class InstantBatches:
    """A source whose batches are all there at once."""

    def __init__(self, arrays: tuple[Any, ...], replicas: int) -> None:
        self.arrays, self.replicas = arrays, replicas

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> BatchSource:
        for round in range(start, stop):
            for replica in range(self.replicas):
                on_ready(ReadyBatch(replica, round, self.arrays, self._release))
        return self

    def _release(self) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to end."""


def engine_window(devices: int, per_device: int, sync: str) -> Window:
    graph = tb.Graph()
    with graph.as_default():
        images = tb.placeholder(tb.float32, [16, 8], name="images")
        weights = tb.Variable(np.zeros((8, 4), np.float32), name="weights")
        loss = tb.reduce_mean(tb.square(tb.matmul(images, weights)))
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    log = LaunchLog(0)
    engine = LearningEngine(
        StepProgram((images,), loss, update, {}),
        [tb.TensorSpec((16, 8), tb.float32)],
        [NullDevice(f"/null:{index}", log=log) for index in range(devices)],
        per_device,
        Synchronisation(sync),
        tb.train.Constant(0.1),
    )
    engine.learners.initialize({"weights": np.zeros((8, 4), np.float32)})
    replicas = devices * per_device
    batches = InstantBatches((np.zeros((16, 8), np.float32),), replicas)
    position = 0

    def window(rounds: int) -> float:
        nonlocal position
        started = time.thread_time()
        position = engine.run(batches.open, position, position + rounds)
        return (time.thread_time() - started) / (rounds * replicas) * 1e6

    return window


def bare_window() -> Window:
    stream = NullDevice("/null:0", log=LaunchLog(0)).new_stream("bare")

    def nothing() -> None:
        pass

    def window(rounds: int) -> float:
        started = time.thread_time()
        for _ in range(rounds):
            stream.enqueue(nothing, label="gradient")
            stream.enqueue(nothing, label="update")
            stream.record()
        return (time.thread_time() - started) / rounds * 1e6

    return window


def measure(windows: dict[Any, Window], rounds: int, repeats: int) -> dict[Any, float]:
    for window in windows.values():
        window(max(1, rounds // 10))  # warm up
    costs: dict[Any, list[float]] = {name: [] for name in windows}
    for _ in range(repeats):
        for name, window in windows.items():
            costs[name].append(window(rounds))
    return {name: statistics.median(values) for name, values in costs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000, help="rounds of a window")
    parser.add_argument("--windows", type=int, default=7, help="windows per case")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    windows: dict[Any, Window] = {"bare": bare_window()}
    windows |= {case: engine_window(*case) for case in CASES}
    costs = measure(windows, options.rounds, options.windows)
    bare = costs.pop("bare")
    print(f"bare stream: two launches and an event   {bare:6.2f} us")
    rows = []
    for (devices, per_device, sync), cost in costs.items():
        row = {"devices": devices, "replicas_per_device": per_device, "sync": sync}
        rows.append({**row, "us_per_task": round(cost, 2), "ratio_to_bare": round(cost / bare, 2)})
        layout = f"{devices} x {per_device} replicas, {sync}"
        print(f"{layout:24} {cost:21.2f} us per task, {cost / bare:5.1f} x bare")
    worst = max(costs.values())
    print(f"worst case {worst:.1f} us per task; the target is well under {TARGET_US:.0f} us")
    if options.json is not None:
        described = {"machine": f"{platform.machine()} {platform.processor()}".strip()}
        described |= {"python": platform.python_version(), "numpy": np.__version__}
        figures = {**described, "bare_us": round(bare, 3), "target_us": TARGET_US, "rows": rows}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
