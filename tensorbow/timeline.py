"""Traces of the work on every stream, as Chrome traces.

A started `Tracer` collects spans; one at a time in a process. Streams check `CURRENT.tracer`
before each unit of work, the only cost while tracing is off. `Timeline` writes the collected
spans in the Trace Event Format of chrome://tracing and https://ui.perfetto.dev: a process per
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
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, BinaryIO, NamedTuple, TypeAlias

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, TensorBowError
from tensorbow.files import NewFile
from tensorbow.kinds import AsPath, Count, Function, checked, instance

SPAN_LIMIT = 1_000_000  # about 150 MB in memory while collected, and as much in the file
WORK, WAIT, OP = "work", "wait", "op"  # categories of spans; ops are parts of work
PROGRAM = "training"  # name of the counters' row
_PROGRAM_PID = 1
_numbers = itertools.count()


class StreamTrack:
    """One row of a trace: a stream, identified by the device's short name and its own name."""

    __slots__ = ("device", "stream")

    def __init__(self, device: str, stream: str) -> None:
        self.device = device
        self.stream = stream


class Span(NamedTuple):
    """Work, an op of it, or a wait on a stream; times in seconds of `time.perf_counter`.

    frame, iteration: in a dynamic step, the loop and the numbers of the iterations of it and those around.
    """

    track: StreamTrack
    name: str
    category: str
    start_s: float
    end_s: float
    frame: str = ""
    iteration: tuple[int, ...] = ()


class TraceCounter(NamedTuple):
    """A value of a counter of the whole program, at a time."""

    name: str
    at_s: float
    value: float


class Tracer:
    """Collects spans between `start` and `stop`, repeatedly if wanted; any thread may add.

    limit: spans and counters kept; `dropped` counts the others.
    """

    @checked
    def __init__(self, limit: Count = SPAN_LIMIT) -> None:
        self.limit = limit
        self.spans: list[Span] = []
        self.counters: list[TraceCounter] = []
        self.dropped = 0
        self.began_s: float | None = None  # first start, by `time.perf_counter`
        self.began_at = datetime.now(timezone.utc)
        self._sources: list[Callable[[], None]] = []

    def add(
        self,
        track: StreamTrack,
        name: str,
        category: str,
        start_s: float,
        end_s: float,
        frame: str = "",
        iteration: tuple[int, ...] = (),
    ) -> None:
        """Adds a span, unless the limit is reached."""
        if len(self.spans) < self.limit:
            self.spans.append(Span(track, name, category, start_s, end_s, frame, iteration))
        else:
            self.dropped += 1

    def count(self, name: str, at_s: float, value: float) -> None:
        """Adds a value of a counter, unless the limit is reached."""
        if len(self.counters) < self.limit:
            self.counters.append(TraceCounter(name, at_s, value))
        else:
            self.dropped += 1

    @checked
    def at_stop(self, flush: Function) -> None:
        """Registers `flush()`, which `stop` calls, for a device whose spans arrive late; ignores repeats."""
        if flush not in self._sources:
            self._sources.append(flush)

    def start(self) -> None:
        """Makes all streams of the process report here. Raises FailedPreconditionError if another runs."""
        with CURRENT.lock:
            if CURRENT.tracer is not None:
                raise FailedPreconditionError(
                    "trace: expected no other trace to be going on, got one that is; end it first"
                )
            if self.began_s is None:
                self.began_s, self.began_at = perf_counter(), datetime.now(timezone.utc)
            CURRENT.tracer = self

    def stop(self) -> None:
        """Stops collecting, and waits for the spans that devices measure; idempotent."""
        with CURRENT.lock:
            if CURRENT.tracer is self:
                CURRENT.tracer = None
        for flush in self._sources:
            flush()


@dataclass
class NodeExecStats:
    """The times of an op in a run, under TensorFlow's names: microseconds, the first since 1970."""

    node_name: str
    timeline_label: str  # type and name
    all_start_micros: int
    op_start_rel_micros: int
    op_end_rel_micros: int
    all_end_rel_micros: int
    thread_id: int  # of the stream, by order
    frame: str = ""  # of the loop that it ran in
    iteration: tuple[int, ...] = ()  # the numbers of the iterations of the loops around it, and of its own


@dataclass
class DeviceStepStats:
    """The ops that a run has executed on a device, in the order of their begin."""

    device: str
    node_stats: list[NodeExecStats]


class StepStats:
    """The times of a run's ops by device (`dev_stats`); `tb.profiler.Timeline` makes a trace of it."""

    def __init__(self, tracer: Tracer | None = None):
        """tracer: has the run's spans; None: there are none."""
        self.tracer = Tracer() if tracer is None else tracer
        self.dev_stats: list[DeviceStepStats] = []
        spans = sorted(self.tracer.spans, key=lambda span: span.start_s)
        devices, threads = _rows(spans)
        epoch_s = self.tracer.began_at.timestamp() - (self.tracer.began_s or 0.0)
        for device in devices:
            nodes = [
                NodeExecStats(
                    span.name.partition(" ")[2] or span.name,
                    span.name,
                    round((span.start_s + epoch_s) * 1e6),
                    0,
                    duration := round((span.end_s - span.start_s) * 1e6),
                    duration,
                    threads[span.track],
                    span.frame,
                    span.iteration,
                )
                for span in spans
                if span.track.device == device
            ]
            self.dev_stats.append(DeviceStepStats(device, nodes))


class CurrentTracer:
    """The tracer that streams report to, or None; `lock` guards changes."""

    __slots__ = ("lock", "tracer")

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self.lock = threading.Lock()


CURRENT = CurrentTracer()


AsTracer: TypeAlias = Annotated[
    Tracer | StepStats, instance(Tracer, StepStats, expected="a tb.profiler.Tracer, or step_stats of a run")
]


class Timeline:
    """The spans of a tracer, or of `step_stats` of a RunMetadata, in the Trace Event Format."""

    @checked
    def __init__(self, tracer: AsTracer) -> None:
        self._tracer = tracer.tracer if isinstance(tracer, StepStats) else tracer

    def generate_chrome_trace_format(self) -> str:
        """The whole trace as JSON text."""
        return "".join(self._pieces())

    def write(self, file: BinaryIO, compressed: bool = False) -> None:
        """Writes the JSON to a file, optionally compressed by gzip. Raises OSError."""
        with gzip.GzipFile("", "wb", fileobj=file) if compressed else nullcontext(file) as into:
            into.writelines(piece.encode() for piece in self._pieces())

    def events(self) -> Iterator[dict[str, Any]]:
        """The events: names and order of rows (`M`), spans by start (`X`), counters (`C`)."""
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
            event: dict[str, Any] = {
                "name": span.name,
                "cat": span.category,
                "ph": "X",
                "ts": start,
                "dur": max(0.0, round(end - start, 3)),
                "pid": processes[span.track.device],
                "tid": threads[span.track],
            }
            if span.frame:
                event["args"] = {"frame": span.frame, "iteration": list(span.iteration)}
            yield event
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
    """Process number of each device and thread number of each stream, in display order."""
    tracks = dict.fromkeys(span.track for span in spans)
    ordered = sorted(tracks, key=lambda track: (_natural(track.device), _natural(track.stream)))
    devices = dict.fromkeys(track.device for track in ordered)
    processes = {device: _PROGRAM_PID + number for number, device in enumerate(devices, 1)}
    return processes, {track: number for number, track in enumerate(ordered, 1)}


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts replica 2 before replica 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _named(what: str, name: str, order: int, pid: int, tid: int = 0) -> Iterator[dict[str, Any]]:
    """Metadata events with the name and position of a row."""
    for kind, args in (("name", {"name": name}), ("sort_index", {"sort_index": order})):
        yield {"name": f"{what}_{kind}", "ph": "M", "pid": pid, "tid": tid, "args": args}


class TraceFile:
    """The file of a trace, reserved before the traced work begins."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises InvalidArgumentError if the file cannot be written."""
        self.path = Path(path)
        try:
            self._claimed: NewFile | None = NewFile(self.path)
        except TensorBowError as error:
            raise InvalidArgumentError(f"trace: {error}") from None

    def save(self, tracer: Tracer) -> None:
        """Writes the trace in one step. Raises ResourceExhaustedError; the old file is then unchanged."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            with claimed as file:
                Timeline(tracer).write(file, compressed=self.path.name.endswith(".gz"))

    def discard(self) -> None:
        """Gives up the reserved file; idempotent."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            claimed.discard()


@checked
@contextmanager
def trace(path: AsPath, limit: Count = SPAN_LIMIT) -> Iterator[Tracer]:
    """Traces all streams of the process within the block, and writes a file at its end.

    A run of a session on CPU devices has a span for each op: they run one by one while it is traced.

    path: of the Chrome trace, compressed if it ends in .gz; open it in https://ui.perfetto.dev. It is
    written even if the block raises. limit: spans to keep; a RuntimeWarning tells if there were more.

    Raises InvalidArgumentError for a file that cannot be written, FailedPreconditionError while another
    trace runs; ResourceExhaustedError at the end.
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
