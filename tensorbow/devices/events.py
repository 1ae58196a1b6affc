"""Events of streams in this process: completed once, by whatever reaches them in their stream."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock
from time import perf_counter

from tensorbow.devices.stream import Event
from tensorbow.errors import FailedPreconditionError, InternalError, raise_if_any

__all__ = ["HostEvent", "Waiter", "wait_name"]

_logger = logging.getLogger("tensorbow.devices")
_OF_ENDED = Lock()  # shared by events done from the start: making one takes as long as the rest of an event


class Waiter:
    """One blocked thread; a call, repeatable and from any thread, wakes it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def __call__(self, event: Event | None = None) -> None:
        """Wakes the thread; has the signature of an event's callback."""
        try:  # noqa: SIM105 - on the way of every wake-up, and suppress() costs more than it does
            self._lock.release()
        except RuntimeError:
            pass  # released already

    def block(self, timeout: float | None = None) -> bool:
        """Sleeps until called, for at most `timeout` seconds; returns True if it was called."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))


class HostEvent(Event):
    """An event that a thread of this process completes by calling `complete` once.

    `origin` names the stream in messages. State: `_done` turns True once, after `_error` and `_time_s` are
    final; `_callbacks` is guarded by `_lock` and empty once done.
    """

    __slots__ = ("_callbacks", "_done", "_error", "_lock", "_time_s", "origin")

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self._done = False
        self._error: BaseException | None = None
        self._time_s = 0.0
        self._lock = Lock()
        self._callbacks: list[Callable[[Event], object]] | None = None

    @classmethod
    def ended(cls, origin: str, error: BaseException | None) -> HostEvent:
        """An event that is done from the start."""
        event = cls.__new__(cls)
        event.origin, event._error, event._time_s, event._done = origin, error, perf_counter(), True
        event._lock, event._callbacks = _OF_ENDED, None
        return event

    def done(self) -> bool:
        """True once all work enqueued before the event has ended or was given up; never blocks."""
        return self._done

    @property
    def error(self) -> BaseException | None:
        """The error that made the stream fail before the event; None while it is not done."""
        return self._error

    @property
    def time_s(self) -> float:
        """`time.perf_counter()` at completion, seconds. Raises FailedPreconditionError before that."""
        if not self._done:
            raise FailedPreconditionError(
                f"event of {self.origin}: expected a completed event to read its time, got a pending one; "
                "call synchronize() first"
            )
        return self._time_s

    def synchronize(self, timeout: float | None = None) -> None:
        """Sleeps until the event is done, then raises its error if it has one.

        Raises TimeoutError after `timeout` seconds; the event stays as it is.
        """
        if not self._done:
            waiter = Waiter()
            self.on_done(waiter)
            if not waiter.block(timeout):
                self._forget(waiter)
                if not self._done:
                    raise TimeoutError(
                        f"event of {self.origin}: not done after {timeout} s; its stream is at work, or "
                        "waits for an event that has not completed"
                    )
        try:
            raise_if_any(self._error)
        finally:
            del self  # see raise_if_any

    def on_done(self, callback: Callable[[Event], object]) -> None:
        """Calls `callback(event)` once: from the completing thread, or at once if the event is done.

        A callback must return quickly: it blocks its stream. An exception of a callback in the completing
        thread is logged, and affects neither event nor stream.
        """
        if not self._done:
            with self._lock:
                if not self._done:
                    if self._callbacks is None:
                        self._callbacks = [callback]
                    else:
                        self._callbacks.append(callback)
                    return
        callback(self)

    def complete(self, error: BaseException | None = None) -> None:
        """Marks the event as done, wakes waiting threads, calls the callbacks; for its stream only."""
        with self._lock:
            if self._done:
                raise InternalError(f"event of {self.origin}: expected one completion, got a second one")
            self._error = error
            self._time_s = perf_counter()
            self._done = True
            callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                try:
                    callback(self)
                except BaseException:
                    _logger.exception("a callback of the event of %s failed", self.origin)

    def _forget(self, waiter: Waiter) -> None:
        with self._lock:
            if self._callbacks is not None and waiter in self._callbacks:
                self._callbacks.remove(waiter)

    def __repr__(self) -> str:
        state = "pending" if not self._done else "done" if self._error is None else f"failed: {self._error!r}"
        return f"<{type(self).__name__} of {self.origin}, {state}>"


def wait_name(event: Event) -> str:
    """Name of a wait for an event in a trace."""
    return f"wait for {event.origin}" if isinstance(event, HostEvent) else "wait"
