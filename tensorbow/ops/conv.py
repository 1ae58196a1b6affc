"""Two-dimensional convolution (cross-correlation, as in TensorFlow) and its two derivatives.

Images are NHWC, filters HWIO. The derivatives are separate ops; the gradient of each of the three
consists of the other two, so derivatives of any order exist.

The reference kernels are in `conv_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Operation, Tensor, as_tensor
from tensorbow.kinds import Flag, Name, Positive, checked
from tensorbow.ops import conv_kernels
from tensorbow.ops.argument_kinds import DataFormat, Extents, Padding, WindowSize
from tensorbow.ops.arrays import concat
from tensorbow.ops.broadcasting import as_shape_vector, shape
from tensorbow.ops.data_format import channels_back, channels_last, sizes_last, with_channels_last
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.elementwise import pair
from tensorbow.ops.grouped_conv import count_groups, in_groups
from tensorbow.ops.selection import cast, through_float32
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sliding_windows import (
    count_windows,
    image_dims,
    sizes_of,
    spatial_pair,
)
from tensorbow.specs import FLOATING, HALVES, Dims, TensorSpec, compatible, float32, render_dims

__all__ = ["atrous_conv2d", "conv2d", "conv2d_backprop_filter", "conv2d_backprop_input", "conv2d_transpose"]

SIZES = "the vector of sizes"
WINDOW_ATTRS = {"strides": (1, 1, 1, 1), "padding": "VALID", "dilations": (1, 1, 1, 1)}


@checked
def conv2d(
    input: Any,
    filter: Any,
    strides: WindowSize,
    padding: Padding,
    use_cudnn_on_gpu: Flag = True,
    data_format: DataFormat = "NHWC",
    dilations: WindowSize | None = None,
    name: Name = None,
) -> Tensor:
    """Convolution of images [batch, height, width, in] with a filter [height, width, in, out].

    `strides` is an integer, [height, width] or [1, height, width, 1]; `padding` is "SAME" or "VALID".
    Returns [batch, rows, columns, out], rows = ceil(height / stride) for SAME and
    (height - filter height) // stride + 1 for VALID; floating, halves computed as float32. With data
    format NCHW the channels of images, strides and result are second.

    `dilations`, given like strides, is the distance of a window's elements on the image (Yu and
    Koltun, 2016): a filter of extent n then covers (n - 1) * dilation + 1 elements.

    A filter [height, width, in / groups, out] is applied in groups: the first out / groups channels of
    the result depend on the first in / groups channels of the images, and so on.

    Raises InvalidArgumentError for channels that do not fit, a filter larger than a VALID image, and invalid
    strides, dilations, paddings or data formats.
    """
    attrs = _attrs("conv2d", strides, padding, data_format, dilations)
    x, w = pair(input, filter)
    if w.dtype in HALVES:
        return through_float32(
            lambda wide, _: conv2d(
                wide,
                cast(w, float32),
                strides,
                padding,
                data_format=data_format,
                dilations=dilations,
            ),
            x,
            name,
        )

    def convolve(images: Tensor) -> Tensor:
        groups = count_groups("conv2d", images.spec, w.spec)
        return in_groups("conv2d", partial(Conv2D, **attrs), groups, images, w, name)

    return with_channels_last("conv2d", convolve, x, data_format)


@checked
def atrous_conv2d(value: Any, filters: Any, rate: Positive, padding: Padding, name: Name = None) -> Tensor:
    """`conv2d` with strides of 1 and dilations of `rate`."""
    return conv2d(value, filters, 1, padding, dilations=rate, name=name)


@checked
def conv2d_transpose(
    value: Any,
    filter: Any,
    output_shape: Extents,
    strides: WindowSize,
    padding: Padding = "SAME",
    data_format: DataFormat = "NHWC",
    name: Name = None,
    *,
    dilations: WindowSize | None = None,
) -> Tensor:
    """The transpose of `conv2d` (Zeiler et al., 2010): from [batch, rows, columns, in] to `output_shape`.

    The filter is [height, width, out, in]. `output_shape` is [batch, height, width, out]. Raises
    InvalidArgumentError unless `conv2d` of that shape, with the same arguments, has the shape of `value`.
    """
    attrs = _attrs("conv2d_transpose", strides, padding, data_format, dilations)
    x, w = pair(value, filter)
    images, sizes = channels_last("conv2d_transpose", x, data_format), sizes_last(output_shape, data_format)
    return channels_back(Conv2DBackpropInput(sizes, w, images, name=name, **attrs), data_format)


@checked
def conv2d_backprop_input(
    input_sizes: Extents,
    filter: Any,
    out_backprop: Any,
    strides: WindowSize,
    padding: Padding,
    use_cudnn_on_gpu: Flag = True,
    data_format: DataFormat = "NHWC",
    dilations: WindowSize | None = None,
    name: Name = None,
) -> Tensor:
    """The gradient of `conv2d` with respect to its images, of shape `input_sizes` [4].

    filter: [height, width, in, out]. out_backprop: the gradient of the result, [batch, rows, columns, out].

    A filter with fewer channels than `input_sizes` is applied in groups.

    Raises InvalidArgumentError unless `out_backprop` has the shape of that convolution's result.
    """
    op = "conv2d_backprop_input"
    attrs = _attrs(op, strides, padding, data_format, dilations)
    gradient, w = pair(out_backprop, filter)
    with gradient.graph.as_default():
        flow = channels_last(op, gradient, data_format)
        sizes, known = _known_sizes(op, sizes_last(input_sizes, data_format))
        groups = count_groups(op, TensorSpec(known, w.dtype), w.spec)

        def backprop(part: Tensor, group: Tensor, name: str | None = None) -> Tensor:
            own = sizes if groups == 1 else _with_last(sizes, group, 2)
            return Conv2DBackpropInput.tensor(own, group, part, name=name, **attrs)

        images = in_groups(op, backprop, groups, flow, w, name)
        images.set_shape(known)
        return channels_back(images, data_format)


@checked
def conv2d_backprop_filter(
    input: Any,
    filter_sizes: Extents,
    out_backprop: Any,
    strides: WindowSize,
    padding: Padding,
    use_cudnn_on_gpu: Flag = True,
    data_format: DataFormat = "NHWC",
    dilations: WindowSize | None = None,
    name: Name = None,
) -> Tensor:
    """The gradient of `conv2d` with respect to its filter, of shape `filter_sizes` [4].

    input: [batch, height, width, in]. out_backprop: the gradient of the result, [batch, rows, columns, out].

    A filter with fewer channels than `input` is applied in groups.

    Raises InvalidArgumentError unless `out_backprop` has the shape of that convolution's result.
    """
    op = "conv2d_backprop_filter"
    attrs = _attrs(op, strides, padding, data_format, dilations)
    both = pair(input, out_backprop)
    with both[0].graph.as_default():
        images, gradient = (channels_last(op, x, data_format) for x in both)
        sizes, known = _known_sizes(op, as_shape_vector(filter_sizes))
        groups = count_groups(op, images.spec, TensorSpec(known, images.dtype))

        def backprop(part: Tensor, flow: Tensor, name: str | None = None) -> Tensor:
            own = sizes if groups == 1 else _with_last(sizes, flow, 3)
            return Conv2DBackpropFilter.tensor(part, own, flow, name=name, **attrs)

        filters = in_groups(op, backprop, groups, images, gradient, name)
        filters.set_shape(known)
        return filters


def _known_sizes(op: str, sizes: Any) -> tuple[Tensor, Dims]:
    """A shape [4] as a tensor, and its known extents: in a list that contains tensors, the numbers."""
    tensor = as_tensor(sizes)
    if isinstance(sizes, list) and len(sizes) == 4:
        return tensor, tuple(None if hasattr(size, "graph") else int(size) for size in sizes)
    return tensor, sizes_of(op, tensor.spec, SIZES)


def _with_last(sizes: Tensor, other: Tensor, axis: int) -> Tensor:
    """`sizes` with its last extent replaced by the extent of an axis of another tensor."""
    last = strided_slice(cast(shape(other), sizes.dtype), slice(axis, axis + 1))
    return concat([strided_slice(sizes, slice(3)), last], 0)


def _attrs(op: str, strides: Any, padding: str, data_format: str | None, dilations: Any) -> dict[str, Any]:
    return {
        "strides": spatial_pair(op, strides, "strides", data_format),
        "padding": padding,
        "dilations": spatial_pair(op, dilations, "dilations", data_format),
    }


# Specs --------------------------------------------------------------------------------------------


def _output_dims(op: str, images: Sequence[int | None], filters: Sequence[int | None], attrs: Attrs) -> Dims:
    (batch, height, width, channels), (rows, columns, inputs, outputs) = images, filters
    if None not in (channels, inputs) and channels != inputs:
        raise InvalidArgumentError(
            f"{op}: the images {render_dims(tuple(images))} have {channels} channels, the filter "
            f"{render_dims(tuple(filters))} takes {inputs}; expected [height, width, {channels}, out]"
        )
    if 0 in (rows, columns):
        raise InvalidArgumentError(
            f"{op}: the filter {render_dims(tuple(filters))} has no elements in a window"
        )
    (_, down, across, _), (_, *rates, _), padding = attrs["strides"], attrs["dilations"], attrs["padding"]
    return (
        batch,
        count_windows(op, height, rows, down, padding, rates[0]),
        count_windows(op, width, columns, across, padding, rates[1]),
        outputs,
    )


def _conv2d_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    images, filters = inputs
    require_dtype("conv2d", images, FLOATING, "the images")
    dtype = require_same_dtype("conv2d", inputs)
    dims = image_dims("conv2d", images, "the images"), image_dims("conv2d", filters, "the filter")
    return TensorSpec(_output_dims("conv2d", *dims, attrs), dtype)


def _check_output(op: str, expected: Dims, given: Sequence[int | None]) -> None:
    if not compatible(expected, tuple(given)):
        raise InvalidArgumentError(
            f"{op}: out_backprop is {render_dims(tuple(given))}, expected {render_dims(expected)}, "
            "the shape of that convolution's result"
        )


def _backprop_input_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    op = "conv2d_backprop_input"
    sizes, filters, gradient = inputs
    require_dtype(op, filters, FLOATING, "the filter")
    dtype = require_same_dtype(op, inputs[1:])
    images = sizes_of(op, sizes, SIZES)
    expected = _output_dims(op, images, image_dims(op, filters, "the filter"), attrs)
    _check_output(op, expected, image_dims(op, gradient, "out_backprop"))
    return TensorSpec(images, dtype)


def _backprop_filter_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    op = "conv2d_backprop_filter"
    images, sizes, gradient = inputs
    require_dtype(op, images, FLOATING, "the images")
    dtype = require_same_dtype(op, (images, gradient))
    filters = sizes_of(op, sizes, SIZES)
    expected = _output_dims(op, image_dims(op, images, "the images"), filters, attrs)
    _check_output(op, expected, image_dims(op, gradient, "out_backprop"))
    return TensorSpec(filters, dtype)


# Gradients ----------------------------------------------------------------------------------------


def _conv2d_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    images, filters = op.inputs
    return [
        Conv2DBackpropInput(shape(images), filters, gradient, **op.attrs),
        Conv2DBackpropFilter(images, shape(filters), gradient, **op.attrs),
    ]


def _backprop_input_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    _, filters, output = op.inputs
    return [
        None,
        Conv2DBackpropFilter(gradient, shape(filters), output, **op.attrs),
        Conv2D(gradient, filters, **op.attrs),
    ]


def _backprop_filter_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    images, _, output = op.inputs
    return [
        Conv2DBackpropInput(shape(images), gradient, output, **op.attrs),
        None,
        Conv2D(images, gradient, **op.attrs),
    ]


Conv2D = define_op(
    "Conv2D",
    spec=_conv2d_spec,
    gradient=_conv2d_gradient,
    kernel=conv_kernels.CONV2D,
    inputs=("input", "filter"),
    attrs=WINDOW_ATTRS,
    uniform_dtype=True,
)
Conv2DBackpropInput = define_op(
    "Conv2DBackpropInput",
    spec=_backprop_input_spec,
    gradient=_backprop_input_gradient,
    kernel=conv_kernels.BACKPROP_INPUT,
    inputs=("input_sizes", "filter", "out_backprop"),
    attrs=WINDOW_ATTRS,
    shape_inputs=(0,),
)
Conv2DBackpropFilter = define_op(
    "Conv2DBackpropFilter",
    spec=_backprop_filter_spec,
    gradient=_backprop_filter_gradient,
    kernel=conv_kernels.BACKPROP_FILTER,
    inputs=("input", "filter_sizes", "out_backprop"),
    attrs=WINDOW_ATTRS,
    shape_inputs=(1,),
)
