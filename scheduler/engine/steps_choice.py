"""Choice of the number of rounds per launch, from the time that rounds take one by one."""

from __future__ import annotations

from math import inf

LAUNCH_SECONDS = 0.02  # duration of a launch: long compared with its overhead, short to wait for
PIECE, PIECES = 8, 4  # rounds timed together, and number of such measurements; the first warms up


class StepsChoice:
    """Rounds per launch such that a launch takes about LAUNCH_SECONDS, measured in the first rounds."""

    def __init__(self) -> None:
        self._rounds, self._round_seconds = 0, inf  # rounds measured; seconds per round, fastest measurement

    @property
    def left(self) -> int:
        """Rounds until the end of the current measurement, launched one by one; 0 when all are done."""
        return 0 if self._rounds >= PIECE * PIECES else PIECE - self._rounds % PIECE

    @property
    def steps(self) -> int:
        """The number found, 1 at least, when all measurements are done."""
        return max(1, round(LAUNCH_SECONDS / self._round_seconds))

    def record(self, rounds: int, seconds: float) -> None:
        """Takes note of rounds that are done, at most `left`."""
        if self._rounds >= PIECE and rounds:
            self._round_seconds = min(self._round_seconds, seconds / rounds)
        self._rounds += rounds
