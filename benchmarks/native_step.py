"""Time of each native call of a training step: the calls of a real plan, timed in the step's order.

    python benchmarks/native_step.py [--model resnet32] [--batch-size 32] [--rounds 30] [--json FILE] [--all]
        [--fastest] [--folder FOLDER]

A call is timed within the step, so that the caches hold what the calls before it left there. The peak is the
loop of `native_kernels.py`, run in turn with the steps. Contractions are shown in GFLOP/s by their definition
and as a share of the peak, other calls in GB/s read and written. Calls of the same op and shapes share a row.
Needs llvmlite.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from harness import add_devices
from native_kernels import Timed, peak
from ours import image_shape
from step_calls import multiply_adds, title, touched

import tensorbow as tb
from tensorbow.devices import StreamGroup
from tensorbow.errors import InvalidArgumentError
from tensorbow.kernels import register_backend
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.codegen.target import host_target, may_use_tiles
from tensorbow.kernels.native.plan import NativePlan
from tensorbow.models import get_model
from tensorbow.program.plan import BoundPlan, Executable, Region


class RecordingBackend(NativeBackend):
    """Native backend that keeps its plans."""

    def __init__(self, folder: Path | None, compute: str):
        target = host_target()
        tiles = compute == "bf16" and may_use_tiles(target)
        super().__init__(replace(target, compute=compute, tiles=tiles), folder)
        self.plans: list[NativePlan] = []

    def bind(
        self, executable: Executable, bases: Mapping[Region, int], group: StreamGroup, ring: int
    ) -> BoundPlan:
        started = time.perf_counter()
        plan = super().bind(executable, bases, group, ring)
        assert isinstance(plan, NativePlan)
        self.plans.append(plan)
        if len(executable.segments[0].groups) > 10:
            print(f"compiled and bound in {time.perf_counter() - started:.3f} s")
        return plan


@dataclass
class TimedCalls:
    """Calls of one kind: the duration of each in seconds, round by round."""

    name: str
    operations: float  # floating-point, of a contraction
    nbytes: int
    calls: list[list[float]] = field(default_factory=list)
    duration_us: float = 0.0  # of all calls of a step together


def plan_of_step(
    model: str, batch_size: int, folder: Path | None, compute: str
) -> tuple[tb.Session, NativePlan]:
    """Plan of a session's training step, after some runs. Raises InvalidArgumentError for unknown models."""
    network, shape = get_model(model), image_shape(model)
    backend = RecordingBackend(folder, compute)
    register_backend("cpu", backend)
    images = tb.placeholder(tb.float32, [batch_size, *shape])
    labels = tb.placeholder(tb.int64, [batch_size])
    outputs = network(images, labels, training=True, classes=10)
    train = tb.train.MomentumOptimizer(0.01, 0.9).minimize(outputs.loss)
    session = tb.Session()
    session.run(tb.global_variables_initializer())
    generator = np.random.default_rng(0)
    feeds = {
        images: generator.standard_normal((batch_size, *shape)).astype(np.float32),
        labels: generator.integers(0, 10, batch_size),
    }
    for _ in range(3):
        session.run([outputs.loss, train], feeds)
    return session, backend.plans[-1]


def measure(
    plan: NativePlan, best: Timed, rounds: int, typical: Callable[[list[float]], float]
) -> tuple[list[TimedCalls], float, float]:
    """Rows, peak in operations per second, and duration of a whole step in seconds."""
    rows: dict[str, TimedCalls] = {}
    calls = []
    for number, segment in enumerate(plan.executable.segments):
        for group, call in zip(segment.groups, plan._one_by_one(number), strict=True):
            row = rows.setdefault(title(group), TimedCalls(title(group), 0, 0))
            row.operations += 2.0 * multiply_adds(group)
            row.nbytes += touched(group)
            durations: list[float] = []
            row.calls.append(durations)
            calls.append((call, durations))
    peaks, steps = [], []
    for _ in range(rounds):
        peaks.append(best.rate())
        for call, durations in calls:
            started = time.perf_counter()
            call()
            durations.append(time.perf_counter() - started)
        started = time.perf_counter()
        for number in range(len(plan.executable.segments)):
            plan.launch(number)
        steps.append(time.perf_counter() - started)
    for row in rows.values():
        row.duration_us = 1e6 * sum(map(typical, row.calls))
    return list(rows.values()), 1 / typical([1 / rate for rate in peaks]), typical(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_devices(parser, "native_step", "its calls are native code")
    parser.add_argument("--model", default="resnet32", help="name of the model")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--compute", choices=("fp32", "bf16"), default="fp32", help="precision of products")
    parser.add_argument("--rounds", type=int, default=30, help="number of steps")
    parser.add_argument("--folder", type=Path, help="cache folder of compiled code; default: compile anew")
    parser.add_argument("--fastest", action="store_true", help="show minima, not medians: for a busy machine")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--all", action="store_true", help="also show rows of less than 1 %% of the step")
    options = parser.parse_args()
    try:
        session, plan = plan_of_step(options.model, options.batch_size, options.folder, options.compute)
    except InvalidArgumentError as error:
        parser.error(str(error))
    with session:
        typical = min if options.fastest else statistics.median
        rows, rate, step = measure(plan, peak(host_target()), options.rounds, typical)
    total = sum(row.duration_us for row in rows)
    print(f"{'call':75} {'times':>5} {'us':>9}  {'rate':>24} {'share':>6}")
    for row in sorted(rows, key=lambda row: -row.duration_us):
        share = row.duration_us / total
        if share < 0.01 and not options.all:
            continue
        if row.operations:
            speed = row.operations / row.duration_us * 1e6
            text = f"{speed / 1e9:7.1f} GFLOP/s = {speed / rate:4.2f}"
        else:
            text = f"{row.nbytes / row.duration_us / 1e3:7.1f} GB/s"
        print(f"{row.name[:75]:75} {len(row.calls):5} {row.duration_us:9.1f}  {text:>24} {share:6.1%}")
    operations = sum(row.operations for row in rows)
    contracting = sum(row.duration_us for row in rows if row.operations)
    print(
        f"{options.model} b={options.batch_size}: calls {total:.1f} us, step {step * 1e6:.1f} us, "
        f"{options.batch_size / step:.0f} images/s; peak {rate / 1e9:.1f} GFLOP/s, the step's limit "
        f"{1e6 * operations / rate:.1f} us; {contracting / total:.1%} of the calls' time is in contractions"
    )
    if options.json:
        table = [
            {"call": row.name, "times": len(row.calls), "us": row.duration_us, "gflop": row.operations / 1e9}
            | {"mbytes": row.nbytes / 1e6}
            for row in rows
        ]
        described = {"model": options.model, "batch_size": options.batch_size, "peak_gflops": rate / 1e9}
        described |= {"step_ms": step * 1e3, "rows": table}
        options.json.write_text(json.dumps(described, indent=1) + "\n")


if __name__ == "__main__":
    main()
