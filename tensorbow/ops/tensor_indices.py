"""`x[...]` with tensors among the positions and bounds, and `strided_slice` of begins, ends and strides."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor
from tensorbow.kinds import Anything, Count, Name, checked, is_tensor, refuse
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.control import identity
from tensorbow.ops.elementwise import add, less, maximum, minimum, subtract
from tensorbow.ops.indexing import POSITIONS, gather
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import slice
from tensorbow.ops.slicing import strided_slice as sliced
from tensorbow.specs import bool_, int64

__all__ = ["strided_slice"]

_ALL = builtins.slice(None)


@checked
def strided_slice(
    input_: Any,
    begin: Any,
    end: Any = None,
    strides: Any = None,
    begin_mask: Count = 0,
    end_mask: Count = 0,
    ellipsis_mask: Count = 0,
    new_axis_mask: Count = 0,
    shrink_axis_mask: Count = 0,
    var: Anything = None,
    name: Name = None,
) -> Tensor:
    """The elements of `input_` from `begin` up to `end` in steps of `strides`, each one number per axis.

    begin, end, strides: lists of whole numbers and scalar tensors, or integer vectors of known length; the
    strides are numbers, by default 1. Bit i of a mask says of the i-th number that the slice has no such
    bound, that it stands for `...`, or for a new axis of 1, or that `begin` alone is a position. `var` has no
    effect.

    Without `end`, `begin` is what stands in `x[...]`. Raises InvalidArgumentError for lists of different
    lengths and for positions out of range.
    """
    if end is None:
        result = item(input_, begin)
        return result if name is None else identity(result, name=name)
    starts, stops = _entries("begin", begin), _entries("end", end)
    steps = [1] * len(starts) if strides is None else _entries("strides", strides)
    if not len(starts) == len(stops) == len(steps):
        raise InvalidArgumentError(
            f"strided_slice: expected as many numbers in end and strides as in begin, {len(starts)}, got "
            f"{len(stops)} and {len(steps)}"
        )
    index: list[Any] = []
    for axis, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        bit = 1 << axis
        if ellipsis_mask & bit:
            index.append(Ellipsis)
        elif new_axis_mask & bit:
            index.append(None)
        elif shrink_axis_mask & bit:
            index.append(start)
        else:
            bounds = None if begin_mask & bit else start, None if end_mask & bit else stop
            index.append(builtins.slice(*bounds, step))
    result = item(input_, tuple(index))
    return result if name is None else identity(result, name=name)


def _entries(argument: str, value: Any) -> list[Any]:
    """Whole numbers and scalar tensors of a list, or of an integer vector of known length."""
    if is_tensor(value):
        vector = as_tensor(value)
        known = vector.spec.value
        if vector.dtype.is_integer and vector.shape.ndims == 1 and vector.shape[0] is not None:
            return (
                known.tolist() if known is not None else [sliced(vector, k) for k in range(vector.shape[0])]
            )
    elif isinstance(value, (list, tuple, np.ndarray)):
        entries = value.tolist() if isinstance(value, np.ndarray) else list(value)
        if all(
            is_tensor(each) or (isinstance(each, (int, np.integer)) and each is not True) for each in entries
        ):
            return entries
    raise refuse(
        "strided_slice", argument, "a list of whole numbers, or an integer vector of known length", value
    )


def item(x: Any, index: Any) -> Tensor:
    """`x[index]`: integers, slices, `...` and None, and tensors or arrays of whole numbers.

    A tensor of positions takes their slices along its axis, as `tb.gather`; negative ones count from the end.
    Only one may have axes. Bounds of slices without a step may be scalar tensors that depend on shapes and
    constants only. Raises InvalidArgumentError for other objects, and for a mask.
    """
    items = index if isinstance(index, tuple) else (index,)
    items = tuple(_known(each) for each in items)
    if not any(map(_has_tensor, items)):
        return sliced(x, items)
    tensor = as_tensor(x)
    with tensor.graph.as_default():
        plain, later = _parted(tensor, items)
        result = tensor if all(_is_all(each) for each in plain) else sliced(tensor, plain)
        moved = 0  # axes gained by positions so far
        for axis, each in later:
            if isinstance(each, builtins.slice):
                result = _between(result, axis + moved, each)
            else:
                positions = as_tensor(each)
                result = gather(result, _from_start(positions, result, axis + moved), axis=axis + moved)
                moved += _rank(positions) - 1
        return result


def _known(each: Any) -> Any:
    """The index with scalar tensors of known value as numbers."""
    if isinstance(each, builtins.slice):
        return builtins.slice(_known(each.start), _known(each.stop), _known(each.step))
    if is_tensor(each):
        value = as_tensor(each).spec.value
        if value is not None and value.ndim == 0 and value.dtype.kind in "iu":
            return int(value)
    return each


def _has_tensor(each: Any) -> bool:
    if isinstance(each, builtins.slice):
        return is_tensor(each.start) or is_tensor(each.stop) or is_tensor(each.step)
    return is_tensor(each) or (isinstance(each, np.ndarray) and each.ndim > 0)


def _is_all(each: Any) -> bool:
    return each is Ellipsis or each == _ALL


def _parted(x: Tensor, items: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[tuple[int, Any]]]:
    """The index without tensors, and (axis of its result, index with tensors) for the others."""
    used = sum(each is not None and each is not Ellipsis for each in items)
    plain: list[Any] = []
    later: list[tuple[int, Any]] = []
    axis = 0
    for each in items:
        if _has_tensor(each):
            _check(x, each)
            later.append((axis, each))
            plain.append(_ALL)
        else:
            plain.append(each)
        if each is Ellipsis:
            axis += _rank(x) - used
        elif each is None or isinstance(each, builtins.slice) or _has_tensor(each):
            axis += 1
    if (
        sum(not isinstance(each, builtins.slice) and as_tensor(each).shape.ndims != 0 for _, each in later)
        > 1
    ):
        raise InvalidArgumentError(
            "strided_slice: expected index to have at most one tensor of positions with axes, got several; "
            "take them one after the other, as by x[rows][:, columns]"
        )
    return tuple(plain), later


def _check(x: Tensor, each: Any) -> None:
    if isinstance(each, builtins.slice):
        if each.step not in (None, 1):
            raise refuse(
                "strided_slice", "the step of a slice with tensors", "1", each.step, "slice in two steps"
            )
        for bound in (each.start, each.stop):
            if is_tensor(bound) and (bound.shape.ndims != 0 or not bound.dtype.is_integer):
                raise refuse("strided_slice", "bounds of index", "scalars of whole numbers", bound)
        return
    positions = as_tensor(each)
    if positions.dtype not in POSITIONS or positions.shape.ndims is None:
        mask = "a mask gives a shape that depends on data: multiply by it, or use tb.where"
        remedy = mask if positions.dtype == bool_ else "use tb.cast"
        raise refuse("strided_slice", "tensors in index", "whole numbers of known rank", each, remedy)


def _rank(x: Tensor) -> int:
    rank = x.shape.ndims
    if rank is None:
        raise InvalidArgumentError(
            f"strided_slice: expected {x.name} to have a known rank for an index with tensors, got {x.spec}; "
            "give the placeholder a shape"
        )
    return rank


def _from_start(positions: Tensor, x: Tensor, axis: int) -> Tensor:
    """Positions with those counted from the end, as -1, counted from the start."""
    if positions.spec.value is not None and (positions.spec.value >= 0).all():
        return positions
    extent = cast(sliced(shape(x), axis), positions.dtype)
    return select(less(positions, 0), add(positions, extent), positions)


def _between(x: Tensor, axis: int, bounds: builtins.slice) -> Tensor:
    extents = shape(x, out_type=int64)
    extent = sliced(extents, axis)

    def place(bound: Any, default: Any) -> Tensor:
        number = as_tensor(default if bound is None else bound)
        number = cast(number, int64)
        return maximum(minimum(select(less(number, 0), add(number, extent), number), extent), 0)

    begin, end = place(bounds.start, 0), place(bounds.stop, extent)
    size = maximum(subtract(end, begin), 0)
    begins = [begin if each == axis else 0 for each in range(_rank(x))]
    sizes = [size if each == axis else -1 for each in range(_rank(x))]
    return slice(x, begins, sizes)
