"""What the papers conclude, in words, and whether our results agree.

Only what their abstracts, tables and public descriptions say, or what stands in this project's own papers;
where nothing is known for sure, there is no conclusion, and the table says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from experiments import TITLES

Result = dict[str, Any]
ENDS = ("least", "median", "greatest")  # of the seeds


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
    found = []
    for row in result["rows"]:
        costs = [(cost["driver_us"], cost["step_factor"]) for cost in row["by_driver_cost"]]
        for (less, low), (more, high) in pairwise(costs):
            if low <= 4 <= high:
                at = less + (more - less) * (4 - low) / (high - low)
                found.append(f"{TITLES[row['model']]} at {float(f'{at:.2g}'):g} us")
    where = f"ours is that at a driver's cost per call of: {', '.join(found)}" if found else "ours never is"
    return f"not to be told, for no driver was measured; {where}"


def _batch_size(result: Result) -> str:
    """More epochs in every seed than the size with the fewest needs in any; not reached is the most."""
    rows = sorted(result["summary"], key=lambda row: row["batch_size"])
    ranges = {
        row["batch_size"]: [math.inf if row["epochs"][end] is None else row["epochs"][end] for end in ENDS]
        for row in rows
    }
    fewest = min(ranges, key=lambda size: ranges[size][1])
    slower = [size for size in ranges if ranges[size][0] > ranges[fewest][2]]
    if not slower:
        return _agrees(False, "no size needs more epochs in every seed than another, each at its own rate")
    clear = f"in every seed more epochs than b={fewest}: {', '.join(f'b={size}' for size in slower)}"
    largest = slower == list(ranges)[-len(slower) :]
    return _agrees(largest, f"{clear}; no clear difference among the others, each at its own rate")


def _synchronisers(result: Result) -> str:
    rows = {row["sync"]: row for row in result["summary"]}
    ours, other = rows["sma"], rows["ssgd"]
    if any(row["seconds"]["median"] is None for row in (ours, other)):
        return "not to be told: one of them did not reach the target"
    times = {key: other[key]["median"] / ours[key]["median"] for key in ("epochs", "seconds", "rate")}
    found = (
        f"S-SGD took {times['epochs']:.2f} times the epochs of SMA and {times['seconds']:.2f} times the "
        f"time, at {times['rate']:.2f} times the images/s"
    )
    if times["epochs"] > 1 and other["epochs"]["least"] <= (ours["epochs"]["greatest"] or math.inf):
        found += "; the epochs of single seeds overlap"
    if times["epochs"] <= 1 < times["seconds"]:
        return f"ours agree on the time, but not on the epochs: {found}"
    return _agrees(times["epochs"] > 1 and times["seconds"] > 1, found)


def least_ratio(case: Result) -> float:
    """Of a case of `auto_tuner.py`: what is held against its floor."""
    return min(float(case["ratio_to_best"]), float(case["tuned_to_best"]))


def _auto_tuner(result: Result) -> str:
    choices = [(chosen, case["best"]) for case in result["cases"] for chosen in case["chosen"]]
    right = sum(chosen == best for chosen, best in choices)
    least = min(map(least_ratio, result["cases"]))
    found = f"{right} of {len(choices)} choices are the best number of those tried"
    return _agrees(least >= 0.95, f"{found}; at least {least:.1%} of its throughput")


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
