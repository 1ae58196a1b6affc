"""Kernel launches of a bound training step on an emulated GPU, by op.

python -m tests.gpu_rig.launch_counts MODEL BATCH_SIZE prints the table.

A launch is one of an own kernel, one call of cuBLAS or cuDNN, one copy or one fill.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler import LearningEngine
from scheduler.averaging.synchronisers import averaging
from tensorbow.devices import GpuDevice
from tensorbow.kernels.gpu.plan import GpuPlan
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import emulated_runtime
from tests.scheduler_rig.running import engine_of

ENQUEUED = ("launch", "gemm", "convolution", "copy", "fill")


@dataclass
class LaunchCounts:
    """Launches of one learning task of a replica, by op and kernel, and of one averaging, per device."""

    task: Counter[tuple[str, str]] = field(default_factory=Counter)
    averaging: Counter[tuple[str, str]] = field(default_factory=Counter)


def count_launches(name: str, batch_size: int, replicas: int = 2) -> LaunchCounts:
    """Counts those of a model of `tensorbow.models` that replicas on one GPU train, averaged every round."""
    with emulated_runtime() as runtime:
        device = GpuDevice("/gpu:0", runtime)
        with engine_of(classifier(name, batch_size), [device], replicas) as engine:
            return _of_engine(runtime, engine)


def _of_engine(runtime: EmulatedCuda, engine: LearningEngine) -> LaunchCounts:
    learners, counts = engine.learners, LaunchCounts()
    replica, (central,) = learners.replicas[0], learners.central
    segments = replica.step.variants[averaging(0)]
    for plan, found in ((replica.binding.plan, counts.task), (central._binding.plan, counts.averaging)):
        assert isinstance(plan, GpuPlan)
        for segment in segments:
            found.update(launches_of_segment(runtime, plan, segment))
    return counts


def launches_of_segment(runtime: EmulatedCuda, plan: GpuPlan, segment: int) -> Counter[tuple[str, str]]:
    """Launches of a plan's segment by (op, kernel); nothing runs."""
    found: Counter[tuple[str, str]] = Counter()
    for piece in plan._pieces[segment]:
        names = [group.definition.name for group in piece.groups]
        names += ["fetches"] * (len(piece.calls) - len(names))
        for op, call in zip(names, piece.calls, strict=True):
            found.update((op, kernel) for kernel in enqueued_by(runtime, plan.stream, call))
    return found


def enqueued_by(runtime: EmulatedCuda, stream: int, call: Callable[[], None]) -> list[str]:
    """Work that a prepared call enqueues, captured instead of run: kernels by name, the rest by kind."""
    runtime.begin_capture(stream)
    before = len(runtime.log)
    call()
    log = list(runtime.log)[before:]
    runtime.destroy_graph(runtime.end_capture(stream))
    return [entry.name if entry.kind == "launch" else entry.kind for entry in log if entry.kind in ENQUEUED]


def main(name: str, batch_size: int) -> None:
    """Prints the table."""
    counts = count_launches(name, batch_size)
    for title, found in (("task", counts.task), ("averaging", counts.averaging)):
        print(f"{title}: {found.total()}")
        for (op, kernel), count in sorted(found.items(), key=lambda item: -item[1]):
            print(f"{count:6} {op:32} {kernel}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
