"""Separable convolution of sequences."""

from __future__ import annotations

from typing import Any

from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import Flag, Function, Name, Positive, checked
from tensorbow.layers.building import (
    FORMATS,
    Activation,
    Format,
    PaddingOrCausal,
    completed,
    known_extent,
    layer_scope,
)
from tensorbow.layers.convolution import padded_steps
from tensorbow.ops.arrays import expand_dims, squeeze
from tensorbow.ops.conv import conv2d
from tensorbow.ops.depthwise import depthwise_conv2d
from tensorbow.variable_scope import Reuse, Start, get_variable

__all__ = ["separable_conv1d"]


@checked
def separable_conv1d(
    inputs: Any,
    filters: Positive,
    kernel_size: Positive,
    strides: Positive = 1,
    padding: PaddingOrCausal = "valid",
    data_format: Format = "channels_last",
    dilation_rate: Positive = 1,
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
    """Convolution of each channel, then of all at each step to `filters` ones, plus a bias (Chollet, 2017).

    Sequences `[batch, steps, channels]`, or channels_first. padding is as in `conv1d`.
    Raises InvalidArgumentError if the number of channels is unknown, and for strides and a dilation_rate that
    both are not 1.
    """
    sequences = convert_to_tensor(inputs)
    last = data_format == "channels_last"
    channels = known_extent("separable_conv1d", sequences, -1 if last else 1)
    axis, layout = (1 if last else 2), FORMATS[data_format]
    with sequences.graph.as_default(), layer_scope(name, "separable_conv1d", reuse):
        dtype, deep = sequences.dtype, channels * depth_multiplier
        own = get_variable(
            *("depthwise_kernel", [kernel_size, channels, depth_multiplier], dtype),
            *(depthwise_initializer, depthwise_regularizer),
            trainable=trainable,
        )
        mixing = get_variable(
            *("pointwise_kernel", [1, deep, filters], dtype, pointwise_initializer, pointwise_regularizer),
            trainable=trainable,
        )
        sequences, how = padded_steps(sequences, padding, kernel_size, dilation_rate, last)
        images, kernel = expand_dims(sequences, axis), expand_dims(own, 0)
        first = [1] if last else [1, 1, 1]
        steps, rates = [*first, strides], [*first, dilation_rate]
        hidden = depthwise_conv2d(images, kernel, steps, how, rates, data_format=layout)
        result = squeeze(conv2d(hidden, expand_dims(mixing, 0), 1, "VALID", data_format=layout), axis)
        bias = use_bias, bias_initializer, bias_regularizer, trainable
        return completed(result, filters, *bias, activation, "NWC" if last else "NCW")
