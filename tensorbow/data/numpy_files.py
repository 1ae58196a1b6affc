"""Reader of arrays of numbers and texts in .npy and .npz files, which does not trust the file.

The header is checked against the file's size and the machine's memory before memory is allocated. Nothing is
unpickled.
"""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorbow.devices.host_memory import require_memory
from tensorbow.errors import DataLossError, InvalidArgumentError, ResourceExhaustedError, TensorBowError
from tensorbow.files import open_to_read, shown

MAXIMUM_NBYTES = 1 << 34  # of a decompressed array
_HEADER_LIMIT = 10_000  # characters of a header; NumPy's reader has the same limit
_LONGEST_HEADER = 12 + _HEADER_LIMIT  # bytes: magic, version, length, and the header itself
_MOST_AXES = 32
_DEFLATE_LIMIT = 1032  # deflate packs at most this many bytes into one
_CHUNK = 1 << 20
NUMBERS = "biuf"  # kinds of dtypes
LAST_CHARACTER = 0x10FFFF

Check = Callable[["np.dtype[Any]", tuple[int, ...]], None]


class _Header(NamedTuple):
    """Header of a .npy file: dtype, shape and order of its array. header_nbytes: size of the header."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    header_nbytes: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class _FaultError(Exception):
    """Fault of a file's content."""


def read_numpy_file(path: Path, check: Check) -> NDArray[np.generic]:
    """Reads a .npy file, memory-mapped, or a .npz file: its only array, or the one named `images`.

    check: called with dtype and shape before memory is allocated; raises for an array that is not wanted.
    Raises what opening a file raises, DataLossError for a damaged file or one without an array of numbers,
    InvalidArgumentError for a .npz file with several arrays, none of them `images`, ResourceExhaustedError if
    the array does not fit into memory; each names the file.
    """
    with open_to_read(path) as file, _faults_named(path):
        nbytes = os.fstat(file.fileno()).st_size
        if path.suffix.lower() != ".npz":
            return _mapped(path, file, nbytes, check)
        return _unpacked(path, file, nbytes, check)


def read_numpy_archive(path: Path) -> dict[str, NDArray[np.generic]]:
    """Reads all arrays of a .npz file, by name: of numbers, or of texts. Raises as `read_numpy_file`."""
    with open_to_read(path) as file, _faults_named(path):
        nbytes = os.fstat(file.fileno()).st_size
        with zipfile.ZipFile(file) as archive:
            names = [entry.filename.removesuffix(".npy") for entry in archive.infolist()]
        return {
            name: _unpacked(path, file, nbytes, lambda dtype, shape: None, name, "biufU") for name in names
        }


@contextmanager
def _faults_named(path: Path) -> Iterator[None]:
    """Context that turns errors of a file's content into DataLossError, which names the file."""
    try:
        yield
    except TensorBowError:
        raise
    except MemoryError:
        raise ResourceExhaustedError(f"{shown(path)} does not fit into memory") from None
    except OSError as error:
        if error.errno == errno.EINVAL:  # a seek to a negative offset
            raise DataLossError(
                f"{shown(path)} is damaged: its directory points outside of the file"
            ) from None
        raise  # an error of the system, not of the content
    except Exception as error:  # NumPy and zipfile raise many kinds for a file that is damaged
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataLossError(f"{shown(path)} is damaged or no array of numbers: {reason}") from error


def _mapped(path: Path, file: IO[bytes], nbytes: int, check: Check) -> NDArray[np.generic]:
    header = _header(file.read(_LONGEST_HEADER))
    if header.header_nbytes + header.nbytes != nbytes:
        raise _FaultError(
            f"its header declares {header.dtype} {list(header.shape)}, {header.nbytes:,} bytes, and "
            f"{nbytes - header.header_nbytes:,} follow"
        )
    check(header.dtype, header.shape)
    if not header.nbytes:
        return np.empty(header.shape, header.dtype)
    pages = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ)
    return _shaped(np.frombuffer(pages, np.uint8, offset=header.header_nbytes), header)


def _unpacked(
    path: Path, file: IO[bytes], nbytes: int, check: Check, name: str | None = None, kinds: str = NUMBERS
) -> NDArray[np.generic]:
    with zipfile.ZipFile(file) as archive:
        entry = _entry_of(path, archive.infolist(), name)
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _FaultError(f"{entry.filename[:40]!r} is not packed as NumPy packs arrays")
        with archive.open(entry) as member:
            start = member.read(_LONGEST_HEADER)
            header = _header(start, kinds)
            declared = header.header_nbytes + header.nbytes
            if declared != entry.file_size or declared > _DEFLATE_LIMIT * min(nbytes, entry.compress_size):
                raise _FaultError(
                    f"{entry.filename[:40]!r} declares {header.dtype} {list(header.shape)}, "
                    f"{header.nbytes:,} bytes, and its {entry.compress_size:,} packed bytes do not hold that"
                )
            check(header.dtype, header.shape)
            if header.nbytes > MAXIMUM_NBYTES:
                raise ResourceExhaustedError(
                    f"{shown(path)} unpacks to {header.nbytes:,} bytes; give a .npy file"
                )
            require_memory(header.nbytes, shown(path), "give a .npy file")
            values = np.empty(header.nbytes, np.uint8)
            piece, got = start[header.header_nbytes :], 0
            while piece:  # up to the end, where zipfile verifies the checksum
                values.data[got : got + len(piece)] = piece
                got += len(piece)
                piece = member.read(_CHUNK)
            if got < header.nbytes:
                raise _FaultError(f"only {got:,} bytes of {header.nbytes:,} are there")
        return _shaped(values, header)


def _entry_of(path: Path, entries: list[zipfile.ZipInfo], wanted: str | None) -> zipfile.ZipInfo:
    """The wanted member of an archive; with None the only one, or the one named `images`."""
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        if name in found:
            raise _FaultError(f"it holds {name[:40]!r} twice")
        found[name] = entry
    if wanted is not None:
        return found[wanted]
    if len(found) != 1 and "images" not in found:
        names = ", ".join(shown(name[:40])[1:-1] for name in list(found)[:5])
        raise InvalidArgumentError(f"{shown(path)} holds {len(found)} arrays ({names}), none named 'images'")
    return found["images"] if "images" in found else next(iter(found.values()))


def _header(start: bytes, kinds: str = NUMBERS) -> _Header:
    """Reads the header from the first bytes of a .npy file. Raises _FaultError, ValueError.

    kinds: of dtypes that are taken.
    """
    stream = io.BytesIO(start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy warns of headers that only old versions wrote
        try:
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
            elif version == (2, 0):
                shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(stream)
            else:
                raise _FaultError(f"version {version[0]}.{version[1]} of its format is for names of fields")
        except (_FaultError, ValueError):
            raise
        except Exception as error:  # from Python's parser, which NumPy uses; warnings; deep nesting
            raise _FaultError(f"its header cannot be read ({type(error).__name__})") from error
    if dtype.kind not in kinds:
        remedy = "; save texts as numpy.array(texts, str)" if dtype.kind == "O" and "U" in kinds else ""
        raise _FaultError(f"it holds {str(dtype)[:40]}, no numbers{remedy}")
    if len(shape) > _MOST_AXES or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise _FaultError(f"its shape is {str(shape)[:60]}")
    if math.prod(shape) >= 1 << 63 or any(extent >= 1 << 63 for extent in shape):
        raise _FaultError(f"its shape {str(shape)[:60]} is beyond 64 bits")
    return _Header(dtype, tuple(shape), bool(fortran_order), stream.tell())


def _shaped(values: NDArray[np.uint8], header: _Header) -> NDArray[np.generic]:
    """Views bytes as the array that the header declares."""
    order: Any = "F" if header.fortran_order else "C"
    array: NDArray[np.generic] = values.view(header.dtype).reshape(header.shape, order=order)
    if (
        header.dtype.kind == "U"
        and values.view(f"{header.dtype.byteorder}u4").max(initial=0) > LAST_CHARACTER
    ):
        raise _FaultError("its texts have characters that do not exist")
    return array
