"""Coordinator: stops several threads together (TensorFlow 1's tf.train.Coordinator)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import OutOfRangeError
from tensorbow.kinds import Flag, NonNegative, checked, instance, number, optional, refuse

AsThread: TypeAlias = Annotated[Any, instance(threading.Thread, expected="a threading.Thread")]
Seconds: TypeAlias = Annotated[Any, optional(number(0))]


class Coordinator:
    """A flag that threads ask whether to stop, and the first exception that made one of them stop."""

    def __init__(self, clean_stop_exception_types: Sequence[type[BaseException]] | None = None):
        """clean_stop_exception_types: exceptions that end the threads without being raised by `join`.

        By default OutOfRangeError, the end of the input.
        """
        given = (OutOfRangeError,) if clean_stop_exception_types is None else clean_stop_exception_types
        if not isinstance(given, (list, tuple)) or not all(
            isinstance(kind, type) and issubclass(kind, BaseException) for kind in given
        ):
            raise refuse("Coordinator", "clean_stop_exception_types", "a list of exception types", given)
        self._clean = tuple(given)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._joined = False
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def should_stop(self) -> bool:
        """True once a stop was requested."""
        return self._stop.is_set()

    @property
    def joined(self) -> bool:
        """True once `join` has ended."""
        return self._joined

    def request_stop(self, ex: Any = None) -> None:
        """Asks the threads to stop. ex: the exception that is the reason, or `sys.exc_info()`.

        `join` raises the first one, unless it is one of `clean_stop_exception_types`. After `join` an
        exception is raised here.
        """
        if isinstance(ex, tuple) and len(ex) == 3 and isinstance(ex[1], BaseException):
            ex = ex[1]
        if ex is not None and not isinstance(ex, BaseException):
            raise refuse("request_stop", "ex", "an exception", ex)
        with self._lock:
            if ex is not None and not isinstance(ex, self._clean):
                if self._joined:
                    raise ex
                if not self._stop.is_set():
                    self._error = ex
            self._stop.set()

    def clear_stop(self) -> None:
        """Makes the coordinator usable again: `should_stop` is False."""
        with self._lock:
            self._joined = False
            self._error = None
            self._stop.clear()

    @checked
    def wait_for_stop(self, timeout: Seconds = None) -> bool:
        """Waits until a stop is requested, at most `timeout` seconds; True if it was."""
        return self._stop.wait(timeout)

    @contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Context that requests a stop for an exception of its block, and swallows it: `join` raises it."""
        try:
            yield
        except BaseException as error:
            self.request_stop(error)

    @checked
    def register_thread(self, thread: AsThread) -> None:
        """Adds a thread that `join` waits for."""
        with self._lock:
            self._threads.append(thread)

    @checked
    def join(
        self,
        threads: Any = None,
        stop_grace_period_secs: NonNegative = 120.0,
        ignore_live_threads: Flag = False,
    ) -> None:
        """Waits until a stop is requested or all threads have ended, then for their ends.

        threads: a list of threads, besides the registered ones. stop_grace_period_secs: how long they may
        take after the stop. Raises the exception of `request_stop`, and RuntimeError for threads that are
        still alive then, unless `ignore_live_threads`.
        """
        given = [] if threads is None else threads
        if not isinstance(given, (list, tuple, set)) or not all(
            isinstance(each, threading.Thread) for each in given
        ):
            raise refuse("join", "threads", "a list of threads", threads)
        with self._lock:
            waited = [*self._threads, *(each for each in given if each not in self._threads)]
        while any(each.is_alive() for each in waited) and not self._stop.wait(0.02):
            pass
        ends_s = time.monotonic() + stop_grace_period_secs
        for each in waited:
            each.join(max(0.0, ends_s - time.monotonic()))
        late = [each.name for each in waited if each.is_alive()]
        with self._lock:
            self._joined = True
            self._threads = []
            error = self._error
        if error is not None:
            raise error
        if late and not ignore_live_threads:
            raise RuntimeError(
                f"Coordinator.join: threads {', '.join(late)} are alive {stop_grace_period_secs:g} s after "
                "the stop; let them ask should_stop(), or close the session that they wait in"
            )

    def raise_requested_exception(self) -> None:
        """Raises the exception of `request_stop`, if there is one."""
        with self._lock:
            if self._error is not None:
                raise self._error

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.request_stop(error)
        self.join()
