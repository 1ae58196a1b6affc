"""Functions of the values of sparse tensors, and what ids and masks make of them."""

from __future__ import annotations

from typing import Annotated, Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Flag, Name, checked, refuse, sequence, whole
from tensorbow.ops.arrays import concat, expand_dims
from tensorbow.ops.broadcasting import size, zeros_like
from tensorbow.ops.constant import constant
from tensorbow.ops.data_dependent import setdiff1d, unique
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import add, divide, equal, exp, greater_equal, maximum, minimum, subtract
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.ops.indexing import gather
from tensorbow.ops.matmul import matmul
from tensorbow.ops.reductions import reduce_all
from tensorbow.ops.segments import unsorted_segment_max, unsorted_segment_sum
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sparse_dense import sparse_tensor_to_dense
from tensorbow.ops.sparse_shapes import sparse_reorder, sparse_retain
from tensorbow.ops.sparse_tensors import (
    Sparse,
    SparseTensor,
    SparseTensorValue,
    as_sparse,
    columns,
    coordinates_of,
    read_sparse,
    required,
    row_major,
    with_rank,
)
from tensorbow.specs import int32, int64

__all__ = [
    "sparse_add",
    "sparse_mask",
    "sparse_matmul",
    "sparse_maximum",
    "sparse_merge",
    "sparse_minimum",
    "sparse_softmax",
]

VocabularySize = Annotated[Any, whole(1) | sequence(whole(1), "a list of whole numbers of at least 1")]


@checked
def sparse_add(a: Any, b: Any, threshold: Any = 0, name: Name = None) -> Any:
    """The sum of two sparse tensors of one shape, sparse; with a dense one beside a sparse one, dense.

    threshold: sums of a smaller absolute value are left out of a sparse sum.
    """
    sparse = [isinstance(each, (SparseTensor, SparseTensorValue)) for each in (a, b)]
    if not any(sparse):
        raise refuse("sparse_add", "a", "a tb.SparseTensor here or as b", a)
    if not all(sparse):
        part, dense = (a, b) if sparse[0] else (b, a)
        return add(sparse_tensor_to_dense(part, validate_indices=False), dense, name=name)
    first, second = as_sparse(a), as_sparse(b)
    with first.graph.as_default(), name_scope(name or "SparseAdd"):
        extents, positions, numbers = _union("sparse_add", first, second)
        sums = unsorted_segment_sum(concat([first.values, second.values], 0), numbers, size(positions))
        coordinates = coordinates_of(positions, extents, first.rank)
        total = sparse_reorder(SparseTensor(coordinates, sums, extents))
        if isinstance(threshold, (int, float)) and not threshold:
            return total
        least = as_tensor(threshold, absolute(total.values).dtype)
        if least.shape.ndims:
            raise refuse("sparse_add", "threshold", "a scalar", threshold)
        return sparse_retain(total, greater_equal(absolute(total.values), least))


def _union(op: str, first: SparseTensor, second: SparseTensor) -> tuple[Tensor, Tensor, Tensor]:
    """The dense shape of both, the positions where either has an entry, and the number of each entry's."""
    message = f"{op}: the dense shapes differ; expected equal ones"
    if first.rank is not None and second.rank is None:
        second = with_rank(op, second, first.rank)
    same = reduce_all(equal(first.dense_shape, second.dense_shape))
    extents = required(same, message, first.dense_shape)
    positions, numbers = unique(row_major(concat([first.indices, second.indices], 0), extents, first.rank))
    return extents, positions, numbers


@checked
def sparse_softmax(sp_input: Sparse, name: Name = None) -> SparseTensor:
    """The softmax of the entries along the last axis; what has no entry counts as minus infinity."""
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseSoftmax"):
        rank = None if sparse.rank is None else sparse.rank - 1
        lead = strided_slice(sparse.dense_shape, slice(-1))
        flat = row_major(columns(sparse.indices, slice(-1)), lead, rank)
        rows, numbers = unique(flat)
        greatest = unsorted_segment_max(sparse.values, numbers, size(rows))
        shares = exp(subtract(sparse.values, gather(greatest, numbers)))
        total = unsorted_segment_sum(shares, numbers, size(rows))
        return SparseTensor(sparse.indices, divide(shares, gather(total, numbers)), sparse.dense_shape)


@checked
def sparse_maximum(sp_a: Sparse, sp_b: Sparse, name: Name = None) -> SparseTensor:
    """The greater of two sparse tensors of one shape, where either has an entry; the other then is 0."""
    return _joined("sparse_maximum", maximum, sp_a, sp_b, name)


@checked
def sparse_minimum(sp_a: Sparse, sp_b: Sparse, name: Name = None) -> SparseTensor:
    """The smaller of two sparse tensors of one shape, where either has an entry; the other then is 0."""
    return _joined("sparse_minimum", minimum, sp_a, sp_b, name)


def _joined(op: str, function: Any, a: Any, b: Any, name: str | None) -> SparseTensor:
    first, second = as_sparse(a), as_sparse(b)
    with first.graph.as_default(), name_scope(name or op):
        extents, positions, numbers = _union(op, first, second)
        pairs = (first.values, zeros_like(second.values)), (zeros_like(first.values), second.values)
        values = [unsorted_segment_sum(concat(pair, 0), numbers, size(positions)) for pair in pairs]
        joined = SparseTensor(coordinates_of(positions, extents, first.rank), function(*values), extents)
        return sparse_reorder(joined)


# Ids and masks ------------------------------------------------------------------------------------------


@checked
def sparse_merge(
    sp_ids: Any,
    sp_values: Sparse,
    vocab_size: VocabularySize,
    name: Name = None,
    already_sorted: Flag = False,
) -> SparseTensor:
    """The values at [..., id]: the last coordinate of each entry is replaced by its id.

    sp_ids: a sparse tensor of integers with the coordinates of `sp_values`, or several in a list, which give
    as many last axes. vocab_size: the extent of the new axis, or of each in a list. already_sorted: leaves
    the entries in the order in which they are; otherwise they come in row-major order.
    """
    values = as_sparse(sp_values)
    given = sp_ids if isinstance(sp_ids, list) else [sp_ids]
    ids = [read_sparse("sparse_merge", each, "sp_ids") for each in given]
    extents = [vocab_size] if isinstance(vocab_size, int) else list(vocab_size)
    if len(ids) != len(extents) or not ids:
        raise InvalidArgumentError(f"sparse_merge: got {len(ids)} sp_ids and {len(extents)} vocab_size")
    with values.graph.as_default(), name_scope(name or "SparseMerge"):
        for each in ids:
            require_dtype("sparse_merge", each.values.spec, (int32, int64), "sp_ids")
        last = [expand_dims(cast(each.values, int64), 1) for each in ids]
        indices = concat([columns(ids[0].indices, slice(-1)), *last], 1)
        lead = strided_slice(ids[0].dense_shape, slice(-1))
        merged = SparseTensor(indices, values.values, concat([lead, constant(extents, int64)], 0))
        return merged if already_sorted else sparse_reorder(merged)


@checked
def sparse_mask(a: Any, mask_indices: Any, name: Name = None) -> IndexedSlices:
    """The rows of an IndexedSlices with other indices than those of `mask_indices` `[n]`."""
    if not isinstance(a, IndexedSlices):
        raise refuse("sparse_mask", "a", "a tb.IndexedSlices", a)
    with a.graph.as_default(), name_scope(name or "sparse_mask"):
        kept, positions = setdiff1d(a.indices, cast(as_tensor(mask_indices), a.indices.dtype))
        return IndexedSlices(gather(a.values, positions), kept, a.dense_shape)


@checked
def sparse_matmul(
    a: Any,
    b: Any,
    transpose_a: Flag = False,
    transpose_b: Flag = False,
    a_is_sparse: Flag = False,
    b_is_sparse: Flag = False,
    name: Name = None,
) -> Tensor:
    """The product of two dense matrices of which many elements are 0, computed as `matmul` does.

    `a_is_sparse`, `b_is_sparse` have no effect. For a `tb.SparseTensor`: `tb.sparse_tensor_dense_matmul`.
    """
    return matmul(a, b, transpose_a, transpose_b, name=name)
