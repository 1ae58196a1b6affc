"""Lookup of several rows of a table for each example, by the ids of a sparse tensor."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, name_scope
from tensorbow.kinds import Name, checked, instance, one_of, optional, whole
from tensorbow.ops.arrays import concat, expand_dims, reshape
from tensorbow.ops.broadcasting import ones_like, shape
from tensorbow.ops.data_dependent import boolean_mask
from tensorbow.ops.elementwise import (
    divide,
    equal,
    greater,
    greater_equal,
    logical_and,
    multiply,
    sqrt,
    square,
)
from tensorbow.ops.nn import NormLimit, PartitionStrategy, embedding_lookup
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.segments import unsorted_segment_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sparse_shapes import sparse_fill_empty_rows, sparse_reshape, sparse_retain
from tensorbow.ops.sparse_tensors import Sparse, SparseTensor, SparseTensorValue, as_sparse
from tensorbow.specs import int32

__all__ = ["embedding_lookup_sparse", "safe_embedding_lookup_sparse"]

Combiner: TypeAlias = Annotated[str, one_of("sum", "mean", "sqrtn")]
Weights: TypeAlias = Annotated[
    Any, optional(instance(SparseTensor, SparseTensorValue, expected="a tb.SparseTensor"))
]


@checked
def embedding_lookup_sparse(
    params: Any,
    sp_ids: Sparse,
    sp_weights: Weights,
    partition_strategy: PartitionStrategy = "mod",
    name: Name = None,
    combiner: Combiner = "mean",
    max_norm: NormLimit = None,
) -> Tensor:
    """For each row of `sp_ids` the combination of the table's rows that its ids name: [rows, ...].

    params: a table or its shards, as for `tb.nn.embedding_lookup`. sp_ids: a `tb.SparseTensor`
    [rows, columns] of int32 or int64 ids. sp_weights: one of the same coordinates with floating weights, or
    None: all 1. combiner: "sum" of weighted rows, "mean": divided by the sum of weights, "sqrtn": by the root
    of the sum of their squares. A row without ids is zero. max_norm: rows of the table whose 2-norm is
    greater are scaled to it. The gradient of a variable is sparse.
    """
    ids = as_sparse(sp_ids)
    if ids.rank not in (2, None):
        raise InvalidArgumentError(f"embedding_lookup_sparse: sp_ids is {ids!r}, expected rank 2")
    with ids.graph.as_default(), name_scope(name or "embedding_lookup_sparse"):
        rows = strided_slice(ids.indices, (slice(None), 0))
        count = strided_slice(ids.dense_shape, 0)
        found = embedding_lookup(params, ids.values, partition_strategy, max_norm=max_norm)
        if sp_weights is None:
            weights = cast(ones_like(ids.values), found.dtype)
        else:
            weights = cast(as_sparse(sp_weights).values, found.dtype)
        wide = weights
        for _ in range(len(found.shape) - 1):
            wide = expand_dims(wide, -1)
        total = unsorted_segment_sum(multiply(found, wide), rows, count)
        if combiner == "sum":
            return total
        norm = unsorted_segment_sum(wide if combiner == "mean" else square(wide), rows, count)
        norm = select(equal(norm, 0), 1, norm)  # a row without ids
        return divide(total, norm if combiner == "mean" else sqrt(norm))


@checked
def safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: Sparse,
    sparse_weights: Weights = None,
    combiner: Combiner = "mean",
    default_id: Annotated[int | None, optional(whole(0))] = None,
    name: Name = None,
    partition_strategy: PartitionStrategy = "div",
    max_norm: NormLimit = None,
) -> Tensor:
    """`embedding_lookup_sparse` of the ids that are at least 0: [..., columns of the table].

    sparse_ids: [..., columns], of rank 2 or more. sparse_weights: as there; entries whose weight is 0 or less
    are left out, unless `combiner` is "sum". default_id: the id of rows that have none left; None: such rows
    are zero. max_norm: as there. What leaves entries out runs in the dynamic mode.
    """
    ids = as_sparse(sparse_ids)
    if ids.rank is None or ids.rank < 2:
        raise InvalidArgumentError(f"safe_embedding_lookup_sparse: sparse_ids is {ids!r}, expected [..., n]")
    with ids.graph.as_default(), name_scope(name or "embedding_lookup"):
        lead = strided_slice(ids.dense_shape, slice(-1))
        columns = strided_slice(ids.dense_shape, slice(-1, None))
        flat_shape = concat([reshape(reduce_prod(lead), [1]), columns], 0)
        flat = sparse_reshape(ids, flat_shape) if ids.rank > 2 else ids
        kept = greater_equal(flat.values, 0)
        weights = None if sparse_weights is None else as_sparse(sparse_weights).values
        if weights is not None and combiner != "sum":
            kept = logical_and(kept, greater(weights, 0))
        chosen = sparse_retain(flat, kept)
        if weights is not None:
            weights = boolean_mask(weights, kept)
        if default_id is not None:
            if weights is not None:
                weighted = SparseTensor(chosen.indices, weights, chosen.dense_shape)
                weights = sparse_fill_empty_rows(weighted, 1)[0].values
            chosen, _ = sparse_fill_empty_rows(chosen, default_id)
        sp_weights = None if weights is None else SparseTensor(chosen.indices, weights, chosen.dense_shape)
        try:
            found = embedding_lookup_sparse(
                embedding_weights, chosen, sp_weights, partition_strategy, None, combiner, max_norm
            )
        except InvalidArgumentError as error:
            raise InvalidArgumentError(str(error).replace("params", "embedding_weights")) from None
        if ids.rank == 2:
            return found
        width = strided_slice(shape(found), slice(1, None))
        result = reshape(found, concat([cast(lead, int32), width], 0))
        result.set_shape([*ids.shape[:-1], *found.shape[1:]])
        return result
