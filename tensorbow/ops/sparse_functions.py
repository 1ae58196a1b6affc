"""More functions of sparse tensors: parts, rows, extremes, softmax, and what ids and masks make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import (
    AxisNumber,
    AxisNumbers,
    Flag,
    Name,
    Positive,
    checked,
    optional,
    refuse,
    sequence,
    whole,
)
from tensorbow.ops.argument_kinds import Extents
from tensorbow.ops.arrays import concat, expand_dims, reshape
from tensorbow.ops.broadcasting import as_shape_vector, checked_axis, shape, size, zeros_like
from tensorbow.ops.conditions import where
from tensorbow.ops.constant import constant
from tensorbow.ops.data_dependent import MOST_PARTITIONS, setdiff1d, unique
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import (
    add,
    divide,
    equal,
    exp,
    floordiv,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    maximum,
    minimum,
    mod,
    multiply,
    subtract,
)
from tensorbow.ops.filling import fill
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.ops.indexing import gather
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nd_indexing import scatter_nd
from tensorbow.ops.reductions import reduce_all, reduce_max, reduce_prod
from tensorbow.ops.segments import unsorted_segment_max, unsorted_segment_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sparse_tensors import (
    Sparse,
    SparseTensor,
    _flat,
    _made,
    _rank_of,
    _read_sparse,
    _require,
    _unflat,
    sparse_reorder,
    sparse_retain,
)
from tensorbow.specs import bool_, int32, int64

__all__ = [
    "sparse_expand_dims",
    "sparse_fill_empty_rows",
    "sparse_mask",
    "sparse_matmul",
    "sparse_maximum",
    "sparse_merge",
    "sparse_minimum",
    "sparse_reduce_max",
    "sparse_reduce_max_sparse",
    "sparse_reduce_sum_sparse",
    "sparse_reset_shape",
    "sparse_slice",
    "sparse_softmax",
    "sparse_split",
    "sparse_to_indicator",
]

VocabularySize = Annotated[Any, whole(1) | sequence(whole(1), "a list of whole numbers of at least 1")]


def _columns(indices: Tensor, part: slice | int) -> Tensor:
    return strided_slice(indices, (slice(None), part))


# Parts --------------------------------------------------------------------------------------------------


@checked
def sparse_slice(sp_input: Sparse, start: Any, size: Any, name: Name = None) -> SparseTensor:
    """The box of entries from `start` on, of extents `size` (integers [rank]), cut at the tensor's end."""
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseSlice"):
        begin, extents = _int64("sparse_slice", start, "start"), _int64("sparse_slice", size, "size")
        end = minimum(add(begin, extents), sparse.dense_shape)
        inside = logical_and(greater_equal(sparse.indices, begin), less(sparse.indices, end))
        kept = sparse_retain(sparse, reduce_all(inside, 1))
        return SparseTensor(subtract(kept.indices, begin), kept.values, maximum(subtract(end, begin), 0))


def _int64(op: str, value: Any, what: str) -> Tensor:
    tensor = as_tensor(value)
    require_dtype(op, tensor.spec, (int32, int64), what)
    return cast(tensor, int64)


@checked
def sparse_split(
    sp_input: Sparse,
    num_split: Annotated[int, whole(1, MOST_PARTITIONS)],
    axis: AxisNumber,
    name: Name = None,
) -> list[SparseTensor]:
    """`num_split` parts along `axis`; the first ones are longer by 1 if its extent is no multiple.

    TensorFlow 1 takes these arguments by name.
    """
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseSplit"):
        rank = _rank_of("sparse_split", sparse)
        place = checked_axis("sparse_split", axis, rank)
        along = constant([int(each == place) for each in range(rank)], int64)
        extent = strided_slice(sparse.dense_shape, place)
        least, longer = floordiv(extent, num_split), mod(extent, num_split)
        parts = []
        for number in range(num_split):
            first = add(multiply(least, number), minimum(longer, number))
            length = add(least, cast(greater(longer, number), int64))
            extents = add(multiply(subtract(1, along), sparse.dense_shape), multiply(along, length))
            parts.append(sparse_slice(sparse, multiply(along, first), extents))
        return parts


@checked
def sparse_expand_dims(
    sp_input: Sparse, axis: Annotated[int | None, optional(whole())] = None, name: Name = None
) -> SparseTensor:
    """The same entries with a new axis of extent 1 at `axis`, by default the last."""
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseExpandDims"):
        rank = _rank_of("sparse_expand_dims", sparse)
        place = checked_axis("sparse_expand_dims", -1 if axis is None else axis, rank + 1)
        column = multiply(_columns(sparse.indices, slice(0, 1)), 0)
        before, behind = slice(None, place), slice(place, None)
        indices = [_columns(sparse.indices, before), column, _columns(sparse.indices, behind)]
        one = constant([1], int64)
        extents = [strided_slice(sparse.dense_shape, before), one, strided_slice(sparse.dense_shape, behind)]
        return SparseTensor(concat(indices, 1), sparse.values, concat(extents, 0))


@checked
def sparse_reset_shape(sp_input: Sparse, new_shape: Extents | None = None, name: Name = None) -> SparseTensor:
    """The same entries under a dense shape that is as large at least: `new_shape`, or the tight one.

    A new shape of another rank raises InvalidArgumentError, a smaller one when it runs.
    """
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseResetShape"):
        rank = _rank_of("sparse_reset_shape", sparse)
        if new_shape is None:
            tight = reduce_max(concat([sparse.indices, constant(np.full((1, rank), -1), int64)], 0), 0)
            return SparseTensor(sparse.indices, sparse.values, add(tight, 1))
        wanted = cast(as_tensor(as_shape_vector(new_shape)), int64)
        if wanted.spec.shape not in (None, (None,), (rank,)):
            raise InvalidArgumentError(
                f"sparse_reset_shape: new_shape is {wanted.spec}, expected {rank} extents, as the tensor's"
            )
        message = "sparse_reset_shape: the new shape is smaller; expected extents of at least the tensor's"
        return SparseTensor(
            sparse.indices, sparse.values, _require(less_equal(sparse.dense_shape, wanted), message, wanted)
        )


@checked
def sparse_fill_empty_rows(
    sp_input: Sparse, default_value: Any, name: Name = None
) -> tuple[SparseTensor, Tensor]:
    """A sparse matrix with `default_value` at the start of rows without entries, and these rows, bool [rows].

    Its entries come in row-major order.
    """
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseFillEmptyRows"):
        if sparse.rank != 2:
            raise InvalidArgumentError(f"sparse_fill_empty_rows: expected a matrix, got {sparse!r}")
        rows = _columns(sparse.indices, 0)
        count = strided_slice(sparse.dense_shape, 0)
        is_empty = equal(unsorted_segment_sum(fill(shape(rows), 1), rows, count), 0)
        empty = where(is_empty)
        indices = concat([sparse.indices, concat([empty, multiply(empty, 0)], 1)], 0)
        default = as_tensor(default_value, sparse.dtype)
        values = concat([sparse.values, fill(strided_slice(shape(empty), slice(1)), default)], 0)
        return sparse_reorder(SparseTensor(indices, values, sparse.dense_shape)), is_empty


# Values ---------------------------------------------------------------------------------------------------


@checked
def sparse_softmax(sp_input: Sparse, name: Name = None) -> SparseTensor:
    """The softmax of the entries along the last axis; what has no entry counts as minus infinity."""
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseSoftmax"):
        rank = _rank_of("sparse_softmax", sparse)
        lead = strided_slice(sparse.dense_shape, slice(-1))
        flat = _flat(_columns(sparse.indices, slice(-1)), lead, rank - 1)
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
    first, second = _made(a), _made(b)
    with first.graph.as_default(), name_scope(name or op):
        rank = first.rank
        message = f"{op}: the dense shapes differ; expected equal ones"
        extents = _require(equal(first.dense_shape, second.dense_shape), message, first.dense_shape)
        positions, numbers = unique(_flat(concat([first.indices, second.indices], 0), extents, rank))
        pairs = (first.values, zeros_like(second.values)), (zeros_like(first.values), second.values)
        values = [unsorted_segment_sum(concat(pair, 0), numbers, size(positions)) for pair in pairs]
        joined = SparseTensor(_unflat(positions, extents, rank), function(*values), extents)
        return sparse_reorder(joined)


@checked
def sparse_reduce_max(
    sp_input: Sparse, axis: AxisNumbers = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The greatest entry over the given axes, or over all: a dense tensor, 0 where there is no entry."""
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseReduceMax"):
        rank = _rank_of("sparse_reduce_max", sparse)
        axes = range(rank) if axis is None else axis
        over = [checked_axis("sparse_reduce_max", each, rank) for each in axes]
        kept = [each for each in range(rank) if each not in over]
        extents = gather(sparse.dense_shape, constant(kept, int64))
        numbers = _flat(gather(sparse.indices, constant(kept, int64), axis=1), extents, len(kept))
        count = reduce_prod(extents)
        greatest = unsorted_segment_max(sparse.values, numbers, count)
        entries = unsorted_segment_sum(fill(shape(numbers), 1), numbers, count)
        result = reshape(select(greater(entries, 0), greatest, 0), cast(extents, int32))
        result.set_shape([sparse.shape[each] for each in kept])
        for each in sorted(over) if keepdims else ():
            result = expand_dims(result, each)
        return result


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
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or op):
        rank = _rank_of(op, sparse)
        over = [checked_axis(op, each, rank) for each in (range(rank) if axis is None else axis)]
        stays = [each not in over for each in range(rank)]
        extents = select(constant(stays, bool_), sparse.dense_shape, 1)
        indices = multiply(sparse.indices, constant([int(each) for each in stays], int64))
        positions, numbers = unique(_flat(indices, extents, rank))
        values = function(sparse.values, numbers, size(positions))
        reduced = sparse_reorder(SparseTensor(_unflat(positions, extents, rank), values, extents))
        if keepdims:
            return reduced
        kept = constant([each for each in range(rank) if stays[each]], int64)
        return SparseTensor(gather(reduced.indices, kept, axis=1), reduced.values, gather(extents, kept))


# Ids and masks --------------------------------------------------------------------------------------------


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
    values = _made(sp_values)
    given = sp_ids if isinstance(sp_ids, list) else [sp_ids]
    ids = [_read_sparse("sparse_merge", each, "sp_ids") for each in given]
    extents = [vocab_size] if isinstance(vocab_size, int) else list(vocab_size)
    if len(ids) != len(extents) or not ids:
        raise InvalidArgumentError(f"sparse_merge: got {len(ids)} sp_ids and {len(extents)} vocab_size")
    with values.graph.as_default(), name_scope(name or "SparseMerge"):
        columns = [expand_dims(_int64("sparse_merge", each.values, "sp_ids"), 1) for each in ids]
        indices = concat([_columns(ids[0].indices, slice(-1)), *columns], 1)
        lead = strided_slice(ids[0].dense_shape, slice(-1))
        merged = SparseTensor(indices, values.values, concat([lead, constant(extents, int64)], 0))
        return merged if already_sorted else sparse_reorder(merged)


@checked
def sparse_to_indicator(sp_input: Sparse, vocab_size: Positive, name: Name = None) -> Tensor:
    """True at [..., id] for the ids among the entries: a dense bool tensor of last extent `vocab_size`."""
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseToIndicator"):
        ids = expand_dims(_int64("sparse_to_indicator", sparse.values, "the values"), 1)
        indices = concat([_columns(sparse.indices, slice(-1)), ids], 1)
        lead = strided_slice(sparse.dense_shape, slice(-1))
        ones = fill(shape(sparse.values), 1)
        found = greater(scatter_nd(indices, ones, concat([lead, constant([vocab_size], int64)], 0)), 0)
        found.set_shape([*sparse.shape[:-1], vocab_size] if sparse.rank else None)
        return found


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
