"""`tb.metrics`: metrics accumulated over many steps, as in TensorFlow 1.

Each returns (value, update_op): `update_op` adds a batch and gives the metric so far; `value` only
reads it. Counts are local variables: run `tb.local_variables_initializer()` to start,
and again to restart. In replicated training each replica counts its own examples, and the counts of all add
up when the metric is read: by a `TensorBowSession`, or by `read` of a Replicator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys, Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import TEXT, Name, Positive, checked, one_of, optional, sequence, whole
from tensorbow.missing_names import no_attribute
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import ones_like, size
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import (
    add,
    divide,
    equal,
    greater,
    logical_and,
    logical_not,
    maximum,
    multiply,
    sqrt,
    square,
    subtract,
)
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.segments import confusion_matrix
from tensorbow.ops.selection import cast
from tensorbow.specs import bool_, compatible, float32, int64
from tensorbow.variables import Variable

__all__ = [
    "accuracy",
    "auc",
    "false_negatives",
    "false_positives",
    "mean",
    "mean_absolute_error",
    "mean_iou",
    "mean_squared_error",
    "precision",
    "recall",
    "root_mean_squared_error",
    "true_negatives",
    "true_positives",
]

TINY = 1e-7  # added to the ends of the thresholds of `auc`, and to its counts

Collections: TypeAlias = Annotated[Any, optional(sequence(TEXT, "a string or several in a list", lone=True))]


@checked
def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Weighted mean of all values of all steps; 0 before the first.

    weights: a shape that broadcasts to that of `values`. Results are scalar float32.
    """
    with name_scope(name or "mean"):
        total, count = _counter("total"), _counter("count")
        tensor = cast(convert_to_tensor(values), float32)
        if weights is None:
            number = cast(size(tensor, out_type=int64), float32)
        else:
            each = cast(convert_to_tensor(weights), float32)
            each = multiply(each, ones_like(tensor))
            tensor, number = multiply(tensor, each), reduce_sum(each)
        value = _ratio(total.value(), count.value(), "value")
        new_total, new_count = total.assign_add(reduce_sum(tensor)), count.assign_add(number)
        update = _ratio(new_total, new_count, "update_op")
    return _collected(value, update, metrics_collections, updates_collections)


@checked
def accuracy(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Fraction of predictions that equal their label, over all steps; scalar float32.

    Raises InvalidArgumentError for labels and predictions of different shapes.
    """
    wanted, given = _alike("accuracy", labels, predictions)
    if wanted.dtype != given.dtype:
        given = cast(given, wanted.dtype)
    right = cast(equal(given, wanted), float32)
    return mean(right, weights, metrics_collections, updates_collections, name or "accuracy")


@checked
def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Mean of the squared differences of all steps; scalar float32. Raises as `accuracy`."""
    errors = _errors("mean_squared_error", labels, predictions)
    name = name or "mean_squared_error"
    return mean(square(errors), weights, metrics_collections, updates_collections, name)


@checked
def mean_absolute_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Mean of the absolute differences of all steps; scalar float32. Raises as `accuracy`."""
    errors = _errors("mean_absolute_error", labels, predictions)
    name = name or "mean_absolute_error"
    return mean(absolute(errors), weights, metrics_collections, updates_collections, name)


@checked
def root_mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Square root of `mean_squared_error`; scalar float32. Raises as `accuracy`."""
    errors = _errors("root_mean_squared_error", labels, predictions)
    value, update = mean(square(errors), weights, name=name or "root_mean_squared_error")
    return _collected(sqrt(value), sqrt(update), metrics_collections, updates_collections)


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
    counts = _Counts("true_positives", labels, predictions, weights, name)
    return _collected(*counts.of("tp"), metrics_collections, updates_collections)


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
    counts = _Counts("false_positives", labels, predictions, weights, name)
    return _collected(*counts.of("fp"), metrics_collections, updates_collections)


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
    counts = _Counts("false_negatives", labels, predictions, weights, name)
    return _collected(*counts.of("fn"), metrics_collections, updates_collections)


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
    counts = _Counts("true_negatives", labels, predictions, weights, name)
    return _collected(*counts.of("tn"), metrics_collections, updates_collections)


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
    counts = _Counts("precision", labels, predictions, weights, name)
    return _collected(*counts.share("tp", "fp"), metrics_collections, updates_collections)


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
    counts = _Counts("recall", labels, predictions, weights, name)
    return _collected(*counts.share("tp", "fn"), metrics_collections, updates_collections)


@checked
def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: Annotated[int, whole(2, 1 << 20)] = 200,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    curve: Annotated[str, one_of("ROC", "PR")] = "ROC",
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Area under the curve of predictions in 0..1 against labels, as bool, over all steps; scalar float32.

    The curve has a point for each of so many equally spaced thresholds, joined by lines: of the true positive
    rate over the false positive rate (ROC), or of precision over recall (PR). Raises as `accuracy`.
    """
    wanted, given = _alike("auc", labels, predictions)
    inner = np.arange(1, num_thresholds - 1) / (num_thresholds - 1)
    thresholds = np.array([-TINY, *inner, 1 + TINY], np.float32)
    flat_labels, flat_scores = (reshape(each, [1, -1]) for each in (wanted, cast(given, float32)))
    if weights is not None:
        each = cast(convert_to_tensor(weights), float32)
        weights = reshape(multiply(each, ones_like(cast(given, float32))), [1, -1])
    above = greater(flat_scores, thresholds[:, None])
    every = logical_and(cast(flat_labels, bool_), ones_like(above))
    counts = _Counts("auc", every, above, weights, name, axis=1, shape=(num_thresholds,))

    def area(part: int) -> Tensor:
        tp, fp, fn, tn = (counts.of(which)[part] for which in ("tp", "fp", "fn", "tn"))
        hits = divide(add(tp, TINY), add(add(tp, fn), TINY))
        if curve == "ROC":
            x, y = divide(fp, add(add(fp, tn), TINY)), hits
        else:
            x, y = hits, divide(add(tp, TINY), add(add(tp, fp), TINY))
        heights = divide(add(y[:-1], y[1:]), 2.0)
        return reduce_sum(multiply(subtract(x[:-1], x[1:]), heights))

    return _collected(area(0), area(1), metrics_collections, updates_collections)


@checked
def mean_iou(
    labels: Any,
    predictions: Any,
    num_classes: Positive,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Mean over the classes that occur of intersection over union: tp / (tp + fp + fn); scalar float32.

    labels, predictions: whole numbers in 0..num_classes-1, of one shape. The second value is the confusion
    matrix so far, [num_classes, num_classes], as in TensorFlow. Raises as `accuracy`.
    """
    wanted, given = _alike("mean_iou", labels, predictions)
    with name_scope(name or "mean_iou"):
        rows, columns = (reshape(cast(each, int64), [-1]) for each in (wanted, given))
        if weights is not None:
            weights = reshape(cast(convert_to_tensor(weights), float32), [-1])
        total = _counter("total_confusion_matrix", (num_classes, num_classes))
        update = total.assign_add(confusion_matrix(rows, columns, num_classes, float32, weights=weights))
        counts = total.value()
        both = reduce_sum(multiply(counts, np.eye(num_classes, dtype=np.float32)), 1)
        union = subtract(add(reduce_sum(counts, 0), reduce_sum(counts, 1)), both)
        occurs = cast(greater(union, 0.0), float32)
        value = _ratio(reduce_sum(divide(both, maximum(union, 1.0))), reduce_sum(occurs), "value")
    return _collected(value, update, metrics_collections, updates_collections)


class _Counts:
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
        wanted, given = _alike(metric, labels, predictions)
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
                counter = _counter("count", self._shape)
                self._made[which] = counter.value(), counter.assign_add(reduce_sum(hits, self._axis))
        return self._made[which]

    def share(self, which: str, other: str) -> tuple[Tensor, Tensor]:
        """A count as a part of its sum with another."""
        first, second = self.of(which), self.of(other)
        value, update = (
            _ratio(part, add(part, rest), label)
            for part, rest, label in zip(first, second, ("value", "update_op"), strict=True)
        )
        return value, update


def _alike(metric: str, labels: Any, predictions: Any) -> tuple[Tensor, Tensor]:
    """Labels and predictions as tensors. Raises InvalidArgumentError for different shapes."""
    wanted, given = convert_to_tensor(labels), convert_to_tensor(predictions)
    if not compatible(wanted.spec.shape, given.spec.shape):
        raise InvalidArgumentError(
            f"metrics.{metric}: labels are {wanted.spec}, predictions {given.spec}; expected the same shape"
        )
    return wanted, given


def _errors(metric: str, labels: Any, predictions: Any) -> Tensor:
    wanted, given = _alike(metric, labels, predictions)
    return subtract(cast(given, float32), cast(wanted, float32))


def _collected(
    value: Tensor, update: Tensor, metrics: Sequence[str] | None, updates: Sequence[str] | None
) -> tuple[Tensor, Tensor]:
    """Both, added to collections."""
    for tensor, names in ((value, metrics), (update, updates)):
        for collection in names or ():
            tensor.graph.add_to_collection(collection, tensor)
    return value, update


def _counter(name: str, shape: tuple[int, ...] = ()) -> Variable:
    return Variable(
        np.zeros(shape, np.float32),
        trainable=False,
        name=name,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        combine="sum",
    )


def _ratio(total: Tensor, count: Tensor, name: str) -> Tensor:
    """total / count; 0 if nothing was counted."""
    with name_scope(name):
        return divide(total, maximum(count, float(np.finfo(np.float32).tiny)))


if not TYPE_CHECKING:  # for which every name would be known

    def __getattr__(name: str) -> Any:
        raise no_attribute(name, __all__, __name__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
