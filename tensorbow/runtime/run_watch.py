"""Watch of one run of a session: its deadline, and the times of its ops, which then run one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from tensorbow.errors import DeadlineExceededError
from tensorbow.runtime.config_proto import RunMetadata, RunOptions
from tensorbow.timeline import CURRENT, OP, StepStats, StreamTrack, Tracer


class RunWatch:
    """The deadline of a run, if it has one, and the spans of its ops, if they are wanted."""

    __slots__ = ("deadline_s", "option", "timeout_ms", "tracer", "used")

    def __init__(self, timeout_ms: int, tracer: Tracer | None, option: str = "timeout_in_ms"):
        """timeout_ms: milliseconds from `begin` on; 0 for no deadline. option: its name in errors."""
        self.timeout_ms = timeout_ms
        self.option = option
        self.deadline_s: float | None = None
        self.tracer = tracer
        self.used = False  # whether a step runs under it

    def begin(self) -> None:
        """Starts the clock, once the step is compiled; ignores repeats."""
        self.start_clock()
        self.used = True

    def start_clock(self) -> None:
        """Starts the clock of a step that has the limit, but no spans; ignores repeats."""
        if self.timeout_ms and self.deadline_s is None:
            self.deadline_s = perf_counter() + self.timeout_ms / 1e3

    def left_s(self) -> float | None:
        """Seconds until the deadline, None without one. Raises DeadlineExceededError after it."""
        if self.deadline_s is None:
            return None
        left = self.deadline_s - perf_counter()
        if left <= 0:
            raise DeadlineExceededError(
                f"run: it has taken longer than {self.option}={self.timeout_ms} and is given up; variables "
                "that it had written keep their new values"
            )
        return left

    def add(self, track: StreamTrack, op: str, began_s: float, ended_s: float) -> None:
        """Adds an op that has run. Raises DeadlineExceededError, which ends the step there."""
        if self.tracer is not None:
            self.tracer.add(track, op, OP, began_s, ended_s)
        self.left_s()


class _Current(threading.local):
    watch: RunWatch | None = None


_CURRENT = _Current()


def current_watch() -> RunWatch | None:
    """The watch of the run that the calling thread is in."""
    return _CURRENT.watch


def wanted_tracers(watch: RunWatch | None) -> list[Tracer]:
    """Receivers of the spans of a run: the process's trace, and the metadata of the run."""
    if watch is None:
        return [] if CURRENT.tracer is None else [CURRENT.tracer]
    tracers = [CURRENT.tracer, watch.tracer]
    return [tracer for tracer in tracers if tracer is not None]


def within_watch(watch: RunWatch, call: Callable[[], None]) -> None:
    """Calls a function that belongs to a run, in another thread than the run's."""
    before, _CURRENT.watch = _CURRENT.watch, watch
    try:
        call()
    finally:
        _CURRENT.watch = before


@contextmanager
def watched(options: RunOptions, run_metadata: RunMetadata | None) -> Iterator[RunWatch]:
    """Context of a run with options; fills `run_metadata.step_stats`, also where the run fails."""
    tracer = Tracer() if options.trace_level and run_metadata is not None else None
    watch = RunWatch(options.timeout_in_ms, tracer)
    before, _CURRENT.watch = _CURRENT.watch, watch
    if tracer is not None:
        tracer.began_s = perf_counter()
    try:
        yield watch
    finally:
        _CURRENT.watch = before
        if tracer is not None and run_metadata is not None:
            run_metadata.step_stats = StepStats(tracer)
