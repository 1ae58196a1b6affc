"""Reading the pickles of CIFAR-10's python version without running what is in them.

A pickle is a program: it may call anything it can import. Here it can import what NumPy arrays are made of
and nothing else, and what comes out is looked at before it is used.
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

MAXIMUM_NBYTES = 256 << 20  # of a file: a batch of CIFAR-10 has 31 MB


def _bytes(text: Any, encoding: Any = "latin1") -> bytes:
    """What Python 3 writes for bytes in an old protocol: `_codecs.encode(text, "latin1")`."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("a text in another encoding than latin1")
    return text.encode("latin1")


class _Array:
    """Stands for an array until its shape, dtype and bytes are known."""

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
    """Stands for a dtype: only its code is kept."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = {"u1": "u1", b"u1": "u1"}.get(code, "") if isinstance(code, (str, bytes)) else ""

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like, which bytes do not have."""


class _NdArray:
    """The class that `_reconstruct` is told."""


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if kind is not _NdArray:
        raise pickle.UnpicklingError("an array of another class")
    return _Array()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    """What newer pickles make arrays by."""
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


# What dicts of arrays, lists, texts and numbers are written with. Nothing that extends, refers outside or
# takes memory by a length that no bytes follow.
_OPCODES = (
    "PROTO FRAME STOP MARK MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET POP POP_MARK DUP "
    "NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT STRING BINSTRING "
    "SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES "
    "BINBYTES8 EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS EMPTY_TUPLE TUPLE "
    "TUPLE1 TUPLE2 TUPLE3 GLOBAL STACK_GLOBAL REDUCE "
)


class _Unpickler(pickle._Unpickler):
    """The unpickler in Python, whose memo grows with what is in the file, not with what the file says."""

    dispatch = {  # noqa: RUF012 - as in the class above
        code: pickle._Unpickler.dispatch[code]
        for code in (getattr(pickle, name)[0] for name in _OPCODES.split())
    }

    def load_build(self) -> None:
        """Gives an array or a dtype its content; nothing else has any to be given."""
        state = self.stack.pop()  # type: ignore[attr-defined]
        target = self.stack[-1]  # type: ignore[attr-defined]
        if type(target) not in (_Array, _DType):
            raise pickle.UnpicklingError(f"it changes a {type(target).__name__}")
        target.__setstate__(state)

    def load_bytes(self) -> None:
        """Bytes as protocol 5 writes those of arrays: taken from the file before memory is."""
        size = int.from_bytes(self.read(8), "little")  # type: ignore[attr-defined]
        data = self.read(min(size, MAXIMUM_NBYTES))  # type: ignore[attr-defined]
        if len(data) != size:
            raise pickle.UnpicklingError(f"it declares {size} bytes, and only {len(data)} follow")
        self.append(data)  # type: ignore[attr-defined]

    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]
    dispatch[pickle.BYTEARRAY8[0]] = load_bytes  # type: ignore[assignment]

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a class or function. Raises UnpicklingError for any that is not known."""
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module[:60]}.{name[:60]}, which no such file needs")
        return _KNOWN[module, name]


def read_pickled_dict(path: Path) -> dict[str, Any]:
    """The dict of a pickle file: text keys; values are uint8 arrays, or lists and texts as they are.

    DataLossError for anything but a pickle of such a dict, FailedPreconditionError when it cannot be read.
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
