"""Ops that divide, repeat or reverse tensors: split, unstack, tile, reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    REQUIRED,
    Attrs,
    Kernel,
    KernelCall,
    Operation,
    Tensor,
    as_tensor,
    name_scope,
)
from tensorbow.kinds import Count, Name, checked, is_tensor
from tensorbow.ops.argument_kinds import AxisList, AxisOrTensor, Extents, Sections
from tensorbow.ops.arrays import concat, reshape, squeeze, stack
from tensorbow.ops.axis_order import MovedAxes
from tensorbow.ops.broadcasting import (
    SumTo,
    as_shape_vector,
    checked_axis,
    dims_of_vector,
    ones_like,
    shape,
    zeros_like,
)
from tensorbow.ops.definition import define_op
from tensorbow.ops.partial_extents import known_extents_of
from tensorbow.ops.selection import cast
from tensorbow.ops.splits_by_data import split_by_data
from tensorbow.specs import TensorSpec, int32

__all__ = ["reverse", "split", "tile", "unstack"]


# Split ----------------------------------------------------------------------------------------------


MAXIMUM_PIECES = 1 << 16


def _pieces(attrs: Attrs) -> int:
    sizes = attrs["size_splits"]
    count = int(attrs["num_split"]) if sizes is None else len(sizes)
    if count > MAXIMUM_PIECES:
        raise InvalidArgumentError(f"Split: {count} pieces; at most {MAXIMUM_PIECES} are supported")
    return count


def _sizes(extent: int | None, attrs: Attrs) -> Sequence[int | None]:
    """The extent of each piece along the axis."""
    count, given = _pieces(attrs), attrs["size_splits"]
    if given is None:
        if extent is None:
            return [None] * count
        if extent % count:
            raise InvalidArgumentError(
                f"Split: {extent} elements do not split into {count} equal pieces; give sizes"
            )
        return [extent // count] * count
    known = sum(size for size in given if size >= 0)
    if extent is None:
        return [None if size < 0 else size for size in given]
    if known > extent or (known != extent and min(given) >= 0):
        raise InvalidArgumentError(f"Split: sizes {list(given)} do not add up to the axis' {extent} elements")
    return [extent - known if size < 0 else size for size in given]


def _split_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    (value,) = inputs
    dims = value.dims
    axis = checked_axis("Split", attrs["axis"], len(dims))
    sizes = _sizes(dims[axis], attrs)
    return [TensorSpec((*dims[:axis], size, *dims[axis + 1 :]), value.dtype) for size in sizes]


def _split_kernel(call: KernelCall) -> Callable[[], None]:
    (value,), axis = call.inputs, call.attrs["axis"] % call.inputs[0].ndim
    pairs, start = [], 0
    for out in call.outputs:
        end = start + out.shape[axis]
        pairs.append((out, value[(np.s_[:],) * axis + (np.s_[start:end],)]))
        start = end

    def run() -> None:
        for out, part in pairs:
            np.copyto(out, part)

    return run


def _split_gradient(op: Operation, *gradients: Tensor | None) -> list[Tensor | None]:
    if not op.inputs[0].dtype.is_differentiable or all(g is None for g in gradients):
        return [None]
    parts = [zeros_like(out) if g is None else g for g, out in zip(gradients, op.outputs, strict=True)]
    return [concat(parts, op.attrs["axis"])]


Split = define_op(
    "Split",
    spec=_split_spec,
    gradient=_split_gradient,
    kernel=Kernel(prepare=_split_kernel),
    inputs=("value",),
    attrs={"num_split": 1, "size_splits": None, "axis": 0},
    unknown_dtypes=lambda inputs, attrs: [inputs[0].dtype] * _pieces(attrs),
    strings=True,
)


@checked
def split(
    value: Any,
    num_or_size_splits: Sections,
    axis: AxisOrTensor = 0,
    num: Count | None = None,
    name: Name = None,
) -> list[Tensor]:
    """Splits `value` along `axis` into that many equal pieces, or into pieces of the given extents.

    One extent may be -1 and is inferred. `num` is ignored (TensorFlow's). Extents that are no constants, a
    vector of a known length or scalars in a list, make the step run in the dynamic mode.
    Raises InvalidArgumentError if the pieces do not fit the axis.
    """
    if is_tensor(axis):
        moved = MovedAxes(value, axis)
        return [moved.back(part) for part in split(moved.last, num_or_size_splits, -1, num, name)]
    if is_tensor(num_or_size_splits):
        return split_by_data(value, as_tensor(num_or_size_splits), axis, num, name)
    sizes: tuple[int, ...] | None = None
    if isinstance(num_or_size_splits, (int, np.integer)):
        count = int(num_or_size_splits)
        if count < 1:
            raise InvalidArgumentError(f"split: expected at least one piece, got {count}")
    else:
        sizes = tuple(int(size) for size in num_or_size_splits)
        count = len(sizes)
        if not sizes or sizes.count(-1) > 1 or min(sizes) < -1:
            raise InvalidArgumentError(
                f"split: sizes {list(sizes)} must be at least 0, one of them may be -1"
            )
    if num is not None and num != count:
        raise InvalidArgumentError(f"split: num is {num}, but there are {count} pieces")
    result = Split(value, num_split=count, size_splits=sizes, axis=int(axis), name=name)
    return [result] if isinstance(result, Tensor) else list(result)


@checked
def unstack(value: Any, num: Count | None = None, axis: AxisOrTensor = 0, name: Name = None) -> list[Tensor]:
    """The slices along `axis`, without that axis: the inverse of `stack`.

    `num` must be given if the extent of the axis is unknown. Raises InvalidArgumentError if
    neither is known, or they differ.
    """
    tensor = as_tensor(value)
    if is_tensor(axis):
        return unstack(MovedAxes(tensor, axis).last, num, -1, name)
    if num is None:
        dims = tensor.spec.shape
        num = None if dims is None else dims[checked_axis("unstack", axis, len(dims))]
        if num is None:
            raise InvalidArgumentError(
                f"unstack: the extent of axis {axis} of {tensor.name} is not known; give num"
            )
    with tensor.graph.as_default(), name_scope(name or "unstack"):
        return [squeeze(part, axis) for part in split(tensor, num, axis)] if num else []


# Tile -----------------------------------------------------------------------------------------------


def _tile_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    x, multiples = inputs
    counts = dims_of_vector("Tile", multiples, "multiples")
    if counts is None or x.shape is None:
        known = x.shape if counts is None else counts
        return TensorSpec(None if known is None else (None,) * len(known), x.dtype)
    if len(counts) != len(x.shape):
        raise InvalidArgumentError(
            f"Tile: multiples has {len(counts)} entries, the input is {x}: give one per axis"
        )
    pairs = zip(x.shape, counts, strict=True)
    return TensorSpec(tuple(None if d is None or n is None else d * n for d, n in pairs), x.dtype)


def _tile_kernel(call: KernelCall) -> Callable[[], None]:
    """Views the result with an axis of repetitions before each axis, over which the input broadcasts."""
    (x, multiples), (out,) = call.inputs, call.outputs
    shape = [extent for pair in zip(multiples.tolist(), x.shape, strict=True) for extent in pair]
    repeated = out.reshape(shape)
    index = (*(item for _ in x.shape for item in (None, np.s_[:])), ...)
    source = x[index]  # a view even for a scalar, by the ellipsis
    return lambda: np.copyto(repeated, source)


def _tile_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """The sum over the axes of repetitions, one before each axis of the input."""
    x, multiples = op.inputs
    if not g.dtype.is_differentiable:
        return [None, None]
    counts = cast(multiples, int32)

    def before_each(extents: Tensor) -> Tensor:
        return reshape(stack([extents, shape(x)], axis=1), [-1])

    summed: Tensor = SumTo(reshape(g, before_each(counts)), before_each(ones_like(counts)))
    return [reshape(summed, shape(x)), None]


Tile = define_op(
    "Tile",
    spec=_tile_spec,
    gradient=_tile_gradient,
    kernel=Kernel(prepare=_tile_kernel),
    inputs=("input", "multiples"),
    shape_inputs=(1,),
    strings=True,
)


@checked
def tile(input: Any, multiples: Extents, name: Name = None) -> Tensor:
    """`input` repeated `multiples[i]` times along axis i. Raises InvalidArgumentError for a wrong length."""
    result: Tensor = Tile(input, as_shape_vector(multiples), name=name)
    times, dims = known_extents_of(multiples), result.op.inputs[0].spec.shape
    if times is not None and dims is not None and len(times) == len(dims):
        pairs = zip(dims, times, strict=True)
        result.set_shape([None if dim is None or count is None else dim * count for dim, count in pairs])
    return result


# Reverse --------------------------------------------------------------------------------------------


def _reverse_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,) = inputs
    axes = [checked_axis("ReverseV2", axis, x.rank) for axis in attrs["axis"]]
    if len(set(axes)) != len(axes):
        raise InvalidArgumentError(f"ReverseV2: axis {list(attrs['axis'])} names an axis of {x} twice")
    return TensorSpec(x.shape, x.dtype)


def _reverse_kernel(call: KernelCall) -> Callable[[], None]:
    (x,), (out,) = call.inputs, call.outputs
    axes = {axis % x.ndim for axis in call.attrs["axis"]}
    turned = [slice(None, None, -1) if axis in axes else slice(None) for axis in range(x.ndim)]
    index: tuple[Any, ...] = (*turned, Ellipsis)
    source = x[index]  # a view even for a scalar, which np.flip would copy
    return lambda: np.copyto(out, source)


def _reverse_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [reverse(g, op.attrs["axis"])]


ReverseV2 = define_op(
    "ReverseV2",
    spec=_reverse_spec,
    gradient=_reverse_gradient,
    kernel=Kernel(prepare=_reverse_kernel),
    inputs=("tensor",),
    attrs={"axis": REQUIRED},
    strings=True,
)


@checked
def reverse(tensor: Any, axis: AxisList, name: Name = None) -> Tensor:
    """`tensor` with its elements in reverse order along each axis of `axis`.

    Axes that are no constants need a vector of a known length: else InvalidArgumentError is raised.
    """
    if is_tensor(axis):
        moved = MovedAxes(tensor, axis)
        if moved.numbers is None:
            raise InvalidArgumentError(
                f"reverse: axis {axis.name} is {axis.spec}, expected axes whose number is known; give its "
                "length by set_shape"
            )
        return moved.back(ReverseV2.tensor(moved.last, axis=moved.numbers), name)
    return ReverseV2.tensor(tensor, axis=axis, name=name)
