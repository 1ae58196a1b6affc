"""Columns of numbers, as they are and in buckets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.feature_column.columns import CategoricalColumn, ColumnWeights, DenseColumn, Features, Ids
from tensorbow.graph import Tensor, as_tensor
from tensorbow.input_ops.example_features import FixedLenFeature
from tensorbow.kinds import (
    FUNCTION,
    AsDType,
    Kind,
    RefusedError,
    Text,
    checked,
    instance,
    number,
    optional,
    sequence,
    whole,
)
from tensorbow.ops.arrays import expand_dims, reshape
from tensorbow.ops.broadcasting import shape as extents_of
from tensorbow.ops.elementwise import add, greater_equal
from tensorbow.ops.indexing import one_hot
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.specs import float32, int64


@dataclass(frozen=True)
class NumericColumn(DenseColumn):
    """A feature of numbers, see `numeric_column`."""

    normalizer_fn: Callable[..., Any] | None

    def dense(self, features: Features, weights: ColumnWeights | None = None) -> Tensor:
        """The numbers `[batch, width]`, normalised."""
        return features.of(self, lambda: self._made(features.raw(self.name)))

    def _made(self, raw: Any) -> Tensor:
        if isinstance(raw, SparseTensor) or raw.dtype.is_string:
            got = raw if isinstance(raw, SparseTensor) else raw.spec
            raise InvalidArgumentError(
                f"features[{self.name!r}]: expected a dense tensor of numbers for a numeric_column, got {got}"
            )
        tensor = cast(raw, float32)
        if self.normalizer_fn is not None:
            tensor = cast(as_tensor(self.normalizer_fn(tensor)), float32)
        dims = tensor.spec.shape or (None, None)
        own = [extent for extent in dims[1:] if extent is not None]
        is_known = len(own) == len(dims) - 1
        if is_known and math.prod(own) != self.width:
            raise InvalidArgumentError(
                f"features[{self.name!r}]: expected {self.width} numbers for each example, the shape of its "
                f"numeric_column, got {tensor.spec}"
            )
        batch = -1 if is_known else strided_slice(extents_of(tensor), 0)
        flat = reshape(tensor, [batch, self.width])
        flat.set_shape([raw.shape[0], self.width])
        return flat


@dataclass(frozen=True)
class BucketizedColumn(DenseColumn, CategoricalColumn):
    """Buckets of a numeric column, see `bucketized_column`; `num_buckets` are those of all its numbers."""

    source: NumericColumn
    boundaries: tuple[float, ...]

    def _buckets(self, features: Features) -> Tensor:
        """The bucket of each number, `[batch, width of the source]`."""

        def made() -> Tensor:
            numbers = expand_dims(self.source.dense(features), -1)
            return reduce_sum(cast(greater_equal(numbers, as_tensor(self.boundaries, float32)), int64), -1)

        return features.of(self, made)

    def dense(self, features: Features, weights: ColumnWeights) -> Tensor:
        """One-hot vectors of the buckets, side by side."""
        hot = one_hot(self._buckets(features), len(self.boundaries) + 1)
        return reshape(hot, [-1, self.width])

    def ids(self, features: Features) -> Ids:
        """The buckets, those of different numbers apart."""
        offsets = np.arange(self.source.width, dtype=np.int64) * (len(self.boundaries) + 1)
        return Ids(add(self._buckets(features), as_tensor(offsets)), None)


def _read_default(value: Any) -> Any:
    try:
        array = None if value is None else np.asarray(value)
    except (TypeError, ValueError):  # a tensor, or rows of several lengths
        raise RefusedError from None
    if array is not None and (array.dtype.kind not in "iuf" or not array.size):
        raise RefusedError
    return value


Default: TypeAlias = Annotated[Any, Kind("a number, an array of numbers, or None", _read_default)]
Extents: TypeAlias = Annotated[Any, sequence(whole(1), "a list of whole numbers of at least 1", lone=True)]
Normalizer: TypeAlias = Annotated["Callable[..., Any] | None", optional(FUNCTION)]
Boundaries: TypeAlias = Annotated[Any, sequence(number(), "a list of numbers")]


@checked
def numeric_column(
    key: Text,
    shape: Extents = (1,),
    default_value: Default = None,
    dtype: AsDType = float32,
    normalizer_fn: Normalizer = None,
) -> NumericColumn:
    """A column of numbers: `shape` of them for each example.

    default_value, dtype: of `make_parse_example_spec`; a number, or an array of `shape`. normalizer_fn: a
    function of the tensor. Raises InvalidArgumentError for strings.
    """
    if dtype.is_string:
        raise InvalidArgumentError(f"numeric_column: expected a dtype of numbers, got {dtype.name}")
    parsed = dtype if dtype == float32 or dtype.is_integer else float32
    feature = FixedLenFeature(shape, int64 if parsed.is_integer else parsed, default_value)
    return NumericColumn(key, {key: feature}, math.prod(shape), normalizer_fn)


@checked
def bucketized_column(
    source_column: Annotated[Any, instance(NumericColumn, expected="a numeric_column")],
    boundaries: Boundaries,
) -> BucketizedColumn:
    """The buckets of numbers: (-inf, b0), [b0, b1), ... [bn, inf), one-hot or as categories.

    source_column: a `numeric_column`, each of whose numbers has buckets of its own. Raises
    InvalidArgumentError for boundaries that do not rise.
    """
    if not boundaries or any(low >= high for low, high in pairwise(boundaries)):
        raise InvalidArgumentError(
            f"bucketized_column: expected boundaries that rise, at least one, got {boundaries}"
        )
    width = (len(boundaries) + 1) * source_column.width
    return BucketizedColumn(
        name=f"{source_column.name}_bucketized",
        parse_spec=source_column.parse_spec,
        num_buckets=width,
        width=width,
        source=source_column,
        boundaries=boundaries,
    )
