"""`x[...]` with tensors among the positions and bounds."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor
from tensorbow.kinds import is_tensor, refuse
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.elementwise import add, less, maximum, minimum, subtract
from tensorbow.ops.indexing import POSITIONS, gather
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import slice, strided_slice
from tensorbow.specs import bool_, int64

_ALL = builtins.slice(None)


def item(x: Any, index: Any) -> Tensor:
    """`x[index]`: integers, slices, `...` and None, and tensors or arrays of whole numbers.

    A tensor of positions takes their slices along its axis, as `tb.gather`; negative ones count from the end.
    Only one may have axes. Bounds of slices without a step may be scalar tensors that depend on shapes and
    constants only. Raises InvalidArgumentError for other objects, and for a mask.
    """
    items = index if isinstance(index, tuple) else (index,)
    items = tuple(_known(each) for each in items)
    if not any(map(_has_tensor, items)):
        return strided_slice(x, items)
    tensor = as_tensor(x)
    with tensor.graph.as_default():
        plain, later = _parted(tensor, items)
        result = tensor if all(_is_all(each) for each in plain) else strided_slice(tensor, plain)
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
    extent = cast(strided_slice(shape(x), axis), positions.dtype)
    return select(less(positions, 0), add(positions, extent), positions)


def _between(x: Tensor, axis: int, bounds: builtins.slice) -> Tensor:
    extents = shape(x, out_type=int64)
    extent = strided_slice(extents, axis)

    def place(bound: Any, default: Any) -> Tensor:
        number = as_tensor(default if bound is None else bound)
        number = cast(number, int64)
        return maximum(minimum(select(less(number, 0), add(number, extent), number), extent), 0)

    begin, end = place(bounds.start, 0), place(bounds.stop, extent)
    size = maximum(subtract(end, begin), 0)
    begins = [begin if each == axis else 0 for each in range(_rank(x))]
    sizes = [size if each == axis else -1 for each in range(_rank(x))]
    return slice(x, begins, sizes)
