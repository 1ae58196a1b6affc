"""Order of evaluations by a metric, for checkpoints, sweeps and comparisons of runs."""

from __future__ import annotations

import math

from scheduler.decisions.halving import Score

SPLITS = ("test_", "validation_", "ema_")  # prefixes of what an evaluation measures
# Last words of metrics that are better if lower.
_LOWER = {"loss", "losses", "error", "errors", "mse", "mae", "rmse", "mape", "perplexity", "nll", "cost"}
_LOWER |= {"distance", "divergence", "deviation", "wer", "cer", "brier"}


def lower_is_better(metric: str, mode: str | None = None) -> bool:
    """True for mode `min`; without a mode for losses, errors and the like, by the last word of the name."""
    return metric.rpartition("_")[2] in _LOWER if mode is None else mode == "min"


def split_of(metric: str) -> str:
    """Prefix of a metric of an evaluation, as test_; empty for a metric of training."""
    return next((prefix for prefix in SPLITS if metric.startswith(prefix)), "")


def loss_beside(metric: str) -> str:
    """Name of the loss that is measured on the same examples as a metric."""
    return f"{split_of(metric)}loss"


def score_of(value: float | None, loss: float | None, lower: bool = False) -> Score:
    """Score of an evaluation: its metric, among equal ones its loss; greater is better.

    lower: whether a lower metric is better. What is None or not finite is worse than any number. Of equal
    scores the first evaluation, or the member of a sweep with the lowest number, is the better one.
    """
    return _part(value, lower), _part(loss, True)


def _part(value: float | None, lower: bool) -> float:
    if value is None or not math.isfinite(value):
        return -math.inf
    return -value if lower else value
