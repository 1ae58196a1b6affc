"""Columns of categories: numbers, words of vocabularies, and hashes of words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.feature_column.columns import CategoricalColumn, Features, Ids, numbered
from tensorbow.files import open_to_read
from tensorbow.graph import Tensor, as_tensor
from tensorbow.input_ops.example_features import VarLenFeature
from tensorbow.kinds import ITEMS, AsDType, AsPath, Count, Kind, RefusedError, Text, checked, optional, whole
from tensorbow.lookup import LookupTable, index_table_from_file, index_table_from_tensor
from tensorbow.ops.elementwise import equal, greater_equal, less, logical_and, logical_or
from tensorbow.ops.selection import cast, select
from tensorbow.ops.sparse_tensors import SparseTensor, required
from tensorbow.specs import DType, int64, string
from tensorbow.string_ops import as_string, string_to_hash_bucket_fast

Categories: TypeAlias = Annotated[int, whole(1, (1 << 63) - 1)]
DefaultId: TypeAlias = Annotated["int | None", optional(whole())]


@dataclass(frozen=True)
class KeyedColumn(CategoricalColumn):
    """Categories of one feature of strings or whole numbers.

    settings: what tells it from others. number: gives features of that dtype numbers.
    """

    dtype: DType
    settings: tuple[Any, ...]
    number: Callable[[Tensor], Tensor] = field(compare=False, repr=False)

    @property
    def is_hashed(self) -> bool:
        """True for numbers that are hashes."""
        return not self.settings

    def ids(self, features: Features) -> Ids:
        """The numbers. Raises InvalidArgumentError for features of another dtype."""
        raw = features.raw(self.name)
        if raw.dtype.is_string != self.dtype.is_string or not (raw.dtype.is_string or raw.dtype.is_integer):
            expected = "strings" if self.dtype.is_string else "whole numbers"
            raise InvalidArgumentError(
                f"features[{self.name!r}]: expected {expected}, as its column says, got {raw.dtype.name}"
            )
        if not isinstance(raw, SparseTensor) and raw.shape.ndims != 2:
            raise InvalidArgumentError(
                f"features[{self.name!r}]: expected categories [batch, n] or [batch], got {raw.spec}"
            )
        return Ids(features.of(self, lambda: numbered(raw, self.number)), None)


def _keyed(
    key: str, buckets: int, dtype: DType, settings: tuple[Any, ...], number: Callable[[Tensor], Tensor]
) -> KeyedColumn:
    if not (dtype.is_string or dtype.is_integer):
        raise InvalidArgumentError(
            f"column {key!r}: expected dtype to be tb.string or whole numbers, got {dtype.name}"
        )
    dtype = dtype if dtype.is_string else int64
    return KeyedColumn(key, {key: VarLenFeature(dtype)}, buckets, dtype, settings, number)


@checked
def categorical_column_with_identity(
    key: Text, num_buckets: Categories, default_value: DefaultId = None
) -> KeyedColumn:
    """Categories that are numbers from 0 to num_buckets - 1.

    default_value: in the place of others; by default these raise InvalidArgumentError at run time. -1 in a
    dense feature is a missing one.
    """
    if default_value is not None and not 0 <= default_value < num_buckets:
        raise InvalidArgumentError(
            f"categorical_column_with_identity: expected default_value from 0 to {num_buckets - 1}, got "
            f"{default_value}"
        )

    def number(values: Tensor) -> Tensor:
        numbers = cast(values, int64)
        low, high, missing = (as_tensor(each, int64) for each in (0, num_buckets, -1))
        fits = logical_and(greater_equal(numbers, low), less(numbers, high))
        if default_value is not None:
            return select(fits, numbers, as_tensor(default_value, int64))
        message = f"features[{key!r}]: expected numbers from 0 to {num_buckets - 1}; give a default_value"
        return required(logical_or(fits, equal(numbers, missing)), message, numbers)

    return _keyed(key, num_buckets, int64, ("identity", default_value), number)


def _of_vocabulary(
    key: str,
    size: int,
    buckets: int,
    default: int | None,
    vocabulary: Any,
    dtype: DType,
    table: Callable[..., LookupTable],
) -> KeyedColumn:
    """table: makes the table of a vocabulary, a list or a path, in the graph of the features."""
    if buckets and default not in (None, -1):
        raise InvalidArgumentError(
            f"column {key!r}: expected num_oov_buckets or default_value, got {buckets} and {default}"
        )

    def number(values: Tensor) -> Tensor:
        options = {"num_oov_buckets": buckets, "default_value": -1 if default is None else default}
        found: Tensor = table(**options).lookup(values)
        return found

    settings = (vocabulary, size, buckets, default)
    return _keyed(key, size + buckets, dtype, settings, number)


def _read_vocabulary(value: Any) -> tuple[Any, ...]:
    words = value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else ITEMS.read(value)
    words = [word.decode() if isinstance(word, bytes) else word for word in words]
    words = [word.item() if isinstance(word, np.generic) else word for word in words]
    if not words or not any(all(type(word) is kind for word in words) for kind in (str, int)):
        raise RefusedError
    return tuple(words)


Vocabulary: TypeAlias = Annotated[
    Any, Kind("a list of strings or of whole numbers, at least one", _read_vocabulary)
]


@checked
def categorical_column_with_vocabulary_list(
    key: Text,
    vocabulary_list: Vocabulary,
    dtype: AsDType | None = None,
    default_value: DefaultId = -1,
    num_oov_buckets: Count = 0,
) -> KeyedColumn:
    """Categories that are words of a list; their numbers are their places there.

    num_oov_buckets: numbers behind for other words, by their hashes; default_value: else their number, -1 for
    none. Raises InvalidArgumentError for a word that stands twice.
    """
    op, own = (
        "categorical_column_with_vocabulary_list",
        string if isinstance(vocabulary_list[0], str) else int64,
    )
    if len(set(vocabulary_list)) < len(vocabulary_list):
        raise InvalidArgumentError(
            f"{op}: expected different words, got one twice in {vocabulary_list!r:.70}"
        )
    if dtype is not None and dtype.is_string != own.is_string:
        raise InvalidArgumentError(f"{op}: dtype {dtype.name} does not fit {vocabulary_list[0]!r}")

    def table(**options: Any) -> LookupTable:
        return index_table_from_tensor(list(vocabulary_list), dtype=own, **options)

    size = len(vocabulary_list)
    return _of_vocabulary(key, size, num_oov_buckets, default_value, vocabulary_list, dtype or own, table)


@checked
def categorical_column_with_vocabulary_file(
    key: Text,
    vocabulary_file: AsPath,
    vocabulary_size: Annotated[int | None, optional(whole(1))] = None,
    num_oov_buckets: Count = 0,
    default_value: DefaultId = None,
    dtype: AsDType = string,
) -> KeyedColumn:
    """Categories that are the lines of a file, see `categorical_column_with_vocabulary_list`.

    vocabulary_size: number of lines to read, by default all, which are counted here. Raises NotFoundError.
    """
    path = str(vocabulary_file)
    if vocabulary_size is None:
        with open_to_read(path) as file:
            vocabulary_size = sum(1 for _ in file)

    def table(**options: Any) -> LookupTable:
        keys = dtype if dtype.is_string else int64
        return index_table_from_file(path, vocab_size=vocabulary_size, key_dtype=keys, **options)

    return _of_vocabulary(key, vocabulary_size, num_oov_buckets, default_value, path, dtype, table)


@checked
def categorical_column_with_hash_bucket(
    key: Text, hash_bucket_size: Categories, dtype: AsDType = string
) -> KeyedColumn:
    """Categories that are hashes of strings, or of whole numbers as texts, modulo hash_bucket_size.

    They are TensorFlow's numbers, see `tb.string_to_hash_bucket_fast`.
    """

    def number(values: Tensor) -> Tensor:
        texts = values if values.dtype.is_string else as_string(values)
        return string_to_hash_bucket_fast(texts, hash_bucket_size)

    return _keyed(key, hash_bucket_size, dtype, (), number)
