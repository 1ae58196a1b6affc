"""Axes given by tensors: orders that put them last, and transposition by a tensor.

An op along axes that depend on data is the op along the last axes of a transposed tensor. A step that knows
the values transposes as by numbers; one that does not runs in the dynamic mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Attrs,
    Graph,
    Kernel,
    KernelCall,
    Operation,
    Tensor,
    as_tensor,
)
from tensorbow.ops.broadcasting import shape, size
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.specs import Array, TensorSpec, compatible, int32, int64

WHY_CPU = "axes are known to the host"
MOST_AXES = 64  # of an array of NumPy


def _most(count: int) -> int:
    if not 0 <= count <= MOST_AXES:
        raise InvalidArgumentError(f"AxisOrder: {count} axes, expected from 0 to {MOST_AXES}")
    return count


def _order(axes: Array, count: int) -> Array:
    """The axes 0 to count - 1, those of `axes` last."""
    _most(count)
    last = [int(axis) for axis in axes.reshape(-1)]
    numbers = [axis + count if axis < 0 else axis for axis in last]
    if any(not 0 <= axis < count for axis in numbers) or len({*numbers}) < len(numbers):
        raise InvalidArgumentError(
            f"AxisOrder: axes {last} of {count}: expected each at most once, from {-count} to {count - 1}"
        )
    return np.array([*(axis for axis in range(count) if axis not in numbers), *numbers], np.int32)


def _order_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (axes, rank), more = inputs, attrs["more"]
    require_dtype("AxisOrder", axes, (int32, int64), "axis")
    if axes.shape is not None and len(axes.shape) > 1:
        raise InvalidArgumentError(f"AxisOrder: axis is {axes}, expected a scalar or a vector")
    require_dtype("AxisOrder", rank, (int32, int64), "rank")
    if rank.shape not in (None, ()):
        raise InvalidArgumentError(f"AxisOrder: rank is {rank}, expected a scalar")
    if rank.value is None:
        return TensorSpec((None,), int32)
    if axes.value is None:
        return TensorSpec((_most(int(rank.value) + more),), int32)
    value = _order(axes.value, int(rank.value) + more)
    return TensorSpec(value.shape, int32, value)


def _order_kernel(call: KernelCall) -> None:
    axes, rank = call.inputs
    call.outputs[0][...] = _order(axes, int(rank) + call.attrs["more"])


AxisOrder = define_op(
    "AxisOrder",
    spec=_order_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=_order_kernel,
    inputs=("axis", "rank"),
    attrs={"more": 0},
    shape_inputs=(1,),
    why_cpu=WHY_CPU,
    doc="The axes of rank + `more`, int32: first those that `axis`, a scalar or vector, does not name.",
)


def _inverse_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (order,) = inputs
    require_dtype("InverseOrder", order, (int32, int64), "perm")
    if order.shape is not None and len(order.shape) != 1:
        raise InvalidArgumentError(f"InverseOrder: perm is {order}, expected a vector")
    value = None if order.value is None else np.argsort(order.value).astype(order.value.dtype)
    return TensorSpec(order.shape or (None,), order.dtype, value)


def _inverse_kernel(call: KernelCall) -> None:
    call.outputs[0][...] = np.argsort(call.inputs[0])


InverseOrder = define_op(
    "InverseOrder",
    spec=_inverse_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=_inverse_kernel,
    inputs=("perm",),
    why_cpu=WHY_CPU,
    doc="The permutation that undoes `perm`, of its dtype and shape [rank].",
)


def permutation_of(perm: Array, x: TensorSpec) -> tuple[int, ...]:
    """The axes of a transposition. Raises InvalidArgumentError if they are no permutation of the axes."""
    order = tuple(int(axis) for axis in perm)
    if sorted(order) != [*range(len(order))] or (x.shape is not None and len(x.shape) != len(order)):
        raise InvalidArgumentError(
            f"TransposeBy: perm {[*order]} of {x}: expected a permutation of the axes 0 to rank - 1"
        )
    return order


def _transpose_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    x, perm = inputs
    require_dtype("TransposeBy", perm, (int32, int64), "perm")
    if perm.shape is not None and len(perm.shape) != 1:
        raise InvalidArgumentError(f"TransposeBy: perm is {perm}, expected a vector of all axes")
    if perm.value is None:
        count = None if x.shape is None else len(x.shape)
        if count is None and perm.shape is not None:
            count = perm.shape[0]
        return TensorSpec(None if count is None else (None,) * count, x.dtype)
    order = permutation_of(perm.value, x)
    return TensorSpec(tuple(None if x.shape is None else x.shape[axis] for axis in order), x.dtype)


def _transpose_kernel(call: KernelCall) -> Callable[[], None]:
    (x, perm), (out,) = call.inputs, call.outputs
    source = x.transpose([int(axis) for axis in perm])  # a step is compiled for the permutation
    return lambda: np.copyto(out, source)


def _transpose_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [TransposeBy.tensor(g, InverseOrder.tensor(op.inputs[1])), None]


TransposeBy = define_op(
    "TransposeBy",
    spec=_transpose_spec,
    gradient=_transpose_gradient,
    kernel=Kernel(prepare=_transpose_kernel),
    inputs=("x", "perm"),
    shape_inputs=(1,),
    strings=True,
    doc="`x` with its axis `perm[i]` as axis i; a step that is compiled has a Transpose in its place.",
)


def _joined(extents: Array, count: int, last: str) -> Array:
    if count > len(extents):
        raise InvalidArgumentError(f"JoinedExtents: {count} axes of {len(extents)} extents: expected fewer")
    kept = extents[: len(extents) - count]
    product = math.prod(extents[len(kept) :].tolist())
    if last == "product" and abs(product) > np.iinfo(extents.dtype).max:
        raise InvalidArgumentError(f"JoinedExtents: {product} elements do not fit into {extents.dtype}")
    ends = {"none": [], "ones": [1] * count, "product": [product] if last == "product" else []}
    return np.concatenate([kept, np.array(ends[last], extents.dtype)])


def _joined_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    extents, axes = inputs
    require_dtype("JoinedExtents", extents, (int32, int64), "shape")
    if not compatible((None,), extents.shape):
        raise InvalidArgumentError(f"JoinedExtents: shape is {extents}, expected a vector")
    if axes.shape is not None and len(axes.shape) > 1:
        raise InvalidArgumentError(f"JoinedExtents: axis is {axes}, expected a scalar or a vector")
    counts = (extents.shape or (None,))[0], _count(axes)
    if counts[0] is None or counts[1] is None:
        return TensorSpec((None,), extents.dtype)
    if extents.value is not None:
        value = _joined(extents.value, counts[1], attrs["last"])
        return TensorSpec(value.shape, extents.dtype, value)
    ends = {"none": 0, "ones": counts[1], "product": 1}
    if counts[1] > counts[0]:
        raise InvalidArgumentError(f"JoinedExtents: {counts[1]} axes of {counts[0]} extents: expected fewer")
    return TensorSpec((counts[0] - counts[1] + ends[attrs["last"]],), extents.dtype)


def _joined_kernel(call: KernelCall) -> None:
    extents, axes = call.inputs
    call.outputs[0][...] = _joined(extents, axes.size, call.attrs["last"])


JoinedExtents = define_op(
    "JoinedExtents",
    spec=_joined_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=_joined_kernel,
    inputs=("shape", "axis"),
    attrs={"last": "product"},
    why_cpu=WHY_CPU,
    doc="A shape without its last extents, as many as `axis` has; then their `product`, `ones`, or `none`.",
)


def _count(axes: TensorSpec) -> int | None:
    """The number of axes in a scalar or vector, if it is known."""
    if axes.shape is None:
        return None
    return axes.shape[0] if axes.shape else 1


class MovedAxes:
    """A tensor with the axes that another tensor names moved to its end, in their order."""

    def __init__(self, x: Any, axes: Tensor, more: int = 0):
        """more: axes that the result has beside those of `x`, of which `axes` are then some.

        Raises InvalidArgumentError for axes that are no scalar or vector of int32 or int64.
        """
        self.source, self.axes = as_tensor(x), axes
        known = self.source.shape.ndims
        rank: Any = known
        if known is None:
            rank = size(shape(self.source))
        self.order = AxisOrder.tensor(axes, rank, more=more)
        self.count = _count(axes.spec)

    @cached_property
    def last(self) -> Tensor:
        """The tensor."""
        return TransposeBy.tensor(self.source, self.order)

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """Numbers of the axes there, from the end: -1 for one; None if their number is not known."""
        return None if self.count is None else tuple(range(-self.count, 0))

    @property
    def graph(self) -> Graph:
        """The graph of both."""
        return self.order.graph

    def extents(self, last: str) -> Tensor:
        """The shape there with the `product` of the moved extents in their place, `ones`, or `none`."""
        return JoinedExtents.tensor(shape(self.last), self.axes, last=last)

    def back(self, result: Tensor, name: str | None = None) -> Tensor:
        """A result with as many axes, moved to where they were."""
        return TransposeBy.tensor(result, InverseOrder.tensor(self.order), name=name)
