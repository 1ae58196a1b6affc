"""Whether one thread had better do the steps of all replicas of a device: found by trying both.

Replicas on threads of their own use more cores, but hand each other weights and z between these cores in
every round that averages. Where a step takes some microseconds, that is more than it takes. The bits are the
same either way.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

SHORT = 3e-4  # seconds of a round: longer ones are faster on threads of their own, and it is not tried
WARM_UP, MEASURED = 4, 16  # launches of each way
GAIN = 0.95  # of the time: one thread is to take less


@dataclass
class _Trial:
    """Of launches of as many rounds: seconds from the end of one to that of the next, and what came of it."""

    gaps: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    found: bool | None = None

    def seconds(self, together: bool) -> float | None:
        """The median of a way, when it is known."""
        gaps = self.gaps[together][WARM_UP:]
        return statistics.median(gaps) if len(gaps) >= MEASURED else None


class OneThread:
    """Asked before every launch, and told of its end; launches end in the order of asking."""

    def __init__(self) -> None:
        self._trials: dict[int, _Trial] = {}  # by rounds of a launch
        self._last: tuple[int, bool, float] | None = None  # rounds, way and end of the last launch

    def is_better(self, rounds: int) -> bool:
        """Whether one thread is to do the next launch, of so many rounds."""
        trial = self._trials.setdefault(rounds, _Trial())
        if trial.found is None:
            apart, together = (trial.seconds(way) for way in (False, True))
            if apart is None:
                return False
            if apart > SHORT * rounds:
                trial.found = False
            elif together is None:
                return True
            else:
                trial.found = together < GAIN * apart
        return trial.found

    def ended(self, rounds: int, together: bool, time_s: float) -> None:
        """Takes note of the end of a launch."""
        trial, last = self._trials.get(rounds), self._last
        self._last = rounds, together, time_s
        if trial is not None and trial.found is None and last is not None and last[:2] == (rounds, together):
            trial.gaps[together].append(time_s - last[2])

    def pause(self) -> None:
        """The next launch does not follow on the last."""
        self._last = None
