"""What ran when: spans of work on every stream, as a Chrome trace.

A `Tracer` collects spans while it is started; one at a time in a process. Streams look at `CURRENT.tracer`
before each unit of work, which is all that tracing costs while it is off. `Timeline` writes what was
collected in the Trace Event Format that chrome://tracing and https://ui.perfetto.dev read: a process per
device, a thread per stream, times in microseconds since the trace began.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, BinaryIO, NamedTuple, TypeAlias

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, TensorBowError
from tensorbow.files import NewFile
from tensorbow.kinds import AsPath, Count, Function, checked, instance

SPAN_LIMIT = 1_000_000  # about 150 MB in memory while collected, and as much in the file
WORK, WAIT = "work", "wait"  # categories of spans
PROGRAM = "training"  # what the row of counters is called
_PROGRAM_PID = 1
_numbers = itertools.count()


class StreamTrack:
    """One row of a trace: a stream, by its device's short name and its own. Two streams are two rows."""

    __slots__ = ("device", "stream")

    def __init__(self, device: str, stream: str) -> None:
        self.device = device
        self.stream = stream


class Span(NamedTuple):
    """Something that went on on a stream; times as `time.perf_counter` has them, seconds."""

    track: StreamTrack
    name: str
    category: str
    start_s: float
    end_s: float


class TraceCounter(NamedTuple):
    """A figure of the whole program at a time."""

    name: str
    at_s: float
    value: float


class Tracer:
    """Collects spans between `start` and `stop`, which may follow each other again; any thread may add.

    limit: spans and counters kept; `dropped` counts what came after.
    """

    @checked
    def __init__(self, limit: Count = SPAN_LIMIT) -> None:
        self.limit = limit
        self.spans: list[Span] = []
        self.counters: list[TraceCounter] = []
        self.dropped = 0
        self.began_s: float | None = None  # when it was first started, by `time.perf_counter`
        self.began_at = datetime.now(timezone.utc)
        self._sources: list[Callable[[], None]] = []

    def add(self, track: StreamTrack, name: str, category: str, start_s: float, end_s: float) -> None:
        """Keeps a span, unless the limit is reached."""
        if len(self.spans) < self.limit:
            self.spans.append(Span(track, name, category, start_s, end_s))
        else:
            self.dropped += 1

    def count(self, name: str, at_s: float, value: float) -> None:
        """Keeps a value of a counter, unless the limit is reached."""
        if len(self.counters) < self.limit:
            self.counters.append(TraceCounter(name, at_s, value))
        else:
            self.dropped += 1

    @checked
    def at_stop(self, flush: Function) -> None:
        """Has `flush()` called by `stop`: of a device whose spans come late. Once, however often it asks."""
        if flush not in self._sources:
            self._sources.append(flush)

    def start(self) -> None:
        """Makes all streams of the process report here. Raises FailedPreconditionError while another does."""
        with CURRENT.lock:
            if CURRENT.tracer is not None:
                raise FailedPreconditionError(
                    "trace: expected no other trace to be going on, got one that is; end it first"
                )
            if self.began_s is None:
                self.began_s, self.began_at = perf_counter(), datetime.now(timezone.utc)
            CURRENT.tracer = self

    def stop(self) -> None:
        """Ends that, and waits for the spans of devices that measure themselves; idempotent."""
        with CURRENT.lock:
            if CURRENT.tracer is self:
                CURRENT.tracer = None
        for flush in self._sources:
            flush()


class CurrentTracer:
    """The tracer that streams report to, or None; `lock` owns the change."""

    __slots__ = ("lock", "tracer")

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self.lock = threading.Lock()


CURRENT = CurrentTracer()


AsTracer: TypeAlias = Annotated[Tracer, instance(Tracer, expected="a tb.profiler.Tracer")]


class Timeline:
    """The spans of a tracer in the Trace Event Format."""

    @checked
    def __init__(self, tracer: AsTracer) -> None:
        self._tracer = tracer

    def generate_chrome_trace_format(self) -> str:
        """The whole trace as JSON text."""
        return "".join(self._pieces())

    def write(self, file: BinaryIO, compressed: bool = False) -> None:
        """Writes the JSON to a file, by gzip where that is asked for. Raises OSError."""
        with gzip.GzipFile("", "wb", fileobj=file) if compressed else nullcontext(file) as into:
            into.writelines(piece.encode() for piece in self._pieces())

    def events(self) -> Iterator[dict[str, Any]]:
        """The events: names and order of the rows (`M`), spans by start (`X`), counters (`C`)."""
        spans = sorted(self._tracer.spans.copy(), key=lambda span: (span.start_s, -span.end_s))
        processes, threads = _rows(spans)
        counters = self._tracer.counters.copy()
        if counters:
            yield from _named("process", PROGRAM, 0, _PROGRAM_PID)
        for device, pid in processes.items():
            yield from _named("process", device, pid, pid)
        for track, tid in threads.items():
            yield from _named("thread", track.stream, tid, processes[track.device], tid)
        for span in spans:
            start, end = self._microseconds(span.start_s), self._microseconds(span.end_s)
            yield {
                "name": span.name,
                "cat": span.category,
                "ph": "X",
                "ts": start,
                "dur": max(0.0, round(end - start, 3)),
                "pid": processes[span.track.device],
                "tid": threads[span.track],
            }
        for counter in counters:
            yield {
                "name": counter.name,
                "ph": "C",
                "ts": self._microseconds(counter.at_s),
                "pid": _PROGRAM_PID,
                "args": {counter.name: counter.value},
            }

    def _microseconds(self, at_s: float) -> float:
        return round((at_s - (self._tracer.began_s or 0.0)) * 1e6, 3)

    def _pieces(self) -> Iterator[str]:
        about = {"began": self._tracer.began_at.isoformat(), "spans_left_out": self._tracer.dropped}
        yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": ['
        separator = "\n"
        for event in self.events():
            yield separator + json.dumps(event)
            separator = ",\n"
        yield "\n]}\n"


def _rows(spans: list[Span]) -> tuple[dict[str, int], dict[StreamTrack, int]]:
    """The process number of each device and the thread number of each stream, in the order to show them."""
    tracks = dict.fromkeys(span.track for span in spans)
    ordered = sorted(tracks, key=lambda track: (_natural(track.device), _natural(track.stream)))
    devices = dict.fromkeys(track.device for track in ordered)
    processes = {device: _PROGRAM_PID + number for number, device in enumerate(devices, 1)}
    return processes, {track: number for number, track in enumerate(ordered, 1)}


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts replica 2 before replica 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _named(what: str, name: str, order: int, pid: int, tid: int = 0) -> Iterator[dict[str, Any]]:
    """The metadata events that name a row and say where it stands."""
    for kind, args in (("name", {"name": name}), ("sort_index", {"sort_index": order})):
        yield {"name": f"{what}_{kind}", "ph": "M", "pid": pid, "tid": tid, "args": args}


class TraceFile:
    """The place of a trace, claimed before what is traced begins."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises InvalidArgumentError where no file can be written."""
        self.path = Path(path)
        try:
            self._claimed: NewFile | None = NewFile(self.path)
        except TensorBowError as error:
            raise InvalidArgumentError(f"trace: {error}") from None

    def save(self, tracer: Tracer) -> None:
        """Writes the trace, in one step. Raises ResourceExhaustedError; the file is as before then."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            with claimed as file:
                Timeline(tracer).write(file, compressed=self.path.name.endswith(".gz"))

    def discard(self) -> None:
        """Gives the place up; idempotent."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            claimed.discard()


@checked
@contextmanager
def trace(path: AsPath, limit: Count = SPAN_LIMIT) -> Iterator[Tracer]:
    """Traces what runs on any stream of the process within the block, and writes it to a file at its end.

    path: of the Chrome trace, compressed where it ends in .gz; open it in https://ui.perfetto.dev. It is
        written when the block raises, too. limit: spans to keep; a RuntimeWarning says when there were more.

    Raises InvalidArgumentError for a file that cannot be written, FailedPreconditionError while another
    trace is going on; ResourceExhaustedError at the end.
    """
    file = TraceFile(path)
    try:
        tracer = Tracer(limit)
        tracer.start()
        try:
            yield tracer
        finally:
            try:
                tracer.stop()
            finally:
                file.save(tracer)
        if tracer.dropped:
            warnings.warn(
                f"trace {file.path}: {limit:,} spans are kept, {tracer.dropped:,} are not; trace fewer steps",
                RuntimeWarning,
                stacklevel=3,
            )
    finally:
        file.discard()
