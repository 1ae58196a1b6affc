"""Means and variances in parts: of weighted elements, and from sums that add up."""

from __future__ import annotations

from typing import Any

from tensorbow.graph import Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Flag, Name, checked
from tensorbow.ops.argument_kinds import AxesOrTensor
from tensorbow.ops.broadcasting import ones_like
from tensorbow.ops.control import identity
from tensorbow.ops.elementwise import add, divide, multiply, reciprocal, square, subtract
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast

__all__ = ["normalize_moments", "sufficient_statistics", "weighted_moments"]


@checked
def sufficient_statistics(
    x: Any, axes: AxesOrTensor, shift: Any = None, keep_dims: Flag = False, name: Name = None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The number of elements over `axes`, their sum, the sum of their squares, and the shift, or None.

    shift: near the mean, subtracted first, for accuracy. The sums of several parts can be added up, and
    `normalize_moments` makes mean and variance of them.
    """
    with graph_of([x, shift]).as_default(), name_scope(name or "sufficient_statistics"):
        tensor = as_tensor(x)
        of_each = reduce_sum(ones_like(tensor), axes)
        count = divide(reduce_sum(ones_like(tensor)), reduce_sum(ones_like(of_each)))
        by = None if shift is None else as_tensor(shift, tensor.dtype)
        moved = tensor if by is None else subtract(tensor, by)
        mean = reduce_sum(moved, axes, keep_dims, name="mean_ss")
        return count, mean, reduce_sum(square(moved), axes, keep_dims, name="var_ss"), by


@checked
def normalize_moments(
    counts: Any, mean_ss: Any, variance_ss: Any, shift: Any, name: Name = None
) -> tuple[Tensor, Tensor]:
    """Mean and variance from the results of `sufficient_statistics`; shift: that of them, or None."""
    with graph_of([counts, mean_ss, variance_ss, shift]).as_default(), name_scope(name or "normalize"):
        share = reciprocal(as_tensor(counts))
        moved = multiply(mean_ss, share)
        mean = identity(moved) if shift is None else add(moved, shift)
        return mean, subtract(multiply(variance_ss, share), square(moved))


@checked
def weighted_moments(
    x: Any, axes: AxesOrTensor, frequency_weights: Any, name: Name = None, keep_dims: Flag = False
) -> tuple[Tensor, Tensor]:
    """Mean and variance over `axes` of elements that count by `frequency_weights`, which broadcast to `x`."""
    with graph_of([x, frequency_weights]).as_default(), name_scope(name or "weighted_moments"):
        tensor = as_tensor(x)
        weights = multiply(cast(as_tensor(frequency_weights), tensor.dtype), ones_like(tensor))
        total = reduce_sum(weights, axes, keepdims=True)
        mean = divide(reduce_sum(multiply(weights, tensor), axes, keepdims=True), total)
        spread = reduce_sum(multiply(weights, square(subtract(tensor, mean))), axes, keepdims=True)
        results = mean, divide(spread, total)
        if keep_dims:
            return results
        first, second = (reduce_sum(each, axes) for each in results)  # of one element each
        return first, second
