"""Sparse tensors to dense ones and back, and the product of a sparse and a dense matrix."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import AsDType, Flag, Name, Positive, checked, optional, whole
from tensorbow.ops.argument_kinds import INT32, Extents
from tensorbow.ops.arrays import concat, expand_dims, reshape, transpose
from tensorbow.ops.broadcasting import as_shape_vector, broadcast_to, shape
from tensorbow.ops.conditions import where
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import greater, greater_equal, less, logical_and, multiply, not_equal
from tensorbow.ops.filling import fill
from tensorbow.ops.indexing import gather
from tensorbow.ops.nd_indexing import scatter_nd
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.segments import unsorted_segment_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sparse_tensors import (
    Sparse,
    SparseTensor,
    as_sparse,
    columns,
    coordinates_of,
    required,
    row_major,
    with_rank,
)
from tensorbow.specs import bool_, compatible, float32, int32, int64, string

__all__ = [
    "sparse_eye",
    "sparse_from_dense",
    "sparse_tensor_dense_matmul",
    "sparse_tensor_to_dense",
    "sparse_to_dense",
    "sparse_to_indicator",
]


@checked
def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Extents,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: Flag = True,
    name: Name = None,
) -> Tensor:
    """A tensor of `output_shape` with `sparse_values` at `sparse_indices` and `default_value` elsewhere.

    sparse_indices: int32 or int64, a scalar, [n], or coordinates [n, rank]; sparse_values: a scalar or [n].
    Raises InvalidArgumentError at run time on CPU devices for coordinates out of the shape and, unless
    `validate_indices` is False, for ones that are not in row-major order or repeat; unchecked repeats add up.
    """
    with graph_of([sparse_indices, output_shape, sparse_values]).as_default():
        indices, values = as_tensor(sparse_indices), as_tensor(sparse_values)
        require_dtype("sparse_to_dense", indices.spec, (int32, int64), "sparse_indices")
        extents = cast(as_tensor(as_shape_vector(output_shape)), int64)
        with name_scope(name or "SparseToDense"):
            rank = indices.shape.ndims
            if rank is None or rank > 2:
                raise InvalidArgumentError(
                    f"sparse_to_dense: sparse_indices are {indices.spec}, expected a scalar, [n] or [n, rank]"
                )
            wide = cast(indices, int64)
            wide = wide if rank == 2 else reshape(wide, [-1, 1])
            if values.shape.ndims == 0:
                values = broadcast_to(values, strided_slice(shape(wide), slice(1)))
            number = _default_number("sparse_to_dense", default_value, values)
            return _dense(wide, extents, values, number, validate_indices)


def _default_number(label: str, default: Any, values: Tensor) -> Tensor:
    """The default value as a scalar of the values' dtype. Raises InvalidArgumentError for other shapes."""
    is_truth = values.dtype == bool_ and type(default) is int
    number = as_tensor(bool(default) if is_truth else default, values.dtype)
    if number.shape.ndims not in (None, 0):
        raise InvalidArgumentError(f"{label}: default_value is {number.spec}, expected a scalar")
    return number


def _dense(indices: Tensor, extents: Tensor, values: Tensor, number: Tensor, validate: bool) -> Tensor:
    if validate:
        rank = (extents.spec.shape or (None,))[0]
        rank = (indices.spec.shape or (None, None))[1] if rank is None else rank
        flat = row_major(indices, extents, rank)
        rising = greater(strided_slice(flat, slice(1, None)), strided_slice(flat, slice(None, -1)))
        message = (
            "indices are not in row-major order, or repeat; use tb.sparse_reorder or validate_indices=False"
        )
        indices = required(rising, message, indices)
    dense = scattered(indices, values, extents)
    if number.spec.value is not None and number.spec.value.ndim == 0 and not number.spec.value:
        return dense
    count = strided_slice(shape(indices), slice(1))
    return select(greater(scattered(indices, fill(count, 1), extents), 0), dense, number)


def scattered(indices: Tensor, values: Tensor, extents: Tensor) -> Tensor:
    """Sums of the values at each of the coordinates [n, rank], also of a rank that a run decides."""
    if (indices.spec.shape or (None, None))[1] is not None:
        return scatter_nd(indices, values, extents)
    inside = logical_and(greater_equal(indices, 0), less(indices, extents))
    within = required(inside, "indices of a sparse tensor are outside its dense shape", indices)
    sums = unsorted_segment_sum(values, row_major(within, extents, None), reduce_prod(extents))
    return reshape(sums, cast(extents, int32))


@checked
def sparse_tensor_to_dense(
    sp_input: Sparse, default_value: Any = 0, validate_indices: Flag = True, name: Name = None
) -> Tensor:
    """The dense tensor, with `default_value` where the sparse one has nothing: see `sparse_to_dense`."""
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseToDense"):
        number = _default_number("sparse_tensor_to_dense", default_value, sparse.values)
        result = _dense(sparse.indices, sparse.dense_shape, sparse.values, number, validate_indices)
        result.set_shape(sparse.shape)
        return result


@checked
def sparse_from_dense(tensor: Any, name: Name = None) -> SparseTensor:
    """The elements of a dense tensor that are not 0, of strings those that are not empty."""
    x = as_tensor(tensor)
    with x.graph.as_default(), name_scope(name or "dense_to_sparse"):
        flat = reshape(x, [-1])
        present = not_equal(flat, constant("") if x.dtype == string else cast(constant(0), x.dtype))
        positions = reshape(where(present), [-1])
        extents = shape(x, out_type=int64)
        indices = coordinates_of(positions, extents, x.shape.ndims)
        return SparseTensor(indices, gather(flat, positions), extents)


@checked
def sparse_eye(
    num_rows: Annotated[int, whole(0, INT32 - 1)],
    num_columns: Annotated[int | None, optional(whole(0, INT32 - 1))] = None,
    dtype: AsDType = float32,
    name: Name = None,
) -> SparseTensor:
    """The identity matrix [num_rows, num_columns], by default a square one, with ones on the diagonal."""
    wide = num_rows if num_columns is None else num_columns
    with name_scope(name or "eye"):
        places = np.arange(min(num_rows, wide))
        ones = cast(constant(np.ones(len(places), np.int32)), dtype)
        indices, extents = constant(np.stack([places, places], 1), int64), constant([num_rows, wide], int64)
        return SparseTensor(indices, ones, extents)


@checked
def sparse_tensor_dense_matmul(
    sp_a: Sparse, b: Any, adjoint_a: Flag = False, adjoint_b: Flag = False, name: Name = None
) -> Tensor:
    """The product [m, k] of a sparse matrix [m, n] and a dense one [n, k], either transposed on request.

    The entries may come in any order; equal coordinates add up. The gradient reaches the values and `b`.
    """
    sparse = as_sparse(sp_a)
    with sparse.graph.as_default(), name_scope(name or "SparseTensorDenseMatMul"):
        dense = as_tensor(b)
        if sparse.rank not in (2, None) or dense.shape.ndims != 2:
            raise InvalidArgumentError(
                f"sparse_tensor_dense_matmul: expected two matrices, got {sparse!r} and {dense.spec}"
            )
        sparse = with_rank("sparse_tensor_dense_matmul", sparse, 2)
        if adjoint_b:
            dense = transpose(dense)
        row, column = (1, 0) if adjoint_a else (0, 1)
        inner = sparse.shape[column], dense.shape[0]
        if not compatible(inner[:1], inner[1:]):
            raise InvalidArgumentError(
                f"sparse_tensor_dense_matmul: inner extents {inner[0]} and {inner[1]} differ ({sparse!r}, "
                f"{dense.spec}); use adjoint_a or adjoint_b"
            )
        products = multiply(expand_dims(sparse.values, 1), gather(dense, columns(sparse.indices, column)))
        count = strided_slice(sparse.dense_shape, row)
        return unsorted_segment_sum(products, columns(sparse.indices, row), count)


@checked
def sparse_to_indicator(sp_input: Sparse, vocab_size: Positive, name: Name = None) -> Tensor:
    """True at [..., id] for the ids among the entries: a dense bool tensor of last extent `vocab_size`."""
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseToIndicator"):
        require_dtype("sparse_to_indicator", sparse.values.spec, (int32, int64), "the values")
        ids = expand_dims(cast(sparse.values, int64), 1)
        indices = concat([columns(sparse.indices, slice(-1)), ids], 1)
        lead = strided_slice(sparse.dense_shape, slice(-1))
        ones = fill(shape(sparse.values), 1)
        found = greater(scattered(indices, ones, concat([lead, constant([vocab_size], int64)], 0)), 0)
        found.set_shape([*sparse.shape[:-1], vocab_size] if sparse.rank else None)
        return found
