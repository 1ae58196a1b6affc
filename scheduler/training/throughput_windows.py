"""Windows of throughput: images per second, by the times at which devices end their tasks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from scheduler.engine.results import RoundResults

LEAST_LAUNCHES = 4  # in a window: with fewer, where tasks happen to end counts for much
WARM_LAUNCHES = 3  # discarded at least: the first steps touch new memory and fill the queues
LONGEST_WARM_UP = 8  # windows; by then it begins, whether launches are settled or not
LONGEST_PERIOD = 256  # rounds; averaging that is less frequent than that costs nothing measurable
MANY_PERIODS = 16  # of averaging in a window: part of one more counts for little


class ThroughputWindows:
    """Cuts the results of an engine into windows, by the times at which its devices ended the tasks.

    A round has ended when its last task has; rounds that end at one instant are those of one launch. A window
    is of whole launches, and of whole periods of averaging, or many. As much as a window is discarded before
    the first, and longer while launches do not yet go as they will.
    """

    def __init__(self, replicas: int, batch_size: int, tau: int, seconds: float):
        """replicas: on all devices. seconds: the least length of a window."""
        self._images = replicas * batch_size
        self._period = tau if tau <= LONGEST_PERIOD else 1
        self._least_seconds = seconds
        self._steps = 0  # of a launch
        self._settled: Callable[[], bool] = lambda: True
        self._since = -math.inf  # where the window, or its part in this run, began
        self._ended = -math.inf  # the last end of a round
        self._warm = False
        self._clear()

    def _clear(self) -> None:
        self._seconds = 0.0  # its parts in earlier runs
        self._rounds = self._launches = 0  # in all its parts

    def begin(self, steps: int, settled: Callable[[], bool], time_s: float | None = None) -> None:
        """The engine begins a run now, or at time_s, with so many steps in a launch.

        settled: whether launches go by now as they will. Between two runs the clock stands still. What was
        begun with other steps is discarded.
        """
        if steps != self._steps:
            self._steps, self._warm = steps, False
            self._clear()
        elif self._rounds:
            self._seconds += self._ended - self._since
        self._settled = settled
        self._since = self._ended = time.perf_counter() if time_s is None else time_s

    def add(self, results: RoundResults) -> float | None:
        """Takes results, in the order of rounds.

        Images per second where they are of the first launch after a window.
        """
        rate, now = None, max(results.times_s)
        if now > self._ended:
            rate = self._closed()
            self._ended = now
            self._launches += 1
        self._rounds += len(results.rounds)
        return rate

    def _closed(self) -> float | None:
        """Ends a window, if the launches so far are one."""
        seconds = self._seconds + self._ended - self._since
        least = LEAST_LAUNCHES if self._warm else WARM_LAUNCHES
        whole = not self._rounds % self._period or self._rounds >= MANY_PERIODS * self._period
        if seconds < self._least_seconds or self._launches < least or not whole:
            return None
        if not (self._warm or self._settled() or seconds >= LONGEST_WARM_UP * self._least_seconds):
            return None
        rate = self._rounds * self._images / seconds
        self._since = self._ended
        self._clear()
        if not self._warm:
            self._warm = True
            return None
        return rate
