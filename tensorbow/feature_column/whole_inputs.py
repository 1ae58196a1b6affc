"""Several columns as one input of a layer, as a linear model, and as features to parse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.feature_column.columns import (
    CategoricalColumn,
    ColumnWeights,
    DenseColumn,
    FeatureColumn,
    Features,
    combined,
)
from tensorbow.feature_column.embeddings import Combiner
from tensorbow.graph import Tensor, graph_of
from tensorbow.kinds import Flag, Kind, Mapped, Names, Positive, RefusedError, checked, instance, optional
from tensorbow.ops.arrays import concat
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import bias_add
from tensorbow.ops.sparse_tensors import SparseTensor, SparseTensorValue
from tensorbow.ops.sums import add_n
from tensorbow.variable_scope import variable_scope


def _read_columns(value: Any) -> list[FeatureColumn]:
    columns = [value] if isinstance(value, FeatureColumn) else value
    if not isinstance(columns, (list, tuple, set, frozenset)) or not columns:
        raise RefusedError
    if not all(isinstance(each, FeatureColumn) for each in columns):
        raise RefusedError
    return sorted(columns, key=lambda column: column.name)


Columns: TypeAlias = Annotated[
    Sequence[FeatureColumn], Kind("a list of columns of tb.feature_column, at least one", _read_columns)
]
Filled: TypeAlias = Annotated[
    "MutableMapping[Any, Any] | None", optional(instance(MutableMapping, expected="a dictionary"))
]


def _read(op: str, features: Any, columns: Sequence[FeatureColumn]) -> Features:
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgumentError(f"{op}: expected columns of different names, got {', '.join(twice)} twice")
    return Features(features)


@contextmanager
def _scope(features: Mapping[str, Any], name: str) -> Iterator[None]:
    """The graph of the features, and a variable scope of this name, with a number if it is taken."""
    sparse = (SparseTensor, SparseTensorValue)
    tensors = [each.values if isinstance(each, sparse) else each for each in features.values()]
    with graph_of(tensors).as_default(), variable_scope(None, name):
        yield


@checked
def input_layer(
    features: Mapped,
    feature_columns: Columns,
    weight_collections: Names = (),
    trainable: Flag = True,
    cols_to_vars: Filled = None,
    cols_to_output_tensors: Filled = None,
) -> Tensor:
    """The numbers of dense columns side by side, in the order of their names: `[batch, sum of widths]`.

    features: tensors `[batch, n]` or `[batch]`, or sparse tensors, by key. weight_collections: of the
    variables. cols_to_vars, cols_to_output_tensors: dictionaries that get the variables and the tensor of
    each column. Raises InvalidArgumentError for categorical columns, NotFoundError for a missing feature.
    """
    for column in feature_columns:
        if not isinstance(column, DenseColumn):
            raise InvalidArgumentError(
                f"input_layer: {column.name} is a categorical column; give its indicator_column or "
                "embedding_column"
            )
    read = _read("input_layer", features, feature_columns)
    weights = ColumnWeights(trainable, weight_collections)
    parts = []
    with _scope(features, "input_layer"):
        for column in feature_columns:
            assert isinstance(column, DenseColumn)
            weights.made = []
            with variable_scope(None, column.scope_name):
                parts.append(column.dense(read, weights))
            if cols_to_vars is not None:
                cols_to_vars[column] = weights.made
            if cols_to_output_tensors is not None:
                cols_to_output_tensors[column] = parts[-1]
        return concat(parts, 1) if parts[1:] else parts[0]


@checked
def linear_model(
    features: Mapped,
    feature_columns: Columns,
    units: Positive = 1,
    sparse_combiner: Combiner = "sum",
    weight_collections: Names = (),
    trainable: Flag = True,
    cols_to_vars: Filled = None,
) -> Tensor:
    """The weighted sums of all columns and a bias: `[batch, units]`.

    Categorical columns have a weight for each category, of which sparse_combiner combines those of an
    example, and dense ones for each number. All begin as zeros. Arguments as of `input_layer`; cols_to_vars
    gets "bias", too.
    """
    read = _read("linear_model", features, feature_columns)
    weights = ColumnWeights(trainable, weight_collections)
    with _scope(features, "linear_model"):
        sums = []
        for column in feature_columns:
            weights.made = []
            with variable_scope(None, column.scope_name):
                sums.append(_weighted(column, read, weights, units, sparse_combiner))
            if cols_to_vars is not None:
                cols_to_vars[column] = weights.made
        weights.made = []
        bias = weights.get("bias_weights", [units], "zeros")
        if cols_to_vars is not None:
            cols_to_vars["bias"] = weights.made
        return bias_add(add_n(sums) if sums[1:] else sums[0], bias)


def _weighted(
    column: FeatureColumn, features: Features, weights: ColumnWeights, units: int, combiner: str
) -> Tensor:
    if isinstance(column, CategoricalColumn):
        table = weights.get("weights", [column.num_buckets, units], "zeros")
        return combined(table, column.ids(features), combiner)
    assert isinstance(column, DenseColumn)
    numbers = column.dense(features, weights)
    return matmul(numbers, weights.get("weights", [column.width, units], "zeros"))


@checked
def make_parse_example_spec(feature_columns: Columns) -> dict[str, Any]:
    """Descriptions of the features that the columns read, for `tb.parse_example`.

    Raises InvalidArgumentError for a feature that two columns read differently.
    """
    spec: dict[str, Any] = {}
    for column in feature_columns:
        for key, feature in column.parse_spec.items():
            if key in spec and repr(spec[key]) != repr(feature):
                raise InvalidArgumentError(
                    f"make_parse_example_spec: feature {key!r} is {spec[key]} of one column, and "
                    f"{feature} of {column.name}"
                )
            spec[key] = feature
    return spec
