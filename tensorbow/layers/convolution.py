"""Convolutions of sequences, and of each channel of images alone."""

from __future__ import annotations

from typing import Annotated, Any

from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import Flag, Name, Positive, checked, one_of
from tensorbow.layers.building import (
    FORMATS,
    Activation,
    Format,
    Padding,
    Pair,
    biased,
    known_extent,
    layer_scope,
    read_pair,
)
from tensorbow.ops.arrays import expand_dims, squeeze
from tensorbow.ops.average_pooling import avg_pool2d
from tensorbow.ops.conv import conv2d
from tensorbow.ops.conv1d import conv1d as convolve
from tensorbow.ops.depthwise import depthwise_conv2d as convolve_channels
from tensorbow.ops.pooling import max_pool2d
from tensorbow.ops.slicing import pad
from tensorbow.variable_scope import Reuse, Start, get_variable

__all__ = [
    "average_pooling1d",
    "conv1d",
    "depthwise_conv2d",
    "max_pooling1d",
    "separable_conv2d",
]


@checked
def conv1d(
    inputs: Any,
    filters: Positive,
    kernel_size: Positive,
    strides: Positive = 1,
    padding: Annotated[str, one_of("valid", "same", "causal", any_case=True)] = "valid",
    data_format: Format = "channels_last",
    dilation_rate: Positive = 1,
    activation: Activation = None,
    use_bias: Flag = True,
    kernel_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    *,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Convolution of sequences `[batch, steps, channels]`, or channels_first, plus a bias.

    padding `causal` pads in front, so that no output depends on later steps (van den Oord et al., 2016).
    Raises InvalidArgumentError if the number of channels is unknown.
    """
    sequences = convert_to_tensor(inputs)
    layout, last = FORMATS[data_format], data_format == "channels_last"
    channels = known_extent("conv1d", sequences, -1 if last else 1)
    with sequences.graph.as_default(), layer_scope(name, "conv1d", reuse):
        shape = [kernel_size, channels, filters]
        kernel = get_variable("kernel", shape, sequences.dtype, kernel_initializer, trainable=trainable)
        if padding == "causal":
            before = [(kernel_size - 1) * dilation_rate, 0]
            sequences = pad(sequences, [[0, 0], before, [0, 0]] if last else [[0, 0], [0, 0], before])
        how = "SAME" if padding == "same" else "VALID"
        format_of_op = "NWC" if last else "NCW"
        result = convolve(sequences, kernel, strides, how, format_of_op, dilation_rate)
        if use_bias:
            rows = expand_dims(result, 1 if last else 2)
            result = squeeze(biased(rows, filters, bias_initializer, trainable, layout), 1 if last else 2)
        return result if activation is None else activation(result)


@checked
def depthwise_conv2d(
    inputs: Any,
    kernel_size: Pair,
    strides: Pair = 1,
    padding: Padding = "valid",
    depth_multiplier: Positive = 1,
    data_format: Format = "channels_last",
    dilation_rate: Pair = 1,
    activation: Activation = None,
    use_bias: Flag = True,
    depthwise_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    *,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Convolution of each channel of images with `depth_multiplier` filters of its own, plus a bias.

    Images `[batch, height, width, channels]`, or channels_first; `channels * depth_multiplier` channels.
    Raises InvalidArgumentError if the number of channels is unknown, and for strides and a dilation_rate that
    both are not 1.
    """
    images = convert_to_tensor(inputs)
    layout = FORMATS[data_format]
    with images.graph.as_default(), layer_scope(name, "depthwise_conv2d", reuse):
        result, channels = _each_channel(
            *("depthwise_conv2d", images, kernel_size, strides, padding, depth_multiplier, layout),
            *(dilation_rate, depthwise_initializer, trainable),
        )
        if use_bias:
            result = biased(result, channels, bias_initializer, trainable, layout)
        return result if activation is None else activation(result)


@checked
def separable_conv2d(
    inputs: Any,
    filters: Positive,
    kernel_size: Pair,
    strides: Pair = 1,
    padding: Padding = "valid",
    data_format: Format = "channels_last",
    dilation_rate: Pair = 1,
    depth_multiplier: Positive = 1,
    activation: Activation = None,
    use_bias: Flag = True,
    depthwise_initializer: Start | None = None,
    pointwise_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    *,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Depthwise convolution, then a 1x1 convolution to `filters` channels, plus a bias (Chollet, 2017).

    Images `[batch, height, width, channels]`, or channels_first.
    Raises InvalidArgumentError if the number of channels is unknown, and for strides and a dilation_rate that
    both are not 1.
    """
    images = convert_to_tensor(inputs)
    layout = FORMATS[data_format]
    with images.graph.as_default(), layer_scope(name, "separable_conv2d", reuse):
        hidden, channels = _each_channel(
            *("separable_conv2d", images, kernel_size, strides, padding, depth_multiplier, layout),
            *(dilation_rate, depthwise_initializer, trainable),
        )
        shape = [1, 1, channels, filters]
        mixing = get_variable(
            "pointwise_kernel", shape, images.dtype, pointwise_initializer, trainable=trainable
        )
        result = conv2d(hidden, mixing, 1, "VALID", data_format=layout)
        if use_bias:
            result = biased(result, filters, bias_initializer, trainable, layout)
        return result if activation is None else activation(result)


def _each_channel(
    layer: str,
    images: Tensor,
    kernel_size: Any,
    strides: Any,
    padding: str,
    multiplier: int,
    layout: str,
    dilation_rate: Any,
    initializer: Any,
    trainable: bool,
) -> tuple[Tensor, int]:
    """The depthwise convolution with a new variable `depthwise_kernel`, and its number of channels."""
    channels = known_extent(layer, images, -1 if layout == "NHWC" else 1)
    shape = [*read_pair(kernel_size), channels, multiplier]
    kernel = get_variable("depthwise_kernel", shape, images.dtype, initializer, trainable=trainable)
    first = [1, 1] if layout == "NCHW" else []
    steps, rates = ([*first, *read_pair(given)] for given in (strides, dilation_rate))
    result = convolve_channels(images, kernel, steps, padding.upper(), rates, data_format=layout)
    return result, channels * multiplier


@checked
def max_pooling1d(
    inputs: Any,
    pool_size: Positive,
    strides: Positive,
    padding: Padding = "valid",
    data_format: Format = "channels_last",
    name: Name = None,
) -> Tensor:
    """The maximum of each window of sequences `[batch, steps, channels]`, or channels_first."""
    return _pooled(max_pool2d, inputs, pool_size, strides, padding, data_format, name)


@checked
def average_pooling1d(
    inputs: Any,
    pool_size: Positive,
    strides: Positive,
    padding: Padding = "valid",
    data_format: Format = "channels_last",
    name: Name = None,
) -> Tensor:
    """The mean of each window of sequences `[batch, steps, channels]`, or channels_first."""
    return _pooled(avg_pool2d, inputs, pool_size, strides, padding, data_format, name)


def _pooled(
    pool: Any, inputs: Any, size: int, strides: int, padding: str, data_format: str, name: str | None
) -> Tensor:
    axis = 1 if data_format == "channels_last" else 2
    images = expand_dims(inputs, axis)
    pooled = pool(images, (1, size), (1, strides), padding.upper(), FORMATS[data_format], name)
    return squeeze(pooled, axis)
