"""Shapes that a program states or derives: ensure_shape, and the shapes that two shapes broadcast to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, KernelCall, Tensor
from tensorbow.kinds import AsShape, Name, checked
from tensorbow.ops.argument_kinds import Extents
from tensorbow.ops.broadcasting import as_shape_vector, dims_of_vector
from tensorbow.ops.definition import define_op, require_same_dtype
from tensorbow.specs import Array, TensorShape, TensorSpec, broadcast_dims, compatible, render_dims

__all__ = ["broadcast_dynamic_shape", "broadcast_static_shape", "ensure_shape"]


# Stated shapes ------------------------------------------------------------------------------------------


def _ensured_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,), stated = inputs, attrs["shape"]
    if not compatible(x.shape, stated):
        raise InvalidArgumentError(
            f"EnsureShape: expected a tensor of shape {render_dims(stated)}, got {x}; feed that shape, or "
            "correct the stated one"
        )
    if x.shape is None or stated is None:
        return TensorSpec(stated if x.shape is None else x.shape, x.dtype, x.value)
    both = [own if other is None else other for own, other in zip(x.shape, stated, strict=True)]
    return TensorSpec(tuple(both), x.dtype, x.value)


EnsureShape = define_op(
    "EnsureShape",
    spec=_ensured_spec,
    gradient=lambda op, g: [g],
    inputs=("input",),
    attrs={"shape": REQUIRED},
    alias=((0, 0),),
    strings=True,
    doc="The input, whose shape fits `shape`.",
)


@checked
def ensure_shape(x: Any, shape: AsShape, name: Name = None) -> Tensor:
    """`x`, with what `shape` says of extents that are unknown; None in it stands for any extent.

    Unlike `set_shape`, it checks: another shape raises InvalidArgumentError, at run time where it is not
    known before.
    """
    return EnsureShape.tensor(x, shape=TensorShape(shape).dims, name=name)


# Shapes of broadcasts -----------------------------------------------------------------------------------


def _broadcast_of(op: str, first: Sequence[int | None], second: Sequence[int | None]) -> Any:
    try:
        return broadcast_dims(tuple(first), tuple(second))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{op}: {error}") from None


@checked
def broadcast_static_shape(shape_x: AsShape, shape_y: AsShape) -> TensorShape:
    """The static shape of a result of two tensors of these static shapes, by NumPy's rule.

    Raises InvalidArgumentError for shapes that do not broadcast.
    """
    first, second = TensorShape(shape_x).dims, TensorShape(shape_y).dims
    if first is None or second is None:
        return TensorShape(None)
    return TensorShape(_broadcast_of("broadcast_static_shape", first, second))


def _broadcast_args_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dtype = require_same_dtype("BroadcastArgs", inputs)
    first, second = (dims_of_vector("BroadcastArgs", each) for each in inputs)
    if first is None or second is None:
        return TensorSpec((None,), dtype)
    rank = max(len(first), len(second))
    if inputs[0].value is None or inputs[1].value is None:
        return TensorSpec((rank,), dtype)
    return TensorSpec((rank,), dtype, _extents(inputs[0].value, inputs[1].value))


def _extents(first: Array, second: Array) -> Array:
    return np.array(_broadcast_of("BroadcastArgs", first.tolist(), second.tolist()), first.dtype)


def _broadcast_args_kernel(call: KernelCall) -> None:
    call.outputs[0][...] = _extents(*call.inputs)


BroadcastArgs = define_op(
    "BroadcastArgs",
    spec=_broadcast_args_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=_broadcast_args_kernel,
    inputs=("s0", "s1"),
    why_cpu="shapes are known to the host",
    doc="The shape, a vector, that two shapes broadcast to.",
)


@checked
def broadcast_dynamic_shape(shape_x: Extents, shape_y: Extents, name: Name = None) -> Tensor:
    """The shape, int32 or int64 [rank], that two shapes broadcast to, lists or vectors of one dtype.

    Shapes that do not broadcast raise InvalidArgumentError, at run time where they are not known before.
    """
    return BroadcastArgs.tensor(as_shape_vector(shape_x), as_shape_vector(shape_y), name=name)
