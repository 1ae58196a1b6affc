"""A lock that many readers share and one writer holds alone."""

from __future__ import annotations

import threading


class SharedLock:
    """Readers run together; a writer waits for them and keeps new ones out until it is done.

    `with lock.shared:` and `with lock.exclusive:`. Not reentrant. Or by holder, any object of the caller's:
    `release(holder)` gives back what it may or may not hold, so that it can be called again after an
    interrupt, which may come between any two calls of the main thread, also just before a release.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # owns what follows; of C: no interrupt parts it from its `with`
        self._freed = threading.Condition(self._lock)
        self._readers: set[object] = set()
        self._writer: object | None = None
        self._waiting = 0  # threads asleep in the condition
        self._writers_waiting = 0

    @property
    def shared(self) -> _Held:
        """A context: held by any number of threads at once."""
        return _Held(self, alone=False)

    @property
    def exclusive(self) -> _Held:
        """A context: held by one thread, with no readers."""
        return _Held(self, alone=True)

    def _sleep(self) -> None:
        self._waiting += 1
        try:
            self._freed.wait()
        finally:
            self._waiting -= 1

    def acquire_shared(self, holder: object) -> None:
        """Sleeps while a writer is at work or waits."""
        with self._lock:
            while self._writer is not None or self._writers_waiting:
                self._sleep()
            self._readers.add(holder)

    def acquire_exclusive(self, holder: object) -> None:
        """Sleeps while anybody is at work."""
        with self._lock:
            self._writers_waiting += 1
            try:
                while self._writer is not None or self._readers:
                    self._sleep()
                self._writer = holder
            finally:
                self._writers_waiting -= 1
                if self._writer is None and self._waiting:  # interrupted: let the readers go on
                    self._freed.notify_all()

    def release(self, holder: object) -> None:
        """The reverse of both, if it is held; idempotent."""
        with self._lock:
            if self._writer is holder:
                self._writer = None
            self._readers.discard(holder)
            if self._waiting:
                self._freed.notify_all()


class _Held:
    """One reader or writer, as a context manager."""

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
        except BaseException:  # interrupted: it may be held already
            self._lock.release(self)
            raise

    def __exit__(self, *exception: object) -> None:
        try:
            self._lock.release(self)
        except BaseException:  # interrupted
            self._lock.release(self)
            raise
