"""Softmax cross-entropy, fused with its derivative as in TensorFlow.

Both ops return the loss of each example and, as a second output, its derivative with respect
to the logits: forward and backward share one pass over the logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    Attrs,
    Kernel,
    KernelCall,
    NodeSpec,
    Operation,
    Tensor,
    as_numbers,
    as_tensor,
    name_scope,
)
from tensorbow.kinds import AxisNumber, Flag, Name, checked
from tensorbow.ops.activations import softplus
from tensorbow.ops.array_views import as_vector
from tensorbow.ops.arrays import expand_dims, reshape, transpose
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.control import stop_gradient
from tensorbow.ops.definition import define_op, require_dtype, require_rank, require_same_dtype
from tensorbow.ops.elementwise import (
    add,
    exp,
    greater,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    pair,
    subtract,
)
from tensorbow.ops.nn import log_softmax, order_with_last, softmax
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import FLOATING, Array, Dims, DType, TensorSpec, compatible, int32, int64

__all__ = [
    "log_poisson_loss",
    "sigmoid_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2",
    "sparse_softmax_cross_entropy_with_logits",
    "weighted_cross_entropy_with_logits",
]


# Public functions ---------------------------------------------------------------------------------


@checked
def log_poisson_loss(
    targets: Any, log_input: Any, compute_full_loss: Flag = False, name: Name = None
) -> Tensor:
    """exp(log_input) - log_input * targets: minus the logarithm of Poisson's probability, up to a constant.

    targets: numbers of at least 0, of the shape of `log_input`. compute_full_loss: adds Stirling's
    approximation of that constant where targets are above 1.
    """
    rates, counts = pair(log_input, targets)
    with rates.graph.as_default(), name_scope(name or "log_poisson_loss"):
        loss = subtract(exp(rates), multiply(rates, counts))
        if not compute_full_loss:
            return loss
        large = greater(counts, 1)
        safe = select(large, counts, 1)
        constant = add(
            subtract(multiply(safe, log(safe)), safe), multiply(log(multiply(safe, 2 * math.pi)), 0.5)
        )
        return add(loss, select(large, constant, 0))


@checked
def sparse_softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: Name = None
) -> Tensor:
    """-log(softmax(logits)[label]) of each example: `logits` [..., classes], `labels` [...].

    Labels are int32 or int64. Returns [...], of the dtype of the logits (float32 or float64).
    Arguments must be named.

    Raises InvalidArgumentError if the shapes do not fit, and at run time if a label is not in [0, classes).
    """
    _require_named("sparse_softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    logits, labels = as_numbers(logits), as_numbers(labels)
    _require_class_numbers(logits, labels)
    dims = logits.spec.shape
    if dims is not None and len(dims) == 2:
        loss: Tensor = SparseSoftmaxCrossEntropyWithLogits(logits, labels, name=name)[0]
        return loss
    if dims == () or (dims is not None and not compatible(dims[:-1], labels.spec.shape)):
        raise InvalidArgumentError(
            f"sparse_softmax_cross_entropy_with_logits: labels {labels.spec} do not fit logits "
            f"{logits.spec}; expected [...] and [..., classes]"
        )
    flat: Tensor = SparseSoftmaxCrossEntropyWithLogits(_rows(logits), reshape(labels, [-1]), name=name)[0]
    return _per_example(flat, shape(labels), logits)


@checked
def softmax_cross_entropy_with_logits_v2(
    labels: Any, logits: Any, axis: AxisNumber | None = None, name: Name = None
) -> Tensor:
    """-sum(labels * log(softmax(logits))) of each example: both [..., classes], each row of labels sums to 1.

    axis: the one of the classes, by default the last. Returns the shape without it, float32 or float64.
    Gradients flow to the logits and to the labels.

    Raises InvalidArgumentError if the shapes differ, or for an axis that they lack.
    """
    op = "softmax_cross_entropy_with_logits"
    logits = as_tensor(logits)
    labels = as_tensor(labels) if hasattr(labels, "graph") else as_tensor(labels, logits.dtype)
    order = order_with_last(op, logits, axis)
    if order is not None and labels.shape.ndims in (None, len(order)):
        logits, labels = transpose(logits, order), transpose(labels, order)
    dims = logits.spec.shape
    if dims is not None and len(dims) == 2:
        loss: Tensor = SoftmaxCrossEntropyWithLogits(logits, labels, name=name)[0]
        return loss
    if dims == () or not compatible(dims, labels.spec.shape):
        raise InvalidArgumentError(f"{op}: labels {labels.spec} and logits {logits.spec} must have one shape")
    flat: Tensor = SoftmaxCrossEntropyWithLogits(_rows(logits), _rows(labels), name=name)[0]
    return _per_example(flat, _lead(labels), logits)


@checked
def softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, dim: AxisNumber = -1, name: Name = None
) -> Tensor:
    """`softmax_cross_entropy_with_logits_v2`, but without a gradient for the labels.

    This is TensorFlow 1's function of that name. Arguments must be named.
    """
    _require_named("softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    logits = as_tensor(logits)
    labels = as_tensor(labels) if hasattr(labels, "graph") else as_tensor(labels, logits.dtype)
    return softmax_cross_entropy_with_logits_v2(stop_gradient(labels), logits, dim, name)


@checked
def sigmoid_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: Name = None
) -> Tensor:
    """-labels * log(sigmoid(logits)) - (1 - labels) * log(1 - sigmoid(logits)), of each element (floating).

    Labels are probabilities, of the shape and dtype of the logits. Arguments must be named.
    Raises InvalidArgumentError if the shapes differ.
    """
    op = "sigmoid_cross_entropy_with_logits"
    _require_named(op, _sentinel, labels, logits)
    logits, labels = _of_one_shape(op, logits, labels)
    with logits.graph.as_default(), name_scope(name or "logistic_loss"):
        return add(subtract(maximum(logits, 0.0), multiply(logits, labels)), softplus(_negative_abs(logits)))


@checked
def weighted_cross_entropy_with_logits(
    targets: Any, logits: Any, pos_weight: Any, name: Name = None
) -> Tensor:
    """`sigmoid_cross_entropy_with_logits`, with its first term times `pos_weight`: more than 1 for recall."""
    logits, targets = _of_one_shape("weighted_cross_entropy_with_logits", logits, targets)
    with logits.graph.as_default(), name_scope(name or "logistic_loss"):
        weight = add(multiply(subtract(as_tensor(pos_weight, logits.dtype), 1.0), targets), 1.0)
        losses = add(softplus(_negative_abs(logits)), maximum(0.0, negative(logits)))
        return add(multiply(subtract(1.0, targets), logits), multiply(weight, losses))


def _of_one_shape(op: str, logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    logits, labels = pair(logits, labels)
    require_dtype(op, logits.spec, FLOATING, "logits")
    if not compatible(logits.spec.shape, labels.spec.shape):
        raise InvalidArgumentError(f"{op}: labels {labels.spec} and logits {logits.spec} must have one shape")
    return logits, labels


def _negative_abs(x: Tensor) -> Tensor:
    """-|x|, with the gradient -1 at 0.

    So maximum(x, 0) + softplus(-|x|) and maximum(0, -x) + softplus(-|x|) have softplus's gradients there.
    """
    return minimum(negative(x), x)


def _rows(tensor: Tensor) -> Tensor:
    """`[..., classes]` as `[rows, classes]`."""
    dims = tensor.spec.shape
    classes = None if dims is None else dims[-1]
    return reshape(tensor, [-1, strided_slice(shape(tensor), -1) if classes is None else classes])


def _lead(tensor: Tensor) -> Tensor:
    """The shape of a tensor `[..., classes]` without the last axis."""
    return strided_slice(shape(tensor), np.s_[:-1])


def _per_example(losses: Tensor, examples: Tensor, logits: Tensor) -> Tensor:
    """Reshapes the losses, a vector, to `examples`. If the shapes of labels and logits differ at run time,
    the maximum of both has more elements than there are losses, and the reshape raises.
    """
    return reshape(losses, maximum(examples, _lead(logits)), name="labels_fit_logits")


def _require_class_numbers(logits: Tensor, labels: Tensor) -> None:
    """Raises InvalidArgumentError for labels in the place of logits, and for one row of numbers per label."""
    if not labels.dtype.is_floating:
        return
    what = "sparse_softmax_cross_entropy_with_logits: expected labels int32 or int64 [...]"
    if logits.dtype.is_integer:
        raise InvalidArgumentError(
            f"{what} and floating logits [..., classes], got labels {labels.spec} and logits {logits.spec}; "
            "give each in the place of the other"
        )
    ranks = logits.shape.ndims, labels.shape.ndims
    if None not in ranks and ranks[0] == ranks[1] and compatible(logits.spec.shape, labels.spec.shape):
        raise InvalidArgumentError(
            f"{what}, got {labels.spec}, like the logits; one-hot labels are for "
            "softmax_cross_entropy_with_logits, or give tb.argmax(labels, -1)"
        )


def _require_named(op: str, sentinel: Any, labels: Any, logits: Any) -> None:
    if sentinel is not None or labels is None or logits is None:
        raise InvalidArgumentError(
            f"{op}: give labels and logits by name: {op}(labels=..., logits=...); _sentinel takes nothing"
        )


# Specs and gradients ------------------------------------------------------------------------------


def _unknown_dtypes(inputs: Sequence[TensorSpec], attrs: Attrs) -> tuple[DType, DType]:
    return inputs[0].dtype, inputs[0].dtype


def _specs(logits: TensorSpec, dims: Dims) -> list[TensorSpec]:
    return [TensorSpec(dims[:1], logits.dtype), TensorSpec(dims, logits.dtype)]


def _sparse_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    op = "sparse_softmax_cross_entropy_with_logits"
    logits, labels = inputs
    require_dtype(op, logits, FLOATING, "logits")
    require_dtype(op, labels, (int32, int64), "labels")
    require_rank(op, logits, 2, "logits")
    if not compatible(logits.dims[:1], labels.shape):
        remedy = "; give labels[:, 0]" if len(labels.dims) == 2 and labels.dims[1] == 1 else ""
        raise InvalidArgumentError(
            f"{op}: labels {labels} for logits {logits}; expected [batch] and [batch, classes]{remedy}"
        )
    batch = logits.dims[0] if labels.shape is None or logits.dims[0] is not None else labels.shape[0]
    return _specs(logits, (batch, logits.dims[1]))


def _dense_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    op = "softmax_cross_entropy_with_logits"
    logits, labels = inputs
    require_dtype(op, logits, FLOATING, "logits")
    require_same_dtype(op, inputs)
    require_rank(op, logits, 2, "logits")
    if not compatible(logits.dims, labels.shape):
        raise InvalidArgumentError(
            f"{op}: labels {labels} and logits {logits} must have one shape [batch, classes]"
        )
    if labels.shape is None:
        return _specs(logits, logits.dims)
    return _specs(logits, tuple(b if a is None else a for a, b in zip(logits.dims, labels.dims, strict=True)))


def _logits_gradient(op: Operation, loss: Tensor | None, backprop: Tensor | None) -> Tensor | None:
    """Gradient through both outputs; the second is softmax(logits) - constants, for higher orders."""
    result = None
    if loss is not None:
        result = multiply(expand_dims(loss, -1), op.outputs[1])
    if backprop is not None:
        probabilities = softmax(op.inputs[0])
        mean = reduce_sum(multiply(backprop, probabilities), -1, keepdims=True)
        second = multiply(subtract(backprop, mean), probabilities)
        result = second if result is None else add(result, second)
    return result


def _sparse_gradient(op: Operation, loss: Tensor | None, backprop: Tensor | None) -> list[Tensor | None]:
    return [_logits_gradient(op, loss, backprop), None]


def _dense_gradient(op: Operation, loss: Tensor | None, backprop: Tensor | None) -> list[Tensor | None]:
    to_labels = None
    if loss is not None:
        to_labels = multiply(expand_dims(loss, -1), negative(log_softmax(op.inputs[0])))
    if backprop is not None:
        to_labels = negative(backprop) if to_labels is None else subtract(to_labels, backprop)
    return [_logits_gradient(op, loss, backprop), to_labels]


# Reference kernels --------------------------------------------------------------------------------


def _sparse_scratch(node: NodeSpec) -> list[TensorSpec]:
    batch = node.inputs[0].extents[0]
    row = TensorSpec((batch, 1), node.inputs[0].dtype)
    return [row, TensorSpec((batch,), int64)]


def _prepare_sparse(call: KernelCall) -> Callable[[], None]:
    (logits, labels), (loss, backprop), (row, positions) = call.inputs, call.outputs, call.scratch
    batch, classes = logits.shape
    starts = np.arange(batch, dtype=np.int64) * classes
    flat = as_vector(backprop)

    def step() -> None:
        if not batch:
            return
        _check_labels(labels, classes)
        np.add(starts, labels, out=positions)
        np.maximum.reduce(logits, axis=1, keepdims=True, out=row)
        np.subtract(logits, row, out=backprop)
        np.take(flat, positions, out=loss, mode="clip")
        np.exp(backprop, out=backprop)
        np.add.reduce(backprop, axis=1, keepdims=True, out=row)
        np.divide(backprop, row, out=backprop)
        np.log(row, out=row)
        np.subtract(row[:, 0], loss, out=loss)
        np.take(flat, positions, out=row[:, 0], mode="clip")
        np.subtract(row, 1, out=row)
        np.put(flat, positions, row, mode="clip")

    return step


def _check_labels(labels: Array, classes: int) -> None:
    """Raises InvalidArgumentError naming the first label out of range."""
    if np.minimum.reduce(labels) < 0 or np.maximum.reduce(labels) >= classes:
        row = int(np.flatnonzero((labels < 0) | (labels >= classes))[0])
        raise InvalidArgumentError(
            f"sparse_softmax_cross_entropy_with_logits: label {int(labels[row])} of example {row} is not "
            f"one of the {classes} classes of the logits: expected 0 to {classes - 1}"
        )


def _dense_scratch(node: NodeSpec) -> list[TensorSpec]:
    batch = node.inputs[0].extents[0]
    return [
        TensorSpec((batch, 1), node.inputs[0].dtype),
        TensorSpec(node.inputs[0].shape, node.inputs[0].dtype),
    ]


def _dense_kernel(call: KernelCall) -> None:
    (logits, labels), (loss, backprop), (row, terms) = call.inputs, call.outputs, call.scratch
    if not logits.size:
        loss.fill(0)
        return
    np.maximum.reduce(logits, axis=1, keepdims=True, out=row)
    np.subtract(logits, row, out=backprop)
    np.exp(backprop, out=terms)
    np.add.reduce(terms, axis=1, keepdims=True, out=row)
    np.log(row, out=row)
    np.subtract(row, backprop, out=terms)  # -log(softmax)
    np.multiply(terms, labels, out=terms)
    np.add.reduce(terms, axis=1, out=loss)
    np.subtract(backprop, row, out=backprop)
    np.exp(backprop, out=backprop)
    np.subtract(backprop, labels, out=backprop)


SparseSoftmaxCrossEntropyWithLogits = define_op(
    "SparseSoftmaxCrossEntropyWithLogits",
    spec=_sparse_spec,
    gradient=_sparse_gradient,
    kernel=Kernel(prepare=_prepare_sparse, scratch=_sparse_scratch, inplace=((1, 0),)),
    inputs=("features", "labels"),
    unknown_dtypes=_unknown_dtypes,
    doc="(loss [batch], its derivative with respect to the logits [batch, classes]).",
)
SoftmaxCrossEntropyWithLogits = define_op(
    "SoftmaxCrossEntropyWithLogits",
    spec=_dense_spec,
    gradient=_dense_gradient,
    kernel=Kernel(run=_dense_kernel, scratch=_dense_scratch),
    inputs=("features", "labels"),
    unknown_dtypes=_unknown_dtypes,
    doc="(loss [batch], its derivative with respect to the logits [batch, classes]).",
)
