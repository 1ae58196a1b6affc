"""Files of records as TensorFlow has them (TFRecord): lengths, data and checksums, plain or compressed.

A record is its length as a little-endian uint64, the masked CRC-32C of these 8 bytes, the data, and the
masked CRC-32C of the data. A compressed file is one zlib or gzip stream of records.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from typing import Annotated, Any, ClassVar, TypeAlias

from tensorbow.errors import (
    DataLossError,
    FailedPreconditionError,
    ResourceExhaustedError,
)
from tensorbow.files import open_to_read, shown
from tensorbow.input_ops.checksums import masked_crc32c
from tensorbow.kinds import AsPath, Kind, RefusedError, checked, optional, refuse

__all__ = ["TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter", "tf_record_iterator"]

_HEADER_NBYTES = 12
_DEFLATE_LIMIT = 1032  # deflate packs at most this many bytes into one
_CHUNK = 1 << 20


class TFRecordCompressionType:
    """Kinds of compression of a file of records."""

    NONE: ClassVar[int] = 0
    ZLIB: ClassVar[int] = 1
    GZIP: ClassVar[int] = 2


def _read_compression(value: Any) -> int:
    names = {0: 0, 1: 1, 2: 2, "": 0, "NONE": 0, "ZLIB": 1, "GZIP": 2}
    if type(value) not in (int, str) or value not in names:
        raise RefusedError
    return names[value]


AsCompression: TypeAlias = Annotated[
    int, Kind("a member of TFRecordCompressionType: NONE, ZLIB or GZIP", _read_compression)
]


class TFRecordOptions:
    """Options of files of records: their compression."""

    @checked
    def __init__(self, compression_type: AsCompression = TFRecordCompressionType.NONE):
        """compression_type: a member of `TFRecordCompressionType`."""
        self.compression_type = compression_type


def _read_options(value: Any) -> int:
    if isinstance(value, TFRecordOptions):
        return value.compression_type
    return _read_compression(value)


Options: TypeAlias = Annotated[
    Any, optional(Kind("tb.python_io.TFRecordOptions(compression)", _read_options))
]  # reads the compression


class _Inflated:
    """A zlib stream as a file to read."""

    def __init__(self, file: BufferedReader):
        self._file, self._stream, self._pending = file, zlib.decompressobj(), b""

    def read(self, size: int) -> bytes:
        """Reads at most `size` bytes, fewer at the end. Raises zlib.error and EOFError."""
        parts, missing = [], size
        while missing and not self._stream.eof:
            packed = self._pending or self._file.read(_CHUNK)
            if not packed:
                raise EOFError("the compressed data end before their end marker")
            parts.append(self._stream.decompress(packed, missing))
            self._pending = self._stream.unconsumed_tail
            missing -= len(parts[-1])
        return b"".join(parts)


class RecordFile:
    """A file of records, read from begin to end.

    Raises NotFoundError and FailedPreconditionError for a file that cannot be opened, DataLossError, naming
    file and offset, for one that is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], compression: int = TFRecordCompressionType.NONE):
        self._path = path
        self._stack = ExitStack()
        file = self._stack.enter_context(open_to_read(path))
        self._left = os.fstat(file.fileno()).st_size * (_DEFLATE_LIMIT if compression else 1)
        self._file: Any = file
        if compression == TFRecordCompressionType.GZIP:
            self._file = self._stack.enter_context(gzip.GzipFile(fileobj=file, mode="rb"))
        elif compression == TFRecordCompressionType.ZLIB:
            self._file = _Inflated(file)
        self._offset = 0  # in the uncompressed data

    def next(self) -> tuple[int, bytes] | None:
        """The offset of the next record in the uncompressed data, and its data; None at the end."""
        start = self._offset
        header = self._read(_HEADER_NBYTES)
        if not header:
            return None
        if len(header) < _HEADER_NBYTES:
            raise self._damage(start, f"it ends within the header of a record, after {len(header)} bytes")
        length, checksum = struct.unpack("<QI", header)
        if masked_crc32c(header[:8]) != checksum:
            raise self._damage(start, "the checksum of a record's length is wrong")
        if length + 4 > self._left:
            raise self._damage(start, f"the record declares {length:,} bytes, more than the file can have")
        data, footer = self._read(length), self._read(4)
        if len(data) < length or len(footer) < 4:
            raise self._damage(start, f"it ends within a record of {length:,} bytes")
        if masked_crc32c(data) != int.from_bytes(footer, "little"):
            raise self._damage(start, f"the checksum of a record of {length:,} bytes is wrong")
        return start, data

    def _read(self, size: int) -> bytes:
        try:
            found: bytes = self._file.read(size)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise self._damage(self._offset, f"its compressed data are damaged: {error}") from error
        except MemoryError:
            raise ResourceExhaustedError(
                f"a record of {shown(self._path)} of {size:,} bytes does not fit into memory"
            ) from None
        self._offset += len(found)
        self._left -= len(found)
        return found

    def _damage(self, offset: int, what: str) -> DataLossError:
        return DataLossError(
            f"{shown(self._path)} is damaged at byte {offset:,}, or no file of records of this compression: "
            f"{what}; write it again"
        )

    def close(self) -> None:
        """Closes the file; idempotent."""
        self._stack.close()


@checked
def tf_record_iterator(path: AsPath, options: Options = None) -> Iterator[bytes]:
    """An iterator over the records of a file, each `bytes`. options: `TFRecordOptions`, for compressed files.

    Raises NotFoundError and FailedPreconditionError for a file that cannot be read, DataLossError, naming
    file and offset, for a damaged one: with the first record that is.
    """
    if not str(path):
        raise refuse("tf_record_iterator", "path", "the path of a file", path)
    return _records(RecordFile(path, options or TFRecordCompressionType.NONE))


def _records(file: RecordFile) -> Iterator[bytes]:
    try:
        while (found := file.next()) is not None:
            yield found[1]
    finally:
        file.close()


class TFRecordWriter:
    """Writes a file of records; as a context manager closes it at the end of the block."""

    @checked
    def __init__(self, path: AsPath, options: Options = None):
        """path: a new file, or one to replace. options: `TFRecordOptions`, to compress it.

        Raises FailedPreconditionError for a path that cannot be written.
        """
        compression = options or TFRecordCompressionType.NONE
        self._path = path
        try:
            self._file: Any = open(path, "wb")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise FailedPreconditionError(
                f"TFRecordWriter: cannot write {shown(path)}: {error.strerror}"
            ) from None
        self._outer: Any = None
        if compression == TFRecordCompressionType.GZIP:
            self._outer, self._file = self._file, gzip.GzipFile(fileobj=self._file, mode="wb", mtime=0)
        self._stream = zlib.compressobj() if compression == TFRecordCompressionType.ZLIB else None
        self._closed = False

    def write(self, record: bytes) -> None:
        """Adds a record: bytes, or a text in UTF-8.

        Raises InvalidArgumentError for another value, FailedPreconditionError after `close`,
        ResourceExhaustedError for a full disk.
        """
        if isinstance(record, str):
            record = record.encode()
        if not isinstance(record, (bytes, bytearray, memoryview)):
            raise refuse("TFRecordWriter.write", "record", "bytes", record)
        data = bytes(record)
        length = struct.pack("<Q", len(data))
        blob = b"".join(
            (
                length,
                masked_crc32c(length).to_bytes(4, "little"),
                data,
                masked_crc32c(data).to_bytes(4, "little"),
            )
        )
        self._write(blob if self._stream is None else self._stream.compress(blob))

    def _write(self, blob: bytes) -> None:
        if self._closed:
            raise FailedPreconditionError(f"the writer of {shown(self._path)} is closed; make a new one")
        try:
            self._file.write(blob)
        except OSError as error:
            raise ResourceExhaustedError(f"cannot write {shown(self._path)}: {error.strerror}") from error

    def flush(self) -> None:
        """Hands what was written to the system; a compressed file is complete only after `close`."""
        if not self._closed:
            self._file.flush()

    def close(self) -> None:
        """Ends the file; idempotent."""
        if self._closed:
            return
        if self._stream is not None:
            self._write(self._stream.flush())
        self._closed = True
        self._file.close()
        if self._outer is not None:
            self._outer.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
