"""Lookup tables: values by key, such as numbers of words (TensorFlow 1's `tf.contrib.lookup`, `tf.lookup`).

Tables belong to steps in the dynamic mode. Each session has its own values, which `tb.tables_initializer`
sets; with `shared_name` sessions of the process share them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys, Operation, Tensor, as_tensor, colocate_with, get_default_graph
from tensorbow.kinds import AsDType, Name, Positive, Text, checked, instance, whole
from tensorbow.lookup.table_ops import (
    LINE_NUMBER,
    WHOLE_LINE,
    HashTableHandle,
    InitializeTable,
    InitializeTableFromTextFile,
    LookupTableExport,
    LookupTableFind,
    LookupTableInsert,
    LookupTableRemove,
    LookupTableSize,
    MutableHashTableHandle,
)
from tensorbow.ops.control import group
from tensorbow.ops.selection import cast
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.queues.queues import SharedName, shared_attrs
from tensorbow.specs import DType, int64, string


class TableInitializer(ABC):
    """Gives a table its keys and values. key_dtype, value_dtype: of the table."""

    key_dtype: DType
    value_dtype: DType

    @abstractmethod
    def initialize(self, table: Any) -> Operation:
        """The operation that sets the values of a `HashTable`."""


AsInitializer: TypeAlias = Annotated[
    TableInitializer, instance(TableInitializer, expected="a table initializer of tb.lookup")
]
LineColumn: TypeAlias = Annotated[int, whole(-2)]


class KeyValueTensorInitializer(TableInitializer):
    """Keys and values that are given as tensors, arrays or lists of one shape."""

    @checked
    def __init__(
        self,
        keys: Any,
        values: Any,
        key_dtype: AsDType | None = None,
        value_dtype: AsDType | None = None,
        name: Name = None,
    ):
        """key_dtype, value_dtype: by default those of the tensors."""
        self._keys, self._values = as_tensor(keys, key_dtype), as_tensor(values, value_dtype)
        self.key_dtype, self.value_dtype, self._name = self._keys.dtype, self._values.dtype, name

    def initialize(self, table: Any) -> Operation:
        """The operation that sets the values of a `HashTable`."""
        operation: Operation = InitializeTable(table.handle, self._keys, self._values, name=self._name)
        return operation


class TextFileIndex:
    """Values of `key_index` and `value_index` that are no columns: the whole line, and the line's number."""

    WHOLE_LINE = WHOLE_LINE
    LINE_NUMBER = LINE_NUMBER


class TextFileInitializer(TableInitializer):
    """Keys and values from the lines of a text file, which is read when the table is initialised."""

    @checked
    def __init__(
        self,
        filename: Any,
        key_dtype: AsDType,
        key_index: LineColumn,
        value_dtype: AsDType,
        value_index: LineColumn,
        vocab_size: Positive | None = None,
        delimiter: Text = "\t",
        name: Name = None,
    ):
        """filename: a text or a string tensor. key_index, value_index: `TextFileIndex.WHOLE_LINE`,
        `LINE_NUMBER` (from 0, int64), or the number of a column between delimiters. vocab_size: reads so many
        lines, and requires them; by default all.

        Raises InvalidArgumentError for numbers of lines that are no int64, and for whole lines that are no
        strings.
        """
        for what, index, dtype in (("key", key_index, key_dtype), ("value", value_index, value_dtype)):
            for special, expected in ((LINE_NUMBER, int64), (WHOLE_LINE, string)):
                if index == special and dtype != expected:
                    raise InvalidArgumentError(
                        f"TextFileInitializer: with {what}_index={index} expected {what}_dtype to be "
                        f"{expected.name}, got {dtype.name}"
                    )
        self.key_dtype, self.value_dtype, self._name = key_dtype, value_dtype, name
        self._filename = as_tensor(filename, string)
        self._attrs = {
            "key_dtype": key_dtype,
            "value_dtype": value_dtype,
            "key_index": key_index,
            "value_index": value_index,
            "vocab_size": vocab_size,
            "delimiter": delimiter,
        }

    def initialize(self, table: Any) -> Operation:
        """The operation that reads the file and sets the values of a `HashTable`."""
        name, attrs = self._name, self._attrs
        operation: Operation = InitializeTableFromTextFile(table.handle, self._filename, **attrs, name=name)
        return operation


class LookupTable(ABC):
    """Base of tables: `lookup` of keys, and `size`."""

    name: str
    key_dtype: DType
    value_dtype: DType

    @abstractmethod
    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The values of keys, of the keys' shape; of a `SparseTensor` those of its values."""

    @abstractmethod
    def size(self, name: str | None = None) -> Tensor:
        """The number of keys, int64."""


class _HandledTable(LookupTable):
    """A table with a handle, and a default value for keys that it lacks."""

    def __init__(self, handle: Tensor, key_dtype: DType, value_dtype: DType, default_value: Any):
        self.handle, self.name = handle, handle.op.name
        self.key_dtype, self.value_dtype = key_dtype, value_dtype
        self.default_value = as_tensor(default_value, value_dtype)
        if self.default_value.shape.ndims not in (0, None):
            raise InvalidArgumentError(
                f"{type(self).__name__}: expected default_value to be a scalar, got {self.default_value.spec}"
            )

    @checked
    def lookup(self, keys: Any, name: Name = None) -> Any:
        """The values of keys, of the keys' shape, and the default value for keys that the table lacks.

        keys: a tensor, or a SparseTensor, whose values are looked up. Raises FailedPreconditionError, when it
        runs, before the table has values.
        """
        if isinstance(keys, SparseTensor):
            return SparseTensor(keys.indices, self.lookup(keys.values, name), keys.dense_shape)
        return self._placed(LookupTableFind, self._keys(keys), self.default_value, name=name)

    @checked
    def size(self, name: Name = None) -> Tensor:
        """The number of keys, int64."""
        found: Tensor = self._placed(LookupTableSize, name=name)
        return found

    def _keys(self, keys: Any) -> Tensor:
        """Keys of the table's dtype; other whole numbers become int64."""
        tensor = as_tensor(keys, self.key_dtype if self.key_dtype.is_string else None)
        if tensor.dtype == self.key_dtype:
            return tensor
        if not (tensor.dtype.is_integer and self.key_dtype.is_integer) or (
            tensor.dtype.size > self.key_dtype.size
        ):
            raise InvalidArgumentError(
                f"{type(self).__name__}.lookup: expected keys of {self.key_dtype.name}, got {tensor.spec}"
            )
        return cast(tensor, self.key_dtype)

    def _placed(self, op: Any, *inputs: Any, **more: Any) -> Any:
        """The output or operation of an op on the table, on its device."""
        with self.handle.graph.as_default(), colocate_with(self.handle.op):
            made = op(self.handle, *inputs, **more)
        return made


class HashTable(_HandledTable):
    """A table whose values an initializer sets once."""

    @checked
    def __init__(
        self,
        initializer: AsInitializer,
        default_value: Any,
        shared_name: SharedName = None,
        name: Name = None,
    ):
        """default_value: of keys that the table lacks. The operation that sets the values is `initializer`;
        `tb.tables_initializer()` runs those of all tables.
        """
        key_dtype, value_dtype = initializer.key_dtype, initializer.value_dtype
        _require_keys(type(self).__name__, key_dtype)
        types = {"key_dtype": key_dtype, "value_dtype": value_dtype}
        handle = HashTableHandle.tensor(**types, **shared_attrs(shared_name), name=name or "hash_table")
        super().__init__(handle, key_dtype, value_dtype, default_value)
        with colocate_with(handle.op):
            self.initializer = self.init = initializer.initialize(self)
        get_default_graph().add_to_collection(GraphKeys.TABLE_INITIALIZERS, self.initializer)

    @checked
    def export(self, name: Name = None) -> tuple[Tensor, Tensor]:
        """All keys and their values, `[n]` each, in the order in which they came."""
        types = {"Tkeys": self.key_dtype, "Tvalues": self.value_dtype}
        keys, values = self._placed(LookupTableExport, **types, name=name)
        return keys, values


StaticHashTable = HashTable  # TensorFlow's newer name


class MutableHashTable(_HandledTable):
    """A table whose values operations change: empty at first, and not saved by a `tb.train.Saver`."""

    @checked
    def __init__(
        self,
        key_dtype: AsDType,
        value_dtype: AsDType,
        default_value: Any,
        shared_name: SharedName = None,
        name: Name = None,
    ):
        """default_value: of keys that the table lacks."""
        _require_keys("MutableHashTable", key_dtype)
        types = {"key_dtype": key_dtype, "value_dtype": value_dtype}
        attrs = {**types, **shared_attrs(shared_name)}
        handle = MutableHashTableHandle.tensor(**attrs, name=name or "mutable_hash_table")
        super().__init__(handle, key_dtype, value_dtype, default_value)

    @checked
    def insert(self, keys: Any, values: Any, name: Name = None) -> Operation:
        """The operation that sets values of keys; both of one shape."""
        own = as_tensor(values, self.value_dtype)
        operation: Operation = self._placed(LookupTableInsert, self._keys(keys), own, name=name)
        return operation

    @checked
    def remove(self, keys: Any, name: Name = None) -> Operation:
        """The operation that removes keys; others than those of the table are ignored."""
        operation: Operation = self._placed(LookupTableRemove, self._keys(keys), name=name)
        return operation

    export = HashTable.export


def _require_keys(table: str, dtype: DType) -> None:
    if not (dtype.is_string or dtype.is_integer):
        raise InvalidArgumentError(f"{table}: expected keys of tb.string or whole numbers, got {dtype.name}")


@checked
def tables_initializer(name: Name = "init_all_tables") -> Operation:
    """One operation that sets the values of all tables made so far; those that have some stay as they are."""
    return group(*get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS), name=name)


@checked
def initialize_all_tables(name: Name = "init_all_tables") -> Operation:
    """The same as `tables_initializer`, under its older name."""
    return tables_initializer(name)
