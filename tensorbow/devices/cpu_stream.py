"""A CPU stream: a worker thread that takes work from a first-in first-out queue.

The handle (`CpuStream`) and the thread's state (`_Worker`) are two objects, and the thread has no reference
to the handle: once the handle is garbage, the thread drains the queue and ends.

Streams cannot deadlock: a stream waits only for events recorded earlier, so waits form no cycle; every
queued event completes, because a closing stream works through its queue; and a closing stream gives up
waits for events that only the program can complete (`Event.held`), or, without draining, all waits.

Work in the caller's thread (`run_here`) counts as a queue item: it starts only when no earlier item is left,
and the stream's thread holds back later items until it ends. An interrupt may come between any two calls of
the main thread's Python, so the stream is handed back by plain assignments and C calls only.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from tensorbow.devices.blas_threads import limit_blas_threads, restore_blas_threads
from tensorbow.devices.device import Device
from tensorbow.devices.events import HostEvent, Waiter, wait_name
from tensorbow.devices.forks import forked, tell_of_forks
from tensorbow.devices.stream import Access, Event, Stream
from tensorbow.devices.stream_errors import closed_stream, no_thread, not_drained, own_thread
from tensorbow.errors import CancelledError, FailedPreconditionError
from tensorbow.timeline import CURRENT, WAIT, WORK, StreamTrack

__all__ = ["CpuStream"]

_WORK, _RECORD, _WAIT, _TASK = range(4)  # kinds of items; a task is work with its event


class _StreamThread(threading.Thread):
    """Marks stream threads, which must not join one another."""


class _StreamsRunHere(threading.local):
    """Number of streams whose work the current thread runs instead of their threads."""

    count = 0


_RUN_HERE = _StreamsRunHere()


class _Worker:
    """State of one stream's thread.

    `here` is the thread that runs work instead of this one, or None; it is set under `lock` while no item is
    left, and cleared by that thread. The running thread owns `error` and `processed`. `lock` guards
    `enqueued`, `closing`, `cancelled` and the wait that blocks the thread. Calling `put_off` lets the
    stream's thread go on with the items that came meanwhile.
    """

    __slots__ = (
        "__weakref__",
        "blocked_on",
        "cancelled",
        "closing",
        "delay",
        "enqueued",
        "error",
        "here",
        "lock",
        "lost",
        "processed",
        "put_off",
        "queue",
        "title",
        "track",
        "waiter",
    )

    def __init__(self, title: str, track: StreamTrack, delay: Callable[[], object] | None) -> None:
        self.title = title
        self.track = track
        self.delay = delay
        self.queue: SimpleQueue[tuple[int, Any, str] | None] = SimpleQueue()
        self.lock = threading.Lock()
        self.here: int | None = None
        self.put_off: Callable[[], None] | None = None
        self.error: BaseException | None = None
        self.enqueued = 0
        self.processed = 0
        self.closing = False
        self.lost = False  # in a forked process
        self.cancelled = False
        self.blocked_on: Event | None = None
        self.waiter: Waiter | None = None

    def put(self, kind: int, payload: object, label: str) -> None:
        """Appends an item. Raises FailedPreconditionError once the stream is closing."""
        with self.lock:
            if not self.closing:
                self.enqueued += 1
                self.queue.put((kind, payload, label))
                return
        raise forked(f"stream {self.title}") if self.lost else closed_stream(self.title, label)

    def run(self) -> None:
        """Main loop of the thread; ends at the None that `begin_close` queues behind the last item."""
        get = self.queue.get
        try:
            while (item := get()) is not None:
                if self.here is not None:
                    self._await_turn()
                kind, payload, label = item
                if self.cancelled and self.error is None:
                    self.error = self._cancellation("it closed without draining")
                event: HostEvent | None = None
                if kind == _WORK:
                    if self.error is None:
                        self._execute(payload, label)
                elif kind == _TASK:
                    work, event = payload
                    if self.error is None:
                        self._execute(work, label)
                    del work
                elif kind == _RECORD:
                    event = payload
                elif self.error is None:
                    self._wait(payload)
                error = self.error  # read now: another thread may work on the next item at once
                self.processed += 1  # before the event: once it is done, the stream is drained
                if event is not None:
                    event.complete(error)
                del item, payload, event, error  # so that an idle stream keeps nothing alive
            if self.here is not None:
                self._await_turn()  # a closed stream has no work left
        finally:
            restore_blas_threads()

    def _await_turn(self) -> None:
        """Waits until no thread runs work instead of this one; none starts to while an item is left."""
        gate = threading.Lock()
        gate.acquire()
        self.put_off = gate.release
        if self.here is not None:  # otherwise it was cleared before the sleeper could be seen
            gate.acquire()
        self.put_off = None

    def run_here(self, work: Callable[[], object], label: str) -> HostEvent | None:
        """Runs work in the calling thread if no earlier item is left; gives its event, or None."""
        thread = threading.get_ident()
        mine = False
        try:
            with self.lock:
                if self.closing or self.enqueued != self.processed or self.here is not None:
                    return None
                _RUN_HERE.count += 1
                self.enqueued += 1
                self.here = thread
                mine = True
            if self.error is None:
                self._execute(work, label)
            error = self.error
        finally:
            if mine:  # assignments, then a C call: no interrupt comes before it
                _RUN_HERE.count -= 1
                self.processed += 1
                self.here = None
                put_off = self.put_off
                if put_off is not None:
                    put_off()
        return HostEvent.ended(self.title, error)

    def _execute(self, work: Callable[[], object], label: str) -> None:
        try:
            if self.delay is not None:
                self.delay()
            tracer = CURRENT.tracer
            if tracer is None:
                work()
                return
            started_s = perf_counter()
            try:
                work()
            finally:
                tracer.add(self.track, label, WORK, started_s, perf_counter())
        except BaseException as error:
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note(f"raised by {label!r} on stream {self.title}")
            self.error = error

    def _wait(self, event: Event) -> None:
        if not event.done():
            waiter = Waiter()
            with self.lock:
                if not self._gives_up(event):
                    self.blocked_on, self.waiter = event, waiter
                else:
                    waiter()
            tracer = CURRENT.tracer
            started_s = perf_counter()
            event.on_done(waiter)
            waiter.block()
            if tracer is not None:
                tracer.add(self.track, wait_name(event), WAIT, started_s, perf_counter())
            with self.lock:
                self.blocked_on = self.waiter = None
            if not event.done():
                self.error = self._cancellation(f"it closed while it waited for {event!r}")
                return
        self.error = event.error

    def _gives_up(self, event: Event) -> bool:
        return self.cancelled or (self.closing and event.held)

    def begin_close(self, drain: bool) -> None:
        """Refuses further items, and ends the present wait if it could last for ever."""
        with self.lock:
            if not self.closing:
                self.closing = True
                self.queue.put(None)
            if not drain:
                self.cancelled = True
            if self.waiter is not None and self.blocked_on is not None and self._gives_up(self.blocked_on):
                self.waiter()

    def lose_thread(self) -> None:
        """Marks the stream closed and drained in a forked process, which lacks the parent's threads."""
        self.lock = threading.Lock()  # another thread may have held the old one
        self.here = self.put_off = None
        self.closing = self.lost = True
        self.processed = self.enqueued
        self.error = forked(f"stream {self.title}")

    def _cancellation(self, reason: str) -> CancelledError:
        return CancelledError(
            f"stream {self.title}: work was given up because {reason}; synchronize() before closing"
        )


class CpuStream(Stream):
    """A stream of a CPU device. delay: called on the thread before each unit of work."""

    def __init__(self, device: Device, name: str, *, delay: Callable[[], object] | None = None) -> None:
        super().__init__(device, name)
        self._title = f"{device.name.short} {name}"
        self._worker = worker = _Worker(self._title, self.track, delay)
        self._put = worker.put
        limit_blas_threads()
        self._thread = _StreamThread(target=worker.run, name=f"tensorbow {self._title}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            restore_blas_threads()
            raise no_thread(self._title, error) from error
        # Not begin_close: the collector may run this while the worker holds its own lock.
        self._finalizer = weakref.finalize(self, worker.queue.put, None)
        self._finalizer.atexit = False
        tell_of_forks(worker)

    def enqueue(
        self,
        work: Callable[[], object],
        *,
        label: str,
        reads: Sequence[Access] = (),
        writes: Sequence[Access] = (),
    ) -> None:
        """Runs `work()` on the stream's thread, in order. `reads` and `writes` are ignored."""
        self._put(_WORK, work, label)

    def submit(
        self,
        work: Callable[[], object],
        *,
        label: str,
        reads: Sequence[Access] = (),
        writes: Sequence[Access] = (),
    ) -> HostEvent:
        """See Stream.submit; one item of the queue."""
        event = HostEvent(self._title)
        self._put(_TASK, (work, event), label)
        return event

    def run_here(self, work: Callable[[], object], *, label: str) -> HostEvent | None:
        """See Stream.run_here."""
        return self._worker.run_here(work, label)

    def record(self) -> HostEvent:
        """A new event, done when all work enqueued before it is done."""
        event = HostEvent(self._title)
        self._put(_RECORD, event, "")
        return event

    def wait(self, event: Event) -> None:
        """Makes work enqueued from now on start after `event`; does not block the caller."""
        if self._worker.closing or not event.done() or event.error is not None:
            self._put(_WAIT, event, "wait")

    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks until the stream is drained; raises its error if it failed; see Stream.synchronize."""
        if self._worker.here == threading.get_ident() or threading.current_thread() is self._thread:
            raise own_thread(self._title)
        event = HostEvent(self._title)
        try:
            self._put(_RECORD, event, "")
        except FailedPreconditionError:  # closed: wait for the thread's end instead
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise TimeoutError(f"stream {self._title}: not drained after {timeout} s") from None
            if self._worker.error is not None:
                raise self._worker.error from None
        else:
            try:
                event.synchronize(timeout)
            finally:
                del event  # see raise_if_any

    @property
    def error(self) -> BaseException | None:
        """The error that made the stream fail, so far."""
        return self._worker.error

    def reset(self) -> None:
        """Leaves the failed state. Raises FailedPreconditionError unless the stream is drained."""
        worker = self._worker
        with worker.lock:
            left = worker.enqueued - worker.processed
            if left == 0:
                worker.error = None
                return
        raise not_drained(self._title, left)

    @property
    def closed(self) -> bool:
        """True if the stream refuses further work."""
        return self._worker.closing

    def begin_close(self, *, drain: bool = True) -> None:
        """Refuses further work; does not wait for the rest to end."""
        self._worker.begin_close(drain)

    def close(self, *, drain: bool = True) -> None:
        """Refuses further work, works through the queue, ends the thread; idempotent; see Stream.close.

        Called from work or a callback of any stream, it does not wait for the end. A unit of work that never
        returns blocks `close`.
        """
        self._worker.begin_close(drain)
        if not _RUN_HERE.count and not isinstance(threading.current_thread(), _StreamThread):
            self._thread.join()
            self._finalizer.detach()
