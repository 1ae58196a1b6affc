"""Values of features in serialised examples, as dense, padded and sparse arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.input_ops.example_messages import example_message
from tensorbow.specs import Array, DType, float32, int64, string

# A feature to parse, as attributes of an op hold it: kind ("dense", "sparse", "padded" or "pairs"), key,
# dtype, shape, default (an array or None), and for "pairs" the key of the values and the size.
Described: TypeAlias = "tuple[str, str, DType, tuple[int, ...], Array | None, str, int]"
_LISTS = {"float32": "float_list", "int64": "int64_list", "string": "bytes_list"}
_DTYPES = {"float_list": float32, "int64_list": int64, "bytes_list": string}


def read_message(op: str, kind: str, blob: bytes, where: str) -> Any:
    """A message of a kind. Raises InvalidArgumentError for bytes that are none."""
    message = example_message(kind)()
    try:
        message.ParseFromString(blob)
    except Exception as error:  # DecodeError of protobuf
        reason = " ".join(str(error).split())[:120]
        raise InvalidArgumentError(f"{op}: {where} is truncated or no {kind}: {reason}") from None
    return message


def _values(op: str, where: str, key: str, feature: Any, dtype: DType) -> Any:
    """The values of a feature; None if it is not there or has no kind."""
    kind = None if feature is None else feature.WhichOneof("kind")
    if kind is None:
        return None
    if kind != _LISTS[dtype.name]:
        raise InvalidArgumentError(
            f"{op}: {where}: feature {key!r} has values of {_DTYPES[kind].name}, expected {dtype.name}"
        )
    return getattr(feature, kind).value


def _array(values: Any, dtype: DType, shape: Sequence[int] | None = None) -> Array:
    array: Array = np.empty(len(values), dtype.as_numpy_dtype)
    array[:] = values
    return array if shape is None else array.reshape(tuple(shape))


class FeatureParser:
    """The values of a feature in several examples, and what they become."""

    def __init__(self, op: str, wheres: Sequence[str], lookups: Sequence[Callable[[str], Any]]):
        """wheres: names of the examples in errors. lookups: give each example's feature by name, or None."""
        self._op, self._wheres, self._lookups = op, wheres, lookups

    def parsed(self, described: Described, single: bool) -> list[Array]:
        """The outputs of a feature; single: of the one example, without the axis of examples."""
        kind, key, dtype, shape, default, value_key, number = described
        columns = [
            _values(self._op, where, key, lookup(key), int64 if kind == "pairs" else dtype)
            for where, lookup in zip(self._wheres, self._lookups, strict=True)
        ]
        if kind == "dense":
            rows = [self._dense(i, key, values, dtype, shape, default) for i, values in enumerate(columns)]
            return [rows[0] if single else _stacked(rows, dtype, shape)]
        if kind == "padded":
            return [self._padded(key, columns, dtype, shape, default, single)]
        if kind == "sparse":
            return _sparse([[] if values is None else values for values in columns], dtype, single)
        return self._pairs(key, value_key, columns, dtype, number, single)

    def _dense(
        self, index: int, key: str, values: Any, dtype: DType, shape: Sequence[int], default: Array | None
    ) -> Array:
        if values is None:
            if default is None:
                raise InvalidArgumentError(
                    f"{self._op}: {self._wheres[index]}: feature {key!r} ({dtype.name}) is required and "
                    "missing; give a default_value"
                )
            return default
        if len(values) != math.prod(shape):
            raise InvalidArgumentError(
                f"{self._op}: {self._wheres[index]}: feature {key!r} has {len(values)} values, expected "
                f"{math.prod(shape)} for shape {list(shape)}"
            )
        return _array(values, dtype, shape)

    def _padded(
        self,
        key: str,
        columns: Sequence[Any],
        dtype: DType,
        shape: Sequence[int],
        padding: Array | None,
        single: bool,
    ) -> Array:
        size = math.prod(shape)
        rows = []
        for where, values in zip(self._wheres, columns, strict=True):
            count = 0 if values is None else len(values)
            if size and count % size:
                raise InvalidArgumentError(
                    f"{self._op}: {where}: feature {key!r} has {count} values, expected a multiple of {size}"
                )
            rows.append(_array(values or (), dtype, (count // size if size else 0, *shape)))
        if single:
            return rows[0]
        filler: Any = (b"" if dtype.is_string else 0) if padding is None else padding.ravel()[0]
        longest = max((len(row) for row in rows), default=0)
        batch: Array = np.full((len(rows), longest, *shape), filler, dtype.as_numpy_dtype)
        for place, row in zip(batch, rows, strict=True):
            place[: len(row)] = row
        return batch

    def _pairs(
        self, key: str, value_key: str, columns: Sequence[Any], dtype: DType, size: int, single: bool
    ) -> list[Array]:
        indices, values = [], []
        for row, (where, lookup, positions) in enumerate(
            zip(self._wheres, self._lookups, columns, strict=True)
        ):
            found = _values(self._op, where, value_key, lookup(value_key), dtype)
            positions, found = list(positions or ()), list(found or ())
            if len(positions) != len(found):
                raise InvalidArgumentError(
                    f"{self._op}: {where}: feature {key!r} has {len(positions)} positions, feature "
                    f"{value_key!r} {len(found)} values; expected as many"
                )
            if any(not 0 <= position < size for position in positions):
                raise InvalidArgumentError(
                    f"{self._op}: {where}: feature {key!r} has positions {positions!r:.60}, expected numbers "
                    f"from 0 to {size - 1}"
                )
            for position, value in sorted(zip(positions, found, strict=True), key=lambda pair: pair[0]):
                indices.append((position,) if single else (row, position))
                values.append(value)
        shape = (size,) if single else (len(columns), size)
        return [np.array(indices, np.int64).reshape(-1, len(shape)), _array(values, dtype), np.array(shape)]


def _stacked(rows: Sequence[Array], dtype: DType, shape: Sequence[int]) -> Array:
    return np.stack(rows) if rows else np.empty((0, *shape), dtype.as_numpy_dtype)


def _sparse(columns: Sequence[Any], dtype: DType, single: bool) -> list[Array]:
    counts = [len(values) for values in columns]
    within = [np.arange(count) for count in counts]
    positions = np.concatenate(within) if within else np.empty(0, np.int64)
    values = _array([value for column in columns for value in column], dtype)
    if single:
        return [positions.reshape(-1, 1), values, np.array(counts, np.int64)]
    indices = np.stack([np.repeat(np.arange(len(counts)), counts), positions], axis=1)
    return [indices.astype(np.int64), values, np.array([len(counts), max(counts, default=0)], np.int64)]
