"""Outputs of a model of any kind: loss, predictions and metrics; and the call that builds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.kinds import shown
from tensorbow.nest import flatten
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import add, equal, multiply, square, subtract
from tensorbow.ops.indexing import gather, one_hot
from tensorbow.ops.losses import softmax_cross_entropy_with_logits, sparse_softmax_cross_entropy_with_logits
from tensorbow.ops.reductions import argmax, reduce_mean
from tensorbow.ops.selection import cast
from tensorbow.specs import float32, int64
from tensorbow.user_code import called_by_name, line_of_code

_FORMS = "(loss, outputs, metrics), where metrics may be missing, or a dictionary with these keys"

_ARGUMENTS = {  # a model's arguments as Python writes them, with their values
    "class_weights": "class_weights=None (a float32 tensor [classes], by which to multiply each loss)",
    "label_smoothing": "label_smoothing=0.0 (a number, the share of a label that all classes get alike)",
    "mixed_labels": "mixed_labels=None (a pair: the labels of the examples mixed in, and the share of each "
    "example's own label in the loss)",
}
_OPTIONS = {"mixed_labels": "mixup"}  # that give an argument of another name


@dataclass(frozen=True)
class ModelOutputs:
    """Outputs of a model for a batch.

    loss: floating scalar, mean of the batch. outputs: the predictions, a tensor `[batch, ...]` or a nest of
    them; of a classifier its logits `[batch, classes]`; None if there are none. metrics: float32 scalars by
    name, means of the batch, such as "accuracy".
    """

    loss: Tensor
    outputs: Any = None
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


def outputs_of(
    model: Callable[..., Any],
    inputs: Any,
    labels: Any,
    training: bool,
    *,
    classes: int | None = None,
    label_scale: Any = None,
    name: str = "model",
    **options_of_step: Any,
) -> ModelOutputs:
    """Builds a model in the default graph, by `model(inputs, labels, training)`.

    classes: number of classes of the data, and label_scale: mean and standard deviation of labels that are
    numbers; both are given to a model that has an argument of this name. name: of the model, for messages.
    options_of_step: further arguments that the model must have, such as `class_weights`, float32 [classes],
    by which it multiplies each example's loss. A training step must also run the operations in the collection
    UPDATE_OPS. Raises InvalidArgumentError for a model that has not these arguments, needs `classes` where
    the data have none, returns something else than a loss, outputs and metrics, or broadcasts outputs [batch,
    1] and labels [batch] to [batch, batch].
    """
    try:
        inspect.signature(model).bind_partial(inputs, labels, training)
    except TypeError:
        raise InvalidArgumentError(
            f"{name}: expected model(inputs, labels, training), got arguments {inspect.signature(model)}"
        ) from None
    parameters = inspect.signature(model).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    for option in options_of_step:
        if option not in parameters and not takes_all:
            raise InvalidArgumentError(
                f"{_OPTIONS.get(option, option)}: {name} has no argument {option}; add "
                f"{_ARGUMENTS.get(option, option)} to its signature (inputs, labels, training, ...), or "
                "leave the option out"
            )
    wanted = parameters.get("classes")
    if classes is None and wanted is not None and wanted.default is wanted.empty:
        raise _no_classes(model, labels, name)
    of_data = {"classes": classes, "label_scale": label_scale}
    result = called_by_name(model, inputs, labels, training, **of_data, **options_of_step)
    found = _outputs_in(result, name)
    if not isinstance(found.loss, Tensor) or not found.loss.dtype.is_floating:
        got = found.loss.spec if isinstance(found.loss, Tensor) else shown(found.loss)
        raise InvalidArgumentError(f"{name}: expected the loss to be a floating tensor, got {got}")
    if found.loss.spec.shape not in ((), None):
        raise InvalidArgumentError(
            f"{name}: expected the loss to be a scalar, the mean of the batch, got {found.loss.spec}; reduce "
            f"it by tb.reduce_mean (made at {found.loss.op.source})"
        )
    for leaf in flatten(found.outputs):
        if leaf is not None and not isinstance(leaf, Tensor):
            raise InvalidArgumentError(f"{name}: expected outputs to be tensors, got {shown(leaf)}")
    _require_no_outer_products(found.outputs, labels, name)
    return ModelOutputs(found.loss, found.outputs, _checked_metrics(found.metrics, name))


def outputs_of_logits(
    logits: Tensor,
    labels: Tensor,
    classes: int,
    class_weights: Tensor | None = None,
    label_smoothing: float = 0.0,
    mixed_labels: tuple[Tensor, Tensor] | None = None,
) -> ModelOutputs:
    """Outputs of a classifier: the mean cross-entropy as loss, and the metric accuracy.

    logits: [..., classes]; labels: integers [...]. class_weights, label_smoothing and mixed_labels as in
    `Model.__call__`.
    """
    if mixed_labels is not None:
        others, share = mixed_labels
        own = outputs_of_logits(logits, labels, classes, class_weights, label_smoothing)
        other = outputs_of_logits(logits, others, classes, class_weights, label_smoothing)
        accuracy = _mean_of(own.metrics["accuracy"], other.metrics["accuracy"], share, "accuracy")
        return ModelOutputs(_mean_of(own.loss, other.loss, share), logits, {"accuracy": accuracy})
    labels = cast(labels, int64)
    if label_smoothing:
        spread = label_smoothing / classes
        targets = one_hot(labels, classes, 1 - label_smoothing + spread, spread)
        losses = softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    else:
        losses = sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    if class_weights is not None:
        losses = multiply(losses, gather(class_weights, labels))
    right = equal(argmax(logits, -1, output_type=int64), labels)
    accuracy = reduce_mean(cast(right, float32), name="accuracy")
    return ModelOutputs(reduce_mean(losses), logits, {"accuracy": accuracy})


def _mean_of(own: Tensor, other: Tensor, share: Tensor, name: str | None = None) -> Tensor:
    """share * own + (1 - share) * other."""
    share = share if own.dtype == share.dtype else cast(share, own.dtype)
    return add(multiply(own, share), multiply(other, subtract(1, share)), name=name)


def outputs_of_numbers(values: Tensor, labels: Tensor, label_scale: Any = None) -> ModelOutputs:
    """Outputs of a model that predicts numbers, with the metrics mse and mae.

    values: [batch] or [batch, columns], the predictions as multiples of the labels' standard deviation from
    their mean. labels: floats like values. label_scale: mean and standard deviation, [] or [columns]; None: 0
    and 1. The loss is the mean squared error in these units, near 1 for a constant prediction, so that
    learning rates do not depend on the unit of the labels. Outputs and metrics are in the labels' own unit.
    """
    if label_scale is None:
        return outputs_in_own_unit(values, labels)
    mean, std = (np.asarray(part, np.float32) for part in label_scale)
    return outputs_in_own_unit(add(multiply(values, std), mean), labels, std)


def outputs_in_own_unit(outputs: Tensor, labels: Tensor, std: Any = None) -> ModelOutputs:
    """Outputs as `outputs_of_numbers` gives, of predictions in the labels' unit; std: of the labels."""
    std = np.float32(1) if std is None else np.asarray(std, np.float32)
    errors = subtract(outputs, cast(labels, float32))
    metrics = {
        "mse": reduce_mean(square(errors), name="mse"),
        "mae": reduce_mean(absolute(errors), name="mae"),
    }
    return ModelOutputs(reduce_mean(square(multiply(errors, 1 / std))), outputs, metrics)


def _require_no_outer_products(outputs: Any, labels: Any, name: str) -> None:
    """Raises InvalidArgumentError if an op broadcasts outputs and labels to [batch, batch].

    The loss would compare each output with the labels of all examples.
    """
    both = ([leaf for leaf in flatten(nest) if isinstance(leaf, Tensor)] for nest in (outputs, labels))
    for output, label in product(*both):
        if {output.spec.shape, label.spec.shape} != {(None, 1), (None,)}:
            continue
        for op in output.consumers():
            if any(each is label for each in op.inputs) and op.outputs[0].spec.shape == (None, None):
                raise InvalidArgumentError(
                    f"{name}: {op.type} broadcasts outputs {output.spec} and labels {label.spec} to "
                    f"{op.outputs[0].spec}; give both one shape, as outputs[:, 0] (made at {op.source})"
                )


def _no_classes(model: Callable[..., Any], labels: Any, name: str) -> InvalidArgumentError:
    """The error for a model with an argument `classes`, and data that have none."""
    got = "no labels"
    if labels is not None:
        got = f"labels {', '.join(str(getattr(leaf, 'spec', leaf)) for leaf in flatten(labels))}"
    line = line_of_code(model)
    return InvalidArgumentError(
        f"{name}: its argument classes needs labels that are whole numbers from 0, [examples]; the data have "
        f"{got}: convert them, as by astype('int64'), or for values to regress take the argument out or "
        f"write classes=None{f' ({line})' if line else ''}"
    )


def _outputs_in(result: Any, name: str) -> ModelOutputs:
    """Reads what a model has returned."""
    if isinstance(result, ModelOutputs):
        return result
    if isinstance(result, Tensor):
        return ModelOutputs(result)
    if isinstance(result, Mapping) and "loss" in result and set(result) <= {"loss", "outputs", "metrics"}:
        return ModelOutputs(result["loss"], result.get("outputs"), _or_none(result.get("metrics")))
    if isinstance(result, (tuple, list)) and 1 <= len(result) <= 3:
        return ModelOutputs(result[0], *result[1:2], *map(_or_none, result[2:]))
    raise InvalidArgumentError(f"{name}: expected the model to return {_FORMS}; got {shown(result)}")


def _or_none(metrics: Any) -> Any:
    """Metrics as a model returned them; none for None."""
    return {} if metrics is None else metrics


def _checked_metrics(metrics: Any, name: str) -> dict[str, Tensor]:
    if not isinstance(metrics, Mapping):
        raise InvalidArgumentError(
            f"{name}: expected metrics by name, as {{'accuracy': accuracy}}, got {shown(metrics)}"
        )
    found = {}
    for key, metric in metrics.items():
        if not isinstance(key, str) or not isinstance(metric, Tensor):
            raise InvalidArgumentError(
                f"{name}: expected metrics to be tensors by name, got {shown(key)}: {shown(metric)}"
            )
        if key in ("", "loss") or not key.replace("_", "a").isalnum():
            raise InvalidArgumentError(
                f"{name}: expected the name of a metric to be letters, digits and underscores, and not "
                f"'loss', got {key!r:.60}"
            )
        if metric.spec.shape not in ((), None):
            raise InvalidArgumentError(
                f"{name}: expected metric {key} to be a scalar, the mean of the batch, got {metric.spec}; "
                f"reduce it by tb.reduce_mean (made at {metric.op.source})"
            )
        found[key] = metric if metric.dtype == float32 else cast(metric, float32)
    return found
