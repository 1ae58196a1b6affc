"""Metrics of scores that are held against thresholds: counts, precision, recall, and areas under curves."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import Name, checked, number, one_of, refuse, sequence, whole
from tensorbow.metrics.counters import Collections, alike, collected
from tensorbow.metrics.truths import PairCounts
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import ones_like
from tensorbow.ops.cumulative import cumsum
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import add, divide, equal, greater, logical_and, multiply, subtract
from tensorbow.ops.indexing import gather
from tensorbow.ops.reductions import argmax, argmin, reduce_min, reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.specs import Array, bool_, float32, int64

TINY = 1e-7  # added to the ends of the thresholds, and to counts that are divided by
Thresholds = Annotated[Any, sequence(number(), "a list of numbers")]
NumberOfThresholds = Annotated[int, whole(2, 1 << 20)]
Share = Annotated[float, number(0, 1)]


@checked
def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: NumberOfThresholds = 200,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    curve: Annotated[str, one_of("ROC", "PR")] = "ROC",
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Area under the curve of predictions in 0..1 against labels, as bool, over all steps; scalar float32.

    The curve has a point for each of so many equally spaced thresholds, joined by lines: of the true positive
    rate over the false positive rate (ROC), or of precision over recall (PR). Raises as `accuracy`.
    """
    counts = _counts_above("auc", labels, predictions, _equally_spaced(num_thresholds), weights, name)

    def area(part: int) -> Tensor:
        tp, fp, fn, tn = (counts.of(which)[part] for which in ("tp", "fp", "fn", "tn"))
        hits = divide(add(tp, TINY), add(add(tp, fn), TINY))
        if curve == "ROC":
            x, y = divide(fp, add(add(fp, tn), TINY)), hits
        else:
            x, y = hits, divide(add(tp, TINY), add(add(tp, fp), TINY))
        heights = divide(add(y[:-1], y[1:]), 2.0)
        return reduce_sum(multiply(subtract(x[:-1], x[1:]), heights))

    return collected(area(0), area(1), metrics_collections, updates_collections)


@checked
def true_positives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Thresholds,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the weights where label and score are true, for each threshold.

    labels, predictions: of one shape; labels count as bool. thresholds: numbers; a prediction above one
    counts as true. Returns float32 [thresholds]. Raises as `accuracy`.
    """
    counts = _counts_above("true_positives_at_thresholds", labels, predictions, thresholds, weights, name)
    return collected(*counts.of("tp"), metrics_collections, updates_collections)


@checked
def false_positives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Thresholds,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the weights where the score alone is true; as `true_positives_at_thresholds`."""
    counts = _counts_above("false_positives_at_thresholds", labels, predictions, thresholds, weights, name)
    return collected(*counts.of("fp"), metrics_collections, updates_collections)


@checked
def false_negatives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Thresholds,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the weights where the label alone is true; as `true_positives_at_thresholds`."""
    counts = _counts_above("false_negatives_at_thresholds", labels, predictions, thresholds, weights, name)
    return collected(*counts.of("fn"), metrics_collections, updates_collections)


@checked
def true_negatives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Thresholds,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the weights where neither label nor score is true; as `true_positives_at_thresholds`."""
    counts = _counts_above("true_negatives_at_thresholds", labels, predictions, thresholds, weights, name)
    return collected(*counts.of("tn"), metrics_collections, updates_collections)


@checked
def precision_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Thresholds,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Fraction of the true predictions whose label is true, for each threshold; 0 without any.

    labels, predictions: of one shape; labels count as bool. thresholds: numbers; a prediction above one
    counts as true. Returns float32 [thresholds]. Raises as `accuracy`.
    """
    counts = _counts_above("precision_at_thresholds", labels, predictions, thresholds, weights, name)
    value, update = (_share(counts, part, "tp", "fp") for part in (0, 1))
    return collected(value, update, metrics_collections, updates_collections)


@checked
def recall_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Thresholds,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Fraction of the true labels whose prediction is true, for each threshold; 0 without any.

    labels, predictions: of one shape; labels count as bool. thresholds: numbers; a prediction above one
    counts as true. Returns float32 [thresholds]. Raises as `accuracy`.
    """
    counts = _counts_above("recall_at_thresholds", labels, predictions, thresholds, weights, name)
    value, update = (_share(counts, part, "tp", "fn") for part in (0, 1))
    return collected(value, update, metrics_collections, updates_collections)


@checked
def sensitivity_at_specificity(
    labels: Any,
    predictions: Any,
    specificity: Share,
    weights: Any = None,
    num_thresholds: NumberOfThresholds = 200,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """True positive rate at the threshold with the true negative rate nearest to `specificity`; float32 [].

    Thresholds, labels and predictions are those of `auc`. Raises as `accuracy`.
    """
    metric, thresholds = "sensitivity_at_specificity", _equally_spaced(num_thresholds)
    counts = _counts_above(metric, labels, predictions, thresholds, weights, name)

    def sensitivity(part: int) -> Tensor:
        distance = absolute(subtract(_share(counts, part, "tn", "fp"), specificity))
        return gather(_share(counts, part, "tp", "fn"), argmin(distance, 0))

    return collected(sensitivity(0), sensitivity(1), metrics_collections, updates_collections)


@checked
def specificity_at_sensitivity(
    labels: Any,
    predictions: Any,
    sensitivity: Share,
    weights: Any = None,
    num_thresholds: NumberOfThresholds = 200,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """True negative rate at the threshold with the true positive rate nearest to `sensitivity`; float32 [].

    Takes the highest of several equally near thresholds, which has the best specificity. Thresholds, labels
    and predictions are those of `auc`. Raises as `accuracy`.
    """
    metric, thresholds = "specificity_at_sensitivity", _equally_spaced(num_thresholds)
    counts = _counts_above(metric, labels, predictions, thresholds, weights, name)

    def specificity(part: int) -> Tensor:
        distance = absolute(subtract(_share(counts, part, "tp", "fn"), sensitivity))
        nearest = cast(equal(distance, reduce_min(distance)), int64)
        return gather(_share(counts, part, "tn", "fp"), argmax(cumsum(nearest), 0))

    return collected(specificity(0), specificity(1), metrics_collections, updates_collections)


def _equally_spaced(number: int) -> Array:
    """Thresholds in 0..1, of which the first is below all scores and the last above."""
    inner = np.arange(1, number - 1) / (number - 1)
    return np.array([-TINY, *inner, 1 + TINY], np.float32)


def _counts_above(
    metric: str, labels: Any, predictions: Any, thresholds: Any, weights: Any, name: str | None
) -> PairCounts:
    """Counts of labels and of scores above each threshold: [thresholds]."""
    wanted, given = alike(metric, labels, predictions)
    if not len(thresholds):
        raise refuse(f"metrics.{metric}", "thresholds", "at least one number", thresholds)
    limits = np.asarray(thresholds, np.float32)
    flat_labels, flat_scores = (reshape(each, [1, -1]) for each in (wanted, cast(given, float32)))
    if weights is not None:
        each = cast(convert_to_tensor(weights), float32)
        weights = reshape(multiply(each, ones_like(cast(given, float32))), [1, -1])
    above = greater(flat_scores, limits[:, None])
    every = logical_and(cast(flat_labels, bool_), ones_like(above))
    return PairCounts(metric, every, above, weights, name, axis=1, shape=limits.shape)


def _share(counts: PairCounts, part: int, which: str, other: str) -> Tensor:
    """A count as a part of its sum with another, before (part 0) or after a step (1); 0 of nothing."""
    own, rest = counts.of(which)[part], counts.of(other)[part]
    return divide(own, add(add(own, rest), TINY))
