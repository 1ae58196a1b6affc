"""Events and streams: the order of work on every kind of device.

A stream runs its work in the order of enqueueing. Different streams are ordered only by events: `record`
marks a point of one stream, `wait` makes another one wait for it. `Access` ranges declare the memory that
a unit of work reads and writes, for the race checker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tensorbow.timeline import StreamTrack

if TYPE_CHECKING:
    from tensorbow.devices.device import Device

__all__ = ["Access", "Event", "Stream"]


class Access(NamedTuple):
    """A range of memory that a unit of work reads or writes.

    `device` is the full name of the device that owns the memory; "" means the stream's device.
    """

    address: int
    nbytes: int
    device: str = ""


class Event(ABC):
    """A point of a stream: immutable, done once and for all.

    Done means that all work enqueued before it has ended, or, if `error` is set, was given up.
    """

    __slots__ = ("__weakref__",)

    @abstractmethod
    def done(self) -> bool:
        """True if the stream has passed this point; never blocks."""

    @property
    @abstractmethod
    def error(self) -> BaseException | None:
        """The error of the work before this point; None if there is none or the event is not done."""

    @property
    @abstractmethod
    def time_s(self) -> float:
        """`time.perf_counter()` at completion, seconds. Raises FailedPreconditionError before it."""

    @property
    def held(self) -> bool:
        """True if only a further call by the program completes it: a closing stream does not wait for it."""
        return False

    @abstractmethod
    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks the calling thread until done; raises `error` if set, TimeoutError after `timeout` s."""

    @abstractmethod
    def on_done(self, callback: Callable[[Event], object]) -> None:
        """Calls `callback(event)` once: from the completing thread, or at once if done. It must be quick."""


class Stream(ABC):
    """A first-in first-out queue of work on one device.

    **Failure.** Work that raises makes the stream fail until `reset`: later work is skipped, events recorded
    afterwards complete with the error, and streams that wait for such an event fail too. **Closing.** A
    closed stream refuses work with FailedPreconditionError. Events that it will not reach complete with
    CancelledError, so no thread waits for them in vain.
    """

    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name
        self.track = StreamTrack(device.name.short, name)

    @abstractmethod
    def enqueue(
        self,
        work: Callable[[], object],
        *,
        label: str,
        reads: Sequence[Access] = (),
        writes: Sequence[Access] = (),
    ) -> None:
        """Runs `work()` after all work enqueued before; returns at once.

        label: name of the work in errors and logs. reads, writes: for the race checker.
        """

    def submit(
        self,
        work: Callable[[], object],
        *,
        label: str,
        reads: Sequence[Access] = (),
        writes: Sequence[Access] = (),
    ) -> Event:
        """`enqueue` and `record` in one: returns the event of this work."""
        self.enqueue(work, label=label, reads=reads, writes=writes)
        return self.record()

    def run_here(self, work: Callable[[], object], *, label: str) -> Event | None:
        """Runs `work()` in the calling thread if the stream has no earlier work; otherwise does nothing.

        For callers that would wait anyway: it saves two thread switches. Gives a done event, with the
        stream's error if it has one; None if the stream has earlier work, is closed, or works on a device:
        then the caller submits the work and waits. Work enqueued meanwhile comes after it; an error of the
        work, even an interrupt, makes the stream fail.
        """
        return None

    @abstractmethod
    def record(self) -> Event:
        """A new event, done when all work enqueued before it is done."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Makes work enqueued from now on start after `event`; does not block the caller."""

    @abstractmethod
    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks the calling thread until the stream is drained; raises its error if it failed.

        Raises TimeoutError after `timeout` seconds, and FailedPreconditionError on the stream's own thread.
        """

    @property
    @abstractmethod
    def error(self) -> BaseException | None:
        """The error that made the stream fail, so far."""

    @abstractmethod
    def reset(self) -> None:
        """Leaves the failed state. Raises FailedPreconditionError unless the stream is drained."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True if the stream refuses further work."""

    @abstractmethod
    def begin_close(self, *, drain: bool = True) -> None:
        """Refuses further work, and lets the rest end without waiting for it; see `close`."""

    @abstractmethod
    def close(self, *, drain: bool = True) -> None:
        """Refuses further work, lets enqueued work end, gives up the thread or handle; idempotent.

        With `drain=False` waiting work is skipped, with CancelledError. Does not raise the stream's
        error: call `synchronize` for that, before or after.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.device.name.short} {self.name}>"
