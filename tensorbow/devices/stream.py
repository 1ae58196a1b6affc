"""Events and streams: how work is ordered, on every kind of device.

A stream runs its work in the order of enqueueing. Different streams are ordered only by events: `record`
marks a point of one stream, `wait` makes another one wait for it. What a unit of work touches is said as
`Access` ranges, for the race checker.
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

    `device` is the full name of the device whose memory it is; "" is the device of the stream.
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
        """Whether the stream has passed this point; never blocks."""

    @property
    @abstractmethod
    def error(self) -> BaseException | None:
        """Why the work before this point is not to be trusted; None if it is, or is not done."""

    @property
    @abstractmethod
    def time_s(self) -> float:
        """`time.perf_counter()` at completion, seconds. Raises FailedPreconditionError before it."""

    @property
    def held(self) -> bool:
        """Whether only a further call by the program completes it: a closing stream does not wait for it."""
        return False

    @abstractmethod
    def synchronize(self, timeout: float | None = None) -> None:
        """Block the calling thread until done; raise `error` if set, TimeoutError after `timeout` seconds."""

    @abstractmethod
    def on_done(self, callback: Callable[[Event], object]) -> None:
        """Call `callback(event)` once: from the completing thread, or at once if done. It must be quick."""


class Stream(ABC):
    """A first-in first-out queue of work on one device.

    **Failure.** Work that raises makes the stream fail: later work is skipped, events recorded afterwards
    complete with the error, and so does a stream that waits for one of these, until `reset`. **Closing.** A
    closed stream refuses work with FailedPreconditionError. Events it will not reach complete with
    CancelledError, so nobody waits for them in vain.
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
        """Run `work()` after all that was enqueued before; returns at once.

        `label` names it in errors and logs; `reads` and `writes` are for the race checker.
        """

    def submit(
        self,
        work: Callable[[], object],
        *,
        label: str,
        reads: Sequence[Access] = (),
        writes: Sequence[Access] = (),
    ) -> Event:
        """As `enqueue` and `record`: the event of this work."""
        self.enqueue(work, label=label, reads=reads, writes=writes)
        return self.record()

    def run_here(self, work: Callable[[], object], *, label: str) -> Event | None:
        """Runs `work()` in the calling thread, in its turn on the stream, if that is now; else does nothing.

        Gives an event that is done, with the stream's error if it has one; None where the stream has work
        to do before it, is closed, or works on a device: then the caller submits it and waits. For who
        would wait anyway: it saves the ways to the stream's thread and back. What others enqueue meanwhile
        comes after it; an error of the work, an interrupt too, makes the stream fail.
        """
        return None

    @abstractmethod
    def record(self) -> Event:
        """A new event, done when all that was enqueued before is done."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Let what is enqueued from now on start only after `event` is done; does not block the caller."""

    @abstractmethod
    def synchronize(self, timeout: float | None = None) -> None:
        """Block the calling thread until the stream is drained; raise its error if it failed.

        Raises TimeoutError after `timeout` seconds, and FailedPreconditionError on the stream's own thread.
        """

    @property
    @abstractmethod
    def error(self) -> BaseException | None:
        """What made the stream fail, as far as it has run."""

    @abstractmethod
    def reset(self) -> None:
        """Leave the failed state. Raises FailedPreconditionError unless the stream is drained."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the stream refuses further work."""

    @abstractmethod
    def begin_close(self, *, drain: bool = True) -> None:
        """Refuse further work, and let the rest end without waiting for it; see `close`."""

    @abstractmethod
    def close(self, *, drain: bool = True) -> None:
        """Refuse further work, let what is enqueued end, give up the thread or handle; idempotent.

        With `drain=False` what has not started is skipped, with CancelledError. Does not raise the stream's
        error: call `synchronize` for that, before or after.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.device.name.short} {self.name}>"
