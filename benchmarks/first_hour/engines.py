"""Engines on GPUs for the stages: replicas of a model, on made-up pictures kept on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ours import Training, training_window
from replica_modes import MODES, Ways, missing

from first_hour.records import NotThereError, Recorder
from scheduler.averaging.synchronisers import UPDATE
from tensorbow.devices import GpuDevice
from tensorbow.kernels.gpu.plan import GpuPlan
from tensorbow.program.plan import Group


def split(case: str) -> tuple[str, int]:
    """Model and batch size of a case such as lenet:16."""
    model, _, batch_size = case.partition(":")
    return model, int(batch_size)


@contextmanager
def training(
    case: str, devices: Sequence[GpuDevice], replicas: int, ways: Ways, sync: str = "sma"
) -> Iterator[Training]:
    """Replicas of a case in training. Raises NotThereError for a mode that this version does not have."""
    if ways.missing:
        raise NotThereError(ways.missing)
    model, batch_size = split(case)
    with ways.building():
        opened = training_window(
            model, batch_size, replicas, sync=sync, devices=tuple(devices), **ways.options()
        )
    with opened:
        yield opened


def plans_of(trained: Training) -> list[GpuPlan]:
    """Bound plans of the replicas' steps."""
    return [replica.binding.plan for replica in trained.engine.learners.replicas]


def segments_of(plan: GpuPlan) -> Sequence[int]:
    """Numbers of the segments of a step that updates its own weights."""
    return plan.executable.variants[UPDATE]


def calls_of(plan: GpuPlan, segment: int) -> Iterator[tuple[Group, Callable[[], None], bool]]:
    """Calls of a segment in order: op, call, and whether it can be captured."""
    for piece in plan._pieces[segment]:
        for group, call in zip(piece.groups, piece.calls, strict=False):  # calls that gather fetches follow
            yield group, call, not piece.reason


def captured_graphs(plan: GpuPlan) -> list[int]:
    """Graphs of a replica's own step: it runs once call by call, which captures need, then is captured."""
    for _ in range(2):
        for segment in segments_of(plan):
            plan.launch(segment)
    return [piece.graph for segment in segments_of(plan) for piece in plan._pieces[segment] if piece.graph]


def state_of(trained: Training) -> dict[str, Any]:
    """Everything that a checkpoint keeps of the replicas."""
    return trained.engine.learners.values.state_arrays()


def known_modes(recorder: Recorder) -> None:
    """Part: the replica modes of this version."""

    def check(mode: str) -> None:
        if missing(mode):
            raise NotThereError(missing(mode))

    for mode in MODES:
        recorder.check(f"mode {mode}", partial(check, mode), needs_s=0.0)
