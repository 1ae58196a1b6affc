"""Medians and ranges of runs that may not have reached their target."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class MedianRange:
    """Of the runs of a setting: median, least and greatest; infinite where the target was not reached."""

    median: float
    least: float
    greatest: float

    def __str__(self) -> str:
        return f"{shown(self.median)} ({shown(self.least)}-{shown(self.greatest)})"

    def as_json(self) -> dict[str, float | None]:
        """With None for what is infinite."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}


def median_range(values: Sequence[float | None]) -> MedianRange:
    """None is a run that did not reach the target."""
    known = [math.inf if value is None else value for value in values]
    return MedianRange(statistics.median(known), min(known), max(known))


def shown(value: float) -> str:
    """A figure of a table."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def over(seeds: int) -> str:
    """What a picture shows of so many runs of a setting."""
    return "one seed" if seeds == 1 else f"median and range of {seeds} seeds"


def summary(cells: Sequence[Mapping[str, Any]]) -> dict[str, MedianRange]:
    """Of the runs of one setting: `seconds` and `epochs` to the target, `rate` in examples per second."""
    return {
        "seconds": median_range([cell["seconds_to_target"] for cell in cells]),
        "epochs": median_range([cell["epochs_to_target"] for cell in cells]),
        "rate": median_range([cell["examples_per_second"] for cell in cells]),
    }
