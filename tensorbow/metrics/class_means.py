"""Metrics that are a mean over classes."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import Name, checked, whole
from tensorbow.metrics.counters import Collections, alike, collected, counter, ratio
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import ones_like
from tensorbow.ops.elementwise import add, divide, equal, greater, maximum, multiply, subtract
from tensorbow.ops.reductions import reduce_mean, reduce_sum
from tensorbow.ops.segments import confusion_matrix, unsorted_segment_sum
from tensorbow.ops.selection import cast
from tensorbow.specs import float32, int64

NumberOfClasses = Annotated[int, whole(1, 1 << 15)]


@checked
def mean_iou(
    labels: Any,
    predictions: Any,
    num_classes: NumberOfClasses,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Mean over the classes that occur of intersection over union: tp / (tp + fp + fn); scalar float32.

    labels, predictions: whole numbers in 0..num_classes-1, of one shape. The second value is the confusion
    matrix so far, [num_classes, num_classes], as in TensorFlow. Raises as `accuracy`.
    """
    wanted, given = alike("mean_iou", labels, predictions)
    with name_scope(name or "mean_iou"):
        rows, columns = (reshape(cast(each, int64), [-1]) for each in (wanted, given))
        if weights is not None:
            weights = reshape(_each_weight(weights, wanted), [-1])
        total = counter("total_confusion_matrix", (num_classes, num_classes))
        update = total.assign_add(confusion_matrix(rows, columns, num_classes, float32, weights=weights))
        counts = total.value()
        both = reduce_sum(multiply(counts, np.eye(num_classes, dtype=np.float32)), 1)
        union = subtract(add(reduce_sum(counts, 0), reduce_sum(counts, 1)), both)
        occurs = cast(greater(union, 0.0), float32)
        value = ratio(reduce_sum(divide(both, maximum(union, 1.0))), reduce_sum(occurs), "value")
    return collected(value, update, metrics_collections, updates_collections)


@checked
def mean_per_class_accuracy(
    labels: Any,
    predictions: Any,
    num_classes: NumberOfClasses,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Mean over all classes of the fraction of the labels of a class that were predicted; scalar float32.

    labels, predictions: whole numbers in 0..num_classes-1, of one shape. A class without labels counts as 0.
    The second value is the fractions so far, [num_classes], as in TensorFlow. Raises as `accuracy`.
    """
    wanted, given = alike("mean_per_class_accuracy", labels, predictions)
    with name_scope(name or "mean_per_class_accuracy"):
        classes, said = (reshape(cast(each, int64), [-1]) for each in (wanted, given))
        each = reshape(_each_weight(1.0 if weights is None else weights, wanted), [-1])
        right = multiply(each, cast(equal(classes, said), float32))
        total, count = (counter(label, (num_classes,)) for label in ("total", "count"))
        new_total = total.assign_add(unsorted_segment_sum(each, classes, num_classes))
        new_count = count.assign_add(unsorted_segment_sum(right, classes, num_classes))
        value = reduce_mean(ratio(count.value(), total.value(), "value"))
        update = ratio(new_count, new_total, "update_op")
    return collected(value, update, metrics_collections, updates_collections)


def _each_weight(weights: Any, labels: Tensor) -> Tensor:
    """Weights in the shape of the labels, to which they broadcast; float32."""
    return multiply(cast(convert_to_tensor(weights), float32), ones_like(cast(labels, float32)))
