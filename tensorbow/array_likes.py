"""Conversion of any library's arrays to NumPy's, by array protocols, without importing that library."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array

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


def as_array(value: Any) -> Array:
    """A NumPy array from an array of any library, a number or a nested list, with NumPy's choice of dtype.

    An array keeps its dtype, and shares its memory if its library allows. Raises InvalidArgumentError, in one
    line, for a ragged list, and for an array that is not in host memory or cannot be read as it is.
    """
    try:
        if _has(value, "__dlpack__") and not _has(value, *PROTOCOLS):
            return np.from_dlpack(value)
        return np.asarray(value)
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
