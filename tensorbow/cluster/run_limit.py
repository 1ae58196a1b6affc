"""Limits of a run over tasks: its time, and the session that still has to wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorbow.cluster.run_spans import TaskSpans
from tensorbow.errors import CancelledError, DeadlineExceededError, InvalidArgumentError

WATCH_S = 0.1  # between two looks whether the client still waits for a run

Watch = Callable[[], None]


@dataclass(frozen=True)
class TimeLimit:
    """The time limit of a run, as a session sends it to the run's tasks.

    option, milliseconds: as the user gave it. left_s: seconds that are left. each_op: ops of planned parts
    run one by one, so that a part ends after the op that it is in.
    """

    option: str
    milliseconds: int
    left_s: float
    each_op: bool

    def to_entry(self) -> list[Any]:
        """The limit in a message."""
        return [self.option, self.milliseconds, self.left_s, self.each_op]

    @classmethod
    def of_entry(cls, entry: Any) -> TimeLimit | None:
        """The reverse of `to_entry`; None for none. Raises InvalidArgumentError."""
        if entry is None:
            return None
        kinds: tuple[Any, ...] = (str, int, (int, float), bool)
        if (
            not isinstance(entry, list)
            or len(entry) != len(kinds)
            or not all(isinstance(value, kind) for value, kind in zip(entry, kinds, strict=True))
        ):
            raise InvalidArgumentError(f"run: expected a time limit, got {entry!r:.80}")
        return cls(*entry)


class LimitReachedError(DeadlineExceededError):
    """A part of a run has come to the run's time limit. Its message says what it waited for, or was at."""


class RunLimit:
    """Ends the waits and loops of one run at a task, and takes its spans; thread-safe."""

    def __init__(self, look: Watch, limit: TimeLimit | None = None, spans: TaskSpans | None = None):
        """look: called now and then, by one thread at a time; its error ends the run. spans: of a run that is
        traced.
        """
        self._look = look
        self.spans = spans
        self._deadline_s = None if limit is None else time.monotonic() + limit.left_s
        self.each_op = spans is not None or (limit is not None and limit.each_op)
        self._looking = threading.Lock()
        self._looked_s = time.monotonic()
        self._error: BaseException | None = None

    def stop(self, error: BaseException) -> None:
        """Ends all that runs and waits, and what begins later; the first error counts."""
        self._error = self._error or error

    def check(self) -> None:
        """Raises the error that ends the run, if there is one; LimitReachedError at the deadline."""
        if self._error is not None:
            raise self._error
        now = time.monotonic()
        if self._deadline_s is not None and now >= self._deadline_s:
            raise LimitReachedError
        if now - self._looked_s >= WATCH_S and self._looking.acquire(blocking=False):
            try:
                self._look()
                self._looked_s = time.monotonic()
            except BaseException as error:
                self.stop(error if isinstance(error, Exception) else CancelledError("the run is interrupted"))
                raise
            finally:
                self._looking.release()

    def left_s(self) -> float:
        """Seconds until the next look, or the deadline. Raises what `check` raises."""
        self.check()
        if self._deadline_s is None:
            return WATCH_S
        return min(WATCH_S, max(0.0, self._deadline_s - time.monotonic()))
