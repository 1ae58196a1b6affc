"""Conversion of any library's arrays to NumPy's, by array protocols, without importing that library."""

from __future__ import annotations

import reprlib
import sys
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array, bfloat16, shortened

DEEPEST = 64  # levels of nested lists that are searched
PROTOCOLS = ("__array__", "__array_interface__", "__array_struct__")  # those of `np.asarray`


class _Protocols(type):
    def __instancecheck__(cls, value: object) -> bool:
        if isinstance(value, type):
            return False
        return _has(value, *PROTOCOLS, "__dlpack__") or _is_buffer(value)


class ArrayLike(metaclass=_Protocols):
    """Base of everything that is an array with its own dtype: NumPy arrays and scalars, and objects that
    convert by `__array__`, the array interface, DLPack or the buffer protocol; not numbers or nested lists.
    """


def _has(value: object, *names: str) -> bool:
    return any(hasattr(value, name) for name in names)


def _is_buffer(value: object) -> bool:
    try:
        memoryview(value).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def holds_strings(value: Any) -> bool:
    """True for a text, bytes, an array of them, and a nested list whose first element is one."""
    if isinstance(value, (str, bytes)):
        return True
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "SUTO"
    for _ in range(DEEPEST):
        if not isinstance(value, (list, tuple)) or not value:
            break
        value = value[0]
    return isinstance(value, (str, bytes))


def string_array(value: Any) -> Array:
    """An array of objects, each `bytes`: of texts, in UTF-8, and bytes, arrays and nested lists of them.

    Raises InvalidArgumentError for other elements and ragged lists.
    """
    array = np.array(value, dtype=object) if _needs_copy(value) else value
    flat = array.ravel()
    if all(type(each) is bytes for each in flat):
        return array
    made = np.empty(flat.shape, object)
    for index, each in enumerate(flat):
        made[index] = _as_bytes(each, value)
    return made.reshape(array.shape)


def text_of(value: bytes) -> str:
    """The text of a string tensor's element, for messages; other bytes than UTF-8 as escapes."""
    return value.decode("utf-8", "backslashreplace")


def _needs_copy(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.dtype != object


def _as_bytes(value: Any, whole: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, (list, tuple)):
        raise InvalidArgumentError(
            f"nested list {shortened(whole)} is ragged: all rows must have the same length"
        )
    raise InvalidArgumentError(
        f"cannot make a tensor of strings of {type(whole).__name__} with {shortened(value)} in it: "
        "expected texts and bytes; str() or tb.as_string makes texts of numbers"
    )


def _read(value: Any) -> Array:
    try:
        return np.asarray(value)
    except TypeError:
        if str(getattr(value, "dtype", "")) != "torch.bfloat16":  # NumPy has no such dtype
            raise
        return np.asarray(value.view(sys.modules["torch"].int16)).view(bfloat16.as_numpy_dtype)


def as_array(value: Any) -> Array:
    """A NumPy array from an array of any library, a number or a nested list, with NumPy's choice of dtype.

    An array keeps its dtype, and shares its memory if its library allows. Raises InvalidArgumentError, in one
    line, for a ragged list, and for an array that is not in host memory or cannot be read as it is.
    """
    try:
        if _has(value, "__dlpack__") and not _has(value, *PROTOCOLS):
            return np.from_dlpack(value)
        return _read(value)
    except Exception as error:  # other libraries may raise anything
        if isinstance(error, ValueError) and isinstance(value, (list, tuple)):
            raise InvalidArgumentError(
                f"nested list {reprlib.repr(value)} is ragged: all rows must have the same length"
            ) from None
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        remedy = "" if isinstance(value, (list, tuple)) else "; give a NumPy array"
        raise InvalidArgumentError(
            f"cannot make an array of {type(value).__name__}: {reason}{remedy}"
        ) from error
