"""Ops by which the parts of a dynamic step send values to the tasks of other parts, as host functions.

White paper, section 3.2.2: a Send on the task that makes a value, a Receive on the one that reads it. They
find their run by `RUN` among the objects of the step. In loops each iteration has a key of its own, and where
a branch is not taken it is sent that there is no value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tensorbow.errors import InternalError
from tensorbow.graph import DEAD, NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec, float32

RUN = "run of a part"
NOTHING = np.zeros((), np.float32)  # is sent where only the end of an op counts, or that it has run


class RunOfPart(Protocol):
    """A run of a task's part of a step. A value may be DEAD: there is none."""

    def send(self, task: str, key: str, value: Any) -> None:
        """Sends a value to another task's part."""

    def receive(self, key: str, done: Callable[[Any], None]) -> None:
        """Calls `done` with a value once it has come."""


def _run(call: HostCall) -> RunOfPart:
    def missing() -> RunOfPart:
        raise InternalError(f"{call.name}: it is in no step of a cluster")

    run: RunOfPart = call.step.get(RUN, missing)
    return run


def _key(call: HostCall) -> str:
    """The key of a value in the iterations that the call is in."""
    key: str = call.attrs["key"]
    return f"{key} in {','.join(map(str, call.iterations))}" if call.iterations else key


def _send(call: HostCall) -> list[Array]:
    value: Any = NOTHING
    if any(each is DEAD for each in call.inputs):
        value = DEAD
    elif not call.attrs["signal"]:
        value = call.inputs[0]
        if call.attrs["lossy"]:
            value = narrowed(value)
    _run(call).send(call.attrs["to"], _key(call), value)
    return []


def _receive(call: HostCall) -> None:
    def take(value: Any) -> None:
        lossy = call.attrs["lossy"] and value is not DEAD
        call.done([widened(value) if lossy else value])

    _run(call).receive(_key(call), take)


def narrowed(value: Array) -> Array:
    """The upper 16 bits of each float32 (white paper, section 5.5)."""
    bits = np.ascontiguousarray(value).view(np.uint32) >> 16
    halves: Array = bits.astype(np.uint16).reshape(value.shape)
    return halves


def widened(halves: Array) -> Array:
    """float32 of upper 16 bits, with zeros below."""
    value: Array = np.left_shift(halves, 16, dtype=np.uint32).view(np.float32)
    return value


def _received_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(attrs["shape"], attrs["dtype"])


# signal: no value is sent, only that the input has been computed, or, without one, that the op has run.
# lossy: float32 is sent as its upper 16 bits.
Send = define_op(
    "SendToTask",
    spec=lambda inputs, attrs: (),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("*tensor",),
    attrs={"to": REQUIRED, "key": REQUIRED, "signal": False, "lossy": False},
    host=_send,
    flow="send",
    stateful=True,
    strings=True,
    doc="Sends a value to another task of a cluster, also that there is none.",
)
# conditions: those under which the sender has a value, see `condition_name`. after: the names of Sends of its
# part, in its frame, that must have run before the value can come.
Receive = define_op(
    "ReceiveFromTask",
    spec=_received_spec,
    gradient=NOT_DIFFERENTIABLE,
    attrs={
        "key": REQUIRED,
        "sender": REQUIRED,
        "dtype": float32,
        "shape": None,
        "lossy": False,
        "conditions": (),
        "after": (),
    },
    host=_receive,
    flow="receive",
    asynchronous=True,
    stateful=True,
    strings=True,
    doc="Waits for a value of another task of a cluster.",
)
