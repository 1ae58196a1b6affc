"""Convolutions and pooling of volumes [batch, depth, height, width, channels]."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import Flag, Function, Name, Positive, checked, sequence, whole
from tensorbow.layers.building import (
    Activation,
    Format,
    PaddingOrWidths,
    SlicesRowsAndColumns,
    completed,
    known_extent,
    layer_scope,
)
from tensorbow.layers.window_padding import for_convolution, for_maximum, for_mean, for_transposed, transposed
from tensorbow.ops.volumes import avg_pool3d, max_pool3d
from tensorbow.ops.volumes import conv3d as convolve
from tensorbow.ops.volumes import conv3d_transpose as transposed_convolve
from tensorbow.variable_scope import Reuse, Start, get_variable

__all__ = ["average_pooling3d", "conv3d", "conv3d_transpose", "max_pooling3d"]

Triple: TypeAlias = Annotated[Any, sequence(whole(1), "a whole number, or (depth, height, width)", lone=True)]
LAYOUTS = {"channels_last": "NDHWC", "channels_first": "NCDHW"}


def _triple(layer: str, what: str, numbers: tuple[int, ...]) -> tuple[int, int, int]:
    if len(numbers) == 1:
        numbers = numbers * 3
    if len(numbers) != 3:
        raise InvalidArgumentError(f"{layer}: {what} is {list(numbers)}, expected one or three whole numbers")
    return numbers[0], numbers[1], numbers[2]


@checked
def conv3d(
    inputs: Any,
    filters: Positive,
    kernel_size: Triple,
    strides: Triple = (1, 1, 1),
    padding: PaddingOrWidths = "valid",
    data_format: Format = "channels_last",
    dilation_rate: Triple = (1, 1, 1),
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
    """Convolution of volumes `[batch, depth, height, width, channels]`, or channels_first, plus a bias.

    The kernel is `[depth, height, width, channels, filters]`. padding: `same` as in TensorFlow, or the zeros
    on each side of depth, height and width, one number or three, as in PyTorch.
    Raises InvalidArgumentError if an extent other than the batch is unknown.
    """
    volumes, layout = convert_to_tensor(inputs), LAYOUTS[data_format]
    is_last = layout == "NDHWC"
    channels = known_extent("conv3d", volumes, -1 if is_last else 1)
    sizes, steps, gaps = (
        _triple("conv3d", what, value)
        for what, value in (
            ("kernel_size", kernel_size),
            ("strides", strides),
            ("dilation_rate", dilation_rate),
        )
    )
    with volumes.graph.as_default(), layer_scope(name, "conv3d", reuse):
        kernel = get_variable(
            "kernel",
            [*sizes, channels, filters],
            volumes.dtype,
            kernel_initializer,
            kernel_regularizer,
            trainable=trainable,
        )
        windows = [*zip(sizes, steps, gaps, strict=True)]
        volumes, how = for_convolution(volumes, padding, windows, layout)
        result = convolve(volumes, kernel, steps, how, layout, gaps)
        bias = use_bias, bias_initializer, bias_regularizer, trainable
        return completed(result, filters, *bias, activation, layout)


@checked
def conv3d_transpose(
    inputs: Any,
    filters: Positive,
    kernel_size: Triple,
    strides: Triple = (1, 1, 1),
    padding: PaddingOrWidths = "valid",
    data_format: Format = "channels_last",
    activation: Activation = None,
    use_bias: Flag = True,
    kernel_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    *,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    output_padding: SlicesRowsAndColumns = None,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Transposed convolution of volumes `[batch, depth, height, width, channels]`, plus a bias.

    The extents are multiplied by the strides; with padding `valid` the kernel's size minus the stride is
    added, if positive. The kernel is `[depth, height, width, filters, channels]`. padding, output_padding:
    numbers, one or three, as in `conv2d_transpose`.
    """
    volumes, layout = convert_to_tensor(inputs), LAYOUTS[data_format]
    is_last = layout == "NDHWC"
    channels = known_extent("conv3d_transpose", volumes, -1 if is_last else 1)
    sizes = _triple("conv3d_transpose", "kernel_size", kernel_size)
    steps = _triple("conv3d_transpose", "strides", strides)
    axes = (1, 2, 3) if is_last else (2, 3, 4)
    extents = [known_extent("conv3d_transpose", volumes, axis) for axis in axes]
    windows = [*zip(sizes, steps, strict=True)]
    sides, how, cut = for_transposed("conv3d_transpose", extents, padding, windows, output_padding)
    with volumes.graph.as_default(), layer_scope(name, "conv3d_transpose", reuse):
        kernel = get_variable(
            "kernel",
            [*sizes, filters, channels],
            volumes.dtype,
            kernel_initializer,
            kernel_regularizer,
            trainable=trainable,
        )
        rest = [*sides, filters] if is_last else [filters, *sides]
        result = transposed(transposed_convolve, volumes, kernel, rest, steps, how, layout, cut)
        bias = use_bias, bias_initializer, bias_regularizer, trainable
        return completed(result, filters, *bias, activation, layout)


@checked
def max_pooling3d(
    inputs: Any,
    pool_size: Triple,
    strides: Triple,
    padding: PaddingOrWidths = "valid",
    data_format: Format = "channels_last",
    name: Name = None,
) -> Tensor:
    """The maximum of each window of volumes `[batch, depth, height, width, channels]`, or channels_first.

    padding: a number, or three, is that of elements on each side, which are never the maximum, as in PyTorch.
    """
    sizes, steps = (
        _triple("max_pooling3d", "pool_size", pool_size),
        _triple("max_pooling3d", "strides", strides),
    )
    volumes, layout = convert_to_tensor(inputs), LAYOUTS[data_format]
    windows = [*zip(sizes, steps, (1, 1, 1), strict=True)]
    volumes, how = for_maximum("max_pooling3d", volumes, padding, windows, layout)
    return max_pool3d(volumes, sizes, steps, how, layout, name)


@checked
def average_pooling3d(
    inputs: Any,
    pool_size: Triple,
    strides: Triple,
    padding: PaddingOrWidths = "valid",
    data_format: Format = "channels_last",
    name: Name = None,
) -> Tensor:
    """The mean of each window of volumes `[batch, depth, height, width, channels]`, or channels_first.

    padding: with `same` the mean is of elements of the volume; a number, or three, is that of zeros on each
    side, which count, as in PyTorch.
    """
    sizes = _triple("average_pooling3d", "pool_size", pool_size)
    steps = _triple("average_pooling3d", "strides", strides)
    volumes, layout = convert_to_tensor(inputs), LAYOUTS[data_format]
    volumes, how = for_mean(volumes, padding, layout)
    return avg_pool3d(volumes, sizes, steps, how, layout, name)
