"""What the papers conclude, in words, and whether our results agree.

Only what their abstracts, tables and public descriptions say, or what stands in this project's own papers;
where nothing is known for sure, there is no conclusion, and the table says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Result = dict[str, Any]


@dataclass(frozen=True)
class Conclusion:
    """says: a sentence. verdict: what our result has to say to it, of the result."""

    says: str
    verdict: Callable[[Result], str]


def _agrees(agrees: bool, why: str) -> str:
    return f"ours {'agree' if agrees else 'do not agree'}: {why}"


def _sizes(result: Result) -> str:
    known = [row for row in result["rows"] if row["thesis_mb"] is not None]
    off = max(abs(row["model_nbytes"] / unit_of(row["model"]) / row["thesis_mb"] - 1) for row in known)
    return _agrees(off < 0.005, f"at most {off:.2%} off")


def unit_of(model: str) -> int:
    """Bytes of the unit in which the thesis gives a model's size: 2^20, of logistic regression 10^6."""
    return 10**6 if model == "logreg" else 2**20


def _allocation(result: Result) -> str:
    factors = [cost["step_factor"] for row in result["rows"] for cost in row["by_driver_cost"]]
    least, most = min(factors), max(factors)
    return _agrees(least <= 4 <= most, f"{least:.2g} to {most:.2g} times, by the simulated cost")


def _batch_size(result: Result) -> str:
    rows = [row for row in result["summary"] if row["epochs"]["median"] is not None]
    fewest = min(rows, key=lambda row: row["epochs"]["median"])
    largest = max(rows, key=lambda row: row["batch_size"])
    more = largest["epochs"]["median"] / fewest["epochs"]["median"]
    least = f"b={fewest['batch_size']}"
    return _agrees(more > 1, f"b={largest['batch_size']} needs {more:.2g} times the epochs of {least}")


def _synchronisers(result: Result) -> str:
    rows = {row["sync"]: row for row in result["summary"]}
    ours, other = rows["sma"]["seconds"]["median"], rows["ssgd"]["seconds"]["median"]
    if ours is None or other is None:
        return "not to be told: one of them did not reach the target"
    return _agrees(ours < other, f"S-SGD took {other / ours:.2f} times as long as SMA")


def _auto_tuner(result: Result) -> str:
    least = min(case["ratio_to_best"] for case in result["cases"])
    return _agrees(least >= 0.95, f"at least {least:.1%} of the best fixed number's throughput")


def _null_steps(result: Result) -> str:
    return "not to be compared: ours have no network and no parameter servers"


CONCLUSIONS: dict[str, Conclusion] = {
    "table_5_1": Conclusion(
        "LeNet 4.24 MB and ResNet-32 1.79 MB (of 2^20 bytes, as the digits tell), logistic regression "
        "0.0314 MB (of 10^6)",
        _sizes,
    ),
    "fig_4_2": Conclusion("best fit with coalescing is 4 times as fast", _allocation),
    "fig_5_1_to_5_3": Conclusion(
        "ever larger batches hinder the convergence of a model (abstract)", _batch_size
    ),
    "synchronisers": Conclusion(
        "SMA avoids the loss of statistical efficiency that S-SGD has with the larger batches of more "
        "replicas, and shortens training (abstract)",
        _synchronisers,
    ),
    "auto_tuner": Conclusion(
        "replicas are added to a GPU as long as throughput grows, and so their number is tuned to the "
        "greatest throughput (abstract and public description)",
        _auto_tuner,
    ),
    "null_steps": Conclusion(
        "steps that compute nothing show what it costs to coordinate workers; that grows with their number",
        _null_steps,
    ),
}
