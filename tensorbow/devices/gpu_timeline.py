"""Times of work on a GPU: timing events around it, read when the GPU has passed them.

Base events relate the GPU's clock to the host's: each is recorded on an otherwise empty stream, so the host
knows its time. A span is measured from a base about a second old, since both clocks drift and
CUDA gives milliseconds as a float32.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple, TypeVar

from tensorbow.devices.cuda_runtime import CudaError, CudaRuntime
from tensorbow.devices.gpu_events import EventPool
from tensorbow.timeline import WAIT, StreamTrack, Tracer

__all__ = ["GpuTimeline"]

Result = TypeVar("Result")

BASE_LIFE_S = 1.0
BASE_TRIES = 3  # the fastest try is the nearest to the host's clock
BATCH = 64  # spans between two polls
SHORTEST_WAIT_S = 2e-6  # resolution of CUDA events is 0.5 us; shorter gaps are no waits


class _Base:
    """An event that the GPU passed at a known time of the host's clock.

    users: pending spans measured from it. Guarded by the timeline's lock.
    """

    __slots__ = ("at_s", "event", "users")

    def __init__(self, event: int, at_s: float) -> None:
        self.event = event
        self.at_s = at_s
        self.users = 0


class _Pending(NamedTuple):
    """A span whose events the GPU may not have passed yet."""

    tracer: Tracer
    track: StreamTrack
    name: str
    category: str
    base: _Base
    start: int
    end: int


class GpuTimeline:
    """The spans of one GPU device. A failing CUDA call loses spans, never the work.

    State: `_pending` in the order of enqueueing; `_base` of new spans; `_ends` of each row's last span.
    Guarded by `_lock`.
    """

    def __init__(self, runtime: CudaRuntime) -> None:
        self._runtime = runtime
        self._pool = EventPool(runtime, timing=True)
        self._lock = threading.Lock()
        self._pending: deque[_Pending] = deque()
        self._base: _Base | None = None
        self._ends: dict[StreamTrack, float] = {}
        self._since_look = 0

    def measured(
        self,
        tracer: Tracer,
        track: StreamTrack,
        name: str,
        category: str,
        stream: int,
        enqueue: Callable[[], Result],
    ) -> Result:
        """Calls `enqueue()` between two timing events on the CUDA stream and returns its result."""
        marks = self._begin(tracer, stream)
        if marks is None:
            return enqueue()
        base, start = marks
        end = 0
        try:
            result = enqueue()
            end = self._recorded(stream)
        finally:
            if not end:
                with self._lock:
                    self._let_go(base, start)
        if end:
            with self._lock:
                self._pending.append(_Pending(tracer, track, name, category, base, start, end))
                self._since_look += 1
                if self._since_look >= BATCH:
                    self._resolve(blocking=False)
        return result

    def _begin(self, tracer: Tracer, stream: int) -> tuple[_Base, int] | None:
        """A base and the event before the work; None if CUDA fails."""
        with self._lock:
            tracer.at_stop(self.flush)
            base = self._base
            if base is None or perf_counter() - base.at_s > BASE_LIFE_S:
                try:
                    base = self._new_base()
                except CudaError:
                    return None
                self._retire()
                self._base = base
            base.users += 1
        start = self._recorded(stream)
        if not start:
            with self._lock:
                self._let_go(base)
            return None
        return base, start

    def _recorded(self, stream: int) -> int:
        """A timing event at the present end of a CUDA stream; 0 if CUDA fails."""
        with suppress(CudaError):
            event = self._pool.take()
            try:
                self._runtime.record(event, stream)
            except CudaError:
                self._pool.give(event)
                raise
            return event
        return 0

    def _let_go(self, base: _Base, *events: int) -> None:
        """Recycles a span's events, and its base after the last span measured from it."""
        for event in events:
            self._pool.give(event)
        base.users -= 1
        if not base.users and base is not self._base:
            self._pool.give(base.event)

    def _retire(self) -> None:
        """Ends the use of the current base for new spans."""
        base, self._base = self._base, None
        if base is not None and not base.users:
            self._pool.give(base.event)

    def _new_base(self) -> _Base:
        """The best of several tries: the base whose time is known most exactly."""
        events: list[int] = []
        found: list[tuple[float, int, float]] = []
        stream = self._runtime.make_stream(-1)
        try:
            for _ in range(BASE_TRIES):
                events.append(self._pool.take())
                before_s = perf_counter()
                self._runtime.record(events[-1], stream)
                self._runtime.synchronize_event(events[-1])
                after_s = perf_counter()
                found.append((after_s - before_s, events[-1], (before_s + after_s) / 2))
            _, best, at_s = min(found)
            events.remove(best)
            return _Base(best, at_s)
        finally:
            for event in events:
                self._pool.give(event)
            self._runtime.destroy_stream(stream)

    def _resolve(self, blocking: bool) -> None:
        """Hands over the spans that the GPU has passed, oldest first; blocking: all. Needs `_lock`."""
        self._since_look = 0
        while self._pending:
            first = self._pending[0]
            with suppress(CudaError):
                if blocking:
                    self._runtime.synchronize_event(first.end)
                elif not self._runtime.is_done(first.end):
                    return
                self._hand_over(first)
            self._pending.popleft()
            self._let_go(first.base, first.start, first.end)

    def _hand_over(self, pending: _Pending) -> None:
        """Gives a span to its tracer, cut so that spans of one row do not overlap."""
        base, elapsed = pending.base, self._runtime.elapsed_ms
        start = base.at_s + elapsed(base.event, pending.start) / 1e3
        end = base.at_s + elapsed(base.event, pending.end) / 1e3
        start = max(start, self._ends.get(pending.track, start))
        end = max(end, start)
        self._ends[pending.track] = end
        if pending.category != WAIT or end - start >= SHORTEST_WAIT_S:
            pending.tracer.add(pending.track, pending.name, pending.category, start, end)

    def flush(self) -> None:
        """Waits for all pending spans, and hands them over."""
        with self._lock:
            self._resolve(blocking=True)
            self._ends.clear()
            self._retire()

    def close(self) -> None:
        """Flushes, and destroys the events; idempotent."""
        self.flush()
        self._pool.close()
