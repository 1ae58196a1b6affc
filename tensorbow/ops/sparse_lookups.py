"""Lookup of several rows of a table for each example, by the ids of a sparse tensor."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, name_scope
from tensorbow.kinds import Name, checked, instance, one_of, optional
from tensorbow.ops.arrays import expand_dims
from tensorbow.ops.broadcasting import ones_like
from tensorbow.ops.elementwise import divide, equal, multiply, sqrt, square
from tensorbow.ops.nn import PartitionStrategy, embedding_lookup
from tensorbow.ops.segments import unsorted_segment_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sparse_tensors import Sparse, SparseTensor, SparseTensorValue

__all__ = ["embedding_lookup_sparse"]

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
) -> Tensor:
    """For each row of `sp_ids` the combination of the table's rows that its ids name: [rows, ...].

    params: a table or its shards, as for `tb.nn.embedding_lookup`. sp_ids: a `tb.SparseTensor`
    [rows, columns] of int32 or int64 ids. sp_weights: one of the same coordinates with floating weights, or
    None: all 1. combiner: "sum" of weighted rows, "mean": divided by the sum of weights, "sqrtn": by the root
    of the sum of their squares. A row without ids is zero. The gradient of a variable is sparse.
    """
    ids = sp_ids if isinstance(sp_ids, SparseTensor) else SparseTensor(*sp_ids)
    if ids.rank not in (2, None):
        raise InvalidArgumentError(f"embedding_lookup_sparse: sp_ids is {ids!r}, expected rank 2")
    with ids.graph.as_default(), name_scope(name or "embedding_lookup_sparse"):
        rows = strided_slice(ids.indices, (slice(None), 0))
        count = strided_slice(ids.dense_shape, 0)
        found = embedding_lookup(params, ids.values, partition_strategy)
        if sp_weights is None:
            weights = cast(ones_like(ids.values), found.dtype)
        else:
            given = sp_weights if isinstance(sp_weights, SparseTensor) else SparseTensor(*sp_weights)
            weights = cast(given.values, found.dtype)
        wide = weights
        for _ in range(len(found.shape) - 1):
            wide = expand_dims(wide, -1)
        total = unsorted_segment_sum(multiply(found, wide), rows, count)
        if combiner == "sum":
            return total
        norm = unsorted_segment_sum(wide if combiner == "mean" else square(wide), rows, count)
        norm = select(equal(norm, 0), 1, norm)  # a row without ids
        return divide(total, norm if combiner == "mean" else sqrt(norm))
