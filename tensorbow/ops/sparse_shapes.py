"""Order, shape and parts of sparse tensors."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, HostCall, Tensor, as_tensor, name_scope
from tensorbow.kinds import AxisNumber, AxisNumbers, Flag, Items, Name, checked, optional, refuse, whole
from tensorbow.ops.argument_kinds import Extents
from tensorbow.ops.arrays import concat, expand_dims
from tensorbow.ops.broadcasting import as_shape_vector, checked_axis, shape, size, zeros_like
from tensorbow.ops.conditions import where
from tensorbow.ops.constant import constant
from tensorbow.ops.data_dependent import MOST_PARTITIONS, boolean_mask
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import (
    add,
    equal,
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
from tensorbow.ops.filling import range as range_of
from tensorbow.ops.indexing import gather
from tensorbow.ops.reductions import reduce_all, reduce_max, reduce_prod, reduce_sum
from tensorbow.ops.segments import unsorted_segment_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sparse_tensors import (
    Sparse,
    SparseTensor,
    as_sparse,
    axes_mask,
    columns,
    coordinates_of,
    read_sparse,
    required,
    row_major,
    with_rank,
)
from tensorbow.specs import Array, TensorSpec, compatible, int32, int64

__all__ = [
    "sparse_concat",
    "sparse_expand_dims",
    "sparse_fill_empty_rows",
    "sparse_reorder",
    "sparse_reset_shape",
    "sparse_reshape",
    "sparse_retain",
    "sparse_slice",
    "sparse_split",
    "sparse_transpose",
]


def _order(call: HostCall) -> Array:
    (positions,) = call.inputs
    return np.argsort(positions, kind="stable")


Order = define_op(
    "SparseOrder",
    spec=lambda inputs, attrs: TensorSpec(inputs[0].shape, int64),
    gradient=NOT_DIFFERENTIABLE,
    host=_order,
    inputs=("positions",),
    doc="The order of rising positions, stable.",
)


@checked
def sparse_reorder(sp_input: Sparse, name: Name = None) -> SparseTensor:
    """The same sparse tensor with its entries in row-major order."""
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseReorder"):
        order = Order(row_major(sparse.indices, sparse.dense_shape, sparse.rank))
        return SparseTensor(gather(sparse.indices, order), gather(sparse.values, order), sparse.dense_shape)


@checked
def sparse_reshape(sp_input: Sparse, shape: Extents, name: Name = None) -> SparseTensor:
    """The same entries under another dense shape, one of whose extents may be -1.

    Raises InvalidArgumentError at run time if the number of elements changes.
    """
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseReshape"):
        wanted = cast(as_tensor(as_shape_vector(shape)), int64)
        length = (wanted.spec.shape or (None,))[0]
        total = reduce_prod(sparse.dense_shape)
        given = reduce_prod(select(less(wanted, 0), 1, wanted))
        target = select(less(wanted, 0), floordiv(total, maximum(given, 1)), wanted)
        message = "sparse_reshape: the number of elements differs; expected the same"
        target = required(equal(reduce_prod(target), total), message, target)
        flat = row_major(sparse.indices, sparse.dense_shape, sparse.rank)
        return SparseTensor(coordinates_of(flat, target, length), sparse.values, target)


@checked
def sparse_transpose(sp_input: Sparse, perm: AxisNumbers = None, name: Name = None) -> SparseTensor:
    """The sparse tensor with its axis `perm[i]` as axis i, by default reversed, in row-major order."""
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseTranspose"):
        rank = sparse.rank if perm is None or sparse.rank is not None else len(perm)
        axes = perm if perm is not None or rank is None else tuple(reversed(range(rank)))
        if axes is not None and sorted(axes) != list(range(rank or 0)):
            raise InvalidArgumentError(
                f"sparse_transpose: perm {list(axes)} is no permutation of {rank} axes"
            )
        if rank is not None:
            sparse = with_rank("sparse_transpose", sparse, rank)
        count = size(sparse.dense_shape)
        order = subtract(subtract(count, 1), range_of(count)) if axes is None else constant(list(axes), int32)
        extents = gather(sparse.dense_shape, order)
        return sparse_reorder(SparseTensor(gather(sparse.indices, order, axis=1), sparse.values, extents))


# Parts --------------------------------------------------------------------------------------------------


@checked
def sparse_concat(
    axis: AxisNumber, sp_inputs: Items, name: Name = None, expand_nonconcat_dims: Flag = False
) -> SparseTensor:
    """Joins sparse tensors along `axis`; the entries come in row-major order.

    All other extents are equal, or with `expand_nonconcat_dims` made the greatest ones. Raises
    InvalidArgumentError at run time for others.
    """
    if not sp_inputs:
        raise refuse("sparse_concat", "sp_inputs", "a list of at least one sparse tensor", sp_inputs)
    parts = [read_sparse("sparse_concat", each) for each in sp_inputs]
    rank = next((part.rank for part in parts if part.rank is not None), None)
    if rank is not None:
        parts = [with_rank("sparse_concat", part, rank) for part in parts]
    with parts[0].graph.as_default(), name_scope(name or "SparseConcat"):
        along = axes_mask("sparse_concat", parts[0], [axis])
        across = subtract(1, along)
        offset, widest = multiply(parts[0].dense_shape, 0), multiply(parts[0].dense_shape, across)
        indices = []
        for part in parts:
            others = multiply(part.dense_shape, across)
            if expand_nonconcat_dims:
                widest = maximum(widest, others)
            message = f"sparse_concat: extents of other axes than {axis} differ; expected equal ones"
            fits = constant(True) if expand_nonconcat_dims else equal(others, widest)
            indices.append(required(fits, message, add(part.indices, offset)))
            offset = add(offset, multiply(part.dense_shape, along))
        values = concat([part.values for part in parts], 0)
        return sparse_reorder(SparseTensor(concat(indices, 0), values, add(widest, offset)))


@checked
def sparse_slice(sp_input: Sparse, start: Any, size: Any, name: Name = None) -> SparseTensor:
    """The box of entries from `start` on, of extents `size` (integers [rank]), cut at the tensor's end."""
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseSlice"):
        begin, extents = _place(start, "start"), _place(size, "size")
        for each, what in ((begin, "start"), (extents, "size")):
            if sparse.rank is not None and not compatible(each.spec.shape, (sparse.rank,)):
                raise InvalidArgumentError(f"sparse_slice: {what} is {each.spec}, expected [{sparse.rank}]")
        end = minimum(add(begin, extents), sparse.dense_shape)
        inside = logical_and(greater_equal(sparse.indices, begin), less(sparse.indices, end))
        kept = sparse_retain(sparse, reduce_all(inside, 1))
        return SparseTensor(subtract(kept.indices, begin), kept.values, maximum(subtract(end, begin), 0))


def _place(value: Any, what: str) -> Tensor:
    tensor = as_tensor(value)
    require_dtype("sparse_slice", tensor.spec, (int32, int64), what)
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
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseSplit"):
        along = axes_mask("sparse_split", sparse, [axis])
        across = multiply(subtract(1, along), sparse.dense_shape)
        extent = reduce_sum(multiply(along, sparse.dense_shape))
        least, longer = floordiv(extent, num_split), mod(extent, num_split)
        parts = []
        for number in range(num_split):
            first = add(multiply(least, number), minimum(longer, number))
            length = add(least, cast(greater(longer, number), int64))
            parts.append(sparse_slice(sparse, multiply(along, first), add(across, multiply(along, length))))
        return parts


@checked
def sparse_retain(sp_input: Sparse, to_retain: Any, name: Name = None) -> SparseTensor:
    """The entries where `to_retain` (bool [n]) is true."""
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseRetain"):
        chosen = as_tensor(to_retain)
        indices, values = (boolean_mask(each, chosen) for each in (sparse.indices, sparse.values))
        return SparseTensor(indices, values, sparse.dense_shape)


@checked
def sparse_expand_dims(
    sp_input: Sparse, axis: Annotated[int | None, optional(whole())] = None, name: Name = None
) -> SparseTensor:
    """The same entries with a new axis of extent 1 at `axis`, by default the last."""
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseExpandDims"):
        place = -1 if axis is None else axis
        if sparse.rank is not None:
            place = checked_axis("sparse_expand_dims", place, sparse.rank + 1)
        message = f"sparse_expand_dims: axis {axis} is outside the rank of the sparse tensor"
        fits = greater_equal(size(sparse.dense_shape), place if place >= 0 else -1 - place)
        extents = required(fits, message, sparse.dense_shape)
        split = place if place >= 0 else place + 1 or None  # counted from the end: after that many axes
        before, behind = slice(None, split), slice(split, None) if split is not None else slice(0, 0)
        column = multiply(columns(sparse.indices, slice(0, 1)), 0)
        indices = [columns(sparse.indices, before), column, columns(sparse.indices, behind)]
        wide = [strided_slice(extents, before), constant([1], int64), strided_slice(extents, behind)]
        return SparseTensor(concat(indices, 1), sparse.values, concat(wide, 0))


@checked
def sparse_reset_shape(sp_input: Sparse, new_shape: Extents | None = None, name: Name = None) -> SparseTensor:
    """The same entries under a dense shape that is as large at least: `new_shape`, or the tight one.

    A new shape of another rank raises InvalidArgumentError, a smaller one when it runs.
    """
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseResetShape"):
        if new_shape is None:
            before_first = subtract(expand_dims(zeros_like(sparse.dense_shape), 0), 1)
            tight = reduce_max(concat([sparse.indices, before_first], 0), 0)
            return SparseTensor(sparse.indices, sparse.values, add(tight, 1))
        wanted = cast(as_tensor(as_shape_vector(new_shape)), int64)
        rank, length = sparse.rank, (wanted.spec.shape or (None,))[0]
        if rank is not None and length not in (None, rank):
            raise InvalidArgumentError(
                f"sparse_reset_shape: new_shape is {wanted.spec}, expected {rank} extents, as the tensor's"
            )
        if length is not None:
            sparse = with_rank("sparse_reset_shape", sparse, length)
        message = "sparse_reset_shape: the new shape is smaller; expected extents of at least the tensor's"
        return SparseTensor(
            sparse.indices, sparse.values, required(less_equal(sparse.dense_shape, wanted), message, wanted)
        )


@checked
def sparse_fill_empty_rows(
    sp_input: Sparse, default_value: Any, name: Name = None
) -> tuple[SparseTensor, Tensor]:
    """A sparse matrix with `default_value` at the start of rows without entries, and these rows, bool [rows].

    Its entries come in row-major order.
    """
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseFillEmptyRows"):
        sparse = with_rank("sparse_fill_empty_rows", sparse, 2)
        rows = columns(sparse.indices, 0)
        count = strided_slice(sparse.dense_shape, 0)
        is_empty = equal(unsorted_segment_sum(fill(shape(rows), 1), rows, count), 0)
        empty = where(is_empty)
        indices = concat([sparse.indices, concat([empty, multiply(empty, 0)], 1)], 0)
        default = as_tensor(default_value, sparse.dtype)
        values = concat([sparse.values, fill(strided_slice(shape(empty), slice(1)), default)], 0)
        return sparse_reorder(SparseTensor(indices, values, sparse.dense_shape)), is_empty
