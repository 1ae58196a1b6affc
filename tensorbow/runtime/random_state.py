"""State of a session's random ops."""

from __future__ import annotations

import threading
from collections.abc import Sequence


class RandomState:
    """Counters of random ops, by name, and the number of the stream that they draw from; thread-safe.

    stream: see `tensorbow.compiler.compile.state_scalars`.
    """

    def __init__(self) -> None:
        self.stream = 0
        self.counters: dict[str, int] = {}  # op -> draws so far
        self._first = 0  # counter of an op that has not drawn yet
        self._lock = threading.Lock()  # guards the counters

    def restart(self, stream: int, count: int) -> None:
        """Goes to a place in the random numbers: each op draws from `stream` as after `count` runs."""
        with self._lock:
            self.stream, self._first, self.counters = stream, count, {}

    def draw(self, names: Sequence[str]) -> dict[str, int]:
        """Advances the counters of these ops by one run and returns the state that the run needs."""
        with self._lock:
            state = {"random_stream": self.stream} if self.stream else {}
            for name in names:
                state[f"counter:{name}"] = count = self.counters.get(name, self._first)
                self.counters[name] = count + 1
            return state
