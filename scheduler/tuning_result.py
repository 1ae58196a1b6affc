"""What tuning the number of replicas has come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler.tuner import Decision, Measurement


@dataclass(frozen=True)
class TuningResult:
    """What was measured and chosen; images per second are of all devices together.

    most, why_no_more: the greatest count that could have been tried, and what sets it.
    """

    decision: Decision
    measurements: tuple[Measurement, ...]
    most: int
    why_no_more: str
    seconds: float
    interrupted: bool

    def to_dict(self) -> dict[str, Any]:
        """The decision and its evidence, for JSON."""
        decision = self.decision
        return {
            "replicas_per_device": decision.replicas,
            "images_per_second": round(decision.images_per_second, 1),
            "reason": decision.reason,
            "complete": decision.complete,
            "max_replicas": self.most,
            "max_replicas_reason": self.why_no_more,
            "measurements": [
                {
                    "replicas_per_device": known.replicas,
                    "images_per_second": round(known.images_per_second, 1),
                    "spread": round(known.spread, 4),
                    "windows": [round(window, 1) for window in known.windows],
                }
                for known in self.measurements
            ],
        }
