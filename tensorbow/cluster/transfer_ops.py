"""Ops by which the parts of a dynamic step send values to the tasks of other parts, as host functions.

White paper, section 3.2.2: a Send on the task that makes a value, a Receive on the one that reads it. They
find their run by `RUN` among the objects of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tensorbow.errors import InternalError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec

RUN = "run of a part"


class RunOfPart(Protocol):
    """A run of a task's part of a step."""

    def send(self, task: str, key: str, value: Array) -> None:
        """Sends a value to another task's part."""

    def receive(self, key: str, done: Callable[[Array], None]) -> None:
        """Calls `done` with a value once it has come."""


def _run(call: HostCall) -> RunOfPart:
    def missing() -> RunOfPart:
        raise InternalError(f"{call.name}: it is in no step of a cluster")

    run: RunOfPart = call.step.get(RUN, missing)
    return run


def _send(call: HostCall) -> list[Array]:
    _run(call).send(call.attrs["to"], call.attrs["key"], call.inputs[0])
    return []


def _receive(call: HostCall) -> None:
    _run(call).receive(call.attrs["key"], lambda value: call.done([value]))


def _received_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(attrs["shape"], attrs["dtype"])


Send = define_op(
    "SendToTask",
    spec=lambda inputs, attrs: (),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("tensor",),
    attrs={"to": REQUIRED, "key": REQUIRED},
    host=_send,
    stateful=True,
    strings=True,
    doc="Sends a value to another task of a cluster.",
)
Receive = define_op(
    "ReceiveFromTask",
    spec=_received_spec,
    gradient=NOT_DIFFERENTIABLE,
    attrs={"key": REQUIRED, "dtype": REQUIRED, "shape": None},
    host=_receive,
    asynchronous=True,
    stateful=True,
    strings=True,
    doc="Waits for a value of another task of a cluster.",
)
