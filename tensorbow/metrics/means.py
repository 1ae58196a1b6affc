"""Means over the examples of all steps: of numbers, of right predictions, of errors."""

from __future__ import annotations

from typing import Any

from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import AxisNumber, Name, Number, checked, refuse
from tensorbow.metrics.counters import Collections, alike, collected, counter, ratio
from tensorbow.ops.broadcasting import ones_like, size, zeros_like
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import divide, equal, less, multiply, sqrt, square, subtract
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.specs import float32, int64


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
        total, count = counter("total"), counter("count")
        tensor = cast(convert_to_tensor(values), float32)
        if weights is None:
            number = cast(size(tensor, out_type=int64), float32)
        else:
            each = cast(convert_to_tensor(weights), float32)
            each = multiply(each, ones_like(tensor))
            tensor, number = multiply(tensor, each), reduce_sum(each)
        value = ratio(total.value(), count.value(), "value")
        new_total, new_count = total.assign_add(reduce_sum(tensor)), count.assign_add(number)
        update = ratio(new_total, new_count, "update_op")
    return collected(value, update, metrics_collections, updates_collections)


@checked
def mean_tensor(
    values: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Weighted mean of each element over all steps, in the shape of `values`; 0 before the first.

    values: of a shape that is known. weights: a shape that broadcasts to that of `values`. Results are
    float32. Raises InvalidArgumentError for values of unknown shape.
    """
    with name_scope(name or "mean_tensor"):
        tensor = cast(convert_to_tensor(values), float32)
        if not tensor.spec.is_static:
            raise refuse(
                "metrics.mean_tensor", "values", "a shape that is known", tensor.spec, "use set_shape"
            )
        each = ones_like(tensor)
        if weights is not None:
            each = multiply(cast(convert_to_tensor(weights), float32), each)
        total, count = (counter(label, tensor.spec.extents) for label in ("total", "count"))
        value = ratio(total.value(), count.value(), "value")
        update = ratio(total.assign_add(multiply(tensor, each)), count.assign_add(each), "update_op")
    return collected(value, update, metrics_collections, updates_collections)


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
    wanted, given = alike("accuracy", labels, predictions)
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
    return collected(sqrt(value), sqrt(update), metrics_collections, updates_collections)


@checked
def mean_relative_error(
    labels: Any,
    predictions: Any,
    normalizer: Any,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Mean of the absolute differences of all steps, each divided by its `normalizer`; scalar float32.

    normalizer: numbers in the shape of the labels; where one is 0 the error counts as 0.
    Raises as `accuracy`.
    """
    errors = absolute(_errors("mean_relative_error", labels, predictions))
    scale = cast(alike("mean_relative_error", labels, normalizer, "normalizer")[1], float32)
    is_zero = equal(scale, 0.0)
    errors = select(is_zero, zeros_like(errors), divide(errors, select(is_zero, ones_like(scale), scale)))
    return mean(errors, weights, metrics_collections, updates_collections, name or "mean_relative_error")


@checked
def mean_cosine_distance(
    labels: Any,
    predictions: Any,
    dim: AxisNumber,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """One less the mean of the products of labels and predictions summed along axis `dim`; scalar float32.

    labels, predictions: vectors of length 1 along `dim`. weights: of extent 1 there. Raises as `accuracy`.
    """
    wanted, given = alike("mean_cosine_distance", labels, predictions)
    rank = wanted.shape.ndims
    if rank is not None and not -rank <= dim < rank:
        raise refuse("metrics.mean_cosine_distance", "dim", f"an axis of the labels, {wanted.spec}", dim)
    products = reduce_sum(multiply(cast(given, float32), cast(wanted, float32)), dim, keepdims=True)
    value, update = mean(products, weights, name=name or "mean_cosine_distance")
    return collected(subtract(1.0, value), subtract(1.0, update), metrics_collections, updates_collections)


@checked
def percentage_below(
    values: Any,
    threshold: Number,
    weights: Any = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Fraction, in 0..1, of the values of all steps that are less than `threshold`; scalar float32."""
    tensor = convert_to_tensor(values)
    below = cast(less(cast(tensor, float32), threshold), float32)
    return mean(below, weights, metrics_collections, updates_collections, name or "percentage_below")


def _errors(metric: str, labels: Any, predictions: Any) -> Tensor:
    """The predictions less the labels; float32."""
    wanted, given = alike(metric, labels, predictions)
    return subtract(cast(given, float32), cast(wanted, float32))
