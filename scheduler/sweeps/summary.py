"""Summary of a sweep by configuration: its members over the seeds, the best first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from scheduler.sweeps.members import FINISHED, Member
from scheduler.sweeps.pool import LOSS
from scheduler.sweeps.search_space import Choices
from scheduler.training.configuration.option_kinds import metric_and_mode
from scheduler.training.measures.metric_order import lower_is_better
from scheduler.training.models.evaluation import Evaluation

VALIDATION = "validation_"  # prefix of the figures by which members are compared


def figures_of(split: str, evaluation: Evaluation) -> dict[str, float]:
    """Loss and metrics of an evaluation by name, such as validation_accuracy."""
    figures = {LOSS: evaluation.loss, **evaluation.metrics}
    return {f"{split}_{name}": value for name, value in figures.items()}


def headline(members: Sequence[Member]) -> str:
    """Figure by which members are compared: `best_metric`, accuracy where the model has it, else loss."""
    chosen = members[0].config.best_metric
    if chosen is not None:
        return metric_and_mode(chosen)[0].removeprefix(VALIDATION)
    return "accuracy" if any("validation_accuracy" in member.figures for member in members) else LOSS


@dataclass(frozen=True)
class ConfigurationSummary:
    """Members of one configuration, which differ in their seeds.

    values: the headline on validation data of each member that trained to its end.
    """

    choices: Choices
    members: Sequence[Member]
    measure: str

    @property
    def values(self) -> list[float]:
        """The headline on validation data of each member that trained to its end."""
        return [
            member.figures[f"{VALIDATION}{self.measure}"]
            for member in self.members
            if member.status == FINISHED
        ]

    @property
    def mean(self) -> float:
        """Mean of the values; NaN without any."""
        return fmean(self.values) if self.values else math.nan

    @property
    def median(self) -> float:
        """Median of the values; NaN without any."""
        return median(self.values) if self.values else math.nan

    def count(self, status: str) -> int:
        """Number of members with a status."""
        return sum(member.status == status for member in self.members)

    @property
    def last(self) -> tuple[float, int]:
        """Mean of the headline of the members that came farthest, at their last epoch, and this epoch.

        NaN without a member that was evaluated.
        """
        epoch = max(member.epochs for member in self.members)
        name = f"{VALIDATION}{self.measure}"
        found = [member.figures.get(name, math.nan) for member in self.members if member.epochs == epoch]
        known = [value for value in found if math.isfinite(value)]
        return (fmean(known) if known else math.nan), epoch

    @property
    def _order(self) -> tuple[bool, int, bool, float, int]:
        chosen = self.members[0].config.best_metric
        mode = None if chosen is None else metric_and_mode(chosen)[1]
        value, epoch = (self.mean, 0) if self.values else self.last
        value = value if lower_is_better(self.measure, mode) else -value
        unknown = math.isnan(value)
        return not self.values, -epoch, unknown, 0.0 if unknown else value, self.members[0].number


def summaries(members: Sequence[Member]) -> list[ConfigurationSummary]:
    """A summary of each configuration, the best mean first.

    Those without a finished member come last, first those that trained longest.
    """
    measure = headline(members)
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(repr(member.choices), []).append(member)
    each = [ConfigurationSummary(own[0].choices, own, measure) for own in found.values()]
    return sorted(each, key=lambda summary: summary._order)


def value_text(value: Any) -> str:
    """A swept value as it is typed."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def figure_text(measure: str, value: float) -> str:
    """A figure for people: an accuracy in percent; empty for NaN."""
    return "" if math.isnan(value) else f"{value:.2%}" if measure == "accuracy" else f"{value:.4g}"
