"""Windows of throughput: images per second, from the completion times of tasks on their devices."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from scheduler.engine.results import RoundResults

LEAST_LAUNCHES = 4  # per window: with fewer, the rate depends on where the window happens to end
WARM_LAUNCHES = 3  # least number discarded first: they touch new memory and fill the queues
LONGEST_WARM_UP = 8  # in windows: the first one then begins even if launches are not settled
LONGEST_PERIOD = 256  # rounds between averagings; the cost of less frequent averaging is not measurable
MANY_PERIODS = 16  # averaging periods after which a window need not hold a whole number of them


class ThroughputWindows:
    """Splits the results of an engine into windows, by the completion times of its tasks.

    A round ends with its last task; rounds that end at the same time belong to one launch. A window consists
    of whole launches and of whole periods of averaging (or of many periods). A warm-up of one window is
    discarded before the first, and more until launches are settled.
    """

    def __init__(self, replicas: int, batch_size: int, tau: int, seconds: float):
        """replicas: on all devices. seconds: least length of a window."""
        self._images = replicas * batch_size
        self._period = tau if tau <= LONGEST_PERIOD else 1
        self._least_seconds = seconds
        self._steps = 0  # steps per launch
        self._settled: Callable[[], bool] = lambda: True
        self._since = -math.inf  # time at which the window, or its part in this run, began
        self._ended = -math.inf  # time at which the last round ended
        self._warm = False
        self._clear()

    def _clear(self) -> None:
        self._seconds = 0.0  # duration of the window's parts in earlier runs of the engine
        self._rounds = self._launches = 0  # in all parts of the window

    def begin(self, steps: int, settled: Callable[[], bool], time_s: float | None = None) -> None:
        """Called when the engine begins a run, now or at time_s, with `steps` steps per launch.

        settled: whether steps per launch and threads are chosen. Time between two runs does not count. A
        window that was begun with another number of steps is discarded.
        """
        if steps != self._steps:
            self._steps, self._warm = steps, False
            self._clear()
        elif self._rounds:
            self._seconds += self._ended - self._since
        self._settled = settled
        self._since = self._ended = time.perf_counter() if time_s is None else time_s

    def add(self, results: RoundResults) -> float | None:
        """Adds results, in the order of rounds; returns images per second when a window is complete.

        That is found out with the first result of the launch after the window.
        """
        rate, now = None, max(results.times_s)
        if now > self._ended:
            rate = self._closed()
            self._ended = now
            self._launches += 1
        self._rounds += len(results.rounds)
        return rate

    def _closed(self) -> float | None:
        """Ends the window if it is complete; returns its images per second, None for the warm-up."""
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
