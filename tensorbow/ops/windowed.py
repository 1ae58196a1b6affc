"""Convolution and pooling of any number of axes: TensorFlow 1's `tf.nn.convolution` and `tf.nn.pool`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Kind, Name, RefusedError, checked, one_of, optional, sequence, whole
from tensorbow.ops.argument_kinds import Padding
from tensorbow.ops.arrays import expand_dims, squeeze, transpose
from tensorbow.ops.average_pooling import avg_pool
from tensorbow.ops.conv import conv2d
from tensorbow.ops.elementwise import pair
from tensorbow.ops.extents import known_extents
from tensorbow.ops.pooling import max_pool
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sliding_windows import make_axis
from tensorbow.ops.spatial_blocks import batch_to_space_nd, space_to_batch_nd
from tensorbow.ops.volumes import avg_pool3d, conv3d, max_pool3d

__all__ = ["avg_pool1d", "convolution", "max_pool1d", "pool"]

Wholes = Annotated[Any, optional(sequence(whole(1), "a list of whole numbers of at least 1"))]
WindowLayout = Annotated[
    "str | None", optional(one_of("NWC", "NCW", "NHWC", "NCHW", "NDHWC", "NCDHW", any_case=True))
]
_STEPS = sequence(whole(1), "a whole number of at least 1, or a list of one", lone=True)


def _read_steps(value: Any) -> tuple[int, ...]:
    found: tuple[int, ...] = _STEPS.read(value)
    if len(found) != 1:
        raise RefusedError
    return found


StepsOfWindow = Annotated[Any, Kind(_STEPS.expected, _read_steps)]
StepsLayout = Annotated[str, one_of("NWC", "NCW", any_case=True)]
PoolingType = Annotated[str, one_of("AVG", "MAX", any_case=True)]


def _each(op: str, what: str, numbers: tuple[int, ...] | None, axes: int) -> tuple[int, ...]:
    if numbers is not None and len(numbers) != axes:
        raise InvalidArgumentError(
            f"{op}: {what} is {list(numbers)}, expected {axes} numbers, one for each axis"
        )
    return (1,) * axes if numbers is None else tuple(numbers)


def _axes_of(op: str, x: Tensor, data_format: str | None) -> tuple[int, bool]:
    """The number of axes that windows slide along, and whether channels are second."""
    rank = x.shape.ndims
    if rank not in (3, 4, 5) or (data_format and len(data_format) != rank):
        raise InvalidArgumentError(
            f"{op}: expected an input [batch, ..., channels] with one to three axes between, got {x.spec}"
        )
    return rank - 2, (data_format or "")[1:2] == "C"


def _channels_last(x: Tensor, axes: int, function: Callable[[Tensor], Tensor], is_second: bool) -> Tensor:
    if not is_second:
        return function(x)
    result = function(transpose(x, [0, *range(2, axes + 2), 1]))
    return transpose(result, [0, axes + 1, *range(1, axes + 1)])


@checked
def convolution(
    input: Any,
    filter: Any,
    padding: Padding,
    strides: Wholes = None,
    dilation_rate: Wholes = None,
    name: Name = None,
    data_format: WindowLayout = None,
) -> Tensor:
    """Convolution of one to three axes: [batch, *extents, in] with [*window, in, out].

    strides, dilation_rate: one number for each axis, by default 1. data_format: "NWC", "NHWC" or "NDHWC", or
    "NC..." with channels second. Raises InvalidArgumentError for strides together with dilations, for ranks
    and channels that do not fit.
    """
    x, w = pair(input, filter)
    axes, is_second = _axes_of("convolution", x, data_format)
    steps = _each("convolution", "strides", strides, axes)
    gaps = _each("convolution", "dilation_rate", dilation_rate, axes)
    if max(steps) > 1 and max(gaps) > 1:
        raise InvalidArgumentError(f"convolution: strides {list(steps)} with dilation_rate {list(gaps)}")
    if w.shape.ndims not in (None, axes + 2):
        raise InvalidArgumentError(f"convolution: the filter is {w.spec}, expected rank {axes + 2}")

    def convolve(images: Tensor) -> Tensor:
        if axes == 1:
            flat = conv2d(
                expand_dims(images, 1), expand_dims(w, 0), (1, *steps), padding, dilations=(1, *gaps)
            )
            return squeeze(flat, [1])
        if axes == 2:
            return conv2d(images, w, steps, padding, dilations=gaps)
        return conv3d(images, w, steps, padding, dilations=gaps)

    with x.graph.as_default(), name_scope(name or "convolution"):
        return _channels_last(x, axes, convolve, is_second)


@checked
def pool(
    input: Any,
    window_shape: Annotated[Any, sequence(whole(1), "a list of whole numbers of at least 1")],
    pooling_type: PoolingType,
    padding: Padding,
    dilation_rate: Wholes = None,
    strides: Wholes = None,
    name: Name = None,
    data_format: WindowLayout = None,
) -> Tensor:
    """The maximum or the mean of each window of [batch, *extents, channels], of one to three axes.

    window_shape, strides, dilation_rate: one number for each axis, the latter by default 1. A dilated window
    takes pixels so far apart; padding does not count then either. data_format: see `convolution`.
    Raises InvalidArgumentError for strides together with dilations.
    """
    x = as_tensor(input)
    axes, is_second = _axes_of("pool", x, data_format)
    sizes = _each("pool", "window_shape", window_shape, axes)
    steps, gaps = _each("pool", "strides", strides, axes), _each("pool", "dilation_rate", dilation_rate, axes)
    if max(steps) > 1 and max(gaps) > 1:
        raise InvalidArgumentError(f"pool: strides {list(steps)} with dilation_rate {list(gaps)}")
    is_max = pooling_type == "MAX"

    def pooled(images: Tensor, how: str) -> Tensor:
        if axes == 1:
            flat = (max_pool if is_max else avg_pool)(expand_dims(images, 1), (1, *sizes), (1, *steps), how)
            return squeeze(flat, [1])
        if axes == 2:
            return (max_pool if is_max else avg_pool)(images, sizes, steps, how)
        return (max_pool3d if is_max else avg_pool3d)(images, sizes, steps, how)

    def dilated(images: Tensor) -> Tensor:
        if max(gaps) == 1:
            return pooled(images, padding)
        extents = known_extents("pool", images)[:axes]
        found = [make_axis(n, k, 1, padding, gap) for n, k, gap in zip(extents, sizes, gaps, strict=True)]
        if any(axis.is_padded for axis in found):
            raise InvalidArgumentError(
                "pool: padding 'SAME' with dilation_rate would count padding; pad by tb.pad and give 'VALID'"
            )
        behind = [(0, -n % gap) for n, gap in zip(extents, gaps, strict=True)]
        blocks = space_to_batch_nd(images, gaps, behind)
        result = batch_to_space_nd(pooled(blocks, "VALID"), gaps, ((0, 0),) * axes)
        return strided_slice(result, (slice(None), *(slice(axis.count) for axis in found)))

    with x.graph.as_default(), name_scope(name or "pool"):
        return _channels_last(x, axes, dilated, is_second)


@checked
def max_pool1d(
    input: Any,
    ksize: StepsOfWindow,
    strides: StepsOfWindow,
    padding: Padding,
    data_format: StepsLayout = "NWC",
    name: Name = None,
) -> Tensor:
    """The maximum of each window of sequences [batch, steps, channels]: `pool` along one axis.

    ksize, strides: a whole number, or a list of one. With data format NCW the channels are second.
    """
    return pool(input, ksize, "MAX", padding, None, strides, name or "max_pool1d", data_format)


@checked
def avg_pool1d(
    input: Any,
    ksize: StepsOfWindow,
    strides: StepsOfWindow,
    padding: Padding,
    data_format: StepsLayout = "NWC",
    name: Name = None,
) -> Tensor:
    """The mean of each window of sequences, see `max_pool1d`."""
    return pool(input, ksize, "AVG", padding, None, strides, name or "avg_pool1d", data_format)
