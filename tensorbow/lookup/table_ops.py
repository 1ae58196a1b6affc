"""Ops of lookup tables. A table is a handle, an int64 scalar; its keys and values are the session's."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from tensorbow.array_likes import text_of
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.files import open_to_read
from tensorbow.graph import REQUIRED, Attrs, HostCall
from tensorbow.graph.definition import SpecRule
from tensorbow.ops.definition import require_dtype, require_rank
from tensorbow.queues.queue_ops import KEY, found, handle_of, shared_or_own
from tensorbow.queues.waiting_calls import define_object_op
from tensorbow.specs import Array, DType, TensorSpec, compatible, int64, string

WHOLE_LINE, LINE_NUMBER = -2, -1  # of a text file, in the place of a column's number
_HANDLE = TensorSpec((), int64)
_handles = itertools.count(1 << 41)  # apart from those of queues


class KeyedValues:
    """Values by key. All methods are thread-safe."""

    def __init__(self, label: str, is_fixed: bool):
        """is_fixed: a table has no values until it is initialised, and keeps those."""
        self.handle = next(_handles)
        self._label, self._is_fixed = label, is_fixed
        self._lock = threading.Lock()
        self._values: dict[Any, Any] | None = None if is_fixed else {}

    @property
    def has_values(self) -> bool:
        """True from the initialisation on."""
        return self._values is not None

    def initialize(self, pairs: Iterator[tuple[Any, Any]]) -> None:
        """Sets the values of a fixed table, unless it has some.

        Raises FailedPreconditionError for two different values of a key.
        """
        with self._lock:
            if self._values is not None:
                return
            values: dict[Any, Any] = {}
            for key, value in pairs:
                known = values.setdefault(key, value)
                if known is not value and known != value:
                    raise FailedPreconditionError(
                        f"{self._label}: key {_shown(key)} has the values {_shown(values[key])} and "
                        f"{_shown(value)}; give each key once"
                    )
            self._values = values

    @contextmanager
    def held(self) -> Iterator[dict[Any, Any]]:
        """The values, which nobody else changes meanwhile.

        Raises FailedPreconditionError before they are set.
        """
        with self._lock:
            if self._values is None:
                raise FailedPreconditionError(
                    f"{self._label} has no values yet; run tb.tables_initializer() first"
                )
            yield self._values

    def close(self) -> None:
        """Forgets the values."""
        self._values = None if self._is_fixed else {}


def _shown(value: Any) -> str:
    return repr(text_of(value)) if isinstance(value, bytes) else str(value)


def _make(is_fixed: bool, call: HostCall) -> list[Array]:
    attrs = call.attrs
    label = f"table '{attrs['shared_name'] or call.name}'"
    settings = (call.op.type, attrs["key_dtype"], attrs["value_dtype"])
    return handle_of(call, shared_or_own(call, lambda: KeyedValues(label, is_fixed), settings))


def _table(call: HostCall) -> KeyedValues:
    table: KeyedValues = found(call, KeyedValues, "table")
    return table


def _array(values: Sequence[Any], dtype: DType, shape: Sequence[int]) -> Array:
    made: Array = np.empty(len(values), dtype.as_numpy_dtype)
    for index, value in enumerate(values):
        made[index] = value
    return made.reshape(shape)


# Host functions ---------------------------------------------------------------------------------


def _initialize(call: HostCall) -> list[Array]:
    table = _table(call)
    if not table.has_values:
        keys, values = (each.ravel().tolist() for each in call.inputs[1:])
        table.initialize(zip(keys, values, strict=True))
    return []


def _initialize_from_file(call: HostCall) -> list[Array]:
    _table(call).initialize(_pairs_of_file(text_of(call.inputs[1].item()), call.attrs))
    return []


def _pairs_of_file(path: str, attrs: Attrs) -> Iterator[tuple[Any, Any]]:
    """Keys and values of the lines of a text file. Raises InvalidArgumentError, NotFoundError."""
    size, count = attrs["vocab_size"], 0
    with open_to_read(path) as file:
        for line in file:
            if size is not None and count == size:
                break
            text = line.rstrip(b"\r\n")
            yield (
                _field(path, count, text, attrs["key_index"], attrs["key_dtype"], attrs),
                _field(path, count, text, attrs["value_index"], attrs["value_dtype"], attrs),
            )
            count += 1
    if size is not None and count < size:
        raise InvalidArgumentError(f"{path}: expected {size} lines, as vocab_size says, got {count}")


def _field(path: str, number: int, line: bytes, index: int, dtype: DType, attrs: Attrs) -> Any:
    if index == LINE_NUMBER:
        return number
    text = line
    if index != WHOLE_LINE:
        columns = line.split(attrs["delimiter"].encode())
        if index >= len(columns):
            raise InvalidArgumentError(
                f"{path}: line {number + 1} has {len(columns)} columns, expected one of index {index}; see "
                "delimiter"
            )
        text = columns[index]
    if dtype.is_string:
        return text
    try:
        return dtype.as_numpy_dtype.type(text.decode()).item()
    except ValueError:
        raise InvalidArgumentError(
            f"{path}: line {number + 1} has {_shown(text)}, expected {dtype.name}"
        ) from None


def _find(call: HostCall) -> list[Array]:
    keys, default = call.inputs[1], call.inputs[2].item()
    with _table(call).held() as values:
        found = [values.get(key, default) for key in keys.ravel().tolist()]
    return [_array(found, call.op.inputs[2].dtype, keys.shape)]


def _size(call: HostCall) -> list[Array]:
    with _table(call).held() as values:
        return [np.asarray(len(values), np.int64)]


def _insert(call: HostCall) -> list[Array]:
    keys, values = (each.ravel().tolist() for each in call.inputs[1:])
    with _table(call).held() as known:
        known.update(zip(keys, values, strict=True))
    return []


def _remove(call: HostCall) -> list[Array]:
    with _table(call).held() as known:
        for key in call.inputs[1].ravel().tolist():
            known.pop(key, None)
    return []


def _export(call: HostCall) -> list[Array]:
    attrs = call.attrs
    with _table(call).held() as values:
        columns = (list(values), attrs["Tkeys"]), (list(values.values()), attrs["Tvalues"])
    return [_array(column, dtype, [len(column)]) for column, dtype in columns]


# Specs and ops ----------------------------------------------------------------------------------


def _pairs_spec(what: str) -> SpecRule:
    def rule(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
        keys, values = inputs[1:]
        if not compatible(keys.shape, values.shape):
            raise InvalidArgumentError(f"{what}: keys are {keys}, values {values}; expected one shape")
        return []

    return rule


def _file_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    require_dtype("TextFileInitializer", inputs[1], (string,), "filename")
    require_rank("TextFileInitializer", inputs[1], 0, "filename")
    return []


def _found_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(inputs[1].shape, inputs[2].dtype)


_define = partial(define_object_op, strings=True)
_TYPES = {"key_dtype": REQUIRED, "value_dtype": REQUIRED}
HashTableHandle = _define(
    "HashTableV2",
    partial(_make, True),
    "A table whose values are set once, as a handle.",
    spec=lambda inputs, attrs: _HANDLE,
    attrs={**_TYPES, **KEY},
)
MutableHashTableHandle = _define(
    "MutableHashTableV2",
    partial(_make, False),
    "A table whose values change, as a handle.",
    spec=lambda inputs, attrs: _HANDLE,
    attrs={**_TYPES, **KEY},
)
InitializeTable = _define(
    "InitializeTableV2",
    _initialize,
    "Sets the values of a table.",
    *("handle", "keys", "values"),
    spec=_pairs_spec("KeyValueTensorInitializer"),
)
InitializeTableFromTextFile = _define(
    "InitializeTableFromTextFileV2",
    _initialize_from_file,
    "Sets the values of a table to those of the lines of a file.",
    *("handle", "filename"),
    spec=_file_spec,
    attrs={**_TYPES, "key_index": REQUIRED, "value_index": REQUIRED, "vocab_size": None, "delimiter": "\t"},
)
LookupTableFind = _define(
    "LookupTableFindV2",
    _find,
    "Values of keys, of the keys' shape; the default value for keys that the table lacks.",
    *("handle", "keys", "default_value"),
    spec=_found_spec,
)
LookupTableSize = _define(
    "LookupTableSizeV2", _size, "The number of keys.", "handle", spec=lambda inputs, attrs: _HANDLE
)
LookupTableInsert = _define(
    "LookupTableInsertV2",
    _insert,
    "Sets values of keys.",
    *("handle", "keys", "values"),
    spec=_pairs_spec("insert"),
)
LookupTableRemove = _define("LookupTableRemoveV2", _remove, "Removes keys.", "handle", "keys")
LookupTableExport = _define(
    "LookupTableExportV2",
    _export,
    "All keys and their values, [n] each.",
    "handle",
    spec=lambda inputs, attrs: [TensorSpec((None,), attrs["Tkeys"]), TensorSpec((None,), attrs["Tvalues"])],
    attrs={"Tkeys": REQUIRED, "Tvalues": REQUIRED},
)
