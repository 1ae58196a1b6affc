"""Events of GPU streams, each backed by a CUDA event that is recycled as soon as it is done."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

from tensorbow.devices.cuda_runtime import CudaError, CudaRuntime
from tensorbow.devices.events import HostEvent, Waiter
from tensorbow.devices.stream import Event
from tensorbow.errors import InternalError

__all__ = ["EVENT_THREAD", "EventPool", "EventThread", "GpuEvent"]

SHORTEST_SLEEP_S, LONGEST_SLEEP_S = 20e-6, 1e-3


class EventPool:
    """Recycled CUDA events of one GPU. A list's append and pop are atomic: no lock."""

    def __init__(self, runtime: CudaRuntime, *, timing: bool = False) -> None:
        self.runtime = runtime
        self._timing = timing
        self._free: list[int] = []
        self._closed = False

    def take(self) -> int:
        """An unused event. Raises CudaError."""
        try:
            return self._free.pop()
        except IndexError:
            return self.runtime.make_event(timing=self._timing)

    def give(self, handle: int) -> None:
        """Takes an event back."""
        self._free.append(handle)
        if self._closed:
            self.close()

    def close(self) -> None:
        """Destroys all returned events, and those returned later; idempotent."""
        self._closed = True
        while self._free:
            with suppress(CudaError, IndexError):
                self.runtime.destroy_event(self._free.pop())


class GpuEvent(HostEvent):
    """A point of a GPU stream.

    State: unrecorded (its stream waits for an event of a CPU stream) until `recorded_as`; then pending
    on the CUDA event `_handle`; done once, set by the first to see it: a querying or waiting thread, or
    EVENT_THREAD. `_lock` guards the handle and the change from pending to done.
    """

    __slots__ = ("_failure", "_handle", "_pool", "_stream", "_users", "_watched")

    def __init__(self, origin: str, pool: EventPool, stream: int) -> None:
        super().__init__(origin)
        self._pool = pool
        self._stream = stream
        self._handle: int | None = None
        self._failure: BaseException | None = None  # error of the stream before this point
        self._watched = False
        self._users = 0  # threads that wait for the handle in CUDA: it must not be recycled meanwhile

    def recorded_as(self, handle: int, failure: BaseException | None) -> None:
        """Called by the stream: sets the CUDA event of this point, and the error of earlier work, if any."""
        with self._lock:
            self._handle, self._failure = handle, failure
            watch = self._watched
        if watch:
            EVENT_THREAD.watch(self._stream, self)

    def let_wait(self, runtime: CudaRuntime, stream: int) -> bool:
        """Makes a stream of any GPU wait for this event; False while it is unrecorded. Raises CudaError."""
        with self._lock:
            if self._handle is not None:
                runtime.wait(stream, self._handle)
                return True
            return self._done

    @property
    def is_enqueued(self) -> bool:
        """True if CUDA knows this point, so that nothing of it waits for the host any more."""
        return self._done or self._handle is not None

    @property
    def known_done(self) -> bool:
        """True if somebody has seen that the stream passed this point; asks nothing of CUDA."""
        return self._done

    @property
    def failure(self) -> BaseException | None:
        """The error of the work before this point, as far as it is known by now."""
        return self._error or self._failure

    def done(self) -> bool:
        """True if the stream has passed this point; never blocks."""
        if self._done:
            return True
        with self._lock:
            handle = self._handle
            if handle is None:
                return False
            try:
                passed, error = self._pool.runtime.is_done(handle), None
            except CudaError as raised:
                passed, error = True, self._located(raised)
        if passed:
            self.finish(error)
        return passed

    def synchronize(self, timeout: float | None = None) -> None:
        """Sleeps until the event is done, then raises its error if it has one; see Event.synchronize."""
        if timeout is None and not self._done and self._handle is not None:
            self.block()
        try:
            super().synchronize(timeout)
        finally:
            del self  # see raise_if_any

    def block(self) -> None:
        """Sleeps until a recorded event is done, and marks it as done."""
        with self._lock:
            handle = self._handle
            if handle is None:
                return
            self._users += 1
        error: BaseException | None = None
        try:
            self._pool.runtime.synchronize_event(handle)
        except CudaError as raised:
            error = self._located(raised)
        with self._lock:
            self._users -= 1
        self.finish(error)

    def _located(self, error: CudaError) -> CudaError:
        """Adds the stream to an asynchronous CUDA error, which names neither op nor stream."""
        located = CudaError(f"work on stream {self.origin}: {error}", error.status, error.sticky)
        located.__cause__ = error
        return located

    def finish(self, error: BaseException | None = None) -> None:
        """Marks the event as done, unless another thread just did."""
        with suppress(InternalError):  # already completed
            self.complete(error or self._failure)
        with self._lock:
            if self._users:
                return  # the last of them recycles the handle
            handle, self._handle = self._handle, None
        if handle is not None:
            self._pool.give(handle)

    def on_done(self, callback: Callable[[Event], object]) -> None:
        """Calls `callback(event)` once, from EVENT_THREAD's thread, or at once if the event is done."""
        super().on_done(callback)
        with self._lock:
            watch = not self._done and not self._watched and self._handle is not None
            self._watched = True
        if watch:
            EVENT_THREAD.watch(self._stream, self)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:  # the event was not polled
            self._pool.give(handle)


class EventThread:
    """The thread that completes those events of all GPU streams that have callbacks; starts with the first.

    It queries the oldest event of each stream, and sleeps in between for a sixteenth of the time that the
    latest of them has been the oldest: callbacks come some 6 % of a step late, at most a millisecond.

    State: `_pending` has the recorded events of each stream, by its handle, in order, with the time at which
    the first became the first; `_completing` is the stream whose event the thread is completing. Guarded by
    `_changed`, whose lock is reentrant: a stream may be collected in this thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: dict[int, _Pending] = {}
        self._completing = 0
        self._thread: threading.Thread | None = None

    def watch(self, stream: int, event: GpuEvent) -> None:
        """Completes a recorded event when it is done."""
        with self._changed:
            pending = self._pending.get(stream)
            if pending is None:
                pending = self._pending[stream] = _Pending()
            pending.events.append(event)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tensorbow GPU events", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._pending:
                    self._changed.wait()
                streams = list(self._pending)
            if not sum(self._complete_next(stream) for stream in streams):
                with self._changed:
                    first_s = max((p.first_s for p in self._pending.values()), default=0.0)
                    waited_s = perf_counter() - first_s
                    self._changed.wait(min(max(waited_s / 16, SHORTEST_SLEEP_S), LONGEST_SLEEP_S))

    def _complete_next(self, stream: int) -> bool:
        """Completes the oldest event of a stream, if it is done."""
        with self._changed:
            pending = self._pending.get(stream)
            if pending is None:
                return False
            event = pending.events[0]
            self._completing = stream
        try:
            passed = event.done()
        except BaseException as error:
            event.finish(error)
            passed = True
        with self._changed:
            self._completing = 0
            if passed and self._pending.get(stream) is pending:
                pending.events.popleft()
                pending.first_s = perf_counter()
                if not pending.events:
                    del self._pending[stream]
            self._changed.notify_all()
        return passed

    def finish(self, stream: int) -> None:
        """Completes the events of a stream that is drained, and returns when their callbacks have ended."""
        with self._changed:
            pending = self._pending.pop(stream, None)
            if threading.current_thread() is not self._thread:
                self._changed.wait_for(lambda: self._completing != stream)
        for event in pending.events if pending is not None else ():
            event.block()


class _Pending:
    """The events of a stream that wait for their completion."""

    def __init__(self) -> None:
        self.events: deque[GpuEvent] = deque()
        self.first_s = perf_counter()


EVENT_THREAD = EventThread()


def blocked_until(event: Event, timeout: float | None) -> bool:
    """Sleeps until an event of any kind is done, for at most `timeout` seconds; returns True if it is."""
    waiter = Waiter()
    event.on_done(waiter)
    deadline = None if timeout is None else perf_counter() + timeout
    return waiter.block(None if deadline is None else deadline - perf_counter())
