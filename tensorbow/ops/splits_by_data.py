"""Pieces of a tensor whose extents only a step knows."""

from __future__ import annotations

from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, control_dependencies, name_scope
from tensorbow.ops.arrays import stack
from tensorbow.ops.broadcasting import checked_axis, shape
from tensorbow.ops.checks import asserted
from tensorbow.ops.constant import constant
from tensorbow.ops.control import identity
from tensorbow.ops.elementwise import add, equal, greater_equal, less, logical_and, maximum, subtract
from tensorbow.ops.reductions import reduce_all, reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import slice as box
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import int64


def split_by_data(value: Any, sizes: Tensor, axis: int, num: int | None, name: str | None) -> list[Tensor]:
    """Pieces whose extents only a step knows: boxes, each of which begins where the one before ends."""
    x = as_tensor(value)
    count = sizes.spec.shape[0] if sizes.shape.ndims == 1 and sizes.spec.shape is not None else None
    count = num if count is None and sizes.shape.ndims in (1, None) else count
    if count is None or x.shape.ndims is None or not sizes.dtype.is_integer or num not in (None, count):
        raise InvalidArgumentError(
            f"split: sizes {sizes.spec} of {x.spec}; expected a vector of integers, of a known length, which "
            "num gives too, and a value of known rank"
        )
    rank = len(x.shape)
    axis = checked_axis("split", axis, rank)
    with x.graph.as_default(), name_scope(name or "split"):
        given = cast(sizes, int64)
        whole = strided_slice(shape(x, out_type=int64), axis)
        rest = subtract(whole, reduce_sum(maximum(given, 0)))
        extents = select(less(given, 0), rest, given)
        fits = logical_and(equal(reduce_sum(extents), whole), reduce_all(greater_equal(given, -1)))
        fits = logical_and(fits, greater_equal(rest, 0))
        message = f"split: the sizes do not add up to the extent of axis {axis}"
        with control_dependencies([asserted(fits, [sizes, whole], message)]):
            extents = identity(extents)
        pieces, begin = [], constant(0, int64)
        for number in range(count):
            extent = strided_slice(extents, number)
            starts = [begin if each == axis else constant(0, int64) for each in range(rank)]
            lengths = [extent if each == axis else constant(-1, int64) for each in range(rank)]
            piece: Tensor = box(x, stack(starts), stack(lengths))
            piece.set_shape([None if each == axis else n for each, n in enumerate(x.spec.dims)])
            pieces.append(piece)
            begin = add(begin, extent)
        return pieces
