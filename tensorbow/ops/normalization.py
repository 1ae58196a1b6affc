"""Normalisation by moments: of channels (batch normalisation) and of layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import AxisNumber, Count, Flag, Name, NonNegative, Number, checked, is_tensor
from tensorbow.ops.argument_kinds import AxesOrTensor, DataFormat, Rate
from tensorbow.ops.arrays import expand_dims, reshape, squeeze, stack
from tensorbow.ops.batch_norm import FusedBatchNorm
from tensorbow.ops.broadcasting import checked_axis, shape, size
from tensorbow.ops.collectives import all_gather
from tensorbow.ops.constant import constant
from tensorbow.ops.data_format import channels_back, channels_last
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import (
    add,
    divide,
    exp,
    less_equal,
    log,
    maximum,
    multiply,
    pair,
    rsqrt,
    square,
    subtract,
)
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.matmul import matmul
from tensorbow.ops.reductions import reduce_mean, reduce_sum
from tensorbow.ops.selection import cast, through_float32
from tensorbow.ops.shaping import unstack
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import FLOATING

__all__ = [
    "batch_normalization",
    "cross_replica_batch_norm",
    "fused_batch_norm",
    "l2_normalize",
    "layer_norm",
    "local_response_normalization",
    "lrn",
    "moments",
]


@checked
def moments(
    x: Any, axes: AxesOrTensor, shift: Any = None, name: Name = None, keep_dims: Flag = False
) -> tuple[Tensor, Tensor]:
    """Mean and variance (of the population, not of a sample) over `axes`; floating.

    `keep_dims` leaves extents of 1. `shift` is ignored (TensorFlow's): the variance is computed
    from the centred elements.
    """
    tensor = as_tensor(x)
    with tensor.graph.as_default(), name_scope(name or "moments"):
        mean = reduce_mean(tensor, axes, keepdims=True, name="mean")
        variance = reduce_mean(square(subtract(tensor, mean)), axes, keepdims=True, name="variance")
        if keep_dims:
            return mean, variance
        if not is_tensor(axes) and axes == ():
            return mean, variance
        return squeeze(mean, axes), squeeze(variance, axes)


@checked
def local_response_normalization(
    input: Any,
    depth_radius: Count = 5,
    bias: Number = 1.0,
    alpha: Number = 1.0,
    beta: Number = 0.5,
    name: Name = None,
) -> Tensor:
    """`input` / (bias + alpha * s) ** beta (Krizhevsky et al., 2012, section 3.3); floating.

    s: the sum of the squares of the channels at most `depth_radius` away, a product with a matrix of bands.
    input: [batch, height, width, channels], or of any rank with channels at last;
    bias + alpha * s must be positive.
    """
    x = as_tensor(input)
    require_dtype("local_response_normalization", x.spec, FLOATING)
    channels = None if not x.spec.shape else x.spec.shape[-1]
    if x.spec.shape == ():
        raise InvalidArgumentError(f"local_response_normalization: expected channels at last, got {x.spec}")
    with x.graph.as_default(), name_scope(name or "LRN"):
        if channels is None:
            computed = strided_slice(shape(x), -1)
            places = number_range(computed)
            apart = absolute(subtract(expand_dims(places, 1), places))
            band, rows = cast(less_equal(apart, depth_radius), x.dtype), [-1, computed]
        else:
            distance = np.abs(np.subtract.outer(np.arange(channels), np.arange(channels)))
            near = (distance <= depth_radius).astype(x.dtype.as_numpy_dtype)
            band, rows = constant(near), [-1, channels]
        sums = reshape(matmul(reshape(square(x), rows), band), shape(x))
        sums.set_shape(x.shape)
        return multiply(x, exp(multiply(log(add(multiply(sums, alpha), bias)), -beta)))


lrn = local_response_normalization


@checked
def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    offset: Any,
    scale: Any,
    variance_epsilon: Rate,
    name: Name = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + variance_epsilon) * scale + offset (Ioffe and Szegedy, 2015).

    All inputs broadcast; `offset` and `scale` may be None.
    """
    tensor = as_tensor(x)
    with tensor.graph.as_default(), name_scope(name or "batchnorm"):
        factor = rsqrt(add(variance, variance_epsilon))
        if scale is not None:
            factor = multiply(factor, scale)
        shift = multiply(mean, factor)
        rest = multiply(shift, -1) if offset is None else subtract(offset, shift)
        return add(multiply(tensor, factor), rest)


@checked
def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any = None,
    variance: Any = None,
    epsilon: Number = 0.001,
    data_format: DataFormat = "NHWC",
    is_training: Flag = True,
    name: Name = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalisation of `x` [..., channels] by each channel's statistics, in few passes.

    scale, offset, mean, variance: [channels], of the dtype of x, float32 or float64. In training the
    statistics are the batch's, and mean and variance must be None; else `mean` and `variance` are used.
    With data format NCHW, x is [batch, channels, height, width].

    Returns (y, batch_mean, batch_variance). batch_variance, for the moving average, is divided by n - 1; the
    variance that normalises is divided by n. Gradients flow through y only, to x,
    scale and offset, as in TensorFlow; they can be differentiated again.

    Raises InvalidArgumentError for channels that differ, and for mean and variance that are missing
    in evaluation, or given in training.
    """
    if is_training != (mean is None) or is_training != (variance is None):
        raise InvalidArgumentError(
            "fused_batch_norm: give mean and variance with is_training=False, and only then; "
            "moving averages are updated from the results"
        )
    tensor, factor = pair(x, scale)
    with tensor.graph.as_default():
        empty = constant(np.zeros(0, tensor.dtype.as_numpy_dtype))
        y, batch_mean, batch_variance, *_ = FusedBatchNorm(
            channels_last("fused_batch_norm", tensor, data_format),
            factor,
            offset,
            empty if mean is None else mean,
            empty if variance is None else variance,
            epsilon=float(epsilon),
            is_training=bool(is_training),
            name=name,
        )
        return channels_back(y, data_format), batch_mean, batch_variance


@checked
def cross_replica_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    epsilon: Number = 0.001,
    data_format: DataFormat = "NHWC",
    name: Name = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalisation of `x` [..., channels] by the statistics of the batches of all replicas together.

    As `fused_batch_norm` in training, with the joint batch in place of the replica's own (TF-Replicator,
    2019, section 3.4): one exchange gathers each replica's mean and variance `[2, channels]`. The replicas'
    batches have the same shape. Returns (y, mean, variance), of the joint batch; gradients flow through all.
    Raises InvalidArgumentError for an unknown rank.
    """
    tensor = as_tensor(x)
    with tensor.graph.as_default(), name_scope(name or "cross_replica_batchnorm"):
        rows = channels_last("cross_replica_batch_norm", tensor, data_format)
        rank = rows.shape.ndims
        if rank is None or rank < 2:
            raise InvalidArgumentError(
                f"cross_replica_batch_norm: expected x [..., channels] of a known rank, got {tensor.spec}"
            )
        own = all_gather(stack(moments(rows, list(range(rank - 1)))))  # [replicas, 2, channels]
        means, variances = unstack(own, axis=1, num=2)
        mean = reduce_mean(means, 0)
        between = reduce_mean(square(subtract(means, mean)), 0)
        variance = add(reduce_mean(variances, 0), between)
        factor = multiply(rsqrt(add(variance, float(epsilon))), scale)
        y = add(multiply(subtract(rows, mean), factor), offset)
        replicas, _, channels = unstack(shape(own), num=3)
        count = cast(divide(multiply(size(rows), replicas), channels), tensor.dtype)
        unbiased = multiply(variance, divide(count, subtract(count, 1.0)))
        return channels_back(y, data_format), mean, unbiased


@checked
def l2_normalize(
    x: Any, axis: AxesOrTensor = None, epsilon: NonNegative = 1e-12, name: Name = None
) -> Tensor:
    """`x` divided by its Euclidean norm over `axis` (None: all axes), or by sqrt(epsilon) if that is greater.

    Halves are computed as float32. Raises InvalidArgumentError unless x is floating.
    """

    def normalized(tensor: Tensor, name: str | None) -> Tensor:
        require_dtype("l2_normalize", tensor.spec, FLOATING, "x")
        with tensor.graph.as_default(), name_scope(name or "l2_normalize"):
            squares = reduce_sum(square(tensor), axis, keepdims=True)
            return multiply(tensor, rsqrt(maximum(squares, float(epsilon))))

    return through_float32(normalized, x, name)


@checked
def layer_norm(
    x: Any,
    scale: Any = None,
    offset: Any = None,
    epsilon: Number = 1e-3,
    axis: AxisNumber = -1,
    name: Name = None,
) -> Tensor:
    """Normalisation of `x` by each example's moments over the axes from `axis` on (Ba et al., 2016).

    `scale` and `offset` (or None) have the shape of these axes. (x - mean) / sqrt(variance + epsilon) *
    scale + offset; floating. Raises InvalidArgumentError for an unknown rank or an axis out of range.
    """
    tensor = as_tensor(x)
    rank = tensor.shape.ndims
    if rank is None:
        raise InvalidArgumentError(f"layer_norm: the rank of {tensor.name} must be known; use set_shape")
    first = checked_axis("layer_norm", axis, rank)
    with tensor.graph.as_default(), name_scope(name or "layernorm"):
        mean, variance = moments(tensor, list(range(first, rank)), keep_dims=True)
        result = multiply(subtract(tensor, mean), rsqrt(add(variance, epsilon)))
        if scale is not None:
            result = multiply(result, scale)
        return result if offset is None else add(result, offset)
