"""Forms of a reader's work items: lines, records of fixed length, whole files, TFRecords, or itself."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Protocol, TypeAlias

from tensorbow.errors import DataLossError
from tensorbow.files import open_to_read, shown
from tensorbow.input_ops.file_ops import whole_file
from tensorbow.input_ops.records import RecordFile

Record: TypeAlias = "tuple[bytes, bytes]"  # key and value


class RecordSource(Protocol):
    """The records of one work item, in order. Raises what opening and reading its file raises."""

    def next(self) -> Record | None:
        """The key and the value of the next record; None at the end."""
        ...

    def close(self) -> None:
        """Closes the file."""
        ...


class LineSource:
    """Lines of a text file, without line ends; the key is `path:number`, from 1."""

    def __init__(self, item: bytes, skip_header_lines: int):
        self._item = item
        self._stack = ExitStack()
        self._file = self._stack.enter_context(open_to_read(os.fsdecode(item)))
        self._number = 0
        for _ in range(skip_header_lines):
            if not self._file.readline():
                break
            self._number += 1

    def next(self) -> Record | None:
        """The next line."""
        line = self._file.readline()
        if not line:
            return None
        self._number += 1
        return b"%s:%d" % (self._item, self._number), line.removesuffix(b"\n").removesuffix(b"\r")

    def close(self) -> None:
        """Closes the file."""
        self._stack.close()


class FixedLengthSource:
    """Records of equal length, between a header and a footer; the key is `path:number`, from 0."""

    def __init__(self, item: bytes, header: int, record: int, footer: int, hop: int):
        """header, record, footer: numbers of bytes. hop: bytes from one record's start to the next one's."""
        path = os.fsdecode(item)
        self._item, self._record, self._hop = item, record, hop
        self._stack = ExitStack()
        self._file = self._stack.enter_context(open_to_read(path))
        nbytes = os.fstat(self._file.fileno()).st_size - header - footer
        if nbytes < 0 or (hop == record and nbytes % record):
            self._stack.close()
            raise DataLossError(
                f"{shown(path)} has {max(0, nbytes):,} bytes between a header of {header} and a footer of "
                f"{footer}, expected a multiple of {record}; give the record's length and what is around"
            )
        self._count = (nbytes - record) // hop + 1 if nbytes >= record else 0
        self._number, self._start = 0, header

    def next(self) -> Record | None:
        """The next record."""
        if self._number >= self._count:
            return None
        self._file.seek(self._start + self._number * self._hop)
        value = self._file.read(self._record)
        if len(value) < self._record:
            raise DataLossError(f"{shown(os.fsdecode(self._item))} has become shorter while it is read")
        self._number += 1
        return b"%s:%d" % (self._item, self._number - 1), value

    def close(self) -> None:
        """Closes the file."""
        self._stack.close()


class WholeFileSource:
    """A file as one record; the key is its path."""

    def __init__(self, item: bytes):
        self._item: bytes | None = item

    def next(self) -> Record | None:
        """The file's content, once."""
        item, self._item = self._item, None
        return None if item is None else (item, whole_file(os.fsdecode(item)))

    def close(self) -> None:
        """Does nothing: the file is closed once it is read."""


class RecordFileSource:
    """The records of a TFRecord file; the key is `path:offset`."""

    def __init__(self, item: bytes, compression: int):
        self._item = item
        self._file = RecordFile(os.fsdecode(item), compression)

    def next(self) -> Record | None:
        """The next record."""
        found = self._file.next()
        return None if found is None else (b"%s:%d" % (self._item, found[0]), found[1])

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class ItemSource:
    """A work item as one record; key and value are the item."""

    def __init__(self, item: bytes):
        self._item: bytes | None = item

    def next(self) -> Record | None:
        """The item, once."""
        item, self._item = self._item, None
        return None if item is None else (item, item)

    def close(self) -> None:
        """Does nothing."""
