"""Shape and Size, and BroadcastTo and SumTo, which are each other's gradients.

`Shape` and `Size` never read their input: they fold to constants once shapes are known, so a
gradient that asks for `shape(x)` does not keep x alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, KernelCall, Operation, Tensor, as_tensor
from tensorbow.kinds import AsDType, Name, checked, is_tensor
from tensorbow.ops.argument_kinds import Extents
from tensorbow.ops.constant import constant, make_constant
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.specs import (
    Array,
    Dims,
    DType,
    TensorSpec,
    as_dims,
    int32,
    int64,
    render_dims,
)

__all__ = [
    "broadcast_to",
    "ones_like",
    "shape",
    "size",
    "zeros_like",
]

INDEX = (int32, int64)
MOST_AXES = 32  # NumPy's limit in all supported versions


def dims_of_vector(op: str, vector: TensorSpec, what: str = "shape", open_extents: str = "") -> Dims | None:
    """Static shape given by a shape vector: its value, or as many unknown dimensions as it has elements.

    open_extents: meaning of an entry -1, which becomes None; without it -1 is refused.
    Raises InvalidArgumentError unless it is an integer vector of at most 32 extents of at least 0.
    """
    require_dtype(op, vector, INDEX, what)
    if vector.shape is None:
        return None
    if len(vector.shape) != 1:
        raise InvalidArgumentError(f"{op}: {what} is {vector}, expected a vector, as in [2, 3]")
    length = vector.shape[0]
    if length is not None and length > MOST_AXES:
        raise InvalidArgumentError(
            f"{op}: {what} has {length} entries, expected at most {MOST_AXES}, one per axis; join axes"
        )
    if vector.value is None:
        return None if length is None else (None,) * length
    extents = vector.value.tolist()
    for index, extent in enumerate(extents):
        if extent < (-1 if open_extents else 0):
            expected = f"0, or -1 for {open_extents}" if open_extents else "0"
            raise InvalidArgumentError(
                f"{op}: {what} is {extents}, expected entries of at least {expected}, got {extent} at index "
                f"{index}; give a number, or tb.shape(x)[i] for one that comes with the feeds"
            )
    return as_dims(extents)


def checked_axis(op: str, axis: int, rank: int) -> int:
    """`axis` as a non-negative number. Raises InvalidArgumentError unless it is in [-rank, rank)."""
    if not -rank <= axis < rank:
        remedy = "count axes from 0, or backwards from -1" if rank else "a scalar has no axes"
        raise InvalidArgumentError(f"{op}: axis {axis} is not in [{-rank}, {rank}); {remedy}")
    return axis % rank


def as_shape_vector(value: Any) -> Any:
    """A shape argument in the form that ops take: a list of numbers becomes an int32 vector."""
    return (
        make_constant(value, int32) if isinstance(value, list) and not any(map(is_tensor, value)) else value
    )


# Shape and Size ---------------------------------------------------------------------------------


def _shape_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dtype = attrs["out_type"]
    require_dtype("Shape", TensorSpec((), dtype), INDEX, "out_type")
    dims = inputs[0].shape
    if dims is None:
        return TensorSpec((None,), dtype)
    value = _numbers("Shape", inputs[0], inputs[0].extents, dtype) if inputs[0].is_static else None
    return TensorSpec((len(dims),), dtype, value)


def _numbers(op: str, x: TensorSpec, numbers: tuple[int, ...] | int, dtype: DType) -> Array:
    """Extents, or their product, as an array. Raises InvalidArgumentError if the dtype cannot hold them."""
    largest = max((numbers,) if isinstance(numbers, int) else numbers, default=0)
    if largest > np.iinfo(dtype.as_numpy_dtype).max:
        raise InvalidArgumentError(
            f"{op}: the {largest} of {x} is more than {dtype.name} holds; use smaller extents, or "
            "out_type=tb.int64"
        )
    return np.array(numbers, dtype.as_numpy_dtype)


def _shape_kernel(call: KernelCall) -> None:
    call.outputs[0][...] = call.inputs[0].shape


def _size_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dtype = attrs["out_type"]
    require_dtype("Size", TensorSpec((), dtype), INDEX, "out_type")
    value = _numbers("Size", inputs[0], inputs[0].size, dtype) if inputs[0].is_static else None
    return TensorSpec((), dtype, value)


def _size_kernel(call: KernelCall) -> None:
    call.outputs[0][...] = call.inputs[0].size


Shape = define_op(
    "Shape",
    spec=_shape_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=_shape_kernel,
    inputs=("input",),
    attrs={"out_type": int32},
    strings=True,
)
Size = define_op(
    "Size",
    spec=_size_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=_size_kernel,
    inputs=("input",),
    attrs={"out_type": int32},
    strings=True,
)


@checked
def shape(input: Any, name: Name = None, out_type: AsDType = int32) -> Tensor:
    """The shape of `input`, a tensor or `tb.SparseTensor`, as an integer vector `[rank]`."""
    if type(input) is not Tensor and hasattr(input, "_extents"):
        result: Tensor = input._extents(name, out_type)
        return result
    return Shape.tensor(input, out_type=out_type, name=name)


@checked
def size(input: Any, name: Name = None, out_type: AsDType = int32) -> Tensor:
    """The number of elements of `input`, a scalar; of a `tb.SparseTensor` zeros count, too."""
    if type(input) is not Tensor and hasattr(input, "_size"):
        result: Tensor = input._size(name, out_type)
        return result
    return Size.tensor(input, out_type=out_type, name=name)


# BroadcastTo and SumTo --------------------------------------------------------------------------


def _broadcast_to_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    x, target = inputs
    wanted = dims_of_vector("BroadcastTo", target)
    if wanted is None or x.shape is None or target.value is None:
        return TensorSpec(wanted, x.dtype)
    _check_broadcasts("BroadcastTo", x.dims, wanted)
    return TensorSpec(wanted, x.dtype)


def _check_broadcasts(op: str, small: Dims, large: Dims) -> None:
    fits = len(small) <= len(large) and all(
        s is None or t is None or s in (1, t)
        for s, t in zip(small, large[len(large) - len(small) :], strict=True)
    )
    if not fits:
        raise InvalidArgumentError(
            f"{op}: shape {render_dims(small)} does not broadcast to {render_dims(large)}; "
            "aligned at the end, each dimension must be equal or 1"
        )


def _broadcast_to_kernel(call: KernelCall) -> None:
    np.copyto(call.outputs[0], call.inputs[0])


def _broadcast_to_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    return [sum_to(gradient, op.inputs[0]) if op.inputs[0].dtype.is_differentiable else None, None]


BroadcastTo = define_op(
    "BroadcastTo",
    spec=_broadcast_to_spec,
    gradient=_broadcast_to_gradient,
    kernel=_broadcast_to_kernel,
    inputs=("input", "shape"),
    shape_inputs=(1,),
    strings=True,
)


@checked
def broadcast_to(input: Any, shape: Extents, name: Name = None) -> Tensor:
    """`input` broadcast to `shape`, by NumPy's rule. Raises InvalidArgumentError if it does not fit."""
    return BroadcastTo.tensor(input, as_shape_vector(shape), name=name)


def _sum_to_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    x, target = inputs
    wanted = dims_of_vector("SumTo", target)
    if wanted is not None and target.value is not None and x.shape is not None:
        _check_broadcasts("SumTo", wanted, x.dims)
    return TensorSpec(wanted, x.dtype)


def _sum_to_kernel(call: KernelCall) -> None:
    (x, _), (out,) = call.inputs, call.outputs
    kept = out.reshape((1,) * (x.ndim - out.ndim) + out.shape)  # adds axes of extent 1: a view
    axes = tuple(i for i in range(x.ndim) if kept.shape[i] == 1 and x.shape[i] != 1)
    np.add.reduce(x, axis=axes, dtype=out.dtype, out=kept, keepdims=True)


def _sum_to_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    return [broadcast_to(gradient, shape(op.inputs[0])) if gradient.dtype.is_differentiable else None, None]


SumTo = define_op(
    "SumTo",
    spec=_sum_to_spec,
    gradient=_sum_to_gradient,
    kernel=_sum_to_kernel,
    inputs=("input", "shape"),
    shape_inputs=(1,),
    doc="The sum over the axes along which `shape` was broadcast.",
)


def sum_to(gradient: Tensor, like: Tensor) -> Tensor:
    """The gradient of `like`, which was broadcast: sums `gradient` over the broadcast axes.

    Returns `gradient` itself if both shapes are known to be equal.
    """
    if gradient.spec.is_static and gradient.spec.shape == like.spec.shape:
        return gradient
    return SumTo.tensor(gradient, shape(like))


# Filled tensors ---------------------------------------------------------------------------------


@checked
def zeros_like(tensor: Any, dtype: AsDType | None = None, name: Name = None) -> Tensor:
    """Zeros (of strings, empty ones) of the shape of `tensor`, and of its dtype unless `dtype` is given."""
    return _filled_like(tensor, 0, dtype, name)


@checked
def ones_like(tensor: Any, dtype: AsDType | None = None, name: Name = None) -> Tensor:
    """Ones of the shape of `tensor`, and of its dtype unless `dtype` is given."""
    return _filled_like(tensor, 1, dtype, name)


def _filled_like(tensor: Any, value: int, dtype: DType | None, name: str | None) -> Tensor:
    like = as_tensor(tensor)
    kind = like.dtype if dtype is None else dtype
    with like.graph.as_default():
        if kind.is_string and value:
            raise InvalidArgumentError("ones_like: there is no one among strings; use tb.fill")
        scalar = constant(b"" if kind.is_string else np.array(value, kind.as_numpy_dtype))
        result = broadcast_to(scalar, shape(like), name)
        result.set_shape(like.spec.shape)
        return result
