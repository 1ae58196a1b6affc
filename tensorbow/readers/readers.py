"""Readers of a graph: records of the files whose names come from a queue (OSDI 2016, section 3.1)."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, as_tensor
from tensorbow.input_ops.records import Options
from tensorbow.kinds import Name, Positive, checked, optional, refuse, whole
from tensorbow.queues.queues import QueueBase, shared_attrs
from tensorbow.readers.reader_ops import (
    FixedLengthHandle,
    IdentityHandle,
    ReaderNumRecordsProduced,
    ReaderNumWorkUnitsCompleted,
    ReaderRead,
    ReaderReadUpTo,
    ReaderReset,
    RecordFileHandle,
    TextLineHandle,
    WholeFileHandle,
)
from tensorbow.specs import int32, int64

__all__ = [
    "FixedLengthRecordReader",
    "IdentityReader",
    "ReaderBase",
    "TFRecordReader",
    "TextLineReader",
    "WholeFileReader",
]

MaybeCount: TypeAlias = Annotated["int | None", optional(whole(0))]


class ReaderBase:
    """A reader of records, with a key and a value each, both strings. `TextLineReader` and others make one.

    It reads work items, mostly names of files, from a queue, each to its end. Of several threads each one's
    read gets other records. `Session.close` and a time limit end a read that waits.
    """

    def __init__(self, reader_ref: Tensor):
        """reader_ref: the handle."""
        self._ref = reader_ref

    @property
    def reader_ref(self) -> Tensor:
        """The handle of the reader, an int64 scalar."""
        return self._ref

    def _queue_ref(self, call: str, queue: Any) -> Tensor:
        ref = queue.queue_ref if isinstance(queue, QueueBase) else queue
        if not isinstance(ref, Tensor) or ref.dtype != int64 or ref.spec.shape not in ((), None):
            raise refuse(call, "queue", "a queue of strings", queue)
        if isinstance(queue, QueueBase) and [dtype.name for dtype in queue.dtypes] != ["string"]:
            names = ", ".join(dtype.name for dtype in queue.dtypes)
            raise InvalidArgumentError(f"{call}: expected queue to be one of strings, got one of {names}")
        return ref

    @checked
    def read(self, queue: Any, name: Name = None) -> tuple[Tensor, Tensor]:
        """The key and the value of the next record, scalar strings.

        queue: of strings, or its handle, from which the reader takes an item when it has read the one before
        to its end. Waits for one; raises OutOfRangeError when it runs if the queue is closed and empty.
        """
        ref = self._queue_ref("read", queue)
        with self._ref.graph.as_default():
            key, value = ReaderRead(self._ref, ref, name=name)
        return key, value

    @checked
    def read_up_to(self, queue: Any, num_records: Any, name: Name = None) -> tuple[Tensor, Tensor]:
        """Keys and values [n] of the next records of one item: at least 1, at most `num_records`."""
        ref = self._queue_ref("read_up_to", queue)
        with self._ref.graph.as_default():
            count = as_tensor(num_records)
            if count.dtype not in (int32, int64) or count.spec.shape not in ((), None):
                raise InvalidArgumentError(
                    f"read_up_to: num_records is {count.spec}, expected an integer scalar"
                )
            keys, values = ReaderReadUpTo(self._ref, ref, count, name=name)
        return keys, values

    @checked
    def num_records_produced(self, name: Name = None) -> Tensor:
        """The number of records that it has given, int64."""
        with self._ref.graph.as_default():
            result: Tensor = ReaderNumRecordsProduced(self._ref, name=name)
        return result

    @checked
    def num_work_units_completed(self, name: Name = None) -> Tensor:
        """The number of items that it has read to their end, int64."""
        with self._ref.graph.as_default():
            result: Tensor = ReaderNumWorkUnitsCompleted(self._ref, name=name)
        return result

    @checked
    def reset(self, name: Name = None) -> Operation:
        """An operation that resets the reader: it forgets the item that it reads, and its counts."""
        with self._ref.graph.as_default():
            result: Operation = ReaderReset(self._ref, name=name)
        return result


class TextLineReader(ReaderBase):
    """A reader of the lines of text files, without their ends. The key is `path:number`, from 1."""

    @checked
    def __init__(self, skip_header_lines: MaybeCount = None, name: Name = None, shared_name: Name = None):
        """skip_header_lines: lines at the begin of each file that are left out.

        shared_name: sessions of the process share the reader of this name.
        """
        lines = skip_header_lines or 0
        super().__init__(TextLineHandle(skip_header_lines=lines, **shared_attrs(shared_name), name=name))


class WholeFileReader(ReaderBase):
    """A reader of whole files. The key is the path, the value the content."""

    @checked
    def __init__(self, name: Name = None, shared_name: Name = None):
        """shared_name: as of `TextLineReader`."""
        super().__init__(WholeFileHandle(**shared_attrs(shared_name), name=name))


class FixedLengthRecordReader(ReaderBase):
    """A reader of records of equal length. The key is `path:number`, from 0."""

    @checked
    def __init__(
        self,
        record_bytes: Positive,
        header_bytes: MaybeCount = None,
        footer_bytes: MaybeCount = None,
        hop_bytes: MaybeCount = None,
        name: Name = None,
        shared_name: Name = None,
    ):
        """record_bytes: length of a record. header_bytes, footer_bytes: what is before and after all of them.

        hop_bytes: from one record's start to the next one's, by default a record's length. shared_name: as of
        `TextLineReader`. A file that does not divide into records is a DataLossError.
        """
        handle = FixedLengthHandle(
            record_bytes=record_bytes,
            header_bytes=header_bytes or 0,
            footer_bytes=footer_bytes or 0,
            hop_bytes=hop_bytes or 0,
            **shared_attrs(shared_name),
            name=name,
        )
        super().__init__(handle)


class TFRecordReader(ReaderBase):
    """A reader of TFRecord files, see `tb.python_io`. The key is `path:offset`.

    A damaged file is a DataLossError that names the file and the offset.
    """

    @checked
    def __init__(self, name: Name = None, options: Options = None, shared_name: Name = None):
        """options: `tb.python_io.TFRecordOptions`, for compressed files. shared_name: as of others."""
        handle = RecordFileHandle(compression_type=options or 0, **shared_attrs(shared_name), name=name)
        super().__init__(handle)


class IdentityReader(ReaderBase):
    """A reader that gives each item of the queue as it is, as key and value."""

    @checked
    def __init__(self, name: Name = None, shared_name: Name = None):
        """shared_name: as of `TextLineReader`."""
        super().__init__(IdentityHandle(**shared_attrs(shared_name), name=name))
