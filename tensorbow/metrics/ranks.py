"""Metrics of the `k` highest scored classes of examples that have one or several labels.

Labels and classes of an example are sets: what occurs twice counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import Name, Positive, checked, optional, whole
from tensorbow.metrics.counters import Collections, collected, counter, ratio
from tensorbow.metrics.means import mean
from tensorbow.ops.arrays import expand_dims
from tensorbow.ops.broadcasting import ones_like, shape
from tensorbow.ops.cumulative import cumsum
from tensorbow.ops.elementwise import (
    add,
    divide,
    equal,
    greater,
    logical_and,
    logical_not,
    maximum,
    minimum,
    multiply,
)
from tensorbow.ops.filling import range as range_of
from tensorbow.ops.ordering import top_k
from tensorbow.ops.reductions import reduce_any, reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sparse_dense import sparse_tensor_to_dense
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.specs import bool_, float32, int64

ClassId = Annotated["int | None", optional(whole())]
NumberOfPositions = Annotated["int | None", optional(whole(1))]


@checked
def recall_at_k(
    labels: Any,
    predictions: Any,
    k: Positive,
    class_id: ClassId = None,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Fraction of the labels that are among the `k` highest scored classes, over all steps; 0 without labels.

    labels: whole numbers [..., labels] or [...], or a SparseTensor [..., labels], which makes the step run in
    the dynamic mode. predictions: scores [..., classes]. class_id: count this class alone. weights: of the
    examples, [...]. Returns scalars float32. Raises InvalidArgumentError for labels of another rank.
    """
    found = _Found("recall_at_k", labels, _best(predictions, k), class_id)
    return _shares(found, "recall", weights, metrics_collections, updates_collections, name or "recall_at_k")


@checked
def precision_at_k(
    labels: Any,
    predictions: Any,
    k: Positive,
    class_id: ClassId = None,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Fraction of the `k` highest scored classes that are labels, over all steps; arguments of `recall_at_k`.

    With a `class_id`: fraction of the examples with that class among the `k` for which it is a label.
    """
    found = _Found("precision_at_k", labels, _best(predictions, k), class_id)
    name = name or "precision_at_k"
    return _shares(found, "precision", weights, metrics_collections, updates_collections, name)


@checked
def recall_at_top_k(
    labels: Any,
    predictions_idx: Any,
    k: NumberOfPositions = None,
    class_id: ClassId = None,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """`recall_at_k` of classes that were chosen before: `predictions_idx` [..., k]; `k` is ignored."""
    found = _Found("recall_at_top_k", labels, predictions_idx, class_id)
    return _shares(
        found, "recall", weights, metrics_collections, updates_collections, name or "recall_at_top_k"
    )


@checked
def precision_at_top_k(
    labels: Any,
    predictions_idx: Any,
    k: NumberOfPositions = None,
    class_id: ClassId = None,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """`precision_at_k` of classes that were chosen before: `predictions_idx` [..., k]; `k` is ignored."""
    found = _Found("precision_at_top_k", labels, predictions_idx, class_id)
    name = name or "precision_at_top_k"
    return _shares(found, "precision", weights, metrics_collections, updates_collections, name)


@checked
def average_precision_at_k(
    labels: Any,
    predictions: Any,
    k: Positive,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Mean over all examples of the average precision of the `k` highest scored classes; scalar float32.

    The average precision of an example is the sum of the precisions at 1 to k at which a label is found,
    divided by the lesser of k and the number of labels; 0 without labels. Arguments: those of `recall_at_k`.
    """
    found = _Found("average_precision_at_k", labels, _best(predictions, k), None)
    with name_scope(name or "average_precision_at_k"):
        hits = cast(found.hits, float32)
        ranks = cast(add(range_of(strided_slice(shape(hits), -1)), 1), float32)
        precisions = divide(multiply(cumsum(hits, -1), hits), ranks)
        possible = minimum(found.number_of_labels, float(k))
        average = divide(reduce_sum(precisions, -1), maximum(possible, 1.0))
    name = name or "average_precision_at_k"
    return mean(average, weights, metrics_collections, updates_collections, name)


sparse_average_precision_at_k = average_precision_at_k  # TensorFlow's older names
sparse_precision_at_k = precision_at_k


@dataclass
class _Found:
    """Labels [..., labels] and chosen classes [..., k] of examples, and which of them are equal."""

    metric: str
    labels: Any
    chosen: Any
    class_id: int | None

    def __post_init__(self) -> None:
        self.chosen = cast(convert_to_tensor(self.chosen), int64)
        self._is_label: Tensor | None = None
        if isinstance(self.labels, SparseTensor):
            sparse = self.labels
            ones = SparseTensor(sparse.indices, ones_like(sparse.values), sparse.dense_shape)
            self._is_label = cast(sparse_tensor_to_dense(ones), bool_)
            self.labels = sparse_tensor_to_dense(sparse)
        self.labels = cast(convert_to_tensor(self.labels), int64)
        given, wanted = self.labels.spec.rank, self.chosen.spec.rank
        if given == wanted - 1 and self._is_label is None:
            self.labels = expand_dims(self.labels, -1)
        elif given != wanted:
            raise InvalidArgumentError(
                f"metrics.{self.metric}: labels are {self.labels.spec}, of {given} axes, but the predictions "
                f"have {wanted}; expected [..., labels] or [...] for predictions [..., classes]"
            )
        if self._is_label is None:
            self._is_label = ones_like(self.labels, dtype=bool_)

    @cached_property
    def hits(self) -> Tensor:
        """True for chosen classes that are labels: bool [..., k]."""
        return logical_and(self._counted(self.chosen), reduce_any(self._pairs, -1))

    @cached_property
    def _pairs(self) -> Tensor:
        """True for pairs of a chosen class and an equal label: bool [..., k, labels]."""
        are_equal = equal(expand_dims(self.chosen, -1), expand_dims(self.labels, -2))
        return logical_and(are_equal, expand_dims(self._is_label, -2))

    @cached_property
    def number_of_labels(self) -> Tensor:
        """Number of different labels of each example: float32 [...]."""
        return self._number(self._counted(self.labels, self._is_label))

    @cached_property
    def number_of_chosen(self) -> Tensor:
        """Number of different chosen classes of each example: float32 [...]."""
        return self._number(self._counted(self.chosen))

    @staticmethod
    def _number(flags: Tensor) -> Tensor:
        return reduce_sum(cast(flags, float32), -1)

    def _counted(self, classes: Tensor, exists: Tensor | None = None) -> Tensor:
        """True for classes that count: the first of equal ones, and no other than `class_id`."""
        are_equal = equal(expand_dims(classes, -1), expand_dims(classes, -2))
        number = strided_slice(shape(classes), -1)
        positions = range_of(number)
        is_earlier = greater(expand_dims(positions, 1), expand_dims(positions, 0))
        earlier = logical_and(are_equal, is_earlier)
        if exists is not None:
            earlier = logical_and(earlier, expand_dims(exists, -2))
        counted = logical_not(reduce_any(earlier, -1))
        if exists is not None:
            counted = logical_and(counted, exists)
        if self.class_id is not None:
            counted = logical_and(counted, equal(classes, self.class_id))
        return counted


def _best(predictions: Any, k: int) -> Tensor:
    """The `k` classes with the highest scores: int32 [..., k]."""
    return top_k(convert_to_tensor(predictions), k).indices


def _shares(
    found: _Found, which: str, weights: Any, metrics: Any, updates: Any, name: str
) -> tuple[Tensor, Tensor]:
    """Right choices as a part of all labels ("recall") or of all choices ("precision")."""
    with name_scope(name):
        right = reduce_sum(cast(found.hits, float32), -1)
        every = found.number_of_labels if which == "recall" else found.number_of_chosen
        if weights is not None:
            each = cast(convert_to_tensor(weights), float32)
            right, every = multiply(right, each), multiply(every, each)
        hits, total = counter("true_positive"), counter("total")
        value = ratio(hits.value(), total.value(), "value")
        update = ratio(hits.assign_add(reduce_sum(right)), total.assign_add(reduce_sum(every)), "update_op")
    return collected(value, update, metrics, updates)
