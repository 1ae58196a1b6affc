"""Reductions of sparse tensors along axes, and of gathered rows by segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.graph import Tensor, graph_of, name_scope
from tensorbow.kinds import AxisNumbers, Flag, Name, checked, optional, or_tensor, whole
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import shape, size
from tensorbow.ops.constant import constant
from tensorbow.ops.data_dependent import boolean_mask, unique
from tensorbow.ops.elementwise import divide, equal, greater, multiply, sqrt, subtract
from tensorbow.ops.filling import fill
from tensorbow.ops.indexing import gather
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.segments import (
    segment_counts,
    segment_mean,
    segment_sum,
    unsorted_segment_max,
    unsorted_segment_mean,
    unsorted_segment_sqrt_n,
    unsorted_segment_sum,
)
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sparse_dense import scattered
from tensorbow.ops.sparse_shapes import sparse_reorder
from tensorbow.ops.sparse_tensors import Sparse, SparseTensor, as_sparse, axes_mask, coordinates_of, row_major
from tensorbow.specs import int32, int64

__all__ = [
    "sparse_reduce_max",
    "sparse_reduce_max_sparse",
    "sparse_reduce_sum",
    "sparse_reduce_sum_sparse",
    "sparse_segment_mean",
    "sparse_segment_sqrt_n",
    "sparse_segment_sum",
]


@checked
def sparse_reduce_sum(
    sp_input: Sparse, axis: AxisNumbers = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The sums over the given axes, or over all: a dense tensor.

    Of a rank that a run decides, axes that do not fit raise InvalidArgumentError then.
    """
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseReduceSum"):
        over = axes_mask("sparse_reduce_sum", sparse, axis)
        extents = select(greater(over, 0), 1, sparse.dense_shape)
        sums = scattered(multiply(sparse.indices, subtract(1, over)), sparse.values, extents)
        return _shaped(sums, sparse, over, keepdims)


def _shaped(dense: Tensor, sparse: SparseTensor, over: Tensor, keepdims: bool) -> Tensor:
    """A dense reduction, which has the axes of the sparse tensor, without those reduced; its static shape."""
    known = over.spec.value
    if keepdims:
        if known is not None:
            dense.set_shape([1 if gone else n for n, gone in zip(sparse.shape, known, strict=True)])
        return dense
    result = reshape(dense, cast(_left(sparse.dense_shape, over), int32))
    if known is not None:
        result.set_shape([n for n, gone in zip(sparse.shape, known, strict=True) if not gone])
    return result


def _left(x: Tensor, over: Tensor, axis: int = 0) -> Tensor:
    """The parts of `x` along `axis` of the axes that are not reduced."""
    if over.spec.value is None:
        return boolean_mask(x, equal(over, 0), axis=axis)
    return gather(x, constant(np.flatnonzero(over.spec.value == 0), int64), axis=axis)


@checked
def sparse_reduce_max(
    sp_input: Sparse, axis: AxisNumbers = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The greatest entry over the given axes, or over all: a dense tensor, 0 where there is no entry.

    Of a rank that a run decides, axes that do not fit raise InvalidArgumentError then.
    """
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseReduceMax"):
        over = axes_mask("sparse_reduce_max", sparse, axis)
        extents = select(greater(over, 0), 1, sparse.dense_shape)
        numbers = row_major(multiply(sparse.indices, subtract(1, over)), extents, sparse.rank)
        count = reduce_prod(extents)
        greatest = unsorted_segment_max(sparse.values, numbers, count)
        entries = unsorted_segment_sum(fill(shape(numbers), 1), numbers, count)
        dense = reshape(select(greater(entries, 0), greatest, 0), cast(extents, int32))
        return _shaped(dense, sparse, over, keepdims)


@checked
def sparse_reduce_sum_sparse(
    sp_input: Sparse, axis: AxisNumbers = None, keepdims: Flag = False, name: Name = None
) -> SparseTensor:
    """The sums of the entries over the given axes, or over all: a sparse tensor in row-major order.

    It has an entry where the input has one along the axes; the gradient reaches the values.
    """
    return _reduced("sparse_reduce_sum_sparse", unsorted_segment_sum, sp_input, axis, keepdims, name)


@checked
def sparse_reduce_max_sparse(
    sp_input: Sparse, axis: AxisNumbers = None, keepdims: Flag = False, name: Name = None
) -> SparseTensor:
    """The greatest entries over the given axes, or over all, sparse: see `sparse_reduce_sum_sparse`."""
    return _reduced("sparse_reduce_max_sparse", unsorted_segment_max, sp_input, axis, keepdims, name)


def _reduced(
    op: str, function: Any, sp_input: Any, axis: Sequence[int] | None, keepdims: bool, name: str | None
) -> SparseTensor:
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or op):
        over = axes_mask(op, sparse, axis)
        extents = select(greater(over, 0), 1, sparse.dense_shape)
        indices = multiply(sparse.indices, subtract(1, over))
        positions, numbers = unique(row_major(indices, extents, sparse.rank))
        values = function(sparse.values, numbers, size(positions))
        coordinates = coordinates_of(positions, extents, sparse.rank)
        reduced = sparse_reorder(SparseTensor(coordinates, values, extents))
        if keepdims:
            return reduced
        return SparseTensor(_left(reduced.indices, over, axis=1), reduced.values, _left(extents, over))


# Segments of gathered rows ------------------------------------------------------------------------------

Segments: TypeAlias = Annotated[Any, optional(or_tensor(whole(0)))]


@checked
def sparse_segment_sum(
    data: Any, indices: Any, segment_ids: Any, name: Name = None, num_segments: Segments = None
) -> Tensor:
    """The sums by segment of the rows `indices` [n] of `data`; `segment_ids` [n] rise from 0.

    num_segments: rows of the result, of which those without ids are 0; None: as many as the last id says.
    """
    return _by_segment(
        "SparseSegmentSum", segment_sum, unsorted_segment_sum, data, indices, segment_ids, num_segments, name
    )


@checked
def sparse_segment_mean(
    data: Any, indices: Any, segment_ids: Any, name: Name = None, num_segments: Segments = None
) -> Tensor:
    """The means by segment of the rows `indices` [n] of `data`: see `sparse_segment_sum`."""
    return _by_segment(
        "SparseSegmentMean",
        segment_mean,
        unsorted_segment_mean,
        data,
        indices,
        segment_ids,
        num_segments,
        name,
    )


@checked
def sparse_segment_sqrt_n(
    data: Any, indices: Any, segment_ids: Any, name: Name = None, num_segments: Segments = None
) -> Tensor:
    """The sums by segment of the rows `indices` [n] of `data`, divided by the root of their number."""
    return _by_segment(
        "SparseSegmentSqrtN",
        _root_scaled,
        unsorted_segment_sqrt_n,
        data,
        indices,
        segment_ids,
        num_segments,
        name,
    )


def _root_scaled(rows: Tensor, segment_ids: Any) -> Tensor:
    total = segment_sum(rows, segment_ids)
    return divide(total, sqrt(segment_counts(rows, segment_ids, strided_slice(shape(total), 0))))


def _by_segment(
    op: str,
    of_sorted: Callable[..., Tensor],
    of_any: Callable[..., Tensor],
    data: Any,
    indices: Any,
    segment_ids: Any,
    num_segments: Any,
    name: str | None,
) -> Tensor:
    with graph_of([data, indices, segment_ids]).as_default(), name_scope(name or op):
        rows = gather(data, indices)
        if num_segments is None:
            return of_sorted(rows, segment_ids)
        return of_any(rows, segment_ids, num_segments)
