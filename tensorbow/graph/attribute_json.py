"""Attributes as JSON: decoding restores every value with the same type and bits.

Numbers, texts, booleans, None and lists are plain JSON. Everything else is an object whose one key names
the type: `{"tuple": [1, 2]}`, `{"dtype": "float32"}`, `{"shape": [null, 3]}`, `{"float": "-inf"}`,
`{"slice": [0, null, 2]}`, `{"array": {"dtype": ..., "shape": ..., "data": base64}}`, of strings with the
base64 of each, ...
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array, DType, TensorShape, TensorSpec, as_dims, as_dtype

DEEPEST = 32  # levels of nested lists

_ARRAY_DTYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip
_PLAIN = (type(None), bool, int, str)


def encode_attribute(value: Any) -> Any:
    """A value in JSON form. Raises InvalidArgumentError for values without one, such as functions."""
    return _encode(value, 0)


def _encode(value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        raise InvalidArgumentError(f"lists are nested more than {DEEPEST} deep")
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is list:
        return [_encode(item, depth + 1) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, depth + 1) for item in value]}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, np.ndarray):
        return {"array": _encode_array(value)}
    if isinstance(value, np.generic):
        return {"scalar": _encode_array(np.asarray(value))}
    if isinstance(value, TensorShape):
        return {"shape": None if value.dims is None else list(value.dims)}
    if isinstance(value, TensorSpec):
        return {"spec": [value.dtype.name, None if value.shape is None else list(value.shape)]}
    if isinstance(value, slice):
        return {"slice": [_encode(item, depth + 1) for item in (value.start, value.stop, value.step)]}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, dict) and all(type(key) is str for key in value):
        return {"dict": {key: _encode(item, depth + 1) for key, item in value.items()}}
    raise InvalidArgumentError(
        f"a value of type {kind.__name__} cannot be written; use numbers, texts, tuples, arrays or dtypes"
    )


def _encode_array(array: Array) -> dict[str, Any]:
    if array.dtype == object and all(type(each) is bytes for each in array.flat):
        texts = [base64.b64encode(each).decode("ascii") for each in array.flat]
        return {"dtype": "string", "shape": list(array.shape), "data": texts}
    if array.dtype.name not in _ARRAY_DTYPES:
        raise InvalidArgumentError(f"an array of dtype {array.dtype} cannot be written; use numbers")
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "data": base64.b64encode(data).decode("ascii"),
    }


def decode_attribute(value: Any) -> Any:
    """The reverse of `encode_attribute`. Raises InvalidArgumentError for JSON it would not write."""
    try:
        return _decode(value, 0)
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError, OverflowError, MemoryError, KeyError) as error:
        raise InvalidArgumentError(f"not a valid attribute: {str(error)[:200]}") from None


def _decode(value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        raise InvalidArgumentError(f"lists are nested more than {DEEPEST} deep")
    if type(value) in _PLAIN:
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise InvalidArgumentError("a number that is not finite")
        return value
    if type(value) is list:
        return [_decode(item, depth + 1) for item in value]
    if type(value) is not dict or len(value) != 1:
        raise InvalidArgumentError("expected a number, a text, a list, or an object with one key")
    ((kind, content),) = value.items()
    if kind in ("tuple", "slice"):
        items = [_decode(item, depth + 1) for item in _of(list, content, kind)]
        return tuple(items) if kind == "tuple" else slice(*items)
    if kind == "dict":
        return {key: _decode(item, depth + 1) for key, item in _of(dict, content, kind).items()}
    if kind not in _DECODERS:
        raise InvalidArgumentError(f"'{kind[:40]}' is no kind of attribute")
    return _DECODERS[kind](content)


def _of(kind: type[Any], value: Any, what: str) -> Any:
    if type(value) is not kind:
        raise InvalidArgumentError(f"{what}: expected a {kind.__name__}, got {type(value).__name__}")
    return value


def _decode_float(text: Any) -> float:
    if text not in ("inf", "-inf", "nan"):
        raise InvalidArgumentError("float: expected inf, -inf or nan")
    return float(text)


def _decode_bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(_of(str, text, "bytes"), validate=True)
    except binascii.Error as error:
        raise InvalidArgumentError(f"bytes that are no base64: {error}") from None


def _decode_array(entry: Any) -> Array:
    entry = _of(dict, entry, "array")
    if set(entry) != {"dtype", "shape", "data"} or entry["dtype"] not in (*_ARRAY_DTYPES, "string"):
        raise InvalidArgumentError("an array needs dtype (of numbers or strings), shape and data")
    shape = _of(list, entry["shape"], "shape")
    if len(shape) > 32 or not all(type(d) is int and 0 <= d < 1 << 63 for d in shape):
        raise InvalidArgumentError("an array with an invalid shape")
    if entry["dtype"] == "string":
        return strings_of(shape, [_decode_bytes(each) for each in _of(list, entry["data"], "data")])
    dtype, data = np.dtype(entry["dtype"]), _decode_bytes(entry["data"])
    if math.prod(shape) * dtype.itemsize != len(data):
        raise InvalidArgumentError(
            f"an array {dtype.name}{shape} has {math.prod(shape) * dtype.itemsize} bytes, not {len(data)}"
        )
    if dtype == np.bool_ and data.strip(b"\0\1"):
        raise InvalidArgumentError("an array with a bool that is neither 0 nor 1")
    array: Array = np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape).astype(dtype)
    array.flags.writeable = False
    return array


def strings_of(shape: Sequence[int], elements: Sequence[bytes]) -> Array:
    """A read-only array of strings. Raises InvalidArgumentError for another number of them."""
    if math.prod(shape) != len(elements):
        raise InvalidArgumentError(f"an array of strings {list(shape)} has {len(elements)} elements")
    array: Array = np.empty(len(elements), object)
    array[:] = elements
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def _decode_spec(pair: Any) -> TensorSpec:
    dtype, shape = _of(list, pair, "spec")
    return TensorSpec(_decode_dims(shape), as_dtype(_of(str, dtype, "dtype")))


def _decode_dims(value: Any) -> tuple[int | None, ...] | None:
    if value is not None and not all(d is None or type(d) is int for d in _of(list, value, "shape")):
        raise InvalidArgumentError("a shape is made of whole numbers and null")
    return as_dims(value)


_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "float": _decode_float,
    "bytes": _decode_bytes,
    "array": _decode_array,
    "scalar": lambda content: _decode_array(content)[()],
    "dtype": lambda content: as_dtype(_of(str, content, "dtype")),
    "shape": lambda content: TensorShape(_decode_dims(content)),
    "spec": _decode_spec,
    "ellipsis": lambda content: Ellipsis,
}
