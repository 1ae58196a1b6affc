"""Result of tuning the number of replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler.decisions.replica_tuner import STEADY, Decision, Measurement


@dataclass(frozen=True)
class TuningResult:
    """Measurements and decision of a tuning; rates are of all devices together.

    most, why_no_more: the greatest count to try, and the reason for this limit. seconds: duration. not_fused:
    why fused replicas were not measured, where they would have been. unit: name of what a rate counts.
    """

    decision: Decision
    measurements: tuple[Measurement, ...]
    most: int
    why_no_more: str
    seconds: float
    interrupted: bool
    not_fused: str = ""
    unit: str = "examples"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons not to rely on the choice, as text."""
        said = [] if self.decision.complete else ["not sure: it was ended early"]
        least_steady = max(self.measurements, key=lambda known: known.spread)
        if least_steady.spread > STEADY:
            which = f"{least_steady.replicas}{mode_text(least_steady.mode)} per device"
            said.append(
                f"windows of {which} are up to {least_steady.spread:.0%} apart: "
                "the machine may have done other work meanwhile, and another tuning may choose otherwise"
            )
        return tuple(said)

    @property
    def mode_facts(self) -> dict[str, str]:
        """Mode of the choice, and why fused replicas were not measured, as JSON values; empty on CPUs."""
        return {**mode_fact(self.decision), **({"not_fused": self.not_fused} if self.not_fused else {})}

    def to_dict(self) -> dict[str, Any]:
        """Decision and measurements as JSON values."""
        decision = self.decision
        return {
            "replicas_per_device": decision.replicas,
            **self.mode_facts,
            "images_per_second": round(decision.images_per_second, 1),
            "reason": decision.reason,
            "complete": decision.complete,
            "doubts": list(self.doubts),
            "max_replicas": self.most,
            "max_replicas_reason": self.why_no_more,
            "measurements": [
                {
                    "replicas_per_device": known.replicas,
                    **mode_fact(known),
                    "images_per_second": round(known.images_per_second, 1),
                    "spread": round(known.spread, 4),
                    "windows": [round(window, 1) for window in known.windows],
                }
                for known in self.measurements
            ],
        }


def mode_fact(known: Measurement | Decision) -> dict[str, str]:
    """Mode of replicas as a JSON value; empty on devices without modes."""
    return {} if known.mode is None else {"replica_mode": known.mode}


def mode_text(mode: str | None) -> str:
    """Mode of replicas behind their number, as text; empty on devices without modes."""
    return "" if mode is None else f" {mode}"
