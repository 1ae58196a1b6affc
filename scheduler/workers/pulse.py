"""Signs of life of this process: how far its rounds are, for the watch of a job."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Pulse:
    """Progress of this process: the engine writes it, and the watch reads it from its own thread.

    begun, ended: launches so far. round: the round before which the last one ended. waits: whether the
    program waits for such an end. calls, returned: calls that end when all other workers have made them, so
    far. doing: what the process does outside of rounds, and doing_since: from when on, by `time.monotonic`.
    settled: set when a run of rounds has ended; the watch soon reports that, and clears it.
    """

    def __init__(self) -> None:
        self.begun = self.ended = self.round = 0
        self.waits = False
        self.calls = self.returned = 0
        self.doing, self.doing_since = "", 0.0
        self.settled = threading.Event()
        self._calling = threading.Lock()

    @property
    def waits_for_others(self) -> bool:
        """True if the program waits for what is under way: if that does not end, another worker hangs."""
        return self.calls > self.returned or (self.waits and self.begun > self.ended)

    @property
    def moved(self) -> tuple[int, int, int, int]:
        """Numbers that change with each launch, end and call."""
        return self.begun, self.ended, self.calls, self.returned

    def settle(self) -> None:
        """Nothing is under way any more, however it ended."""
        self.ended = self.begun
        self.settled.set()

    def call(self) -> None:
        """A call begins that ends when all other workers have made it."""
        with self._calling:
            self.calls += 1

    def has_returned(self) -> None:
        """Such a call has ended."""
        with self._calling:
            self.returned += 1


PULSE = Pulse()


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Context in which this process does something outside of rounds, as messages of the watch say."""
    before = PULSE.doing, PULSE.doing_since
    PULSE.doing, PULSE.doing_since = what, time.monotonic()
    try:
        yield
    finally:
        PULSE.doing, PULSE.doing_since = before


@contextmanager
def waiting() -> Iterator[None]:
    """Context of a call that ends when all other workers have made it, in any thread."""
    PULSE.call()
    try:
        yield
    finally:
        PULSE.has_returned()
