"""Categories as numbers: embeddings, one of them for several columns, and indicators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.feature_column.columns import (
    AsCategorical,
    CategoricalColumn,
    ColumnWeights,
    DenseColumn,
    Features,
    combined,
)
from tensorbow.graph import Tensor, as_tensor, get_default_graph
from tensorbow.initializers import truncated_normal
from tensorbow.kinds import (
    ITEMS,
    Flag,
    Kind,
    Name,
    Positive,
    PositiveNumber,
    RefusedError,
    checked,
    one_of,
    optional,
)
from tensorbow.ops.arrays import expand_dims
from tensorbow.ops.elementwise import multiply
from tensorbow.ops.indexing import one_hot
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.sparse_dense import sparse_tensor_to_dense
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.specs import int64
from tensorbow.variable_scope import Start

Combiner: TypeAlias = Annotated[str, one_of("mean", "sqrtn", "sum")]
Limit: TypeAlias = Annotated["float | None", optional(PositiveNumber.__metadata__[0])]


@dataclass(frozen=True)
class IndicatorColumn(DenseColumn):
    """See `indicator_column`."""

    column: CategoricalColumn

    def dense(self, features: Features, weights: ColumnWeights) -> Tensor:
        """The counts, or sums of weights."""
        numbers, given = self.column.ids(features)
        if isinstance(numbers, SparseTensor):
            numbers = sparse_tensor_to_dense(numbers, as_tensor(-1, int64))
            given = None if given is None else sparse_tensor_to_dense(given, 0.0)
        hot = one_hot(numbers, self.width)
        total = reduce_sum(hot if given is None else multiply(hot, expand_dims(given, -1)), 1)
        total.set_shape([None, self.width])
        return total


@dataclass(frozen=True)
class EmbeddingColumn(DenseColumn):
    """See `embedding_column`; `shared` is the collection of the one table of several columns, or None."""

    column: CategoricalColumn
    combiner: str
    initializer: Any
    max_norm: float | None
    trainable: bool
    shared: str | None

    @property
    def scope_name(self) -> str:
        """Name of the scope of the table."""
        return self.name if self.shared is None else self.shared

    def dense(self, features: Features, weights: ColumnWeights) -> Tensor:
        """The combined rows of the table."""
        return combined(self._table(weights), self.column.ids(features), self.combiner, self.max_norm)

    def _table(self, weights: ColumnWeights) -> Any:
        shape, graph = [self.column.num_buckets, self.width], get_default_graph()
        known = [] if self.shared is None else graph.get_collection(self.shared)
        if not known:
            table = weights.get("embedding_weights", shape, self.initializer, self.trainable)
            if self.shared is not None:
                graph.add_to_collection(self.shared, table)
            return table
        if list(known[0].shape) != shape:
            raise InvalidArgumentError(
                f"shared_embedding_columns: the collection {self.shared!r} has a table {known[0].shape}, "
                f"expected {shape}; give another shared_embedding_collection_name"
            )
        weights.made.append(known[0])
        return known[0]


@checked
def indicator_column(categorical_column: AsCategorical) -> IndicatorColumn:
    """The counts of an example's categories, or the sums of their weights: [batch, categories]."""
    column = categorical_column
    return IndicatorColumn(f"{column.name}_indicator", column.parse_spec, column.num_buckets, column)


@checked
def embedding_column(
    categorical_column: AsCategorical,
    dimension: Positive,
    combiner: Combiner = "mean",
    initializer: Start | None = None,
    *,
    max_norm: Limit = None,
    trainable: Flag = True,
) -> EmbeddingColumn:
    """The combination of the vectors of an example's categories: rows of a table [categories, dimension].

    combiner, max_norm: as of `tb.nn.embedding_lookup_sparse`. initializer: by default a normal distribution,
    cut at twice its deviation 1 / sqrt(dimension). A partitioner of the scope cuts the table.
    """
    return _embedding(categorical_column, dimension, combiner, initializer, max_norm, trainable)


def _embedding(
    column: CategoricalColumn,
    width: int,
    combiner: str,
    initializer: Any,
    max_norm: float | None,
    trainable: bool,
    shared: str | None = None,
) -> EmbeddingColumn:
    start = truncated_normal(stddev=1 / math.sqrt(width)) if initializer is None else initializer
    name, spec = f"{column.name}_{'embedding' if shared is None else 'shared_embedding'}", column.parse_spec
    return EmbeddingColumn(name, spec, width, column, combiner, start, max_norm, trainable, shared)


def _read_columns(value: Any) -> list[CategoricalColumn]:
    columns = ITEMS.read(value)
    if not columns or not all(isinstance(each, CategoricalColumn) for each in columns):
        raise RefusedError
    return list(columns)


Categoricals: TypeAlias = Annotated[
    Sequence[CategoricalColumn], Kind("a list of categorical columns, at least one", _read_columns)
]


@checked
def shared_embedding_columns(
    categorical_columns: Categoricals,
    dimension: Positive,
    combiner: Combiner = "mean",
    initializer: Start | None = None,
    shared_embedding_collection_name: Name = None,
    *,
    max_norm: Limit = None,
    trainable: Flag = True,
) -> list[EmbeddingColumn]:
    """`embedding_column`s of one table, in the order of the categorical columns.

    shared_embedding_collection_name: of the collection and scope of the table, by default the columns'
    names. Raises InvalidArgumentError for columns of different numbers of categories.
    """
    counts = [column.num_buckets for column in categorical_columns]
    if len(set(counts)) > 1:
        raise InvalidArgumentError(
            f"shared_embedding_columns: expected columns of as many categories, got {counts}"
        )
    names = sorted(column.name for column in categorical_columns)
    shared = shared_embedding_collection_name or f"{'_'.join(names)}_shared_embedding"
    options = (dimension, combiner, initializer, max_norm, trainable, shared)
    return [_embedding(column, *options) for column in categorical_columns]
