"""Named arrays in safetensors files, written atomically.

The reader does not trust the file: memory is allocated only for a regular file that fits, and every offset,
shape and dtype is checked against the file's size, the content against a checksum.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tensorbow.array_likes import as_array
from tensorbow.devices.host_memory import available_memory_nbytes
from tensorbow.errors import DataLossError, InvalidArgumentError, ResourceExhaustedError
from tensorbow.files import open_to_read, shown, write_file
from tensorbow.specs import Array, as_dtype
from tensorbow.strict_json import parse_json

FORMAT = "tensorbow-1"
PAIRS = "complex128"  # entry of the names of arrays that are stored as pairs of float64
TEXTS = "strings"  # entry of the shapes of arrays of strings, by name; see `_packed`
KEY = "tensorbow"  # the only entry of the file's metadata: several would be written in random order
RESERVED = "__metadata__"  # name reserved by the format
HEADER_LIMIT = 100_000_000  # bytes; the limit of the format
MOST_VALUES = 1 << 22  # JSON values in a header: enough for some 300,000 arrays

_DTYPES = {
    "F32": "float32", "F64": "float64", "I32": "int32", "I64": "int64", "U8": "uint8", "BOOL": "bool",
    "I8": "int8", "I16": "int16", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F16": "float16", "BF16": "bfloat16", "C64": "complex64",
}  # fmt: skip


def save_arrays(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
    """Writes arrays and JSON metadata atomically. Equal content gives equal bytes.

    Raises ResourceExhaustedError when the disk is full or the file cannot be written, and
    InvalidArgumentError for a name or dtype that the format does not have; an earlier file is then unchanged.
    """
    from safetensors.numpy import save as encode

    plain = {name: _writable(name, array) for name, array in arrays.items()}
    described = {"format": FORMAT, "crc32": _checksum(plain, metadata), "metadata": dict(metadata)}
    if pairs := sorted(name for name, array in arrays.items() if as_array(array).dtype == np.complex128):
        described[PAIRS] = pairs
    if texts := {name: list(np.shape(array)) for name, array in arrays.items() if _is_of_strings(array)}:
        described[TEXTS] = texts
    write_file(path, encode(plain, {KEY: json.dumps(described, allow_nan=False)}))


def _writable(name: object, value: Any) -> Array:
    """Converts an array to C order and the machine's byte order. Raises InvalidArgumentError."""
    if not isinstance(name, str) or name == RESERVED or not _is_unicode(name):
        raise InvalidArgumentError(
            f"an array cannot be named {name!r:.80} in a file: use a text other than {RESERVED!r}"
        )
    array = _packed(value) if _is_of_strings(value) else np.asarray(as_array(value), order="C")
    if array.dtype == np.complex128:  # which the format lacks
        array = array.reshape(*array.shape, 1).view(np.float64)
    if array.dtype.name not in _DTYPES.values():
        raise InvalidArgumentError(
            f"array {name[:80]!r}: dtype {array.dtype} cannot be written; use complex128, "
            f"{', '.join(_DTYPES.values())}"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def load_arrays(
    path: Path, remedy: str = "use an earlier checkpoint", checksum: int | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Reads the arrays, by name, and the metadata of a file.

    remedy: advice in the error for a damaged file, or "". checksum: that the file must have.
    Raises NotFoundError for a missing file, FailedPreconditionError if it cannot be read (not a regular file,
    no permission), ResourceExhaustedError if it does not fit into memory, DataLossError if it is truncated,
    corrupt or not written by this library.
    """
    with _opened(path, remedy) as (file, nbytes):
        entries, described, data_nbytes = _read_header(file, nbytes)
        if checksum not in (None, described.get("crc32")):
            raise _FaultError("it is of another save than the other files of the checkpoint")
        if data_nbytes > (available_memory_nbytes() or sys.maxsize):
            raise MemoryError
        data = memoryview(file.read(data_nbytes))
        if len(data) != data_nbytes:
            raise _FaultError(f"it became shorter while it was read ({data_nbytes} bytes expected)")
        arrays = {name: _array(entry, data) for name, entry in entries.items()}
        if described.get("crc32") != _checksum(arrays, described["metadata"]):
            raise _FaultError("the check sum of its content is wrong")
        arrays.update((name, _joined(name, arrays)) for name in _pairs(described))
        arrays.update((name, _unpacked(name, shape, arrays)) for name, shape in _texts(described).items())
    return arrays, described["metadata"]


def load_metadata(path: Path) -> dict[str, Any]:
    """Reads only the metadata of a file, without verifying the checksum. Raises what `load_arrays` raises."""
    with _opened(path, "") as (file, nbytes):
        metadata: dict[str, Any] = _read_header(file, nbytes)[1]["metadata"]
    return metadata


def is_arrays_file(path: Path) -> bool:
    """True for a safetensors file that this library wrote, as far as its header says. Raises what
    `load_arrays` raises for a file that is not there or cannot be read.
    """
    try:
        load_metadata(path)
    except DataLossError:
        return False
    return True


def describe_arrays(path: Path) -> tuple[int, dict[str, tuple[int, ...]], dict[str, Any]]:
    """The checksum of a file, the extents of its arrays by name, and its metadata; verifies no content.

    Raises what `load_arrays` raises.
    """
    with _opened(path, "") as (file, nbytes):
        entries, described, _ = _read_header(file, nbytes)
        extents = {name: tuple(entry["shape"]) for name, entry in entries.items()}
        extents.update({name: extents[name][:-1] for name in _pairs(described) if name in extents})
        extents.update((name, tuple(shape)) for name, shape in _texts(described).items())
        checksum = described.get("crc32")
        if type(checksum) is not int:
            raise _FaultError("it has no check sum")
    return checksum, extents, described["metadata"]


@contextmanager
def _opened(path: Path, remedy: str) -> Iterator[tuple[BinaryIO, int]]:
    """Context that opens a file and yields it with its size; converts faults to errors with its path."""
    nbytes = 0
    try:
        with open_to_read(path) as file:
            nbytes = os.fstat(file.fileno()).st_size
            yield file, nbytes
    except (_FaultError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataLossError(
            f"{path} is truncated, damaged or no file of arrays: {reason}{remedy and f'; {remedy}'}"
        ) from error
    except MemoryError as error:
        raise ResourceExhaustedError(f"{shown(path)} ({nbytes:,} bytes) does not fit into memory") from error


def _pairs(described: Mapping[str, Any]) -> list[Any]:
    names = described.get(PAIRS, [])
    if not isinstance(names, list):
        raise _FaultError("the names of its complex arrays are no list")
    return names


def _joined(name: Any, arrays: Mapping[str, Array]) -> Array:
    """Complex numbers of pairs of parts."""
    array = arrays.get(name) if isinstance(name, str) else None
    if array is None or array.dtype != np.float64 or array.shape[-1:] != (2,):
        raise _FaultError(f"{str(name)[:80]!r} is no array of pairs of float64")
    return array.view(np.complex128)[..., 0]


def _is_of_strings(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _packed(strings: Array) -> Array:
    """Strings as uint8: their lengths as int64, little-endian, then their bytes."""
    texts = strings.ravel().tolist()
    if not all(isinstance(text, bytes) for text in texts):
        return strings
    lengths = np.array([len(text) for text in texts], "<i8")
    return np.frombuffer(lengths.tobytes() + b"".join(texts), np.uint8)


def _texts(described: Mapping[str, Any]) -> dict[str, Any]:
    shapes = described.get(TEXTS, {})
    if not isinstance(shapes, dict) or not all(map(_naturals, shapes.values())):
        raise _FaultError("the shapes of its arrays of strings are no lists of extents by name")
    return shapes


def _unpacked(name: str, shape: Sequence[int], arrays: Mapping[str, Array]) -> Array:
    """The strings that `_packed` has packed."""
    packed, count = arrays.get(name), math.prod(shape)
    if packed is None or packed.dtype != np.uint8 or packed.ndim != 1 or packed.size < 8 * count:
        raise _FaultError(f"{name[:80]!r} is no array of packed strings")
    lengths, data = packed[: 8 * count].view("<i8").tolist(), packed[8 * count :].tobytes()
    if min(lengths, default=0) < 0 or sum(lengths) != len(data):
        raise _FaultError(f"the lengths of the strings of {name[:80]!r} do not fit its bytes")
    ends = [0, *itertools.accumulate(lengths)]
    found = np.empty(count, object)
    found[:] = [data[start:end] for start, end in itertools.pairwise(ends)]
    return found.reshape(shape)


class _FaultError(Exception):
    """Fault of a file's content."""


def _checksum(arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> int:
    """CRC-32 of the metadata, and of the names, dtypes, shapes and bytes of all arrays, sorted by name."""
    total = zlib.crc32(json.dumps(dict(metadata)).encode())
    for name in sorted(arrays):
        array = arrays[name]
        total = zlib.crc32(json.dumps([name, array.dtype.name, array.shape]).encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return total


# The format: the header's size as a little-endian uint64, the header as JSON, the arrays' bytes.


def _read_header(file: BinaryIO, nbytes: int) -> tuple[dict[str, dict[str, Any]], dict[str, Any], int]:
    """Reads the header: returns its entries, this library's metadata, and the size of the arrays in bytes.

    nbytes: size of the file. Checks that the arrays' spans are contiguous and end with the file, before
    memory is allocated.
    """
    start = file.read(8)
    size = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= size <= min(HEADER_LIMIT, nbytes - 8):
        raise _FaultError(f"it does not begin with the size of a safetensors header ({nbytes} bytes)")
    header = _json_object(file.read(size).decode("utf-8"))
    extra = header.pop("__metadata__", {})
    text = extra.get(KEY) if isinstance(extra, dict) else None
    described = _json_object(text) if isinstance(text, str) else {}
    if described.get("format") != FORMAT or not isinstance(described.get("metadata"), dict):
        raise _FaultError("it was not written by this library")
    spans = sorted(_span(name, entry) for name, entry in header.items())
    end = 0
    for begin, stop in spans:
        if begin != end or stop < begin:
            raise _FaultError(f"bytes {begin} to {stop} do not follow byte {end}")
        end = stop
    if end != nbytes - 8 - size:
        raise _FaultError(f"its header declares {end} bytes of values, and {nbytes - 8 - size} follow")
    return header, described, end


def _json_object(text: str) -> dict[str, Any]:
    """Parses a JSON object. Raises ValueError, _FaultError."""
    value = parse_json(text, MOST_VALUES)
    if not isinstance(value, dict):
        raise _FaultError(f"expected a JSON object, got {type(value).__name__}")
    return value


def _span(name: str, entry: Any) -> tuple[int, int]:
    """Checks an entry of the header; returns the begin and end of its array in bytes."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _FaultError(f"the entry of {name[:80]!r} is not dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise _FaultError(f"{name[:80]!r} has a dtype this library does not have")
    if not _naturals(shape) or len(shape) > 32 or not _naturals(offsets) or len(offsets) != 2:
        raise _FaultError(f"{name[:80]!r} has a shape or offsets that cannot be")
    begin, stop = offsets
    if math.prod(shape) * as_dtype(_DTYPES[dtype]).size != stop - begin:
        raise _FaultError(f"the shape of {name[:80]!r} does not fit its {stop - begin} bytes")
    return begin, stop


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 63 for v in value)


def _array(entry: Mapping[str, Any], data: memoryview) -> Array:
    """Read-only view of an array, from its checked entry."""
    begin, stop = entry["data_offsets"]
    dtype = as_dtype(_DTYPES[entry["dtype"]]).as_numpy_dtype
    values = np.frombuffer(data[begin:stop], np.uint8)
    if dtype == np.bool_ and values.size and values.max() > 1:
        raise _FaultError("a bool that is neither 0 nor 1")
    array: Array = values.view(dtype).reshape(entry["shape"])
    return array
