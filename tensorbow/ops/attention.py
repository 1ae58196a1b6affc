"""Scaled dot-product attention, composed of matrix products and a softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Flag, FractionOrTensor, Name, checked
from tensorbow.ops.arrays import expand_dims
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.constant import constant
from tensorbow.ops.elementwise import greater_equal, multiply, pair
from tensorbow.ops.filling import range as numbers
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import dropout, softmax
from tensorbow.ops.selection import select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import bool_

__all__ = ["scaled_dot_product_attention"]

_MASKED = -1e9  # score of a masked pair: a finite number, so that a row without any other gives no NaN


@checked
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    causal: Flag = False,
    dropout_rate: FractionOrTensor = 0.0,
    name: Name = None,
) -> Tensor:
    """softmax(query x key^T / sqrt(depth)) x value (Vaswani et al., 2017, section 3.2.1).

    query `[..., queries, depth]`, key `[..., keys, depth]`, value `[..., keys, width]`, float32 or float64;
    returns `[..., queries, width]`. mask: bool, broadcasts to `[..., queries, keys]`; True lets a query see a
    key. `causal` hides from query i the keys after i. dropout_rate: of the attention weights.

    Raises InvalidArgumentError for extents that do not fit, an unknown depth, and a mask that is not bool.
    """
    (q, k), (_, v) = pair(query, key), pair(query, value)
    rank = q.shape.ndims
    depth = q.spec.dims[-1] if rank else None
    if rank is None or rank < 2 or depth is None:
        raise InvalidArgumentError(
            f"scaled_dot_product_attention: expected a query [..., queries, depth] of known rank and depth, "
            f"got {q.spec}; use set_shape"
        )
    with q.graph.as_default(), name_scope(name or "attention"):
        scores = matmul(multiply(q, depth**-0.5), k, transpose_b=True)
        if mask is not None:
            seen = as_tensor(mask)
            if seen.dtype != bool_:
                raise InvalidArgumentError(
                    f"scaled_dot_product_attention: expected a mask of bool, got {seen.spec}; use tb.cast"
                )
            scores = select(seen, scores, _MASKED)
        if causal:
            scores = select(_not_after(scores), scores, _MASKED)
        weights = softmax(scores)
        if is_dropped(dropout_rate):
            weights = dropout(weights, rate=dropout_rate)
        return matmul(weights, v)


def is_dropped(rate: Any) -> bool:
    """True unless a rate of dropout is the number 0."""
    return not isinstance(rate, (int, float)) or rate != 0


def _not_after(scores: Tensor) -> Tensor:
    """Bool `[queries, keys]`: True where the key is not after the query."""
    queries, keys = scores.spec.dims[-2:]
    if queries is not None and keys is not None:
        return constant(np.tri(queries, keys, dtype=np.bool_))
    extents = shape(scores)
    rows, columns = (numbers(strided_slice(extents, axis)) for axis in (-2, -1))
    return greater_equal(expand_dims(rows, 1), columns)
