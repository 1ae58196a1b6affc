"""Choice of the threads that run a launch, by measurement.

Several threads use more cores, but exchange weights and z between them in every round that averages. For
steps of a few microseconds one thread that runs all replicas is faster; for launches that take no longer than
the hand-over to another thread, the caller's thread is. The bits do not depend on the threads, so that all
are measured again from time to time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

SHORT = 3e-4  # seconds of a round: longer ones are faster on threads of their own, and nothing else is tried
SHORT_OF_EXECUTORS = 1.5e-3  # where the replicas' dynamic parts share the lock of Python's interpreter
FAR_TOO_LONG = 3  # times that: one window tells
BRIEF = 1.5e-4  # seconds of a launch: during longer ones a request to stop would wait for the caller's thread
WINDOW = 4  # launches at least that are timed together: they end in bursts, of as many as are launched ahead
WINDOW_S = 2e-3  # shortest window, longer than an interruption; a pause may end it earlier
WARM_UP, MEASURED = 1, 5  # windows of each choice of threads
GAIN = 0.95  # of the time: threads that are tried later must take less
AGAIN_S = 30.0  # of launches, after which all is measured anew: the machine may have been busy, or be now


class Threads(Enum):
    """Threads that run the steps of all replicas."""

    EACH = "a thread for each replica, or for each core where there are more replicas"
    ONE = "the first replica's thread"
    CALLER = "the thread that launches"


@dataclass
class _Trial:
    """Timing of launches with equal numbers of rounds: seconds by threads and window, and the choice."""

    alone: bool
    short_s: float
    windows: dict[Threads, list[float]] = field(default_factory=lambda: {threads: [] for threads in Threads})
    found: Threads | None = None
    left: int = 0  # launches for which that holds

    def seconds(self, threads: Threads) -> float | None:
        """The shortest window of some threads, or None while there are too few windows.

        Other work of the machine only makes windows longer.
        """
        windows = self.windows[threads][WARM_UP:]
        return min(windows) if len(windows) >= MEASURED else None

    def next_threads(self, rounds: int) -> Threads:
        """Threads of the next launch: the chosen ones, or those to be timed."""
        best, least = Threads.EACH, self.seconds(Threads.EACH)
        if least is None:
            far = [s for s in self.windows[Threads.EACH] if s > FAR_TOO_LONG * self.short_s * rounds]
            if far:
                self._find(Threads.EACH, far[0])
            return Threads.EACH
        others = ((Threads.ONE, self.short_s * rounds), (Threads.CALLER, BRIEF))
        for threads, longest in others[1:] if self.alone else others:
            if least > longest:
                break
            seconds = self.seconds(threads)
            if seconds is None:
                return threads
            if seconds < GAIN * least:
                best, least = threads, seconds
        self._find(best, least)
        return best

    def _find(self, threads: Threads, seconds: float) -> None:
        """Chooses threads for the launches of the next AGAIN_S, and discards all windows.

        seconds: duration of a launch on them.
        """
        self.found, self.left = threads, max(1, round(AGAIN_S / seconds))
        for windows in self.windows.values():
            windows.clear()


class ThreadChoice:
    """Asked before every launch, and told of its end; launches end in the order of asking."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        *,
        alone: bool = False,
        short_s: float = SHORT,
    ) -> None:
        """alone: there is one replica, whose own thread is the first replica's. short_s: see `SHORT`."""
        self._clock, self._alone, self._short_s = clock, alone, short_s
        self._trials: dict[int, _Trial] = {}  # by rounds of a launch
        self._asked = _Trial(alone, short_s)  # of the last launch
        self._last: tuple[int, Threads] | None = None  # rounds and threads of the last launch
        self._began_s = 0.0  # when the current window began,
        self._launches = 0  # how many of its launches have ended,
        self._ended_s = 0.0  # and when the last of them did
        self.tries = True  # whether the last launch is timed: `ended` must follow

    def choose(self, rounds: int) -> Threads:
        """Threads of the next launch of that many rounds."""
        trial = self._trials.get(rounds)
        if trial is None:
            trial = self._trials[rounds] = _Trial(self._alone, self._short_s)
        self._asked = trial
        if trial.found is not None:
            trial.left -= 1
            if trial.left >= 0:
                self.tries = False
                return trial.found
            trial.found = self._last = None
        self.tries = True
        threads = trial.next_threads(rounds)
        if self._last is None and rounds >= WINDOW:  # it begins at once, after a pause
            self._last, self._began_s, self._launches = (rounds, threads), self._clock(), 0
        return threads

    @property
    def settled(self) -> bool:
        """True if the threads of launches like the one last asked about are chosen."""
        return self._asked.found is not None

    def ended(self, rounds: int, threads: Threads, time_s: float) -> None:
        """Takes note of the end of a launch."""
        trial = self._trials.get(rounds)
        if trial is None or trial.found is not None:
            return
        if self._last != (rounds, threads):
            self._last, self._began_s, self._launches = (rounds, threads), time_s, 0
            return
        self._launches, self._ended_s = self._launches + 1, time_s
        if self._launches >= WINDOW and time_s - self._began_s >= WINDOW_S:
            self._close_window()

    def _close_window(self) -> None:
        """Takes note of the launches since it began."""
        if self._last is not None:
            rounds, threads = self._last
            seconds = (self._ended_s - self._began_s) / self._launches
            self._trials[rounds].windows[threads].append(seconds)
            self._began_s, self._launches = self._ended_s, 0

    def pause(self) -> None:
        """Ends the current window: the next launch does not follow at once on the last.

        The window counts even if it is short, with fewer launches if these have many rounds.
        """
        if self._last is not None and self._launches and max(self._launches, self._last[0]) >= WINDOW:
            self._close_window()
        self._last = None
