"""`tb.losses`: weighted losses, reduced to a scalar and kept in a collection, as in TensorFlow 1.

weights: a number or a tensor that broadcasts to the losses of the elements, each of its extents equal or 1.
reduction: by default the sum of the weighted losses, divided by the number of those whose weight is not 0.
Each function adds its loss to `loss_collection`, by default `GraphKeys.LOSSES`; with None to no collection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys, Tensor, as_tensor, get_collection, name_scope
from tensorbow.kinds import AxisNumber, Flag, Fraction, Name, PositiveNumber, Text, checked, instance, one_of
from tensorbow.missing_names import no_attribute
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import broadcast_to, ones_like, shape, size
from tensorbow.ops.constant import constant
from tensorbow.ops.control import stop_gradient
from tensorbow.ops.elementwise import (
    abs,
    add,
    divide,
    log,
    maximum,
    minimum,
    multiply,
    not_equal,
    square,
    squared_difference,
    subtract,
)
from tensorbow.ops.losses import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
)
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sums import add_n
from tensorbow.specs import compatible, float32, int64

__all__ = [
    "Reduction",
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_loss",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "huber_loss",
    "log_loss",
    "mean_pairwise_squared_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]


class Reduction:
    """Ways of making a scalar of weighted losses."""

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"  # divided by the number of losses
    MEAN = "weighted_mean"  # divided by the sum of the weights
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"


BY_NONZERO = Reduction.SUM_BY_NONZERO_WEIGHTS
AsReduction: TypeAlias = Annotated[
    str, one_of(*(value for name, value in vars(Reduction).items() if name.isupper()))
]
Collection: TypeAlias = Name  # of the graph


@checked
def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
    reduction: AsReduction = BY_NONZERO,
) -> Tensor:
    """The losses times their weights, reduced; a scalar, or with `Reduction.NONE` of the shape of `losses`.

    Raises InvalidArgumentError for weights that do not broadcast to the losses.
    """
    return _weighted("compute_weighted_loss", as_tensor(losses), weights, scope, loss_collection, reduction)


def _weighted(
    op: str, losses: Tensor, weights: Any, scope: str | None, collection: str | None, reduction: str
) -> Tensor:
    if losses.dtype.is_integer:
        losses = cast(losses, float32)
    each = as_tensor(weights)
    if each.dtype != losses.dtype:
        each = cast(each, losses.dtype)
    _require_broadcast(op, each, losses)
    with losses.graph.as_default(), name_scope(scope or op):
        result = multiply(losses, each)
        if reduction != Reduction.NONE:
            result = reduce_sum(result)
        if reduction == Reduction.MEAN:
            result = _ratio(result, reduce_sum(multiply(each, ones_like(losses))))
        elif reduction == Reduction.SUM_OVER_BATCH_SIZE:
            result = _ratio(result, cast(size(losses, out_type=int64), losses.dtype))
        elif reduction == BY_NONZERO:
            counted = broadcast_to(cast(not_equal(each, 0), losses.dtype), shape(losses))
            result = _ratio(result, reduce_sum(counted))
        if collection is not None:
            losses.graph.add_to_collection(collection, result)
        return result


def _ratio(total: Tensor, number: Tensor) -> Tensor:
    """total / number; 0 if the number is 0."""
    is_some = not_equal(number, 0)
    return select(is_some, divide(total, select(is_some, number, ones_like(number))), 0.0)


def _require_broadcast(op: str, weights: Tensor, losses: Tensor) -> None:
    given, wanted = weights.spec.shape, losses.spec.shape
    if given is None or wanted is None or not given:
        return
    fits = len(given) == len(wanted) and all(
        a in (1, None) or b is None or a == b for a, b in zip(given, wanted, strict=True)
    )
    if not fits:
        raise InvalidArgumentError(
            f"{op}: expected weights to be a number or a tensor of the losses' rank with extents equal or 1, "
            f"got {weights.spec} for losses {losses.spec}; use tb.expand_dims"
        )


def _pair(op: str, labels: Any, predictions: Any) -> tuple[Tensor, Tensor]:
    """Labels, cast to the predictions' dtype, and predictions, of one shape."""
    wanted, given = as_tensor(labels), as_tensor(predictions)
    if given.dtype.is_integer:
        given = cast(given, float32)
    if not compatible(wanted.spec.shape, given.spec.shape):
        raise InvalidArgumentError(
            f"{op}: expected labels and predictions of one shape, got {wanted.spec} and {given.spec}; "
            "use tb.reshape or tb.squeeze"
        )
    return cast(wanted, given.dtype), given


@checked
def absolute_difference(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
    reduction: AsReduction = BY_NONZERO,
) -> Tensor:
    """|predictions - labels|, weighted and reduced."""
    wanted, given = _pair("absolute_difference", labels, predictions)
    losses = abs(subtract(given, wanted))
    return _weighted("absolute_difference", losses, weights, scope, loss_collection, reduction)


@checked
def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
    reduction: AsReduction = BY_NONZERO,
) -> Tensor:
    """(predictions - labels) ** 2, weighted and reduced."""
    wanted, given = _pair("mean_squared_error", labels, predictions)
    losses = squared_difference(given, wanted)
    return _weighted("mean_squared_error", losses, weights, scope, loss_collection, reduction)


@checked
def mean_pairwise_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
) -> Tensor:
    """Mean of ((p[i] - p[j]) - (l[i] - l[j])) ** 2 over the pairs of different elements of each example.

    labels, predictions: [batch, ...]. weights: a number, or one for each example, [batch] or [batch, 1, ...];
    the weighted means of the examples are added up, as in TensorFlow. 0 for examples of one element.
    """
    wanted, given = _pair("mean_pairwise_squared_error", labels, predictions)
    rank = given.spec.rank
    if not rank:
        raise InvalidArgumentError(
            f"mean_pairwise_squared_error: expected predictions [batch, ...] of known rank, got {given.spec}"
        )
    each = as_tensor(weights)
    if each.spec.rank and (each.spec.rank not in (1, rank) or set((each.spec.shape or ())[1:]) - {1}):
        raise InvalidArgumentError(
            "mean_pairwise_squared_error: expected weights to be a number, or one for each example, [batch], "
            f"got {each.spec}"
        )
    with given.graph.as_default(), name_scope(scope or "mean_pairwise_squared_error"):
        differences = reshape(subtract(given, wanted), [strided_slice(shape(given), 0), -1])
        number = cast(strided_slice(shape(differences), 1), given.dtype)
        squares = reduce_sum(square(differences), 1)
        product = square(reduce_sum(differences, 1))
        pairs = multiply(number, subtract(number, 1))
        losses = multiply(2.0, _ratio(subtract(multiply(number, squares), product), pairs))
        own = reshape(each, [-1]) if each.spec.rank else each
        result = reduce_sum(multiply(losses, own if own.dtype == losses.dtype else cast(own, losses.dtype)))
        if loss_collection is not None:
            result.graph.add_to_collection(loss_collection, result)
        return result


@checked
def huber_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    delta: PositiveNumber = 1.0,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
    reduction: AsReduction = BY_NONZERO,
) -> Tensor:
    """Squared up to an error of `delta` (error ** 2 / 2), linear beyond; weighted and reduced."""
    wanted, given = _pair("huber_loss", labels, predictions)
    error = abs(subtract(given, wanted))
    quadratic = minimum(error, delta)
    linear = multiply(subtract(error, quadratic), delta)
    losses = add(multiply(square(quadratic), 0.5), linear)
    return _weighted("huber_loss", losses, weights, scope, loss_collection, reduction)


@checked
def hinge_loss(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
    reduction: AsReduction = BY_NONZERO,
) -> Tensor:
    """max(0, 1 - logits) for labels 1, max(0, 1 + logits) for labels 0; weighted and reduced."""
    wanted, given = _pair("hinge_loss", labels, logits)
    signs = subtract(multiply(wanted, 2.0), 1.0)
    losses = maximum(subtract(1.0, multiply(signs, given)), 0.0)
    return _weighted("hinge_loss", losses, weights, scope, loss_collection, reduction)


@checked
def log_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    epsilon: PositiveNumber = 1e-7,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
    reduction: AsReduction = BY_NONZERO,
) -> Tensor:
    """Cross-entropy of probabilities `predictions` and labels in [0, 1]; weighted and reduced.

    epsilon: added to the probabilities before the logarithm.
    """
    wanted, given = _pair("log_loss", labels, predictions)
    positive = multiply(wanted, log(add(given, epsilon)))
    negative = multiply(subtract(1.0, wanted), log(add(subtract(1.0, given), epsilon)))
    losses = subtract(0.0, add(positive, negative))
    return _weighted("log_loss", losses, weights, scope, loss_collection, reduction)


@checked
def cosine_distance(
    labels: Any,
    predictions: Any,
    axis: AxisNumber,
    weights: Any = 1.0,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
    reduction: AsReduction = BY_NONZERO,
) -> Tensor:
    """1 - sum(labels * predictions) along `axis`, of vectors of length 1; weighted and reduced."""
    wanted, given = _pair("cosine_distance", labels, predictions)
    losses = subtract(1.0, reduce_sum(multiply(wanted, given), axis, keepdims=True))
    return _weighted("cosine_distance", losses, weights, scope, loss_collection, reduction)


@checked
def sigmoid_cross_entropy(
    multi_class_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: Fraction = 0.0,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
    reduction: AsReduction = BY_NONZERO,
) -> Tensor:
    """Cross-entropy of sigmoid(logits) `[batch, classes]` and labels in [0, 1]; weighted and reduced.

    label_smoothing: s moves labels to 1 / 2: labels * (1 - s) + s / 2.
    """
    wanted, given = _pair("sigmoid_cross_entropy", multi_class_labels, logits)
    if label_smoothing:
        wanted = add(multiply(wanted, 1 - label_smoothing), 0.5 * label_smoothing)
    losses = sigmoid_cross_entropy_with_logits(labels=wanted, logits=given)
    return _weighted("sigmoid_cross_entropy", losses, weights, scope, loss_collection, reduction)


@checked
def softmax_cross_entropy(
    onehot_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: Fraction = 0.0,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
    reduction: AsReduction = BY_NONZERO,
) -> Tensor:
    """Cross-entropy of softmax(logits) and labels, both `[batch, classes]`; weighted and reduced.

    label_smoothing: s moves labels to 1 / classes: labels * (1 - s) + s / classes. Labels get no gradient.
    """
    wanted, given = _pair("softmax_cross_entropy", onehot_labels, logits)
    if label_smoothing:
        classes = cast(strided_slice(shape(wanted), -1), wanted.dtype)
        wanted = add(multiply(wanted, 1 - label_smoothing), divide(label_smoothing, classes))
    losses = softmax_cross_entropy_with_logits(labels=stop_gradient(wanted), logits=given)
    return _weighted("softmax_cross_entropy", losses, weights, scope, loss_collection, reduction)


@checked
def sparse_softmax_cross_entropy(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: Name = None,
    loss_collection: Collection = GraphKeys.LOSSES,
    reduction: AsReduction = BY_NONZERO,
) -> Tensor:
    """Cross-entropy of softmax(logits) `[batch, classes]` and class numbers `[batch]`; weighted, reduced."""
    losses = sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return _weighted("sparse_softmax_cross_entropy", losses, weights, scope, loss_collection, reduction)


@checked
def add_loss(
    loss: Annotated[Tensor, instance(Tensor, expected="a tensor")],
    loss_collection: Collection = GraphKeys.LOSSES,
) -> None:
    """Adds a loss of one's own to the collection."""
    if loss_collection is not None:
        loss.graph.add_to_collection(loss_collection, loss)


@checked
def get_losses(scope: Name = None, loss_collection: Text = GraphKeys.LOSSES) -> list[Tensor]:
    """The losses of the collection; scope: of those whose names begin with it."""
    return get_collection(loss_collection, scope)


@checked
def get_regularization_losses(scope: Name = None) -> list[Tensor]:
    """The losses of the regularizers of variables; scope: of those whose names begin with it."""
    return get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


@checked
def get_regularization_loss(scope: Name = None, name: Name = None) -> Tensor:
    """The sum of the losses of regularizers, a scalar; 0 if there are none."""
    losses = get_regularization_losses(scope)
    return add_n(losses, name=name or "total_regularization_loss") if losses else constant(0.0, float32)


@checked
def get_total_loss(add_regularization_losses: Flag = True, name: Name = None, scope: Name = None) -> Tensor:
    """The sum of all losses, by default with those of regularizers, a scalar.

    Raises InvalidArgumentError if there are none.
    """
    losses = get_losses(scope)
    if add_regularization_losses:
        losses = [*losses, *get_regularization_losses(scope)]
    if not losses:
        raise InvalidArgumentError(
            "get_total_loss: no loss is in the collection; build one by tb.losses, or give it to add_loss"
        )
    return add_n(losses, name=name or "total_loss")


if not TYPE_CHECKING:  # for which every name would be known

    def __getattr__(name: str) -> Any:
        raise no_attribute(name, __all__, __name__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
