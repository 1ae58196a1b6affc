"""Signs of life of this process: how far its rounds are, for the watch of a job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Pulse:
    """What the engine's runs leave here, and the watch reads from its own thread.

    begun, ended: launches so far, and meetings with other workers. round: the round before which the last one
    ended. waits: whether the program waits for such an end. doing: what the process does outside of rounds,
    and doing_since: from when on, by `time.monotonic`.
    """

    def __init__(self) -> None:
        self.begun = self.ended = self.round = 0
        self.waits = False
        self.doing, self.doing_since = "", 0.0

    @property
    def waits_for_others(self) -> bool:
        """True if the program waits for what is under way: if that does not end, another worker hangs."""
        return self.waits and self.begun > self.ended

    def settle(self) -> None:
        """Nothing is under way any more, however it ended."""
        self.ended = self.begun


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
    """Context of a call that ends when all other workers have made it, while no round is in flight."""
    PULSE.begun, waited, PULSE.waits = PULSE.begun + 1, PULSE.waits, True
    try:
        yield
    finally:
        PULSE.ended, PULSE.waits = PULSE.ended + 1, waited
