"""Columns of categories made of others: crosses, and categories with weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.feature_column.categorical import Categories, KeyedColumn
from tensorbow.feature_column.columns import AsCategorical, CategoricalColumn, Features, Ids
from tensorbow.graph import Tensor, as_tensor
from tensorbow.input_ops.example_features import VarLenFeature
from tensorbow.kinds import ITEMS, AsDType, Kind, RefusedError, Text, checked
from tensorbow.ops.broadcasting import shape as extents_of
from tensorbow.ops.conditions import where
from tensorbow.ops.data_dependent import boolean_mask
from tensorbow.ops.elementwise import not_equal
from tensorbow.ops.nd_indexing import gather_nd
from tensorbow.ops.selection import cast
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.specs import float32, int64, string
from tensorbow.string_ops.crossing import HashKey, crossed_buckets, sparse_cross_hashed


@dataclass(frozen=True)
class WeightedColumn(CategoricalColumn):
    """See `weighted_categorical_column`."""

    column: CategoricalColumn
    key: str

    def ids(self, features: Features) -> Ids:
        """The numbers with their weights. Raises InvalidArgumentError for sparse weights of dense numbers."""
        numbers, raw = self.column.ids(features).numbers, features.raw(self.key)
        if not isinstance(raw, SparseTensor):
            weights: Any = cast(raw, float32)
            if isinstance(numbers, SparseTensor):
                found = gather_nd(weights, numbers.indices)
                weights = SparseTensor(numbers.indices, found, numbers.dense_shape)
        elif isinstance(numbers, SparseTensor):
            weights = SparseTensor(raw.indices, cast(raw.values, float32), raw.dense_shape)
        else:
            raise InvalidArgumentError(
                f"features[{self.key!r}]: expected a dense tensor, as its categories are, got {raw!r}"
            )
        return Ids(numbers, weights)


@checked
def weighted_categorical_column(
    categorical_column: AsCategorical, weight_feature_key: Text, dtype: AsDType = float32
) -> WeightedColumn:
    """A column of categories whose weights are another feature, of the same coordinates.

    dtype: of the weights in `make_parse_example_spec`, tb.float32 or tb.int64.
    """
    column, key = categorical_column, weight_feature_key
    spec = {**column.parse_spec, key: VarLenFeature(dtype)}
    return WeightedColumn(f"{column.name}_weighted_by_{key}", spec, column.num_buckets, column, key)


@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    """See `crossed_column`; the keys are those of crossed columns among them, too."""

    keys: tuple[str | CategoricalColumn, ...]
    hash_key: int | None

    def ids(self, features: Features) -> Ids:
        """The hashes of all combinations."""
        return Ids(features.of(self, lambda: self._crossed(features)), None)

    def _crossed(self, features: Features) -> Any:
        inputs = [_crossable(key, features) for key in self.keys]
        if not any(isinstance(each, SparseTensor) for each in inputs):
            return crossed_buckets(inputs, self.num_buckets, self.hash_key)
        columns = [each if isinstance(each, SparseTensor) else _sparse(each) for each in inputs]
        return sparse_cross_hashed(columns, self.num_buckets, self.hash_key)


def _crossable(key: str | CategoricalColumn, features: Features) -> Any:
    if isinstance(key, CategoricalColumn):
        return key.ids(features).numbers
    raw = features.raw(key)
    if not (raw.dtype.is_string or raw.dtype.is_integer):
        raise InvalidArgumentError(
            f"features[{key!r}]: expected strings or whole numbers for a crossed_column, got "
            f"{raw.dtype.name}; cross its bucketized_column"
        )
    return raw


def _sparse(dense: Tensor) -> SparseTensor:
    """The features of a dense tensor that are not missing."""
    present = not_equal(dense, as_tensor("" if dense.dtype.is_string else -1, dense.dtype))
    return SparseTensor(where(present), boolean_mask(dense, present), cast(extents_of(dense), int64))


def _read_keys(value: Any) -> list[Any]:
    given: Sequence[Any] = [value] if isinstance(value, (str, CategoricalColumn)) else ITEMS.read(value)
    keys: list[Any] = []
    for key in given:
        keys += key.keys if isinstance(key, CrossedColumn) else [key]
    for key in keys:
        if not isinstance(key, (str, CategoricalColumn)):
            raise RefusedError
        if isinstance(key, WeightedColumn) or (isinstance(key, KeyedColumn) and key.is_hashed):
            raise RefusedError("give the key of a hashed column; weights have no crosses")
    if len(keys) < 2:
        raise RefusedError
    return keys


Keys: TypeAlias = Annotated[Any, Kind("two or more keys or categorical columns", _read_keys)]


@checked
def crossed_column(keys: Keys, hash_bucket_size: Categories, hash_key: HashKey = None) -> CrossedColumn:
    """Categories that are combinations of categories, by their hashes modulo hash_bucket_size.

    keys: of features of strings or whole numbers, categorical columns, or bucketized ones. hash_key: as of
    `tb.sparse.cross_hashed`.
    """
    spec: dict[str, Any] = {}
    for key in keys:
        spec |= {key: VarLenFeature(string)} if isinstance(key, str) else key.parse_spec
    name = "_X_".join(sorted(key if isinstance(key, str) else key.name for key in keys))
    return CrossedColumn(name, spec, hash_bucket_size, tuple(keys), hash_key)
