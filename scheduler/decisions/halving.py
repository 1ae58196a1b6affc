"""Successive halving: the worst members are stopped early (Li et al., MLSys 2020, section 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Score = tuple[float, ...]
"""Greater is better; compared from the first number on."""


class SuccessiveHalving:
    """Stops members that are not among the best 1 / factor of all that have come to the same rung so far.

    Rungs are the epochs first, first * factor, first * factor^2, ... The caller may let members wait for
    others at one. Equal scores go to the lower number. `rungs` is the whole state: by epoch, the score of
    each member by its number.
    """

    def __init__(self, first: int, factor: int, rungs: Mapping[int, Mapping[int, Score]] | None = None):
        self.first, self.factor = first, factor
        self.rungs = {epoch: dict(scores) for epoch, scores in (rungs or {}).items()}

    def state(self) -> dict[str, Any]:
        """The rungs as JSON values: None for a number that is not finite."""
        return {
            str(epoch): {
                number: [part if math.isfinite(part) else None for part in score]
                for number, score in scores.items()
            }
            for epoch, scores in self.rungs.items()
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes the rungs of `state`, in which JSON has made texts of numbers of members."""
        self.rungs = {
            int(epoch): {
                int(number): tuple(-math.inf if part is None else part for part in score)
                for number, score in scores.items()
            }
            for epoch, scores in state.items()
        }

    def is_rung(self, epoch: int) -> bool:
        """True for an epoch after which members are compared."""
        rung = self.first
        while rung < epoch:
            rung *= self.factor
        return rung == epoch

    def rungs_before(self, epochs: int) -> list[int]:
        """The rungs before an epoch, the first one first."""
        found = [self.first]
        while found[-1] < epochs:
            found.append(found[-1] * self.factor)
        return found[:-1]

    def stopped(self, epoch: int, scores: Mapping[int, Score]) -> set[int]:
        """Numbers of the members that end at a rung, among those that reach it together."""
        known = self.rungs.setdefault(epoch, {})
        known.update(scores)
        ranked = sorted(known, key=lambda number: (*(-part for part in known[number]), number))
        return scores.keys() - ranked[: max(1, len(ranked) // self.factor)]
