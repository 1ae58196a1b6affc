"""Bands of matrices around the diagonal."""

from __future__ import annotations

from functools import reduce
from typing import Annotated, Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Name, checked, or_tensor, whole
from tensorbow.ops.argument_kinds import INT32, numbers_of
from tensorbow.ops.arrays import expand_dims
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.elementwise import (
    less,
    less_equal,
    logical_and,
    logical_or,
    subtract,
)
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import bool_, int64

__all__ = ["matrix_band_part"]


def band_of(x: Tensor, lower: int | Tensor, upper: int | Tensor) -> Tensor:
    """The elements at most so many places below and above the diagonal; a negative number: all of them."""
    extents = shape(x)
    rows = expand_dims(number_range(strided_slice(extents, -2)), 1)
    columns = number_range(strided_slice(extents, -1))
    conditions = []
    for places, most in ((subtract(rows, columns), lower), (subtract(columns, rows), upper)):
        if isinstance(most, Tensor):
            kept = cast(most, int64)
            conditions.append(logical_or(less(kept, 0), less_equal(cast(places, int64), kept)))
        elif most >= 0:
            conditions.append(less_equal(places, most))
    if not conditions:
        return x
    return select(reduce(logical_and, conditions), x, False if x.dtype == bool_ else 0)


@checked
def matrix_band_part(
    input: Any,
    num_lower: Annotated[Any, or_tensor(whole())],
    num_upper: Annotated[Any, or_tensor(whole())],
    name: Name = None,
) -> Tensor:
    """Matrices `[..., m, n]` with zeros outside of a band around the diagonal.

    num_lower, num_upper: diagonals to keep below and above the main one; a negative number keeps all:
    (-1, 0) is the lower triangle, (0, 0) the diagonal.
    """
    x = as_tensor(input)
    if x.shape.ndims is not None and x.shape.ndims < 2:
        raise InvalidArgumentError(f"matrix_band_part: expected matrices [..., m, n], got {x.spec}")
    with x.graph.as_default(), name_scope(name or "MatrixBandPart"):
        kept = (min(n, INT32 - 1) if isinstance(n, int) else n for n in numbers_of(num_lower, num_upper))
        result = band_of(x, *kept)
        if x.spec.shape is not None:
            result.set_shape(x.shape)
        return result
