"""Kinds of arguments of engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from scheduler.averaging.transport import Transport
from scheduler.workers.group import WorkerGroup
from tensorbow.kinds import instance, sequence, whole
from tensorbow.optimizers import Schedule
from tensorbow.specs import TensorSpec

AsSchedule: TypeAlias = Annotated[Schedule, instance(Schedule, expected="a schedule of tb.train")]
AsTransport: TypeAlias = Annotated[Transport, instance(Transport, expected="a transport of exchanges")]
AsWorkers: TypeAlias = Annotated[WorkerGroup, instance(WorkerGroup, expected="what tb.worker_group() gives")]
Ahead: TypeAlias = Annotated[int, whole(1, 64)]
Steps: TypeAlias = Annotated[int, whole(1, 4096)]
_SPECS = sequence(
    instance(TensorSpec, expected="a tb.TensorSpec"), "a tb.TensorSpec for each input, in a list"
)
Specs: TypeAlias = Annotated[Sequence[TensorSpec], _SPECS]
Shapes: TypeAlias = Annotated[int | Sequence[TensorSpec], whole(1, (1 << 31) - 1) | _SPECS]
ShapesOfAll: TypeAlias = Annotated[
    Sequence[Sequence[TensorSpec]], sequence(_SPECS, "a list of specs for each program")
]
