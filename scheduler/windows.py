"""Windows of throughput: images per second, by the times at which devices end their tasks."""

from __future__ import annotations

import math

from scheduler.task_result import TaskResult

LEAST_ROUNDS = 4  # in a window: with fewer, where tasks happen to end counts for much
WARM_ROUNDS = 3  # discarded at least: the first steps touch new memory and fill the queues
LONGEST_PERIOD = 256  # rounds; averaging that is less frequent than that costs nothing measurable


class ThroughputWindows:
    """Cuts the results of an engine into windows, by the times at which its devices ended the tasks.

    A round has ended when its last task has. A window is of whole rounds, and of whole periods of averaging.
    As much as a window, and `WARM_ROUNDS` at least, is discarded before the first.
    """

    def __init__(self, replicas: int, batch_size: int, tau: int, seconds: float):
        """replicas: on all devices. seconds: the least length of a window."""
        self._replicas, self._images = replicas, replicas * batch_size
        self._period = tau if tau <= LONGEST_PERIOD else 1
        self._least_seconds = seconds
        self._ended = -math.inf  # when the last task so far has
        self._since: float | None = None  # where the window, or its part after the last pause, began
        self._seconds = 0.0  # its parts before that
        self._rounds = 0  # in all its parts
        self._warm = False

    def add(self, result: TaskResult) -> float | None:
        """Takes a result, in the order of rounds and batches; images per second when it ends a window."""
        self._ended = max(self._ended, result.time_s)
        if result.place != self._replicas - 1:
            return None
        if self._since is None:
            self._since = self._ended
            return None
        self._rounds += 1
        least = LEAST_ROUNDS if self._warm else WARM_ROUNDS
        seconds = self._seconds + self._ended - self._since
        if seconds < self._least_seconds or self._rounds < least or self._rounds % self._period:
            return None
        rate = self._rounds * self._images / seconds
        self._since, self._seconds, self._rounds = self._ended, 0.0, 0
        if not self._warm:
            self._warm = True
            return None
        return rate

    def pause(self) -> None:
        """The engine stands still until the next result: that time, and the first round after it, count
        for nothing.
        """
        if self._since is not None:
            self._seconds += self._ended - self._since
            self._since = None
