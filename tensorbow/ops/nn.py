"""Bias, softmax, L2 loss and dropout (`tf.nn` of TensorFlow 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    Attrs,
    Kernel,
    KernelCall,
    NodeSpec,
    Operation,
    Tensor,
    as_tensor,
    name_scope,
)
from tensorbow.kinds import (
    Flag,
    Name,
    Seed,
    checked,
    is_tensor,
    number,
    one_of,
    optional,
    or_tensor,
    refuse,
)
from tensorbow.ops.argument_kinds import AxisOrTensor, DataFormat, Extents, Rate
from tensorbow.ops.array_views import Copy, after, as_matrix, packed
from tensorbow.ops.arrays import concat, reshape, transpose
from tensorbow.ops.axis_order import MovedAxes
from tensorbow.ops.broadcasting import as_shape_vector, broadcast_to, checked_axis, ones_like, shape
from tensorbow.ops.control import identity
from tensorbow.ops.definition import define_op, require_dtype, require_rank, require_same_dtype
from tensorbow.ops.elementwise import add, equal, exp, multiply, pair, relu, subtract
from tensorbow.ops.embedding_shards import lookup_in_shards, with_norms_up_to
from tensorbow.ops.indexing import gather
from tensorbow.ops.matmul import matmul
from tensorbow.ops.random import dropout_mask
from tensorbow.ops.reductions import reduce_mean, reduce_sum
from tensorbow.ops.selection import cast, through_float32
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import FLOATING, NUMERIC, TensorSpec, compatible, float32

PartitionStrategy: TypeAlias = Annotated[str, one_of("mod", "div")]
NormLimit: TypeAlias = Annotated[Any, optional(or_tensor(number(0, above=True)))]

__all__ = [
    "bias_add",
    "dropout",
    "embedding_lookup",
    "l2_loss",
    "log_softmax",
    "relu_layer",
    "softmax",
    "xw_plus_b",
    "zero_fraction",
]


# Bias ---------------------------------------------------------------------------------------------


@checked
def bias_add(value: Any, bias: Any, data_format: DataFormat = "NHWC", name: Name = None) -> Tensor:
    """`value` [..., channels] plus `bias` [channels], of one dtype; NCHW: `value` [batch, channels, ...].

    Raises InvalidArgumentError if the channels differ or `bias` is no vector.
    """
    x, b = pair(value, bias)
    rank = x.shape.ndims
    if data_format != "NCHW" or rank == 2:
        return BiasAdd.tensor(x, b, name=name)
    if rank is None:
        extents = shape(x)
        ones = ones_like(strided_slice(extents, np.s_[2:]))
        return add(x, reshape(b, concat([strided_slice(extents, np.s_[1:2]), ones], 0)), name)
    if rank < 2 or b.shape.ndims not in (1, None):
        raise InvalidArgumentError(
            f"bias_add: NCHW needs a value [batch, channels, ...] and a vector, got {x.spec} and {b.spec}"
        )
    if not compatible(b.spec.shape, x.spec.dims[1:2]):
        raise InvalidArgumentError(
            f"bias_add: {x.spec.dims[1]} channels in {x.spec}, but the bias is {b.spec}"
        )
    return add(x, reshape(b, [-1, *[1] * (rank - 2)]), name)


def _bias_add_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    value, bias = inputs
    require_dtype("bias_add", value, NUMERIC)
    dtype = require_same_dtype("bias_add", inputs)
    if bias.shape is not None:
        require_rank("bias_add", bias, 1, "the bias")
    if value.rank < 2:
        raise InvalidArgumentError(f"bias_add: the value is {value}, expected rank 2 or more; use tb.add")
    channels = value.dims[-1]
    if bias.shape is not None and channels != bias.shape[0]:
        if None not in (channels, bias.shape[0]):
            raise InvalidArgumentError(f"bias_add: {channels} channels in {value}, but the bias is {bias}")
        channels = bias.shape[0] if channels is None else channels
    return TensorSpec((*value.dims[:-1], channels), dtype)


def _bias_add_kernel(call: KernelCall) -> None:
    np.add(call.inputs[0], call.inputs[1], out=call.outputs[0])


def _bias_add_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    return [gradient, BiasAddGrad(gradient)]


def _bias_add_grad_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (gradient,) = inputs
    require_dtype("bias_add gradient", gradient, NUMERIC)
    if gradient.shape == ():
        raise InvalidArgumentError(
            f"bias_add gradient: the gradient is {gradient}, a scalar, expected [..., channels]; "
            "give the gradient of bias_add's result"
        )
    return TensorSpec((None if gradient.shape is None else gradient.dims[-1],), gradient.dtype)


def _bias_add_grad_scratch(node: NodeSpec) -> list[TensorSpec]:
    gradient = node.inputs[0]
    return [TensorSpec((math.prod(gradient.extents[:-1]),), gradient.dtype)]


def _prepare_bias_add_grad(call: KernelCall) -> Callable[[], None]:
    """A matrix product with ones: ten times faster than a sum over leading axes, and more exact."""
    (gradient,), (bias,), (ones,) = call.inputs, call.outputs, call.scratch
    copies: list[Copy] = []
    rows = as_matrix(packed(gradient, copies))

    def step() -> None:
        ones.fill(1)
        np.matmul(ones, rows, out=bias)

    return after(copies, step)


def _bias_add_grad_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    return [broadcast_to(gradient, shape(op.inputs[0]))]


BiasAdd = define_op(
    "BiasAdd",
    spec=_bias_add_spec,
    gradient=_bias_add_gradient,
    kernel=Kernel(run=_bias_add_kernel, inplace=((0, 0),)),
    inputs=("value", "bias"),
    uniform_dtype=True,
)
BiasAddGrad = define_op(
    "BiasAddGrad",
    spec=_bias_add_grad_spec,
    gradient=_bias_add_grad_gradient,
    kernel=Kernel(prepare=_prepare_bias_add_grad, scratch=_bias_add_grad_scratch),
    inputs=("out_backprop",),
    doc="The sum over all axes but the last.",
)


# Softmax ------------------------------------------------------------------------------------------


@checked
def softmax(logits: Any, axis: AxisOrTensor | None = None, name: Name = None) -> Tensor:
    """exp(logits) / sum(exp(logits)) along an axis, by default the last one; floating, halves as float32.

    Raises InvalidArgumentError for an axis that `logits` lacks, or a scalar.
    """
    return through_float32(lambda x, name: _along("softmax", Softmax, x, axis, name), logits, name)


@checked
def log_softmax(logits: Any, axis: AxisOrTensor | None = None, name: Name = None) -> Tensor:
    """logits - log(sum(exp(logits))) along an axis, by default the last one, without overflow.

    Halves are computed as float32. Raises InvalidArgumentError for an axis that `logits` lacks, or a scalar.
    """
    return through_float32(lambda x, name: _along("log_softmax", LogSoftmax, x, axis, name), logits, name)


def _along(
    op: str, of_last: Callable[..., Any], logits: Tensor, axis: int | Tensor | None, name: str | None
) -> Tensor:
    """Result of an op of the last axis, computed along another one."""
    if isinstance(axis, Tensor):
        moved = MovedAxes(logits, axis)
        return moved.back(of_last(moved.last), name)
    order = order_with_last(op, logits, axis)
    if order is None:
        result: Tensor = of_last(logits, name=name)
        return result
    with logits.graph.as_default(), name_scope(name or op):
        return transpose(of_last(transpose(logits, order)), [order.index(old) for old in range(len(order))])


def order_with_last(op: str, x: Tensor, axis: int | None) -> list[int] | None:
    """Order of the axes of `x` that puts `axis` last; None if it is there already.

    Raises InvalidArgumentError for an axis that `x` lacks, and for any but the last if its rank is not known.
    """
    rank = x.shape.ndims
    if axis in (None, -1):
        return None
    if rank is None:
        raise InvalidArgumentError(
            f"{op}: axis {axis} of {x.name}, whose rank is not known: expected -1, the last; "
            "give it a shape by set_shape"
        )
    number = checked_axis(op, axis, rank)
    return None if number == rank - 1 else [*range(number), *range(number + 1, rank), number]


def _softmax_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("softmax", inputs[0], FLOATING, "logits")
    if inputs[0].shape == ():
        raise InvalidArgumentError("softmax: logits is a scalar, expected [..., classes]")
    return TensorSpec(inputs[0].shape, inputs[0].dtype)


def _row_scratch(node: NodeSpec) -> list[TensorSpec]:
    return [TensorSpec((*node.inputs[0].extents[:-1], 1), node.inputs[0].dtype)]


def _softmax_kernel(call: KernelCall) -> None:
    (logits,), (result,), (row,) = call.inputs, call.outputs, call.scratch
    if not result.size:
        return
    np.maximum.reduce(logits, axis=-1, keepdims=True, out=row)
    np.subtract(logits, row, out=result)
    np.exp(result, out=result)
    np.add.reduce(result, axis=-1, keepdims=True, out=row)
    np.divide(result, row, out=result)


def _log_softmax_scratch(node: NodeSpec) -> list[TensorSpec]:
    return [*_row_scratch(node), TensorSpec(node.inputs[0].shape, node.inputs[0].dtype)]


def _log_softmax_kernel(call: KernelCall) -> None:
    (logits,), (result,), (row, powers) = call.inputs, call.outputs, call.scratch
    if not result.size:
        return
    np.maximum.reduce(logits, axis=-1, keepdims=True, out=row)
    np.subtract(logits, row, out=result)
    np.exp(result, out=powers)
    np.add.reduce(powers, axis=-1, keepdims=True, out=row)
    np.log(row, out=row)
    np.subtract(result, row, out=result)


def _softmax_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    result = op.outputs[0]
    mean = reduce_sum(multiply(gradient, result), -1, keepdims=True)
    return [multiply(subtract(gradient, mean), result)]


def _log_softmax_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    total = reduce_sum(gradient, -1, keepdims=True)
    return [subtract(gradient, multiply(total, exp(op.outputs[0])))]


Softmax = define_op(
    "Softmax",
    spec=_softmax_spec,
    gradient=_softmax_gradient,
    kernel=Kernel(run=_softmax_kernel, scratch=_row_scratch, inplace=((0, 0),)),
    inputs=("logits",),
)
LogSoftmax = define_op(
    "LogSoftmax",
    spec=_softmax_spec,
    gradient=_log_softmax_gradient,
    kernel=Kernel(run=_log_softmax_kernel, scratch=_log_softmax_scratch, inplace=((0, 0),)),
    inputs=("logits",),
)


# L2 loss ------------------------------------------------------------------------------------------


@checked
def l2_loss(t: Any, name: Name = None) -> Tensor:
    """sum(t ** 2) / 2 over all elements, a scalar; floating, halves as float32."""
    return through_float32(lambda x, name: L2Loss.tensor(x, name=name), t, name)


def _l2_loss_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("l2_loss", inputs[0], FLOATING)
    return TensorSpec((), inputs[0].dtype)


def _prepare_l2_loss(call: KernelCall) -> Callable[[], None]:
    (t,), (loss,) = call.inputs, call.outputs
    axes = list(range(t.ndim))

    def step() -> None:
        np.einsum(t, axes, t, axes, [], out=loss)  # avoids an array of squares
        np.multiply(loss, 0.5, out=loss)

    return step


L2Loss = define_op(
    "L2Loss",
    spec=_l2_loss_spec,
    gradient=lambda op, gradient: [multiply(gradient, op.inputs[0])],
    kernel=Kernel(prepare=_prepare_l2_loss),
    inputs=("t",),
)


# Dropout ------------------------------------------------------------------------------------------


@checked
def dropout(
    x: Any,
    keep_prob: Rate | None = None,
    noise_shape: Extents | None = None,
    seed: Seed = None,
    name: Name = None,
    rate: Rate | None = None,
) -> Tensor:
    """Sets elements of `x` to zero with probability `rate`, and divides the others by 1 - rate.

    `rate` is a number or a scalar tensor in [0, 1); `keep_prob` = 1 - rate is TensorFlow's older form.
    The mask has the shape of `x`, or `noise_shape` and broadcasts. The gradient uses the same
    mask. The number 0 returns `x` itself; a fed rate that is not in [0, 1) gives NaN.

    Raises InvalidArgumentError for a rate out of range, both or neither of `rate` and `keep_prob`, integers.
    """
    x = as_tensor(x)
    if (rate is None) == (keep_prob is None):
        raise InvalidArgumentError("dropout: give rate, or keep_prob = 1 - rate, and not both")
    if not x.dtype.is_floating:
        raise InvalidArgumentError(
            f"dropout: {x.name} has dtype {x.dtype.name}, expected floating; use tb.cast"
        )
    if keep_prob is not None:
        rate = subtract(1.0, keep_prob) if is_tensor(keep_prob) else 1.0 - keep_prob
    if isinstance(rate, (int, float)) and rate == 0:
        return identity(x, name=name or "dropout")
    rate = as_tensor(rate, x.dtype)
    if rate.spec.value is not None and not 0 <= rate.spec.value < 1:
        raise InvalidArgumentError(f"dropout: rate {rate.spec.value} must be in [0, 1) (keep_prob in (0, 1])")
    with x.graph.as_default(), name_scope(name or "dropout"):
        wanted = shape(x) if noise_shape is None else as_shape_vector(noise_shape)
        return multiply(x, dropout_mask(wanted, rate, seed=seed))


# Compositions -------------------------------------------------------------------------------------


@checked
def xw_plus_b(x: Any, weights: Any, biases: Any, name: Name = None) -> Tensor:
    """matmul(x, weights) + biases: `x` [batch, inputs], `weights` [inputs, units], `biases` [units]."""
    return bias_add(matmul(x, weights), biases, name=name)


@checked
def relu_layer(x: Any, weights: Any, biases: Any, name: Name = None) -> Tensor:
    """relu of `xw_plus_b`."""
    return relu(xw_plus_b(x, weights, biases), name)


@checked
def zero_fraction(value: Any, name: Name = None) -> Tensor:
    """The fraction of elements that are 0, a float32 scalar."""
    tensor = as_tensor(value)
    with tensor.graph.as_default(), name_scope(name or "zero_fraction"):
        return reduce_mean(cast(equal(tensor, 0), float32))


@checked
def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: PartitionStrategy = "mod",
    name: Name = None,
    validate_indices: Flag = True,
    max_norm: NormLimit = None,
) -> Tensor:
    """The rows `ids` of a table: `tb.gather(params, ids)`, whose gradient is sparse.

    params: the table, or its shards, a list or a `tb.PartitionedVariable`: their rows are gathered on the
    shards' devices ("div" has the order of a PartitionedVariable's rows). Their
    gradients have a row of zeros with the index -1, which no update applies, for each id of another shard.
    partition_strategy: "mod": row i is row i // n of shard i mod n; "div": shards have neighbouring rows, the
    first ones one more. max_norm: rows of a greater 2-norm are scaled to it, which needs known ranks.
    `validate_indices` is ignored (TensorFlow's). Raises InvalidArgumentError for shards that do not fit
    together.
    """
    if max_norm is not None:
        with name_scope(name or "embedding_lookup"):
            return with_norms_up_to(
                max_norm, embedding_lookup(params, ids, partition_strategy), as_tensor(ids)
            )
    params = getattr(params, "parts", params)
    if isinstance(params, (list, tuple)):
        if len(params) > 1:
            with name_scope(name or "embedding_lookup"):
                return lookup_in_shards(params, ids, partition_strategy)
        if not params:
            raise refuse("embedding_lookup", "params", "a table or a list of its shards", params)
        (params,) = params
    return gather(params, ids, name=name)
