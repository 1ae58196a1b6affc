"""Lines about the best of a sweep: its best member, and the ensemble."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path

from scheduler.sweeps.members import Member
from scheduler.sweeps.pool import LOSS
from scheduler.sweeps.summary import VALIDATION, figure_text, value_text
from scheduler.training.configuration.option_kinds import metric_and_mode
from scheduler.training.measures.metric_order import lower_is_better
from scheduler.training.models.evaluation import ACCURACY

TEST = "test_"  # prefix of figures of examples that chose nothing


def text_of(member: Member) -> str:
    """The choices of a member, in words."""
    parts = [f"{name} {value_text(value)}" for name, value in member.choices.items()]
    return ", ".join([*parts, f"seed {member.seed}"])


def best_lines(best: Member, measure: str, folder: Path) -> list[str]:
    """Lines about the best member: its choices, its figures, and how to evaluate it.

    measure: by which members are compared. folder: of the member.
    """
    return [
        f"best member    {best.number}: {text_of(best)}",
        f"validation     {_text(best.figures, VALIDATION, measure)}, by which it was chosen",
        f"test           {_text(best.figures, TEST, measure)}, of examples that chose nothing",
        f"evaluate it    {shlex.join(['tensorbow', 'evaluate', str(folder)])}",
    ]


def ensemble_lines(
    folder: Path, members: int, figures: Mapping[str, float], best: Member, measure: str
) -> list[str]:
    """Lines about an ensemble: its folder, its figures, and a warning if its best member is better."""
    # Probabilities have no metric of the model's own.
    measure = next(each for each in (measure, ACCURACY, LOSS) if f"{VALIDATION}{each}" in figures)
    lines = [
        f"ensemble       {folder}, the mean of {members} members",
        f"  validation   {_text(figures, VALIDATION, measure)}",
        f"  test         {_text(figures, TEST, measure)}",
    ]
    of_all, of_best = (each.get(f"{VALIDATION}{measure}", math.nan) for each in (figures, best.figures))
    chosen = best.config.best_metric
    lower = lower_is_better(measure, None if chosen is None else metric_and_mode(chosen)[1])
    if (of_all > of_best) if lower else (of_all < of_best):
        lines.append(
            f"warning: on validation data the ensemble's {measure}, {figure_text(measure, of_all)}, is worse "
            f"than that of its best member, {figure_text(measure, of_best)}"
        )
    return lines


def _text(figures: Mapping[str, float], split: str, measure: str) -> str:
    return f"{measure} {figure_text(measure, figures[f'{split}{measure}'])}"
