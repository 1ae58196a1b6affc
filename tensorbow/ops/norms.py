"""Norms of vectors and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import AxisNumbers, Flag, Name, checked, refuse
from tensorbow.ops.arrays import expand_dims, squeeze, transpose
from tensorbow.ops.broadcasting import checked_axis
from tensorbow.ops.decompositions import svd
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import pow as power
from tensorbow.ops.elementwise import sqrt, square
from tensorbow.ops.reductions import reduce_max, reduce_sum

__all__ = ["norm"]


@checked
def norm(
    tensor: Any,
    ord: Any = "euclidean",
    axis: AxisNumbers = None,
    keepdims: Flag = False,
    name: Name = None,
) -> Tensor:
    """The norm of vectors along one `axis`, of matrices along two, or of all elements.

    tensor: floating, or complex, of which the absolute values count; for the 2-norm of matrices floating.
    ord: "euclidean", 1, or infinity; for vectors also any positive number. For matrices and all elements
    "euclidean" is also called "fro"; for matrices 1 and infinity give the greatest sum of a column and of a
    row, and 2 the greatest singular value. The gradient of a euclidean norm of 0 is NaN, as in
    TensorFlow. Raises InvalidArgumentError for other values.
    """
    x = as_tensor(tensor)
    is_matrix = axis is not None and len(axis) == 2
    if axis is not None and not 1 <= len(axis) <= 2:
        raise InvalidArgumentError(f"norm: expected axis to be None, one or two axes, got {list(axis)}")
    with x.graph.as_default(), name_scope(name or "norm"):
        number = isinstance(ord, (int, float)) and not isinstance(ord, bool)
        if is_matrix and number and ord == 2:
            return _greatest_singular_value(x, axis, keepdims)
        x = absolute(x) if x.dtype.is_complex else x
        is_vector = axis is not None and len(axis) == 1
        if isinstance(ord, str) and ord in ("euclidean", "fro")[: 2 - is_vector]:
            return sqrt(reduce_sum(square(x), axis, keepdims))
        size = absolute(x)
        if is_matrix and number and ord in (1, np.inf):
            rows, columns = axis
            over, then = (rows, columns) if ord == 1 else (columns, rows)
            result = reduce_max(reduce_sum(size, over, keepdims=True), then, keepdims=True)
            return result if keepdims else squeeze(result, axis)
        if not is_matrix and number and ord > 0:
            if ord == np.inf:
                return reduce_max(size, axis, keepdims)
            if ord == 1:
                return reduce_sum(size, axis, keepdims)
            if ord == 2:
                return sqrt(reduce_sum(square(x), axis, keepdims))
            return power(reduce_sum(power(size, ord), axis, keepdims), 1 / ord)
    expected = "'euclidean', 'fro', 1, 2 or infinity" if is_matrix else "'euclidean' or a positive number"
    raise refuse("norm", "ord", expected, ord)


def _greatest_singular_value(x: Tensor, axis: Sequence[int], keepdims: bool) -> Tensor:
    """The 2-norm of matrices along two axes."""
    rank = x.shape.ndims
    if rank is None:
        raise InvalidArgumentError("norm: ord=2 needs a known rank; give the placeholder a shape")
    rows, columns = (checked_axis("norm", each, rank) for each in axis)
    if rows == columns:
        raise InvalidArgumentError(f"norm: expected two different axes, got {list(axis)}")
    order = [*(k for k in range(rank) if k not in (rows, columns)), rows, columns]
    matrices = x if order == [*range(rank)] else transpose(x, order)
    result = reduce_max(svd(matrices, compute_uv=False), -1)
    for position in sorted((rows, columns)) if keepdims else ():
        result = expand_dims(result, position)
    return result
