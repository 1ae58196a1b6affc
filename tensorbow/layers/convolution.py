"""Convolutions of images and sequences, and pooling."""

from __future__ import annotations

from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import Flag, Function, Name, Positive, checked
from tensorbow.layers.building import (
    FORMATS,
    Activation,
    Format,
    PaddingOfSteps,
    PaddingOrCausal,
    PaddingOrWidth,
    Pair,
    RowsAndColumns,
    completed,
    known_extent,
    layer_scope,
    read_pair,
)
from tensorbow.layers.window_padding import for_convolution, for_maximum, for_mean, for_transposed, transposed
from tensorbow.ops.arrays import expand_dims, squeeze
from tensorbow.ops.average_pooling import avg_pool2d
from tensorbow.ops.conv import conv2d as convolve
from tensorbow.ops.conv import conv2d_transpose as transposed_convolve
from tensorbow.ops.conv1d import conv1d as convolve_steps
from tensorbow.ops.depthwise import depthwise_conv2d as convolve_channels
from tensorbow.ops.padding import pad
from tensorbow.ops.pooling import max_pool2d
from tensorbow.variable_scope import Reuse, Start, get_variable

__all__ = [
    "average_pooling1d",
    "average_pooling2d",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "depthwise_conv2d",
    "max_pooling1d",
    "max_pooling2d",
    "separable_conv2d",
]


@checked
def conv2d(
    inputs: Any,
    filters: Positive,
    kernel_size: Pair,
    strides: Pair = 1,
    padding: PaddingOrWidth = "valid",
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

    padding: `same` as in TensorFlow, where windows of stride 2 may have one row more behind than in front;
    or the rows and columns of zeros on each side, one number or two, as in PyTorch.
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
    windows = list(zip((height, width), steps, rates, strict=True))
    if layout == "NCHW":
        steps, rates = [1, 1, *steps], [1, 1, *rates]
    with images.graph.as_default(), layer_scope(name, "conv2d", reuse):
        images, how = for_convolution(images, padding, windows, layout)
        shape = [height, width, channels // groups, filters]
        kernel = get_variable(
            "kernel", shape, images.dtype, kernel_initializer, kernel_regularizer, trainable=trainable
        )
        result = convolve(images, kernel, steps, how, data_format=layout, dilations=rates)
        bias = use_bias, bias_initializer, bias_regularizer, trainable
        return completed(result, filters, *bias, activation, layout)


@checked
def conv2d_transpose(
    inputs: Any,
    filters: Positive,
    kernel_size: Pair,
    strides: Pair = 1,
    padding: PaddingOrWidth = "valid",
    data_format: Format = "channels_last",
    activation: Activation = None,
    use_bias: Flag = True,
    kernel_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    *,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    output_padding: RowsAndColumns = None,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Transposed convolution of images `[batch, height, width, channels]`, or channels_first, plus a bias.

    Height and width are multiplied by the strides; with padding `valid` the kernel's size minus the stride is
    added, if positive. The kernel is `[height, width, filters, channels]`.
    padding: a number, or (rows, columns), is cut off on each side of what windows cover, as in PyTorch:
    `(height - 1) * stride + size - 2 * padding + output_padding` rows are left. output_padding: rows and
    columns added behind, below the strides; only with such a padding.
    Raises InvalidArgumentError if the height, the width or the number of channels is unknown.
    """
    images = convert_to_tensor(inputs)
    layout = FORMATS[data_format]
    last = layout == "NHWC"
    channels = known_extent("conv2d_transpose", images, -1 if last else 1)
    size, steps = read_pair(kernel_size), read_pair(strides)
    extents = [known_extent("conv2d_transpose", images, axis) for axis in ((1, 2) if last else (2, 3))]
    windows = [*zip(size, steps, strict=True)]
    sides, how, cut = for_transposed("conv2d_transpose", extents, padding, windows, output_padding)
    with images.graph.as_default(), layer_scope(name, "conv2d_transpose", reuse):
        kernel_shape = [*size, filters, channels]
        kernel = get_variable(
            "kernel",
            kernel_shape,
            images.dtype,
            kernel_initializer,
            kernel_regularizer,
            trainable=trainable,
        )
        strides = [*steps] if last else [1, 1, *steps]
        rest = [*sides, filters] if last else [filters, *sides]
        result = transposed(transposed_convolve, images, kernel, rest, strides, how, layout, cut)
        bias = use_bias, bias_initializer, bias_regularizer, trainable
        return completed(result, filters, *bias, activation, layout)


@checked
def conv1d(
    inputs: Any,
    filters: Positive,
    kernel_size: Positive,
    strides: Positive = 1,
    padding: PaddingOrCausal = "valid",
    data_format: Format = "channels_last",
    dilation_rate: Positive = 1,
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
    """Convolution of sequences `[batch, steps, channels]`, or channels_first, plus a bias.

    padding `causal` pads in front, so that no output depends on later steps (van den Oord et al., 2016); a
    number is that of zeros on each side, as in PyTorch.
    Raises InvalidArgumentError if the number of channels is unknown.
    """
    sequences = convert_to_tensor(inputs)
    last = data_format == "channels_last"
    channels = known_extent("conv1d", sequences, -1 if last else 1)
    with sequences.graph.as_default(), layer_scope(name, "conv1d", reuse):
        shape = [kernel_size, channels, filters]
        kernel = get_variable(
            "kernel", shape, sequences.dtype, kernel_initializer, kernel_regularizer, trainable=trainable
        )
        sequences, how = padded_steps(sequences, padding, kernel_size, dilation_rate, last)
        format_of_op = "NWC" if last else "NCW"
        result = convolve_steps(sequences, kernel, strides, how, format_of_op, dilation_rate)
        bias = use_bias, bias_initializer, bias_regularizer, trainable
        return completed(result, filters, *bias, activation, format_of_op)


def padded_steps(
    sequences: Tensor, padding: Any, kernel_size: int, dilation_rate: int, last: bool
) -> tuple[Tensor, str]:
    """Sequences with the zeros of a padding as of `conv1d`, and the padding of the op that is left."""
    if padding in ("valid", "same", 0):
        return sequences, "SAME" if padding == "same" else "VALID"
    sides = [(kernel_size - 1) * dilation_rate, 0] if padding == "causal" else [padding, padding]
    return pad(sequences, [[0, 0], sides, [0, 0]] if last else [[0, 0], [0, 0], sides]), "VALID"


@checked
def depthwise_conv2d(
    inputs: Any,
    kernel_size: Pair,
    strides: Pair = 1,
    padding: PaddingOrWidth = "valid",
    depth_multiplier: Positive = 1,
    data_format: Format = "channels_last",
    dilation_rate: Pair = 1,
    activation: Activation = None,
    use_bias: Flag = True,
    depthwise_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    *,
    depthwise_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Convolution of each channel of images with `depth_multiplier` filters of its own, plus a bias.

    Images `[batch, height, width, channels]`, or channels_first; `channels * depth_multiplier` channels.
    padding is as in `conv2d`.
    Raises InvalidArgumentError if the number of channels is unknown, and for strides and a dilation_rate that
    both are not 1.
    """
    images = convert_to_tensor(inputs)
    layout = FORMATS[data_format]
    with images.graph.as_default(), layer_scope(name, "depthwise_conv2d", reuse):
        result, channels = _each_channel(
            *("depthwise_conv2d", images, kernel_size, strides, padding, depth_multiplier, layout),
            *(dilation_rate, depthwise_initializer, depthwise_regularizer, trainable),
        )
        bias = use_bias, bias_initializer, bias_regularizer, trainable
        return completed(result, channels, *bias, activation, layout)


@checked
def separable_conv2d(
    inputs: Any,
    filters: Positive,
    kernel_size: Pair,
    strides: Pair = 1,
    padding: PaddingOrWidth = "valid",
    data_format: Format = "channels_last",
    dilation_rate: Pair = 1,
    depth_multiplier: Positive = 1,
    activation: Activation = None,
    use_bias: Flag = True,
    depthwise_initializer: Start | None = None,
    pointwise_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    *,
    depthwise_regularizer: Function | None = None,
    pointwise_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Depthwise convolution, then a 1x1 convolution to `filters` channels, plus a bias (Chollet, 2017).

    Images `[batch, height, width, channels]`, or channels_first. padding is as in `conv2d`.
    Raises InvalidArgumentError if the number of channels is unknown, and for strides and a dilation_rate that
    both are not 1.
    """
    images = convert_to_tensor(inputs)
    layout = FORMATS[data_format]
    with images.graph.as_default(), layer_scope(name, "separable_conv2d", reuse):
        hidden, channels = _each_channel(
            *("separable_conv2d", images, kernel_size, strides, padding, depth_multiplier, layout),
            *(dilation_rate, depthwise_initializer, depthwise_regularizer, trainable),
        )
        shape = [1, 1, channels, filters]
        mixing = get_variable(
            *("pointwise_kernel", shape, images.dtype, pointwise_initializer, pointwise_regularizer),
            trainable=trainable,
        )
        result = convolve(hidden, mixing, 1, "VALID", data_format=layout)
        bias = use_bias, bias_initializer, bias_regularizer, trainable
        return completed(result, filters, *bias, activation, layout)


def _each_channel(
    layer: str,
    images: Tensor,
    kernel_size: Any,
    strides: Any,
    padding: str | tuple[int, int],
    multiplier: int,
    layout: str,
    dilation_rate: Any,
    initializer: Any,
    regularizer: Any,
    trainable: bool,
) -> tuple[Tensor, int]:
    """The depthwise convolution with a new variable `depthwise_kernel`, and its number of channels."""
    channels = known_extent(layer, images, -1 if layout == "NHWC" else 1)
    shape = [*read_pair(kernel_size), channels, multiplier]
    kernel = get_variable(
        "depthwise_kernel", shape, images.dtype, initializer, regularizer, trainable=trainable
    )
    first = [1, 1] if layout == "NCHW" else []
    steps, rates = ([*first, *read_pair(given)] for given in (strides, dilation_rate))
    windows = list(zip(shape[:2], read_pair(strides), read_pair(dilation_rate), strict=True))
    images, how = for_convolution(images, padding, windows, layout)
    result = convolve_channels(images, kernel, steps, how, rates, data_format=layout)
    return result, channels * multiplier


@checked
def max_pooling1d(
    inputs: Any,
    pool_size: Positive,
    strides: Positive,
    padding: PaddingOfSteps = "valid",
    data_format: Format = "channels_last",
    name: Name = None,
) -> Tensor:
    """The maximum of each window of sequences `[batch, steps, channels]`, or channels_first.

    padding: see `max_pooling2d`; a number is that of steps on each side.
    """
    axis, layout = (1 if data_format == "channels_last" else 2), FORMATS[data_format]
    size, sides = (1, pool_size), padding if isinstance(padding, str) else (0, padding)
    windows = [(1, 1, 1), (pool_size, strides, 1)]
    images, how = for_maximum("max_pooling1d", expand_dims(inputs, axis), sides, windows, layout)
    return squeeze(max_pool2d(images, size, (1, strides), how, layout, name), axis)


@checked
def average_pooling1d(
    inputs: Any,
    pool_size: Positive,
    strides: Positive,
    padding: PaddingOfSteps = "valid",
    data_format: Format = "channels_last",
    name: Name = None,
) -> Tensor:
    """The mean of each window of sequences `[batch, steps, channels]`, or channels_first.

    padding: see `average_pooling2d`; a number is that of steps on each side.
    """
    axis, layout = (1 if data_format == "channels_last" else 2), FORMATS[data_format]
    images, how = for_mean(
        expand_dims(inputs, axis), padding if isinstance(padding, str) else (0, padding), layout
    )
    return squeeze(avg_pool2d(images, (1, pool_size), (1, strides), how, layout, name), axis)


@checked
def max_pooling2d(
    inputs: Any,
    pool_size: Pair,
    strides: Pair,
    padding: PaddingOrWidth = "valid",
    data_format: Format = "channels_last",
    name: Name = None,
) -> Tensor:
    """The maximum of each window of images `[batch, height, width, channels]`, or channels_first.

    pool_size and strides: an integer, or (height, width). padding: `same` as in TensorFlow; or the rows and
    columns on each side, one number or two, as in PyTorch, at most half the size. It is never the maximum.
    Raises the errors of `tb.nn.max_pool2d`.
    """
    layout = FORMATS[data_format]
    images = convert_to_tensor(inputs)
    windows = [(size, step, 1) for size, step in zip(read_pair(pool_size), read_pair(strides), strict=True)]
    images, how = for_maximum("max_pooling2d", images, padding, windows, layout)
    return max_pool2d(images, pool_size, strides, how, layout, name)


@checked
def average_pooling2d(
    inputs: Any,
    pool_size: Pair,
    strides: Pair,
    padding: PaddingOrWidth = "valid",
    data_format: Format = "channels_last",
    name: Name = None,
) -> Tensor:
    """The mean of each window of images `[batch, height, width, channels]`, or channels_first.

    pool_size and strides: an integer, or (height, width). padding: `same` as in TensorFlow, which is not
    counted; or the rows and columns of zeros on each side, one number or two, which are, as in PyTorch.
    Raises the errors of `tb.nn.avg_pool2d`.
    """
    layout = FORMATS[data_format]
    images, how = for_mean(convert_to_tensor(inputs), padding, layout)
    return avg_pool2d(images, pool_size, strides, how, layout, name)
