"""`tb.metrics`: metrics accumulated over many steps, as in TensorFlow 1.

Each returns (value, update_op): `update_op` adds a batch and gives the metric so far; `value` only
reads it. Counts are local variables: run `tb.local_variables_initializer()` to start,
and again to restart. In replicated training each replica counts its own examples, and the counts of all add
up when the metric is read: by a `TensorBowSession`, or by `read` of a Replicator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys, Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import TEXT, Name, checked, optional, sequence
from tensorbow.missing_names import no_attribute
from tensorbow.ops.broadcasting import ones_like, size
from tensorbow.ops.elementwise import divide, equal, maximum, multiply
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.specs import compatible, float32, int64
from tensorbow.variables import Variable

__all__ = [
    "accuracy",
    "mean",
]

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
    for tensor, names in ((value, metrics_collections), (update, updates_collections)):
        for collection in names or ():
            tensor.graph.add_to_collection(collection, tensor)
    return value, update


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
    wanted, given = convert_to_tensor(labels), convert_to_tensor(predictions)
    if not compatible(wanted.spec.shape, given.spec.shape):
        raise InvalidArgumentError(
            f"metrics.accuracy: labels are {wanted.spec}, predictions {given.spec}; expected the same shape"
        )
    if wanted.dtype != given.dtype:
        given = cast(given, wanted.dtype)
    right = cast(equal(given, wanted), float32)
    return mean(right, weights, metrics_collections, updates_collections, name or "accuracy")


def _counter(name: str) -> Variable:
    return Variable(
        np.zeros((), np.float32),
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
