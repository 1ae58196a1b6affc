"""Named arrays in a file: safetensors, written atomically, read with suspicion.

The reader believes nothing the file says before it has checked it: memory is taken only for a regular
file that can fit, and every offset, shape, dtype and byte is held against the rest of the file.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as encode

from tensorbow.devices.host_memory import host_memory_nbytes
from tensorbow.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from tensorbow.specs import Array, as_dtype

FORMAT = "tensorbow-1"
KEY = "tensorbow"  # the one entry of the file's metadata: with several, their order would be random
RESERVED = "__metadata__"  # a name that the format keeps for itself
HEADER_LIMIT = 100_000_000  # bytes; what the format allows

_DTYPES = {"F32": "float32", "F64": "float64", "I32": "int32", "I64": "int64", "U8": "uint8", "BOOL": "bool"}
_writes = itertools.count()  # tells the temporary files of this process's threads apart


def save_arrays(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
    """Writes arrays and JSON metadata; the file is there whole or not at all. Equal content, equal bytes.

    Raises ResourceExhaustedError when the disk is full or the file cannot be written, and
    InvalidArgumentError for a name or dtype that the file cannot hold; an earlier file of that name is then
    untouched.
    """
    plain = {name: _writable(name, array) for name, array in arrays.items()}
    described = {"format": FORMAT, "crc32": _checksum(plain, metadata), "metadata": dict(metadata)}
    write_atomically(path, encode(plain, {KEY: json.dumps(described, allow_nan=False)}))


def _writable(name: object, value: Any) -> Array:
    """An array as the file holds it: C order, the machine's byte order. Raises InvalidArgumentError."""
    if not isinstance(name, str) or name == RESERVED or not _is_unicode(name):
        raise InvalidArgumentError(
            f"an array cannot be named {name!r:.80} in a file: use a text other than {RESERVED!r}"
        )
    array = np.asarray(value, order="C")
    if array.dtype.name not in _DTYPES.values():
        raise InvalidArgumentError(
            f"array {name[:80]!r}: dtype {array.dtype} cannot be written; use {', '.join(_DTYPES.values())}"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def write_atomically(path: Path, blob: bytes) -> None:
    """Replaces a file by new content in one step, on disk before it returns. Threads may do so at once.

    Raises ResourceExhaustedError, InvalidArgumentError for a path that can be no file's; the earlier file
    is then untouched.
    """
    if not path.name or "\0" in str(path):
        raise InvalidArgumentError(f"cannot write {str(path)!r:.200}: expected the path of a file")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{next(_writes)}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise ResourceExhaustedError(
            f"cannot write {path} ({len(blob):,} bytes): {error.strerror or error}; "
            "free space or choose another --output; what was saved before is untouched"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable, where the system lets folders be synchronised."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load_arrays(
    path: Path, remedy: str = "use an earlier checkpoint"
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and metadata of a file.

    remedy: what an error of a damaged file advises to do, or nothing.
    Raises NotFoundError when there is none, ResourceExhaustedError when it cannot fit into memory,
    DataLossError when it is truncated, corrupt or not ours.
    """
    blob = read_file(path)
    try:
        entries, described, data = _split(blob)
        if described.get("format") != FORMAT or not isinstance(described.get("metadata"), dict):
            raise _FaultError("it was not written by this library")
        arrays = {name: _array(entry, data) for name, entry in entries.items()}
        if described.get("crc32") != _checksum(arrays, described["metadata"]):
            raise _FaultError("the check sum of its content is wrong")
    except (_FaultError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataLossError(
            f"{path} is truncated, damaged or no file of arrays: {reason}{remedy and f'; {remedy}'}"
        ) from error
    except MemoryError as error:
        raise _too_large(path, len(blob)) from error
    return arrays, described["metadata"]


class _FaultError(Exception):
    """What is wrong with a file's content."""


def _checksum(arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> int:
    """CRC-32 of the metadata, and of all names, dtypes, shapes and bytes in the order of names."""
    total = zlib.crc32(json.dumps(dict(metadata)).encode())
    for name in sorted(arrays):
        array = arrays[name]
        total = zlib.crc32(json.dumps([name, array.dtype.name, array.shape]).encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return total


def read_file(path: Path, limit: int | None = None) -> bytes:
    """The bytes of a regular file, of at most `limit` of them.

    Raises NotFoundError when there is none, ResourceExhaustedError when it is larger or cannot fit into
    memory, DataLossError when it cannot be read.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DataLossError(f"{path} is not a regular file; give a checkpoint")
            if status.st_size > min(host_memory_nbytes() or math.inf, math.inf if limit is None else limit):
                raise _too_large(path, status.st_size)
            try:
                return file.read()
            except MemoryError as error:
                raise _too_large(path, status.st_size) from error
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataLossError(f"cannot read {path}: {reason}") from error


def _open_without_waiting(path: str, flags: int) -> int:
    """Opens without waiting for a writer, should the path be a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _too_large(path: Path, nbytes: int) -> ResourceExhaustedError:
    return ResourceExhaustedError(f"{path} ({nbytes:,} bytes) does not fit into memory")


# The format: the header's size as a little-endian uint64, the header as JSON, the arrays' bytes.


def _split(blob: bytes) -> tuple[dict[str, dict[str, Any]], dict[str, Any], memoryview]:
    """The header's entries, what we wrote into its metadata, and the arrays' bytes. All offsets hold."""
    size = int.from_bytes(blob[:8], "little")
    if len(blob) < 8 or not 2 <= size <= min(HEADER_LIMIT, len(blob) - 8):
        raise _FaultError(f"it does not begin with the size of a safetensors header ({len(blob)} bytes)")
    header = _json_object(blob[8 : 8 + size].decode("utf-8"))
    extra = header.pop("__metadata__", {})
    text = extra.get(KEY) if isinstance(extra, dict) else None
    described = _json_object(text) if isinstance(text, str) else {}
    data = memoryview(blob)[8 + size :]
    spans = sorted(_span(name, entry) for name, entry in header.items())
    end = 0
    for begin, stop in spans:
        if begin != end or stop < begin:
            raise _FaultError(f"bytes {begin} to {stop} do not follow byte {end}")
        end = stop
    if end != len(data):
        raise _FaultError(f"its header declares {end} bytes of values, and {len(data)} follow")
    return header, described, data


def _json_object(text: str) -> dict[str, Any]:
    """A JSON object without repeated keys and without NaN. Raises ValueError, RecursionError."""
    value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_distinct)
    if not isinstance(value, dict):
        raise _FaultError(f"expected a JSON object, got {type(value).__name__}")
    return value


def _refuse(constant: str) -> float:
    raise _FaultError(f"{constant} where a number is expected")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _FaultError("a name stands twice in its header")
    return found


def _span(name: str, entry: Any) -> tuple[int, int]:
    """First byte and end of an array, once its entry is sound."""
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
    """A read-only view of an array whose entry is sound."""
    begin, stop = entry["data_offsets"]
    dtype = as_dtype(_DTYPES[entry["dtype"]]).as_numpy_dtype
    values = np.frombuffer(data[begin:stop], np.uint8)
    if dtype == np.bool_ and values.size and values.max() > 1:
        raise _FaultError("a bool that is neither 0 nor 1")
    array: Array = values.view(dtype).reshape(entry["shape"])
    return array
