"""Medians and ranges of runs that may not have reached their target."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from results_page import shown


@dataclass(frozen=True)
class MedianRange:
    """Of the runs of a setting: median, least and greatest; infinite where the target was not reached."""

    median: float
    least: float
    greatest: float

    def as_json(self) -> dict[str, float | None]:
        """With None for what is infinite."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}


def median_range(values: Sequence[float | None]) -> MedianRange:
    """None is a run that did not reach the target."""
    known = [math.inf if value is None else value for value in values]
    return MedianRange(statistics.median(known), min(known), max(known))


def ranged(figures: Mapping[str, float | None]) -> str:
    """Median and range of a result, for a table."""
    return f"{shown(figures['median'])} ({shown(figures['least'])} to {shown(figures['greatest'])})"


def seeds_of(details: Mapping[str, Any]) -> str:
    """The remark on how many runs a figure is the median of."""
    count = len({cell["seed"] for cell in details["cells"]})
    return "One seed." if count == 1 else f"Medians and ranges of {count} seeds; `-`: not reached."


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
