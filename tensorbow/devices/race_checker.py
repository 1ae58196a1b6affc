"""Happens-before race checker: finds conflicting accesses in a log that no stream or event orders.

Vector clocks (Mattern 1989) count each stream's launches; memory is a line of segments that remember their
last accesses, in the manner of FastTrack (Flanagan and Freund, PLDI 2009). An access costs a search
for its segments, whatever the length of the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from tensorbow.devices.launch_log import LaunchRecord
from tensorbow.devices.names import DeviceName
from tensorbow.devices.stream import Access, Event, Stream

__all__ = ["Race", "find_races"]

_Clock = list[int]  # by stream number: how many of its launches happened before


@dataclass(frozen=True)
class Race:
    """Two unordered launches that access the same memory of `device`, at least one of them writing.

    `ranges`: (address, nbytes) of the shared bytes, by address.
    """

    earlier: LaunchRecord
    later: LaunchRecord
    device: str
    ranges: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        where = ", ".join(f"[{address:#x}, {address + nbytes:#x})" for address, nbytes in self.ranges)
        return (
            f"race on {self.device} {where}, {sum(nbytes for _, nbytes in self.ranges)} bytes: "
            f"{_describe(self.earlier)} and {_describe(self.later)} are not ordered; "
            "record an event after the first and let the second's stream wait for it"
        )


def find_races(log: Iterable[LaunchRecord]) -> list[Race]:
    """The races of a log, by the later launch; empty if all conflicting launches are ordered.

    Order comes from: the order of one stream; `record` and a `wait` for that event; and the host, when it
    waits for an event or a stream (`synchronize`), with all that is enqueued afterwards, on any stream. No
    order comes from callbacks, polling `done()`, and waits for events that were not recorded in this log.

    A launch ordered with all conflicting launches is never reported as the later one, and every launch that
    races is reported at least once. If it races with several launches that are ordered among themselves, only
    the last is reported.
    """
    records = list(log)
    streams: dict[Stream, int] = {}
    for record in records:
        streams.setdefault(record.stream, len(streams))
    clocks: list[_Clock] = [[0] * len(streams) for _ in streams]
    host: _Clock = [0] * len(streams)
    host_is_new = [False] * len(streams)  # the host knows what the stream's clock lacks
    recorded: dict[Event, _Clock] = {}
    memories: dict[str, _Memory] = {}
    full_names: dict[str, str] = {}
    races: list[Race] = []
    for position, record in enumerate(records):
        number = streams[record.stream]
        clock = clocks[number]
        if record.kind == "synchronize":
            known = clock if record.event is None else recorded.get(record.event)
            if known is not None:
                _join(host, known)
                host_is_new = [True] * len(streams)
            continue
        if host_is_new[number]:
            _join(clock, host)
            host_is_new[number] = False
        if record.kind == "launch":
            clock[number] += 1
            conflicts: dict[tuple[int, str], list[tuple[int, int]]] = {}
            for is_write, accesses in ((False, record.reads), (True, record.writes)):
                for access in accesses:
                    if access.nbytes <= 0:
                        continue
                    device = _device_of(access, record.stream, full_names)
                    memory = memories.setdefault(device, _Memory())
                    for start, end, earlier in memory.touch(access, is_write, number, clock, position):
                        conflicts.setdefault((earlier, device), []).append((start, end))
            for (earlier, device), pieces in sorted(conflicts.items()):
                races.append(Race(records[earlier], record, device, _merged(pieces)))
        elif record.event is not None:
            if record.kind == "record":
                recorded[record.event] = clock.copy()
            elif record.event in recorded:
                _join(clock, recorded[record.event])
    return races


class _Segment:
    """Bytes `[start, end)` with one history: (count, log position) of the last access, by stream number.

    An access is dropped once a newer one is ordered after it and conflicts with everything it conflicts with.
    """

    __slots__ = ("end", "reads", "start", "writes")

    def __init__(
        self,
        start: int,
        end: int,
        reads: dict[int, tuple[int, int]],
        writes: dict[int, tuple[int, int]],
    ) -> None:
        self.start = start
        self.end = end
        self.reads = reads
        self.writes = writes

    def cut(self, address: int) -> _Segment:
        """Keeps what lies below `address`, returns the rest."""
        rest = _Segment(address, self.end, self.reads.copy(), self.writes.copy())
        self.end = address
        return rest

    def touch(self, is_write: bool, stream: int, clock: _Clock, position: int) -> list[int]:
        """Records an access; returns the log positions of accesses it races with."""
        races = []
        if self.writes:
            unordered = {other: last for other, last in self.writes.items() if clock[other] < last[0]}
            races += [last[1] for last in unordered.values()]
            if is_write:
                self.writes = unordered
        if self.reads:
            unordered = {other: last for other, last in self.reads.items() if clock[other] < last[0]}
            self.reads = unordered
            if is_write:
                races += [last[1] for last in unordered.values()]
        (self.writes if is_write else self.reads)[stream] = (clock[stream], position)
        return races


class _Memory:
    """One device's accessed memory: disjoint segments by address."""

    __slots__ = ("_segments", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._segments: list[_Segment] = []

    def touch(
        self, access: Access, is_write: bool, stream: int, clock: _Clock, position: int
    ) -> list[tuple[int, int, int]]:
        """Records an access; returns (start, end, log position of the earlier access) of each race."""
        start, end = access.address, access.address + access.nbytes
        first, last = self._cover(start, end)
        segments = self._segments[first:last]
        races = []
        for segment in segments:
            for earlier in segment.touch(is_write, stream, clock, position):
                races.append((segment.start, segment.end, earlier))
        if is_write and len(segments) > 1 and all(len(s.writes) == 1 and not s.reads for s in segments):
            segments[0].end = end  # one write covers it: one history
            del self._starts[first + 1 : last], self._segments[first + 1 : last]
        return races

    def _cover(self, start: int, end: int) -> tuple[int, int]:
        """Cuts and adds segments so that some tile `[start, end)`; returns their slice bounds."""
        first, last = self._cut(start), self._cut(end)
        tiles: list[_Segment] = []
        reached = start
        for segment in self._segments[first:last]:
            if reached < segment.start:
                tiles.append(_Segment(reached, segment.start, {}, {}))
            tiles.append(segment)
            reached = segment.end
        if reached < end:
            tiles.append(_Segment(reached, end, {}, {}))
        if len(tiles) != last - first:
            self._segments[first:last] = tiles
            self._starts[first:last] = [tile.start for tile in tiles]
        return first, first + len(tiles)

    def _cut(self, address: int) -> int:
        """The index of the first segment at or above `address`, after cutting the one that crosses it."""
        index = bisect_left(self._starts, address)
        if index and self._segments[index - 1].end > address:
            self._segments.insert(index, self._segments[index - 1].cut(address))
            self._starts.insert(index, address)
        return index


def _join(clock: _Clock, other: _Clock) -> None:
    for index, count in enumerate(other):
        if clock[index] < count:
            clock[index] = count


def _device_of(access: Access, stream: Stream, full_names: dict[str, str]) -> str:
    """Full name of the device whose memory `access` is; `full_names` caches parsed names."""
    name = access.device
    if not name:
        return str(stream.device.name)
    if name not in full_names:
        full_names[name] = str(DeviceName.parse(name))
    return full_names[name]


def _merged(pieces: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Merges (start, end) pieces into disjoint (address, nbytes) ranges by address."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(pieces):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple((start, end - start) for start, end in merged)


def _describe(launch: LaunchRecord) -> str:
    return f"{launch.label!r} on stream {launch.stream.device.name.short} {launch.stream.name}"
