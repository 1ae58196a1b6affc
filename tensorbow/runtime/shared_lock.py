"""Reader-writer lock."""

from __future__ import annotations

import threading


class SharedLock:
    """Reader-writer lock: readers share it; a waiting writer blocks new readers. Not reentrant.

    Used as `with lock.shared:` and `with lock.exclusive:`, or by holder, any object of the caller's:
    `release(holder)` is idempotent, so it can be repeated after an interrupt, which may come between any two
    calls of the main thread, even just before a release.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the fields below; in C: no interrupt before its `with`
        self._freed = threading.Condition(self._lock)
        self._readers: set[object] = set()
        self._writer: object | None = None
        self._waiting = 0  # threads asleep in the condition
        self._writers_waiting = 0

    @property
    def shared(self) -> _Held:
        """Context that any number of threads hold at once."""
        return _Held(self, alone=False)

    @property
    def exclusive(self) -> _Held:
        """Context that one thread holds, without readers."""
        return _Held(self, alone=True)

    def _sleep(self) -> None:
        self._waiting += 1
        try:
            self._freed.wait()
        finally:
            self._waiting -= 1

    def acquire_shared(self, holder: object) -> None:
        """Waits while a writer holds the lock or waits for it."""
        with self._lock:
            while self._writer is not None or self._writers_waiting:
                self._sleep()
            self._readers.add(holder)

    def acquire_exclusive(self, holder: object) -> None:
        """Waits while anybody holds the lock."""
        with self._lock:
            self._writers_waiting += 1
            try:
                while self._writer is not None or self._readers:
                    self._sleep()
                self._writer = holder
            finally:
                self._writers_waiting -= 1
                if self._writer is None and self._waiting:  # interrupted: wake the readers
                    self._freed.notify_all()

    def release(self, holder: object) -> None:
        """Releases the lock if the holder has it, shared or exclusive; idempotent."""
        with self._lock:
            if self._writer is holder:
                self._writer = None
            self._readers.discard(holder)
            if self._waiting:
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
