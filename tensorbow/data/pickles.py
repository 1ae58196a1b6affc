"""Safe reader of the pickles of CIFAR-10's Python version.

A pickle is a program that may call anything it can import. Here it can only construct NumPy arrays, through
stand-ins whose arguments are checked.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tensorbow.errors import DataLossError, ResourceExhaustedError
from tensorbow.files import read_file, shown

MAXIMUM_NBYTES = 256 << 20  # largest file; those of CIFAR-10 have 31 MB


def _bytes(text: Any, encoding: Any = "latin1") -> bytes:
    """Stand-in for `_codecs.encode(text, "latin1")`, by which Python 3 writes bytes in old protocols."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("a text in another encoding than latin1")
    return text.encode("latin1")


class _Array:
    """Stand-in for an array until its shape, dtype and bytes are known."""

    def __init__(self) -> None:
        self.array: Any = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("an array that is none")
        _, shape, dtype, _, data = state
        if isinstance(data, str):
            data = data.encode("latin1")
        if not isinstance(dtype, _DType) or dtype.code != "u1" or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array of other than uint8")
        if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n <= len(data) for n in shape):
            raise pickle.UnpicklingError("an array of no shape")
        expected = 1
        for extent in shape:
            expected *= extent
        if len(shape) > 4 or expected != len(data):
            raise pickle.UnpicklingError(f"an array of {list(shape)[:5]} with {len(data)} bytes")
        self.array = np.frombuffer(data, np.uint8).reshape(shape, order="F" if state[3] else "C")


class _DType:
    """Stand-in for a dtype: keeps only its code."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = {"u1": "u1", b"u1": "u1"}.get(code, "") if isinstance(code, (str, bytes)) else ""

    def __setstate__(self, state: Any) -> None:
        """Ignores byte order and the like, which uint8 does not have."""


class _NdArray:
    """Stand-in for `numpy.ndarray`, the first argument of `_reconstruct`."""


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if kind is not _NdArray:
        raise pickle.UnpicklingError("an array of another class")
    return _Array()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    """Stand-in for the function that constructs arrays in newer pickles."""
    made = _Array()
    made.__setstate__((1, shape, dtype, order == "F", data))
    return made


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _frombuffer for core in ("core", "_core")},
    ("numpy", "ndarray"): _NdArray,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _bytes,
}


# Opcodes for dicts of arrays, lists, strings and numbers. None that uses extensions or external references,
# or allocates memory for a declared length before the bytes are read.
_OPCODES = (
    "PROTO FRAME STOP MARK MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET POP POP_MARK DUP "
    "NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT STRING BINSTRING "
    "SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES "
    "BINBYTES8 EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS EMPTY_TUPLE TUPLE "
    "TUPLE1 TUPLE2 TUPLE3 GLOBAL STACK_GLOBAL REDUCE "
)


class _Unpickler(pickle._Unpickler):
    """Python's own unpickler, restricted; unlike the C one, its memo cannot be made huge by an index."""

    dispatch = {  # noqa: RUF012 - as in the class above
        code: pickle._Unpickler.dispatch[code]
        for code in (getattr(pickle, name)[0] for name in _OPCODES.split())
    }

    def load_build(self) -> None:
        """Sets the state of an array or a dtype. Raises UnpicklingError for other objects."""
        state = self.stack.pop()  # type: ignore[attr-defined]
        target = self.stack[-1]  # type: ignore[attr-defined]
        if type(target) not in (_Array, _DType):
            raise pickle.UnpicklingError(f"it changes a {type(target).__name__}")
        target.__setstate__(state)

    def load_bytes(self) -> None:
        """Reads a byte array of protocol 5, without allocating the declared size first."""
        size = int.from_bytes(self.read(8), "little")  # type: ignore[attr-defined]
        data = self.read(min(size, MAXIMUM_NBYTES))  # type: ignore[attr-defined]
        if len(data) != size:
            raise pickle.UnpicklingError(f"it declares {size} bytes, and only {len(data)} follow")
        self.append(data)  # type: ignore[attr-defined]

    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]
    dispatch[pickle.BYTEARRAY8[0]] = load_bytes  # type: ignore[assignment]

    def find_class(self, module: str, name: str) -> Any:
        """Stand-in for a class or function. Raises UnpicklingError for unknown ones."""
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module[:60]}.{name[:60]}, which no such file needs")
        return _KNOWN[module, name]


def read_pickled_dict(path: Path) -> dict[str, Any]:
    """Reads a pickled dict: string keys; values are uint8 arrays, or lists, strings and numbers.

    Raises DataLossError for anything but such a dict, FailedPreconditionError if the file cannot be read,
    ResourceExhaustedError if it does not fit into memory.
    """
    content = read_file(path, MAXIMUM_NBYTES)
    try:
        value = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except MemoryError as error:
        raise ResourceExhaustedError(f"the content of {shown(path)} does not fit into memory") from error
    except Exception as error:
        reason = ascii(" ".join(str(error).split())[:200])[1:-1]
        raise DataLossError(
            f"{shown(path)} is damaged or not the file expected: {reason}; get it again"
        ) from error
    if not isinstance(value, dict):
        raise DataLossError(f"{shown(path)} holds no dict, but {type(value).__name__}; get it again")
    result: dict[str, Any] = {}
    for key, item in value.items():
        name = key.decode("latin1") if isinstance(key, bytes) else key
        if isinstance(name, str):
            result[name] = item.array if isinstance(item, _Array) else item
    return result
