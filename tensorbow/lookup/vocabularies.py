"""Tables of vocabularies: numbers of words, with buckets for words that they lack, and words of numbers."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, as_tensor, name_scope
from tensorbow.kinds import (
    WORD,
    AsDType,
    Kind,
    Name,
    Positive,
    RefusedError,
    Text,
    checked,
    instance,
    optional,
    sequence,
    whole,
)
from tensorbow.lookup.table_ops import LINE_NUMBER, WHOLE_LINE
from tensorbow.lookup.tables import (
    AsInitializer,
    HashTable,
    KeyValueTensorInitializer,
    LineColumn,
    LookupTable,
    TextFileInitializer,
)
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.constant import constant
from tensorbow.ops.elementwise import add, not_equal
from tensorbow.ops.filling import range as numbers_to
from tensorbow.ops.selection import cast, select
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.specs import DType, int64, string
from tensorbow.string_ops import as_string, string_to_hash_bucket_fast, string_to_hash_bucket_strong


class StrongHashSpec:
    """Buckets by `tb.string_to_hash_bucket_strong` with a key of two whole numbers."""

    @checked
    def __init__(self, key: Annotated[Any, sequence(WORD, "two whole numbers of 64 bits")]):
        self.key = key

    def bucket(self, words: Tensor, count: int) -> Tensor:
        """The buckets of words."""
        return string_to_hash_bucket_strong(words, count, self.key)


class _FastHashSpec:
    """Buckets by `tb.string_to_hash_bucket_fast`."""

    def bucket(self, words: Tensor, count: int) -> Tensor:
        """The buckets of words."""
        return string_to_hash_bucket_fast(words, count)


FastHashSpec = _FastHashSpec()


def _read_hasher(value: Any) -> Any:
    if not isinstance(value, (StrongHashSpec, _FastHashSpec)):
        raise RefusedError
    return value


def _read_default(value: Any) -> int:
    return int(whole(-(1 << 63), (1 << 63) - 1).read(value))


Hasher: TypeAlias = Annotated[Any, Kind("tb.lookup.FastHashSpec or a tb.lookup.StrongHashSpec", _read_hasher)]
DefaultNumber: TypeAlias = Annotated[int, Kind("a whole number of 64 bits", _read_default)]
Buckets: TypeAlias = Annotated[int, whole(0, (1 << 63) - 1)]
AsTable: TypeAlias = Annotated[
    "LookupTable | None", optional(instance(LookupTable, expected="a table of tb.lookup"))
]


class IdTableWithHashBuckets(LookupTable):
    """The numbers that another table gives words, and those of buckets, after them, for words that it lacks.

    A word's bucket is its hash modulo their number, and so the same in every process.
    """

    @checked
    def __init__(
        self,
        table: AsTable,
        num_oov_buckets: Buckets,
        hasher_spec: Hasher = FastHashSpec,
        name: Name = None,
        key_dtype: AsDType | None = None,
    ):
        """table: from words or whole numbers to int64; None: all words have buckets. key_dtype: by default
        the table's, else tb.string; of whole numbers the text is hashed.

        Raises InvalidArgumentError for values that are not int64, and neither a table nor buckets.
        """
        if table is None and not num_oov_buckets:
            raise InvalidArgumentError(
                "IdTableWithHashBuckets: expected num_oov_buckets of at least 1 without a table, got 0"
            )
        if table is not None and table.value_dtype != int64:
            raise InvalidArgumentError(
                f"IdTableWithHashBuckets: expected a table of int64 numbers, got {table.value_dtype.name}"
            )
        self._table, self._buckets, self._hasher = table, num_oov_buckets, hasher_spec
        self.key_dtype: DType = key_dtype or (string if table is None else table.key_dtype)
        self.value_dtype = int64
        self.name = name or ("string_to_index" if table is None else table.name)

    @property
    def initializer(self) -> Operation | None:
        """The operation that sets the values of the table; None without one."""
        return getattr(self._table, "initializer", None)

    init = initializer

    @checked
    def size(self, name: Name = None) -> Tensor:
        """The number of words and buckets, int64."""
        with name_scope(name or "size"):
            buckets = constant(self._buckets, int64)
            return buckets if self._table is None else add(self._table.size(), buckets)

    @checked
    def lookup(self, keys: Any, name: Name = None) -> Any:
        """The numbers of words, int64, of the words' shape; of a SparseTensor those of its values."""
        if isinstance(keys, SparseTensor):
            return SparseTensor(keys.indices, self.lookup(keys.values, name), keys.dense_shape)
        with name_scope(name or "lookup"):
            words = as_tensor(keys, string if self.key_dtype.is_string else None)
            numbers = None if self._table is None else self._table.lookup(words)
            if not self._buckets:
                return numbers
            texts = words if words.dtype.is_string else as_string(words)
            buckets = self._hasher.bucket(texts, self._buckets)
            if self._table is None or numbers is None:
                return buckets
            is_known = not_equal(numbers, getattr(self._table, "default_value", constant(-1, int64)))
            return select(is_known, numbers, add(buckets, self._table.size()))


class StaticVocabularyTable(IdTableWithHashBuckets):
    """The numbers that an initializer gives words, and those of buckets for words that it lacks."""

    @checked
    def __init__(
        self,
        initializer: AsInitializer,
        num_oov_buckets: Positive,
        lookup_key_dtype: AsDType | None = None,
        name: Name = None,
    ):
        """initializer: from words or whole numbers to int64 numbers from 0."""
        super().__init__(
            HashTable(initializer, -1, name=name), num_oov_buckets, name=name, key_dtype=lookup_key_dtype
        )


def _with_buckets(table: HashTable, count: int, hasher: Any, name: str | None, dtype: DType) -> LookupTable:
    if not count:
        return table
    return IdTableWithHashBuckets(table, count, hasher, name, dtype)


@checked
def index_table_from_tensor(
    mapping: Any,
    num_oov_buckets: Buckets = 0,
    default_value: DefaultNumber = -1,
    hasher_spec: Hasher = FastHashSpec,
    dtype: AsDType = string,
    name: Name = None,
) -> LookupTable:
    """A table of the numbers of words: their places in `mapping`, `[n]`, int64.

    num_oov_buckets: other words have numbers from n to n + num_oov_buckets - 1, by their hashes; with 0 they
    have default_value. dtype: of the words, tb.string or whole numbers. Raises FailedPreconditionError, when
    it is initialised, for a word that stands twice.
    """
    with name_scope(name or "string_to_index"):
        words = as_tensor(mapping, string if dtype.is_string else None)
        if not dtype.is_string:
            if not words.dtype.is_integer:
                raise InvalidArgumentError(
                    f"index_table_from_tensor: expected a mapping of {dtype.name}, got {words.spec}"
                )
            words = cast(words, int64)
        numbers = numbers_to(cast(shape(words)[0], int64))
        table = HashTable(KeyValueTensorInitializer(words, numbers), default_value)
    return _with_buckets(table, num_oov_buckets, hasher_spec, name, dtype)


@checked
def index_table_from_file(
    vocabulary_file: Any,
    num_oov_buckets: Buckets = 0,
    vocab_size: Positive | None = None,
    default_value: DefaultNumber = -1,
    hasher_spec: Hasher = FastHashSpec,
    key_dtype: AsDType = string,
    name: Name = None,
    key_column_index: LineColumn = WHOLE_LINE,
    value_column_index: LineColumn = LINE_NUMBER,
    delimiter: Text = "\t",
) -> LookupTable:
    """A table of the numbers of words: of the lines of a file, from 0; see `index_table_from_tensor`.

    vocab_size: number of lines to read, by default all. key_column_index, value_column_index, delimiter: as
    of `TextFileInitializer`. key_dtype: tb.string, or int64 for lines of whole numbers.
    """
    with name_scope(name or "string_to_index"):
        # Lines of whole numbers: the only column.
        column = 0 if not key_dtype.is_string and key_column_index == WHOLE_LINE else key_column_index
        keys = string if key_dtype.is_string else int64
        initializer = TextFileInitializer(
            vocabulary_file, keys, column, int64, value_column_index, vocab_size, delimiter
        )
        table = HashTable(initializer, default_value)
    return _with_buckets(table, num_oov_buckets, hasher_spec, name, key_dtype)


@checked
def index_to_string_table_from_tensor(
    mapping: Any, default_value: Text = "UNK", name: Name = None
) -> LookupTable:
    """A table of words by their places in `mapping`, `[n]` strings. default_value: of other numbers."""
    with name_scope(name or "index_to_string"):
        words = as_tensor(mapping, string)
        numbers = numbers_to(cast(shape(words)[0], int64))
        return HashTable(KeyValueTensorInitializer(numbers, words), default_value)


@checked
def index_to_string_table_from_file(
    vocabulary_file: Any,
    vocab_size: Positive | None = None,
    default_value: Text = "UNK",
    name: Name = None,
    key_column_index: LineColumn = LINE_NUMBER,
    value_column_index: LineColumn = WHOLE_LINE,
    delimiter: Text = "\t",
) -> LookupTable:
    """A table of words by the numbers of their lines in a file; see `index_table_from_file`."""
    with name_scope(name or "index_to_string"):
        initializer = TextFileInitializer(
            vocabulary_file, int64, key_column_index, string, value_column_index, vocab_size, delimiter
        )
        return HashTable(initializer, default_value)
