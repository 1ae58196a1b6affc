"""Exchanges: ops with one value per replica, in which the replicas of a step meet.

Each replica hands in a tensor of the same shape and dtype; the result is the same on all of them
(TF-Replicator, 2019, section 3.3). A kernel gets the values of its device's replicas, in their order, and
joins them; then the devices exchange what they have. In a step of one replica, as a session runs it, an
exchange joins one value. All replicas that take part run the same steps in the same order. Users call them
through `collectives`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, Kernel, KernelCall, Operation, Tensor
from tensorbow.ops.broadcasting import zeros_like
from tensorbow.ops.definition import define_op
from tensorbow.ops.elementwise import equal
from tensorbow.ops.indexing import gather
from tensorbow.ops.selection import select
from tensorbow.specs import TensorSpec, bool_, compatible, int32

CHUNK = 1 << 15  # elements per pass, so that they stay in the cache for the next pass


def _common(inputs: Sequence[TensorSpec]) -> TensorSpec:
    first = inputs[0]
    for other in inputs[1:]:
        if other.dtype != first.dtype or not compatible(other.shape, first.shape):
            raise InvalidArgumentError(
                f"exchange: expected the same shape and dtype of every replica, got {first} and {other}"
            )
    return TensorSpec(first.shape, first.dtype)


def _sum_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    if inputs[0].dtype == bool_:
        raise InvalidArgumentError("all_sum: expected numbers, got bool; use tb.cast")
    return _common(inputs)


def _gather_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    spec = _common(inputs)
    return TensorSpec((attrs["replicas"], *spec.dims), spec.dtype)


def _broadcast_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return _common(inputs)


def _prepare_sum(call: KernelCall) -> Callable[[], None]:
    arrays = [*call.outputs, *call.inputs]
    pieces = [arrays]
    if all(array.flags.c_contiguous for array in arrays):
        starts = range(0, arrays[0].size, CHUNK)
        pieces = [[array.reshape(-1)[start : start + CHUNK] for array in arrays] for start in starts]

    def step() -> None:
        for total, first, *others in pieces:
            np.copyto(total, first)
            for other in others:
                np.add(total, other, out=total)

    return step


def _gather(call: KernelCall) -> None:
    for row, value in enumerate(call.inputs, call.attrs["first"]):
        call.outputs[0][row] = value


def _broadcast(call: KernelCall) -> None:
    index = call.attrs["source"] - call.attrs["first"]
    if 0 <= index < len(call.inputs):
        np.copyto(call.outputs[0], call.inputs[index])


def _read_replica(call: KernelCall) -> None:
    call.outputs[0][...] = call.state["replica"]


ReplicaId = define_op(
    "ReplicaId",
    spec=lambda inputs, attrs: TensorSpec((), int32),
    gradient=NOT_DIFFERENTIABLE,
    kernel=_read_replica,
    state=("replica",),
    stateful=True,
    doc="The number of the replica that runs the step, from 0.",
)


def _sum_gradient(op: Operation, gradient: Tensor) -> list[Tensor]:
    return [AllSum(gradient)] * len(op.inputs)


def _gather_gradient(op: Operation, gradient: Tensor) -> list[Tensor]:
    return [gather(AllSum(gradient), ReplicaId())]


def _broadcast_gradient(op: Operation, gradient: Tensor) -> list[Tensor]:
    total = AllSum(gradient)
    return [select(equal(ReplicaId(), op.attrs["source"]), total, zeros_like(total))]


AllSum = define_op(
    "AllSum",
    spec=_sum_spec,
    gradient=_sum_gradient,
    inputs=("*values",),
    kernel=Kernel(prepare=_prepare_sum),
    exchange=True,
    doc="The sum over all replicas, in their order within a device, then in the order of the devices.",
)
AllGather = define_op(
    "AllGather",
    spec=_gather_spec,
    gradient=_gather_gradient,
    inputs=("*values",),
    attrs={"replicas": None, "first": 0},  # set when a step is compiled for a number of replicas
    kernel=_gather,
    exchange=True,
    doc="The values of all replicas, [replicas, ...]; row `first` is that of the device's first replica.",
)
Broadcast = define_op(
    "Broadcast",
    spec=_broadcast_spec,
    gradient=_broadcast_gradient,
    inputs=("*values",),
    attrs={"source": 0, "first": 0},
    kernel=_broadcast,
    exchange=True,
    doc="The value of replica `source`; `first` is the device's first replica.",
)
