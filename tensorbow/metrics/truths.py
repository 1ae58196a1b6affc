"""Counts of true and false predictions over all steps, and the precision and recall made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import Name, checked
from tensorbow.metrics.counters import Collections, alike, collected, counter, ratio
from tensorbow.ops.elementwise import add, logical_and, logical_not, multiply
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.specs import bool_, float32


@checked
def true_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the weights where label and prediction, as bool, are true; scalar float32. Raises as
    `accuracy`."""
    counts = PairCounts("true_positives", labels, predictions, weights, name)
    return collected(*counts.of("tp"), metrics_collections, updates_collections)


@checked
def false_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the weights where the prediction alone is true; as `true_positives`."""
    counts = PairCounts("false_positives", labels, predictions, weights, name)
    return collected(*counts.of("fp"), metrics_collections, updates_collections)


@checked
def false_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the weights where the label alone is true; as `true_positives`."""
    counts = PairCounts("false_negatives", labels, predictions, weights, name)
    return collected(*counts.of("fn"), metrics_collections, updates_collections)


@checked
def true_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the weights where neither label nor prediction is true; as `true_positives`."""
    counts = PairCounts("true_negatives", labels, predictions, weights, name)
    return collected(*counts.of("tn"), metrics_collections, updates_collections)


@checked
def precision(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Fraction of the true predictions, as bool, whose label is true, over all steps; 0 without any.

    Returns scalars float32. Raises as `accuracy`.
    """
    counts = PairCounts("precision", labels, predictions, weights, name)
    return collected(*counts.share("tp", "fp"), metrics_collections, updates_collections)


@checked
def recall(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Fraction of the true labels, as bool, whose prediction is true, over all steps; 0 without any.

    Returns scalars float32. Raises as `accuracy`.
    """
    counts = PairCounts("recall", labels, predictions, weights, name)
    return collected(*counts.share("tp", "fn"), metrics_collections, updates_collections)


class PairCounts:
    """Counters of pairs of labels and predictions, as bool; each is made when it is asked for."""

    _PAIRS: Mapping[str, tuple[bool, bool]] = {  # label, prediction
        "tp": (True, True),
        "fp": (False, True),
        "fn": (True, False),
        "tn": (False, False),
    }

    def __init__(
        self,
        metric: str,
        labels: Any,
        predictions: Any,
        weights: Any,
        name: str | None,
        axis: int | None = None,
        shape: tuple[int, ...] = (),
    ):
        """axis: along which pairs are counted, of several rows of them; shape: of the counts."""
        wanted, given = alike(metric, labels, predictions)
        self._labels, self._predictions = (cast(each, bool_) for each in (wanted, given))
        self._weights = None if weights is None else cast(convert_to_tensor(weights), float32)
        self._scope, self._axis, self._shape = name or metric, axis, shape
        self._made: dict[str, tuple[Tensor, Tensor]] = {}

    def of(self, which: str) -> tuple[Tensor, Tensor]:
        """A count before and after a step."""
        if which not in self._made:
            with name_scope(f"{self._scope}/{which}"):
                truths = zip(self._PAIRS[which], (self._labels, self._predictions), strict=True)
                label, prediction = (each if is_true else logical_not(each) for is_true, each in truths)
                hits = cast(logical_and(label, prediction), float32)
                hits = hits if self._weights is None else multiply(hits, self._weights)
                number = counter("count", self._shape)
                self._made[which] = number.value(), number.assign_add(reduce_sum(hits, self._axis))
        return self._made[which]

    def share(self, which: str, other: str) -> tuple[Tensor, Tensor]:
        """A count as a part of its sum with another."""
        first, second = self.of(which), self.of(other)
        value, update = (
            ratio(part, add(part, rest), label)
            for part, rest, label in zip(first, second, ("value", "update_op"), strict=True)
        )
        return value, update
