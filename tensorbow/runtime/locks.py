"""A lock that many readers share and one writer holds alone."""

from __future__ import annotations

import threading


class SharedLock:
    """Readers run together; a writer waits for them and keeps new ones out until it is done.

    `with lock.shared:` and `with lock.exclusive:`. Not reentrant.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._readers = 0
        self._writing = False
        self._waiting = 0  # threads asleep in the condition
        self._writers_waiting = 0
        self.shared = _Shared(self)  # held by any number of threads at once
        self.exclusive = _Exclusive(self)  # held by one thread, with no readers

    def _sleep(self) -> None:
        self._waiting += 1
        try:
            self._condition.wait()
        finally:
            self._waiting -= 1

    def acquire_shared(self) -> None:
        """Sleeps while a writer is at work or waits."""
        with self._condition:
            while self._writing or self._writers_waiting:
                self._sleep()
            self._readers += 1

    def release_shared(self) -> None:
        """The reverse of `acquire_shared`."""
        with self._condition:
            self._readers -= 1
            if self._waiting:
                self._condition.notify_all()

    def acquire_exclusive(self) -> None:
        """Sleeps while anybody is at work."""
        with self._condition:
            self._writers_waiting += 1
            try:
                while self._writing or self._readers:
                    self._sleep()
                self._writing = True
            finally:
                self._writers_waiting -= 1
                if not self._writing and self._waiting:  # interrupted: let the readers go on
                    self._condition.notify_all()

    def release_exclusive(self) -> None:
        """The reverse of `acquire_exclusive`."""
        with self._condition:
            self._writing = False
            if self._waiting:
                self._condition.notify_all()


class _Shared:
    """The reader's side, as a context manager."""

    def __init__(self, lock: SharedLock):
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.acquire_shared()

    def __exit__(self, *exception: object) -> None:
        self._lock.release_shared()


class _Exclusive:
    """The writer's side, as a context manager."""

    def __init__(self, lock: SharedLock):
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.acquire_exclusive()

    def __exit__(self, *exception: object) -> None:
        self._lock.release_exclusive()
