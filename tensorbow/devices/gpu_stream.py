"""A GPU stream: work is called at once, in the caller's thread, and enqueues on a CUDA stream.

Waits for events of other GPU streams are enqueued in CUDA. A wait for another event, for example of a CPU
stream, cannot be: later calls are then deferred, and made when that event is done, in the thread that
completes it. So no call here blocks.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from tensorbow.devices.cuda_runtime import CudaError, CudaRuntime
from tensorbow.devices.device import Device
from tensorbow.devices.events import wait_name
from tensorbow.devices.gpu_events import EVENT_THREAD, EventPool, GpuEvent, blocked_until
from tensorbow.devices.gpu_timeline import GpuTimeline
from tensorbow.devices.stream import Access, Event, Stream
from tensorbow.errors import CancelledError, FailedPreconditionError, TensorBowError
from tensorbow.timeline import CURRENT, WAIT, WORK

__all__ = ["GpuStream"]


class GpuStream(Stream):
    """A stream of a GPU; `handle` is its CUDA stream.

    State: `_put_off` is None, or the calls deferred until `_awaited` is done; `_error` is the error that made
    the stream fail. `_lock` guards both and keeps the calls in order.
    """

    def __init__(
        self, device: Device, name: str, pool: EventPool, timeline: GpuTimeline, priority: int = 0
    ) -> None:
        super().__init__(device, name)
        self._title = f"{device.name.short} {name}"
        self._pool = pool
        self._timeline = timeline
        self.handle = pool.runtime.make_stream(priority)
        self._lock = threading.RLock()
        self._put_off: deque[Callable[[], None]] | None = None
        self._awaited: Event | None = None
        self._error: BaseException | None = None
        self._closing = False
        self._closed = False
        self._finalizer = weakref.finalize(self, _abandon, pool.runtime, self.handle)

    def enqueue(
        self,
        work: Callable[[], object],
        *,
        label: str,
        reads: Sequence[Access] = (),
        writes: Sequence[Access] = (),
    ) -> None:
        """Calls `work()`, which enqueues on the CUDA stream; `reads` and `writes` are ignored."""

        def call() -> None:
            if self._error is None:
                tracer = CURRENT.tracer
                try:
                    if tracer is None:
                        work()
                    else:
                        self._timeline.measured(tracer, self.track, label, WORK, self.handle, work)
                except BaseException as error:
                    if hasattr(error, "add_note"):  # Python 3.11
                        error.add_note(f"raised by {label!r} on stream {self._title}")
                    self._error = error

        self._in_turn(call, label)

    def record(self) -> GpuEvent:
        """A new event, done when all work enqueued before it is done."""
        event = GpuEvent(self._title, self._pool, self.handle)
        self._in_turn(lambda: self._record(event), "an event")
        return event

    def _record(self, event: GpuEvent) -> None:
        handle: int | None = None
        try:
            handle = self._pool.take()
            self._pool.runtime.record(handle, self.handle)
        except CudaError as error:
            if handle is not None:
                self._pool.give(handle)
            self._error = self._error or error
            event.finish(self._error)
        else:
            event.recorded_as(handle, self._error)

    def wait(self, event: Event) -> None:
        """Makes work enqueued from now on start after `event`; does not block the caller."""
        known_done = event.known_done if isinstance(event, GpuEvent) else event.done()
        if self._closing or not known_done or event.error is not None:
            self._in_turn(lambda: self._wait(event), "a wait")

    def _wait(self, event: Event) -> None:
        if isinstance(event, GpuEvent):
            try:
                ordered = self._let_wait(event)
            except CudaError as error:
                self._error = self._error or error
                return
            if ordered:
                self._error = self._error or event.failure
                return
        if event.done():
            self._error = self._error or event.error
            return
        self._put_off, self._awaited = deque(), event
        event.on_done(self._resume)

    def _let_wait(self, event: GpuEvent) -> bool:
        tracer = CURRENT.tracer
        if tracer is None:
            return event.let_wait(self._pool.runtime, self.handle)
        enqueue = partial(event.let_wait, self._pool.runtime, self.handle)
        return self._timeline.measured(tracer, self.track, wait_name(event), WAIT, self.handle, enqueue)

    def _in_turn(self, call: Callable[[], None], what: str) -> None:
        with self._lock:
            if self._closing:
                raise FailedPreconditionError(
                    f"stream {self._title}: expected an open stream for {what!r}, got a closed one; "
                    "enqueue before close(), or make a new stream"
                )
            if self._put_off is not None:
                self._put_off.append(call)
            else:
                call()

    def _resume(self, event: Event) -> None:
        with self._lock:
            if self._awaited is event:
                self._go_on(event.error)

    def _go_on(self, error: BaseException | None) -> None:
        """Makes the deferred calls, up to the next wait that cannot be enqueued."""
        calls, self._put_off, self._awaited = self._put_off or deque(), None, None
        self._error = self._error or error
        while calls:
            calls.popleft()()
            if self._put_off is not None:  # a call has deferred the following ones
                self._put_off.extend(calls)
                return

    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks until the stream is drained; raises its error if it failed; see Stream.synchronize."""
        try:
            event = self.record()
        except FailedPreconditionError:  # closed: everything has ended, or is about to
            self.close()
        else:
            event.synchronize(timeout)
        if self._error is not None:
            raise self._error

    @property
    def error(self) -> BaseException | None:
        """The error that made the stream fail, as far as it is known."""
        return self._error

    def reset(self) -> None:
        """Leaves the failed state; see Stream.reset. After a sticky CUDA error the next call fails again."""
        with self._lock:
            if self._put_off is not None:
                raise FailedPreconditionError(
                    f"stream {self._title}: expected a drained stream to reset, got one that waits for "
                    f"{self._awaited!r}; call synchronize() before reset()"
                )
            self._error = None

    @property
    def closed(self) -> bool:
        """True if the stream refuses further work."""
        return self._closing

    def begin_close(self, *, drain: bool = True) -> None:
        """Refuses further work, and gives up a wait that could last for ever."""
        with self._lock:
            self._closing = True
            if self._awaited is not None and (not drain or self._awaited.held):
                self._cancel()

    def _cancel(self) -> None:
        self._go_on(
            CancelledError(
                f"stream {self._title}: work was given up because it closed while it waited for "
                f"{self._awaited!r}; synchronize() before closing"
            )
        )

    def close(self, *, drain: bool = True) -> None:
        """Refuses further work, lets enqueued work end, destroys the CUDA stream; idempotent."""
        self.begin_close(drain=drain)
        while (awaited := self._awaited) is not None:
            blocked_until(awaited, None)
            self._resume(awaited)
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._finalizer.detach()
        with suppress(TensorBowError):  # a failed GPU: `synchronize` reports it
            self._pool.runtime.synchronize_stream(self.handle)
        EVENT_THREAD.finish(self.handle)
        with suppress(TensorBowError):
            self._pool.runtime.destroy_stream(self.handle)


def _abandon(runtime: CudaRuntime, handle: int) -> None:
    """Destroys the stream of a collected handle: CUDA lets enqueued work end first."""
    with suppress(TensorBowError):
        runtime.destroy_stream(handle)
