"""Reader-writer lock over named things, such as a session's variables."""

from __future__ import annotations

import threading
from collections.abc import Set
from typing import NamedTuple, Protocol

_NOTHING: frozenset[str] = frozenset()


class WaitLimit(Protocol):
    """The time limit of a wait."""

    def left_s(self) -> float | None:
        """Seconds left, None without a limit; raises an error when none are left."""


class _Use(NamedTuple):
    """Variables that a holder reads and writes, by name; or all of them, or all of them alone."""

    reads: Set[str]
    writes: Set[str]
    reads_all: bool = False
    alone: bool = False

    def excludes(self, other: _Use) -> bool:
        """True if two uses cannot be held at once."""
        if self.alone or other.alone:
            return True
        if (self.reads_all and other.writes) or (other.reads_all and self.writes):
            return True
        mine, theirs = self.writes, other.writes
        return bool(
            (mine and not (mine.isdisjoint(theirs) and mine.isdisjoint(other.reads)))
            or (theirs and not theirs.isdisjoint(self.reads))
        )


_SHARED = _Use(_NOTHING, _NOTHING, reads_all=True)
_ALONE = _Use(_NOTHING, _NOTHING, alone=True)


class SharedLock:
    """Lock that holders share unless one writes what another reads or writes. Not reentrant.

    A waiting holder blocks later ones that exclude it, so that none waits for ever. Used as
    `with lock.shared:` (reads everything) and `with lock.exclusive:` (alone), or by holder, any object of the
    caller's: `release(holder)` is idempotent, so it can be repeated after an interrupt, which may come
    between any two calls of the main thread, even just before a release.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the fields below; in C: no interrupt before its `with`
        self._freed = threading.Condition(self._lock)
        self._held: dict[object, _Use] = {}
        self._waiting: list[_Use] = []  # in the order of their coming

    @property
    def shared(self) -> _Held:
        """Context that any number of threads hold at once."""
        return _Held(self, alone=False)

    @property
    def exclusive(self) -> _Held:
        """Context that one thread holds, without readers."""
        return _Held(self, alone=True)

    def acquire(
        self, holder: object, reads: Set[str], writes: Set[str], watch: WaitLimit | None = None
    ) -> None:
        """Waits while others write what is read, or read or write what is written.

        watch: ends the wait by its error.
        """
        self._acquire(holder, _Use(reads, writes), watch)

    def acquire_shared(self, holder: object) -> None:
        """Waits while anybody writes anything."""
        self._acquire(holder, _SHARED)

    def acquire_exclusive(self, holder: object, watch: WaitLimit | None = None) -> None:
        """Waits while anybody holds the lock. watch: ends the wait by its error."""
        self._acquire(holder, _ALONE, watch)

    def _acquire(self, holder: object, use: _Use, watch: WaitLimit | None = None) -> None:
        with self._lock:
            if not self._waiting and not (self._held and self._is_excluded(use, 0)):
                self._held[holder] = use
                return
            ticket = _Use(*use)  # an object of its own, to be found again
            try:
                self._waiting.append(ticket)
                while self._is_excluded(ticket, next(n for n, w in enumerate(self._waiting) if w is ticket)):
                    self._freed.wait(None if watch is None else watch.left_s())
                self._held[holder] = use
            finally:
                self._waiting = [waiting for waiting in self._waiting if waiting is not ticket]
                self._freed.notify_all()  # those behind it; also after an interrupt

    def wake(self) -> None:
        """Lets all that wait ask their time limit again."""
        with self._lock:
            self._freed.notify_all()

    def _is_excluded(self, use: _Use, before: int) -> bool:
        """True if a holder, or one of the first `before` that wait, excludes a use."""
        return any(use.excludes(held) for held in self._held.values()) or any(
            use.excludes(waiting) for waiting in self._waiting[:before]
        )

    def release(self, holder: object) -> None:
        """Releases the lock if the holder has it; idempotent."""
        with self._lock:
            if self._held.pop(holder, None) is not None and self._waiting:
                self._freed.notify_all()


class _Held:
    """One reader or writer as a context manager."""

    __slots__ = ("_alone", "_lock")

    def __init__(self, lock: SharedLock, *, alone: bool):
        self._lock = lock
        self._alone = alone

    def __enter__(self) -> None:
        try:
            if self._alone:
                self._lock.acquire_exclusive(self)
            else:
                self._lock.acquire_shared(self)
        except BaseException:  # interrupted: the lock may be held already
            self._lock.release(self)
            raise

    def __exit__(self, *exception: object) -> None:
        try:
            self._lock.release(self)
        except BaseException:  # interrupted
            self._lock.release(self)
            raise
