"""Bases of feature columns, the features that they read, and the variables that they make."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import GraphKeys, Tensor, as_tensor, get_default_graph
from tensorbow.kinds import instance
from tensorbow.missing_names import did_you_mean
from tensorbow.ops.arrays import expand_dims
from tensorbow.ops.elementwise import equal, greater, greater_equal, maximum, multiply, sqrt, square
from tensorbow.ops.nn import embedding_lookup
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.sparse_lookups import safe_embedding_lookup_sparse
from tensorbow.ops.sparse_tensors import SparseTensor, SparseTensorValue, as_sparse
from tensorbow.partitioned_variables import PartitionedVariable
from tensorbow.specs import float32, int64
from tensorbow.variable_scope import get_variable

Found = TypeVar("Found")


class Features:
    """The features of a batch, and the objects that columns have made of them, once each."""

    def __init__(self, features: Mapping[str, Any]):
        self._given = features
        self._made: dict[Any, Any] = {}

    def raw(self, key: str) -> Any:
        """A feature as a tensor of rank 2 or more, or as a sparse tensor.

        Raises NotFoundError for a missing one, InvalidArgumentError for one of rank 0.
        """
        return self._once(("raw", key), lambda: self._read(key))

    def of(self, column: Any, make: Callable[[], Found]) -> Found:
        """The object that a column makes of the features, once."""
        found: Found = self._once(column, make)
        return found

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _read(self, key: str) -> Any:
        if key not in self._given:
            near = did_you_mean(key, map(str, self._given))
            raise NotFoundError(f"features: expected a feature {key!r}, got {sorted(self._given)}{near}")
        given = self._given[key]
        if isinstance(given, (SparseTensor, SparseTensorValue)):
            return as_sparse(given)
        tensor = as_tensor(given)
        if tensor.shape.ndims in (0, None):
            raise InvalidArgumentError(f"features[{key!r}]: expected [batch, ...], got {tensor.spec}")
        return expand_dims(tensor, -1) if tensor.shape.ndims == 1 else tensor


class Ids(NamedTuple):
    """Numbers of categories of a batch, and their weights, or None.

    Both are dense tensors `[batch, n]`, in which -1 is a missing category, or sparse ones.
    """

    numbers: Any
    weights: Any


class ColumnWeights:
    """Makes the variables of columns in the current scope; `made` are those since it was emptied last."""

    def __init__(self, trainable: bool, collections: Sequence[str]):
        self._trainable, self._collections = trainable, {*collections, GraphKeys.MODEL_VARIABLES}
        self.made: list[Any] = []

    def get(self, name: str, shape: Sequence[int], initializer: Any, trainable: bool = True) -> Any:
        """A float32 variable, in parts if the scope has a partitioner."""
        trains = trainable and self._trainable
        variable = get_variable(name, shape, float32, initializer, trainable=trains)
        graph = get_default_graph()
        for part in variable.parts if isinstance(variable, PartitionedVariable) else [variable]:
            for key in sorted(self._collections - {GraphKeys.GLOBAL_VARIABLES}):
                if part not in graph.get_collection(key):
                    graph.add_to_collection(key, part)
        self.made.append(variable)
        return variable


@dataclass(frozen=True)
class FeatureColumn:
    """A column of a table. Equal ones are one column, and read the features once.

    name: of its scope, and for errors. parse_spec: what it reads, for `tb.parse_example`.
    """

    name: str
    parse_spec: dict[str, Any] = field(compare=False, repr=False)

    @property
    def scope_name(self) -> str:
        """Name of the scope of its variables."""
        return self.name


@dataclass(frozen=True)
class CategoricalColumn(FeatureColumn):
    """A column of categories, numbers below `num_buckets`."""

    num_buckets: int

    @abstractmethod
    def ids(self, features: Features) -> Ids:
        """The numbers of the batch's categories."""


@dataclass(frozen=True)
class DenseColumn(FeatureColumn):
    """A column of numbers, `width` of them for an example."""

    width: int

    @abstractmethod
    def dense(self, features: Features, weights: ColumnWeights) -> Tensor:
        """The numbers of the batch, `[batch, width]` of float32."""


AsCategorical: TypeAlias = Annotated[
    CategoricalColumn, instance(CategoricalColumn, expected="a categorical column of tb.feature_column")
]


def numbered(raw: Any, number: Callable[[Tensor], Tensor]) -> Any:
    """The numbers int64 that a function gives features; -1 for missing ones of a dense tensor."""
    if isinstance(raw, SparseTensor):
        return SparseTensor(raw.indices, number(raw.values), raw.dense_shape)
    values = raw if raw.dtype.is_string else cast(raw, int64)
    missing = equal(values, as_tensor("" if raw.dtype.is_string else -1, values.dtype))
    return select(missing, as_tensor(-1, int64), number(values))


def combined(table: Any, ids: Ids, combiner: str, max_norm: float | None = None) -> Tensor:
    """Combinations of the table's rows of each example's ids: [batch, columns of the table].

    Examples without ids have zeros; for "mean" and "sqrtn" weights of 0 or less do not count.
    """
    if isinstance(ids.numbers, SparseTensor):
        return safe_embedding_lookup_sparse(table, ids.numbers, ids.weights, combiner, max_norm=max_norm)
    known = greater_equal(ids.numbers, as_tensor(0, int64))
    weights = cast(known, float32)
    if ids.weights is not None:
        given = ids.weights if combiner == "sum" else maximum(ids.weights, 0.0)
        weights = multiply(weights, given)
    chosen = maximum(ids.numbers, as_tensor(0, int64))
    rows = embedding_lookup(table, chosen, "div", max_norm=max_norm)
    total = reduce_sum(multiply(rows, expand_dims(weights, -1)), 1)
    if combiner == "sum" or (ids.weights is None and ids.numbers.shape[1] == 1):
        return total
    norm = reduce_sum(weights if combiner == "mean" else square(weights), 1, keepdims=True)
    norm = select(greater(norm, 0.0), norm, as_tensor(1.0))
    return total / (norm if combiner == "mean" else sqrt(norm))
