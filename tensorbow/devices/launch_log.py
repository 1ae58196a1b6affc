"""Log of the calls on null devices, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from tensorbow.devices.stream import Access, Event, Stream

__all__ = ["LaunchLog", "LaunchRecord", "RecordKind"]

RecordKind = Literal["launch", "record", "wait", "synchronize"]
_Fields = tuple[Stream, RecordKind, str, Sequence[Access], Sequence[Access], Event | None]


class LaunchRecord(NamedTuple):
    """One call on a stream.

    `launch` has a label and ranges; `record` and `wait` have their event; `synchronize` means that the host
    waits for `event`, or, if that is None, for all of `stream`.
    """

    stream: Stream
    kind: RecordKind
    label: str = ""
    reads: Sequence[Access] = ()
    writes: Sequence[Access] = ()
    event: Event | None = None

    def __str__(self) -> str:
        where = f"{self.stream.device.name.short} {self.stream.name}"
        return f"{where}: {self.kind}{f' {self.label!r}' if self.label else ''}"


class LaunchLog:
    """The records of one or several null devices in one order; any thread may append.

    limit: number of newest records to keep (0: none), for measurements; None keeps all.
    """

    __slots__ = ("_fields", "append")

    def __init__(self, limit: int | None = None) -> None:
        self._fields: deque[_Fields] = deque(maxlen=limit)
        self.append = self._fields.append
        """Appends the fields of a LaunchRecord as a plain tuple, which takes a third of the time."""

    def records(self) -> list[LaunchRecord]:
        """All records, oldest first."""
        return [LaunchRecord._make(fields) for fields in self._fields.copy()]

    def launches(self) -> list[LaunchRecord]:
        """The launches among the records."""
        return [record for record in self.records() if record.kind == "launch"]

    def labels(self) -> list[str]:
        """The launches' labels: the order in which work was enqueued."""
        return [record.label for record in self.launches()]

    def clear(self) -> None:
        """Forget all records."""
        self._fields.clear()

    def __iter__(self) -> Iterator[LaunchRecord]:
        return iter(self.records())

    def __len__(self) -> int:
        return len(self._fields)
