"""Reader of IDX files, plain or gzip, that does not trust the file.

The format: two zero bytes, a type code, the number of dimensions, each dimension as a big-endian uint32,
then the values. The header is checked against the caller's expectation and the file's size before memory is
allocated, and at most one byte more than it declares is decompressed.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.dataset_files import damaged
from tensorbow.errors import ResourceExhaustedError, TensorBowError
from tensorbow.files import open_to_read, shown
from tensorbow.input_ops.decoding import IDX_TYPES

_UNSIGNED_BYTE = 0x08
_GZIP_MAGIC = b"\x1f\x8b"
_DEFLATE_LIMIT = 1032  # deflate packs at most this many bytes into one
_CHUNK = 1 << 20

MAXIMUM_LENGTH = 1 << 20
"""Greatest accepted dimension: a million examples."""


def read_idx(
    path: str | os.PathLike[str], dimensions: Sequence[int | None], maximum_length: int = MAXIMUM_LENGTH
) -> NDArray[np.uint8]:
    """Reads an IDX file of unsigned bytes into a uint8 array of its declared shape.

    dimensions: the expected shape; None accepts any extent from 1 to `maximum_length`. gzip is recognised by
    the file's first bytes. Raises NotFoundError if there is no file, FailedPreconditionError if it cannot be
    read, ResourceExhaustedError if it does not fit into memory, DataLossError if its content is faulty; each
    names the file.
    """
    path = Path(path)
    try:
        with open_to_read(path) as file:
            nbytes = os.fstat(file.fileno()).st_size
            packed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            if not packed:
                return _read(path, file, nbytes, dimensions, maximum_length, packed=False)
            with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                limit = nbytes * _DEFLATE_LIMIT
                return _read(path, unpacked, limit, dimensions, maximum_length, packed=True)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise damaged(path, f"its gzip data is truncated or corrupt ({error})") from error
    except TensorBowError:
        raise
    except MemoryError as error:
        raise ResourceExhaustedError(f"the content of {shown(path)} does not fit into memory") from error


def _read(
    path: Path,
    file: BufferedIOBase,
    nbytes_limit: int,
    dimensions: Sequence[int | None],
    maximum_length: int,
    *,
    packed: bool,
) -> NDArray[np.uint8]:
    """Reads and checks a file. nbytes_limit: its size; for gzip, an upper bound of the uncompressed size."""
    shape = _read_shape(path, file, dimensions, maximum_length)
    header_nbytes, nbytes = 4 + 4 * len(shape), math.prod(shape)
    declared = header_nbytes + nbytes
    if declared > nbytes_limit or (not packed and declared < nbytes_limit):
        holder = "a gzip file of this size cannot hold more than" if packed else "the file has"
        raise damaged(
            path, f"its header declares {list(shape)}, {declared} bytes in all, but {holder} {nbytes_limit}"
        )
    values = np.empty(nbytes, np.uint8)
    view = values.data
    got = 0
    while got < nbytes:
        count = file.readinto(view[got : got + _CHUNK])
        if not count:
            raise damaged(path, f"its header declares {nbytes} bytes of values, but only {got} follow")
        got += count
    if file.read(1):  # also makes gzip verify its checksum
        raise damaged(path, f"more bytes follow than the {nbytes} its header declares")
    return values.reshape(shape)


def _read_shape(
    path: Path, file: BufferedIOBase, dimensions: Sequence[int | None], maximum_length: int
) -> tuple[int, ...]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in IDX_TYPES:
        raise damaged(
            path, f"an IDX file starts with 00 00, a type and a rank, this one with {magic.hex(' ')!r}"
        )
    code, rank = magic[2], magic[3]
    if code != _UNSIGNED_BYTE:
        raise damaged(path, f"it holds {IDX_TYPES[code]} (type {code:#04x}) where uint8 (0x08) is expected")
    if rank != len(dimensions):
        raise damaged(path, f"it has {rank} dimensions where {len(dimensions)} are expected")
    sizes = file.read(4 * rank)
    if len(sizes) < 4 * rank:
        raise damaged(path, f"it ends within its header, after {4 + len(sizes)} bytes")
    shape = struct.unpack(f">{rank}I", sizes)
    for axis, (size, expected) in enumerate(zip(shape, dimensions, strict=True)):
        if expected is None and not 1 <= size <= maximum_length:
            raise damaged(path, f"dimension {axis} is {size}, and from 1 to {maximum_length} are accepted")
        if expected is not None and size != expected:
            raise damaged(path, f"dimension {axis} is {size} where {expected} is expected")
    return shape
