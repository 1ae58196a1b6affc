"""A clock in place of `time`: what depends on how long something takes is tested without waiting for it."""

from __future__ import annotations


class TickingClock:
    """Every look at it takes `tick_s`; `now_s` may be set."""

    def __init__(self, tick_s: float) -> None:
        self.now_s = 0.0
        self._tick_s = tick_s

    def perf_counter(self) -> float:
        self.now_s += self._tick_s
        return self.now_s
