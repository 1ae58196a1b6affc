"""Medians and ranges of runs that may not have reached their target."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from results_page import shown

OF_CELL = {"seconds": "seconds_to_target", "epochs": "epochs_to_target", "rate": "examples_per_second"}


@dataclass(frozen=True)
class MedianRange:
    """Median, least and greatest value of a setting's runs; infinite where the target was not reached."""

    median: float
    least: float
    greatest: float

    def as_json(self) -> dict[str, float | None]:
        """JSON values, with None for infinite ones."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}


def median_range(values: Sequence[float | None]) -> MedianRange:
    """Median and range of values; None stands for a run that did not reach the target."""
    known = [math.inf if value is None else value for value in values]
    return MedianRange(statistics.median(known), min(known), max(known))


def ranged(figures: Mapping[str, float | None]) -> str:
    """Text of a median and range, for a table."""
    return f"{shown(figures['median'])} ({shown(figures['least'])} to {shown(figures['greatest'])})"


def seeds_of(details: Mapping[str, Any]) -> str:
    """Remark on the number of seeds of the medians."""
    count = len({cell["seed"] for cell in details["cells"]})
    return "One seed." if count == 1 else f"Medians and ranges of {count} seeds; `-`: not reached."


def over(seeds: int) -> str:
    """Text of the statistic that a picture shows of so many seeds."""
    return "one seed" if seeds == 1 else f"median and range of {seeds} seeds"


def summary(cells: Sequence[Mapping[str, Any]]) -> dict[str, MedianRange]:
    """Medians of a setting's runs: `seconds` and `epochs` to the target, `rate` in examples per second."""
    return {name: median_range([cell[key] for cell in cells]) for name, key in OF_CELL.items()}
