"""Stops the loops and waits of one failed dynamic run; the session's other runs go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from tensorbow.runtime.run_watch import RunWatch, current_watch


class StoppableLoop(Protocol):
    """A bound step with a loop that may never end."""

    def stop(self) -> None:
        """Ends the loop: the step fails."""

    def resume(self) -> None:
        """Lets later runs of the step go on."""


class RunStop:
    """Stops loops without a limit and waits for variables, once a run has failed; thread-safe."""

    def __init__(self, watch: RunWatch | None, wake: Callable[[], None]):
        """watch: the run's, with its deadline. wake: lets what waits ask `left_s` again."""
        self._watch, self._wake = watch, wake
        self._lock = threading.Lock()
        self._running: set[StoppableLoop] = set()
        self._error: BaseException | None = None

    def stop(self, error: BaseException) -> None:
        """Ends all that runs and waits, and what begins later."""
        with self._lock:
            self._error = self._error or error
            for step in self._running:
                step.stop()
        self._wake()

    def left_s(self) -> float | None:
        """Seconds until the deadline, None without one. Raises once the run has failed, and after it."""
        if self._error is not None:
            raise self._error
        return None if self._watch is None else self._watch.left_s()

    def _timer(self, step: StoppableLoop) -> threading.Timer | None:
        """A timer that stops a step at the deadline; None where the thread's watch gives it one."""
        left_s = None if self._watch is None or current_watch() is not None else self._watch.left_s()
        if left_s is None:
            return None
        timer = threading.Timer(left_s, step.stop)
        timer.daemon = True
        timer.start()
        return timer

    @contextmanager
    def running(self, step: StoppableLoop) -> Iterator[None]:
        """Context in which a step runs, and is stopped with the run."""
        with self._lock:
            if self._error is not None:
                raise self._error
            self._running.add(step)
        timer = self._timer(step)
        try:
            yield
        except BaseException:
            if timer is not None:
                self.left_s()
            raise
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
                step.resume()
            with self._lock:
                self._running.discard(step)
                if self._error is not None:  # the step may be another run's next
                    step.resume()
