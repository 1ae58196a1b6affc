"""Layers that connect everything, drop, flatten and embed; convolutions of images; batch normalisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys, Tensor, convert_to_tensor
from tensorbow.kinds import AsDType, AxisNumber, Flag, Function, Name, NonNegative, Positive, Seed, checked
from tensorbow.layers.building import (
    FORMATS,
    Activation,
    Format,
    NoiseShape,
    Padding,
    Pair,
    Rate,
    Share,
    Training,
    biased,
    known_extent,
    layer_scope,
    read_pair,
)
from tensorbow.ops.arrays import reshape
from tensorbow.ops.average_pooling import avg_pool2d
from tensorbow.ops.broadcasting import shape, zeros_like
from tensorbow.ops.constant import constant
from tensorbow.ops.control import identity
from tensorbow.ops.conv import conv2d as convolve
from tensorbow.ops.conv import conv2d_transpose as transposed_convolve
from tensorbow.ops.elementwise import multiply, subtract
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import dropout as drop
from tensorbow.ops.nn import embedding_lookup
from tensorbow.ops.normalization import cross_replica_batch_norm, fused_batch_norm
from tensorbow.ops.pooling import max_pool2d
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.selection import cast, where
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import float32, int32, uint8
from tensorbow.variable_scope import Reuse, Start, get_variable
from tensorbow.variables import Variable

__all__ = [
    "average_pooling2d",
    "batch_normalization",
    "conv2d",
    "conv2d_transpose",
    "dense",
    "dropout",
    "embedding",
    "flatten",
    "max_pooling2d",
]


@checked
def dense(
    inputs: Any,
    units: Positive,
    activation: Activation = None,
    use_bias: Flag = True,
    kernel_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    *,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """activation(inputs x kernel + bias): `[..., features]` to `[..., units]`.

    Raises InvalidArgumentError if the number of features is unknown.
    """
    tensor = convert_to_tensor(inputs)
    features = known_extent("dense", tensor, -1)
    with tensor.graph.as_default(), layer_scope(name, "dense", reuse):
        extents = [features, units]
        kernel = get_variable(
            "kernel", extents, tensor.dtype, kernel_initializer, kernel_regularizer, trainable=trainable
        )
        result = matmul(tensor, kernel)
        if use_bias:
            result = biased(result, units, bias_initializer, trainable, regularizer=bias_regularizer)
        return result if activation is None else activation(result)


@checked
def conv2d(
    inputs: Any,
    filters: Positive,
    kernel_size: Pair,
    strides: Pair = 1,
    padding: Padding = "valid",
    data_format: Format = "channels_last",
    dilation_rate: Pair = 1,
    *,
    groups: Positive = 1,
    activation: Activation = None,
    use_bias: Flag = True,
    kernel_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Convolution of images `[batch, height, width, channels]`, or channels_first, plus a bias.

    dilation_rate: distance of a window's elements (Yu and Koltun, 2016). groups: channels and filters are cut
    into as many parts, each convolved alone (Krizhevsky et al., 2012).
    Raises InvalidArgumentError if the number of channels is unknown, or groups do not divide it or filters.
    """
    images = convert_to_tensor(inputs)
    layout = FORMATS[data_format]
    channels = known_extent("conv2d", images, -1 if layout == "NHWC" else 1)
    if channels % groups or filters % groups:
        raise InvalidArgumentError(
            f"conv2d: expected groups that divide {channels} channels and {filters} filters, got {groups}"
        )
    height, width = read_pair(kernel_size)
    steps, rates = [*read_pair(strides)], [*read_pair(dilation_rate)]
    if layout == "NCHW":
        steps, rates = [1, 1, *steps], [1, 1, *rates]
    with images.graph.as_default(), layer_scope(name, "conv2d", reuse):
        shape = [height, width, channels // groups, filters]
        kernel = get_variable(
            "kernel", shape, images.dtype, kernel_initializer, kernel_regularizer, trainable=trainable
        )
        result = convolve(images, kernel, steps, padding.upper(), data_format=layout, dilations=rates)
        if use_bias:
            result = biased(
                result, filters, bias_initializer, trainable, layout, regularizer=bias_regularizer
            )
        return result if activation is None else activation(result)


@checked
def conv2d_transpose(
    inputs: Any,
    filters: Positive,
    kernel_size: Pair,
    strides: Pair = 1,
    padding: Padding = "valid",
    data_format: Format = "channels_last",
    activation: Activation = None,
    use_bias: Flag = True,
    kernel_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    *,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Transposed convolution of images `[batch, height, width, channels]`, or channels_first, plus a bias.

    Height and width are multiplied by the strides; with padding `valid` the kernel's size minus the stride is
    added, if positive. The kernel is `[height, width, filters, channels]`.
    Raises InvalidArgumentError if the height, the width or the number of channels is unknown.
    """
    images = convert_to_tensor(inputs)
    layout = FORMATS[data_format]
    last = layout == "NHWC"
    channels = known_extent("conv2d_transpose", images, -1 if last else 1)
    size, steps = read_pair(kernel_size), read_pair(strides)
    sides = [
        known_extent("conv2d_transpose", images, axis) * step + (padding == "valid") * max(extent - step, 0)
        for axis, extent, step in zip((1, 2) if last else (2, 3), size, steps, strict=True)
    ]
    with images.graph.as_default(), layer_scope(name, "conv2d_transpose", reuse):
        extents = [*size, filters, channels]
        kernel = get_variable(
            "kernel", extents, images.dtype, kernel_initializer, kernel_regularizer, trainable=trainable
        )
        batch = images.shape[0]
        rest = [*sides, filters] if last else [filters, *sides]
        result = transposed_convolve(
            images,
            kernel,
            [strided_slice(shape(images), 0) if batch is None else batch, *rest],
            [*steps] if last else [1, 1, *steps],
            padding.upper(),
            layout,
        )
        result.set_shape([batch, *rest])
        if use_bias:
            result = biased(
                result, filters, bias_initializer, trainable, layout, regularizer=bias_regularizer
            )
        return result if activation is None else activation(result)


@checked
def max_pooling2d(
    inputs: Any,
    pool_size: Pair,
    strides: Pair,
    padding: Padding = "valid",
    data_format: Format = "channels_last",
    name: Name = None,
) -> Tensor:
    """The maximum of each window of images `[batch, height, width, channels]`, or channels_first.

    pool_size and strides: an integer, or (height, width). Raises the errors of `tb.nn.max_pool2d`.
    """
    layout = FORMATS[data_format]
    return max_pool2d(inputs, pool_size, strides, padding.upper(), layout, name)


@checked
def average_pooling2d(
    inputs: Any,
    pool_size: Pair,
    strides: Pair,
    padding: Padding = "valid",
    data_format: Format = "channels_last",
    name: Name = None,
) -> Tensor:
    """The mean of each window of images `[batch, height, width, channels]`, or channels_first.

    pool_size and strides: an integer, or (height, width). Raises the errors of `tb.nn.avg_pool2d`.
    """
    layout = FORMATS[data_format]
    return avg_pool2d(inputs, pool_size, strides, padding.upper(), layout, name)


@checked
def dropout(
    inputs: Any,
    rate: Rate = 0.5,
    noise_shape: NoiseShape | None = None,
    seed: Seed = None,
    training: Training = False,
    name: Name = None,
) -> Tensor:
    """Dropout with probability `rate` in training, see `tb.nn.dropout`; otherwise the inputs.

    training: True, False or, for one graph that serves both, a scalar tensor of bools, such as a placeholder.
    """
    tensor = convert_to_tensor(inputs)
    if isinstance(training, Tensor):
        rate = where(training, convert_to_tensor(rate, tensor.dtype), 0.0)
    elif not training:
        return identity(tensor, name=name or "dropout")
    return drop(tensor, noise_shape=noise_shape, seed=seed, name=name, rate=rate)


@checked
def flatten(inputs: Any) -> Tensor:
    """Reshapes `[batch, ...]` to `[batch, product of the rest]`."""
    tensor = convert_to_tensor(inputs)
    dims = tensor.spec.shape
    rest = [] if dims is None else [extent for extent in dims[1:] if extent is not None]
    if dims is not None and len(rest) == len(dims[1:]):
        return reshape(tensor, [-1, math.prod(rest)])
    extents = shape(tensor)
    return reshape(tensor, [strided_slice(extents, 0), reduce_prod(strided_slice(extents, np.s_[1:]))])


@checked
def batch_normalization(
    inputs: Any,
    axis: AxisNumber = -1,
    momentum: Share = 0.99,
    epsilon: NonNegative = 0.001,
    center: Flag = True,
    scale: Flag = True,
    beta_initializer: Start = "zeros",
    gamma_initializer: Start = "ones",
    moving_mean_initializer: Start = "zeros",
    moving_variance_initializer: Start = "ones",
    *,
    training: Training = False,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
    cross_replica: Flag = False,
) -> Tensor:
    """Batch normalisation (Ioffe and Szegedy, 2015) of `[..., channels]`, or with axis 1 of NCHW images.

    In training it uses the batch's statistics, otherwise moving averages: moving = momentum * moving +
    (1 - momentum) * batch. The ops that update the averages are in the collection UPDATE_OPS; run them with
    the training step, as in TensorFlow:

        with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss)

    gamma and beta are trained without weight decay. Each replica has its own statistics; the
    central model has their mean. With `cross_replica` the statistics in training are those of the batches of
    all replicas together (`tb.nn.cross_replica_batch_norm`).

    training: True, False or a scalar tensor of bools, such as a placeholder. With a tensor both ways are
    computed and one is chosen, which takes longer; the moving averages change in training only. The layer
    built a second time with reuse=True, and the other bool, does without.
    """
    tensor = convert_to_tensor(inputs)
    rank = tensor.shape.ndims
    last = rank is not None and axis in (-1, rank - 1)
    if rank is not None and not last and (axis not in (1, -3) or rank != 4):
        raise InvalidArgumentError(
            f"batch_normalization: axis must be the last one, or 1 of images; got {axis} for {tensor.spec}"
        )
    channels = known_extent("batch_normalization", tensor, axis)
    dtype = tensor.dtype
    with tensor.graph.as_default(), layer_scope(name, "batch_normalization", reuse):

        def vector(label: str, initializer: Any, learned: bool) -> Variable:
            how = None if learned and trainable else "mean"
            return get_variable(
                label,
                [channels],
                dtype,
                initializer,
                trainable=learned and trainable,
                combine=how,
                decayed=False,
            )

        def factor(label: str, initializer: Any, wanted: bool, value: float) -> Any:
            return vector(label, initializer, True) if wanted else constant(value, dtype, [channels])

        gamma = factor("gamma", gamma_initializer, scale, 1.0)
        beta = factor("beta", beta_initializer, center, 0.0)
        moving = (
            vector("moving_mean", moving_mean_initializer, False),
            vector("moving_variance", moving_variance_initializer, False),
        )
        layout = "NHWC" if last else "NCHW"
        if training is False:
            return fused_batch_norm(tensor, gamma, beta, *moving, epsilon, layout, is_training=False)[0]
        normalise = cross_replica_batch_norm if cross_replica else fused_batch_norm
        result, *batch = normalise(tensor, gamma, beta, epsilon=epsilon, data_format=layout)
        for average, value in zip(moving, batch, strict=True):
            step = multiply(subtract(average.value(), value), 1.0 - momentum)
            if training is not True:
                step = where(training, step, zeros_like(step))
            tensor.graph.add_to_collection(GraphKeys.UPDATE_OPS, average.assign_sub(step))
        if training is True:
            return result
        evaluated = fused_batch_norm(tensor, gamma, beta, *moving, epsilon, layout, is_training=False)[0]
        return where(training, result, evaluated)


@checked
def embedding(
    inputs: Any,
    input_dim: Positive,
    output_dim: Positive,
    embeddings_initializer: Start = "random_uniform",
    *,
    trainable: Flag = True,
    dtype: AsDType = float32,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Rows of a new variable `[input_dim, output_dim]`: from `[...]` whole numbers to `[..., output_dim]`.

    The inputs are int32, int64 or uint8, from 0 to input_dim - 1; others raise InvalidArgumentError at run
    time. The gradient is sparse (`tb.IndexedSlices`).
    """
    ids = convert_to_tensor(inputs)
    with ids.graph.as_default(), layer_scope(name, "embedding", reuse):
        table = get_variable(
            "embeddings", [input_dim, output_dim], dtype, embeddings_initializer, trainable=trainable
        )
        return embedding_lookup(table, cast(ids, int32) if ids.dtype == uint8 else ids)
