"""Replacement of `time`, for tests of time-dependent code that do not wait."""

from __future__ import annotations


class TickingClock:
    """Clock that advances by `tick_s` when it is read; `now_s` may be set."""

    def __init__(self, tick_s: float) -> None:
        self.now_s = 0.0
        self._tick_s = tick_s

    def perf_counter(self) -> float:
        self.now_s += self._tick_s
        return self.now_s
