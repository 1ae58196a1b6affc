"""Depthwise convolution: each channel of the images is convolved with its own filters.

Images are NHWC, filters [height, width, channels, multiplier]; channel c of the images gives the channels
c * multiplier + j of the result. The derivatives are separate ops; the gradient of each of the three consists
of the other two. The kernels loop over the elements of the filter: each is one strided view of the images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Kernel, KernelCall, NodeSpec, Operation, Tensor, as_tensor, name_scope
from tensorbow.kinds import Name, checked
from tensorbow.ops.argument_kinds import DataFormat, Padding, WindowSize
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.conv import conv2d
from tensorbow.ops.data_format import with_channels_last
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.elementwise import pair
from tensorbow.ops.sliding_windows import Windows, count_windows, image_dims, sizes_of, spatial_pair
from tensorbow.specs import FLOATING, Array, Dims, TensorSpec, compatible, render_dims

__all__ = ["depthwise_conv2d", "depthwise_conv2d_native", "separable_conv2d"]

WINDOW_ATTRS = {"strides": (1, 1, 1, 1), "padding": "VALID", "dilations": (1, 1, 1, 1)}


@checked
def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: WindowSize,
    padding: Padding,
    rate: WindowSize | None = None,
    name: Name = None,
    data_format: DataFormat = "NHWC",
) -> Tensor:
    """Convolution of each channel of images [batch, height, width, in] with its own filters.

    The filter is [height, width, in, multiplier]; `strides` and `padding` are as in `conv2d`. `rate`, an
    integer or [height, width], is the dilation. Returns
    [batch, rows, columns, in * multiplier], float32 or float64.

    Raises InvalidArgumentError for channels that differ, for strides and a rate that both are not 1 (as
    TensorFlow does), and for arguments that `conv2d` refuses.
    """
    attrs: dict[str, Any] = {
        "strides": spatial_pair("depthwise_conv2d", strides, "strides", data_format),
        "padding": padding,
        "dilations": spatial_pair("depthwise_conv2d", rate, "rate", data_format),
    }
    if max(attrs["strides"]) > 1 and max(attrs["dilations"]) > 1:
        raise InvalidArgumentError(
            f"depthwise_conv2d: strides {list(strides)} and rate {list(rate or ())}; one of the two must be 1"
        )
    x, w = pair(input, filter)
    return with_channels_last(
        "depthwise_conv2d",
        lambda images: DepthwiseConv2dNative(images, w, name=name, **attrs),
        x,
        data_format,
    )


@checked
def depthwise_conv2d_native(
    input: Any,
    filter: Any,
    strides: WindowSize,
    padding: Padding,
    data_format: DataFormat = "NHWC",
    dilations: WindowSize = (1, 1, 1, 1),
    name: Name = None,
) -> Tensor:
    """`depthwise_conv2d` with the arguments of TensorFlow's op; `dilations` is its `rate`."""
    return depthwise_conv2d(input, filter, strides, padding, dilations, name, data_format)


@checked
def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: WindowSize,
    padding: Padding,
    rate: WindowSize | None = None,
    name: Name = None,
    data_format: DataFormat = "NHWC",
) -> Tensor:
    """`depthwise_conv2d`, then `conv2d` with a filter [1, 1, in * multiplier, out] (Sifre, 2014)."""
    images = as_tensor(input)
    with images.graph.as_default(), name_scope(name or "separable_conv2d"):
        flow = depthwise_conv2d(images, depthwise_filter, strides, padding, rate, None, data_format)
        return conv2d(flow, pointwise_filter, 1, "VALID", data_format=data_format)


# Specs --------------------------------------------------------------------------------------------


def _output_dims(op: str, images: Sequence[int | None], filters: Sequence[int | None], attrs: Attrs) -> Dims:
    (batch, height, width, channels), (rows, columns, inputs, multiplier) = images, filters
    if None not in (channels, inputs) and channels != inputs:
        raise InvalidArgumentError(
            f"{op}: the images {render_dims(tuple(images))} have {channels} channels, the filter "
            f"{render_dims(tuple(filters))} is for {inputs}; expected [height, width, {channels}, multiplier]"
        )
    if 0 in (rows, columns):
        raise InvalidArgumentError(
            f"{op}: the filter {render_dims(tuple(filters))} has no elements in a window"
        )
    channels = inputs if channels is None else channels
    (_, down, across, _), (_, *rates, _), padding = attrs["strides"], attrs["dilations"], attrs["padding"]
    return (
        batch,
        count_windows(op, height, rows, down, padding, rates[0]),
        count_windows(op, width, columns, across, padding, rates[1]),
        None if channels is None or multiplier is None else channels * multiplier,
    )


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    op = "depthwise_conv2d"
    require_dtype(op, inputs[0], FLOATING, "the images")
    dtype = require_same_dtype(op, inputs)
    dims = image_dims(op, inputs[0], "the images"), image_dims(op, inputs[1], "the filter")
    return TensorSpec(_output_dims(op, *dims, attrs), dtype)


def _check_gradient(op: str, expected: Dims, given: TensorSpec) -> None:
    if not compatible(expected, given.shape):
        raise InvalidArgumentError(f"{op}: out_backprop is {given}, expected {render_dims(expected)}")


def _input_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    op = "depthwise_conv2d_backprop_input"
    sizes, filters, gradient = inputs
    require_dtype(op, filters, FLOATING, "the filter")
    dtype = require_same_dtype(op, inputs[1:])
    images = sizes_of(op, sizes, "the vector of sizes")
    _check_gradient(op, _output_dims(op, images, image_dims(op, filters, "the filter"), attrs), gradient)
    return TensorSpec(images, dtype)


def _filter_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    op = "depthwise_conv2d_backprop_filter"
    images, sizes, gradient = inputs
    require_dtype(op, images, FLOATING, "the images")
    dtype = require_same_dtype(op, (images, gradient))
    filters = sizes_of(op, sizes, "the vector of sizes")
    _check_gradient(op, _output_dims(op, image_dims(op, images, "the images"), filters, attrs), gradient)
    return TensorSpec(filters, dtype)


# Gradients ----------------------------------------------------------------------------------------


def _gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    images, filters = op.inputs
    return [
        DepthwiseConv2dNativeBackpropInput(shape(images), filters, gradient, **op.attrs),
        DepthwiseConv2dNativeBackpropFilter(images, shape(filters), gradient, **op.attrs),
    ]


def _input_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    _, filters, output = op.inputs
    return [
        None,
        DepthwiseConv2dNativeBackpropFilter(gradient, shape(filters), output, **op.attrs),
        DepthwiseConv2dNative(gradient, filters, **op.attrs),
    ]


def _filter_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    images, _, output = op.inputs
    return [
        DepthwiseConv2dNativeBackpropInput(shape(images), gradient, output, **op.attrs),
        None,
        DepthwiseConv2dNative(images, gradient, **op.attrs),
    ]


# Reference kernels --------------------------------------------------------------------------------


def _windows(images: Sequence[int], filters: Sequence[int], attrs: Attrs) -> Windows:
    return Windows.of(images, filters, attrs["strides"], attrs["padding"], attrs["dilations"])


def _product_scratch(node: NodeSpec) -> list[TensorSpec]:
    """One product per window, [batch, rows, columns, channels]."""
    windows = node.outputs[0] if len(node.inputs) == 2 else node.inputs[2]  # the result, or its gradient
    return [TensorSpec((*windows.extents[:3], node.inputs[1].extents[2]), windows.dtype)]


def _lanes(output: Array, multiplier: int) -> list[Array]:
    """Channels of the result for each multiplier index j, [batch, rows, columns, channels]."""
    return [output[..., j::multiplier] for j in range(multiplier)]


def _sum_of_products(plan: list[tuple[Array, Array, Array, Array]], result: Array) -> Callable[[], None]:
    """plan: factors, room for their product, and the part of the result to which it is added."""

    def step() -> None:
        result.fill(0)
        for element, weight, term, total in plan:
            np.multiply(element, weight, out=term)
            np.add(total, term, out=total)

    return step if result.size else lambda: None


def _prepare(call: KernelCall) -> Callable[[], None]:
    (images, filters), (result,), (product,) = call.inputs, call.outputs, call.scratch
    plan = [
        (images[pixels], filters[row, column, :, j], product[part], lane[part])
        for (row, column), part, pixels in _windows(images.shape, filters.shape, call.attrs).elements()
        for j, lane in enumerate(_lanes(result, filters.shape[3]))
    ]

    return _sum_of_products(plan, result)


def _prepare_input(call: KernelCall) -> Callable[[], None]:
    (_, filters, gradient), (result,), (product,) = call.inputs, call.outputs, call.scratch
    plan = [
        (lane[part], filters[row, column, :, j], product[part], result[pixels])
        for (row, column), part, pixels in _windows(result.shape, filters.shape, call.attrs).elements()
        for j, lane in enumerate(_lanes(gradient, filters.shape[3]))
    ]

    return _sum_of_products(plan, result)


def _prepare_filter(call: KernelCall) -> Callable[[], None]:
    (images, _, gradient), (result,) = call.inputs, call.outputs
    plan = [
        (images[pixels], lane[part], result[row, column, :, j])
        for (row, column), part, pixels in _windows(images.shape, result.shape, call.attrs).elements()
        for j, lane in enumerate(_lanes(gradient, result.shape[3]))
    ]

    def step() -> None:
        result.fill(0)
        for element, flow, total in plan:
            np.einsum("bhwc,bhwc->c", element, flow, out=total)

    return step if images.size else lambda: result.fill(0)


DepthwiseConv2dNative = define_op(
    "DepthwiseConv2dNative",
    spec=_spec,
    gradient=_gradient,
    kernel=Kernel(prepare=_prepare, scratch=_product_scratch),
    inputs=("input", "filter"),
    attrs=WINDOW_ATTRS,
    uniform_dtype=True,
)
DepthwiseConv2dNativeBackpropInput = define_op(
    "DepthwiseConv2dNativeBackpropInput",
    spec=_input_spec,
    gradient=_input_gradient,
    kernel=Kernel(prepare=_prepare_input, scratch=_product_scratch),
    inputs=("input_sizes", "filter", "out_backprop"),
    attrs=WINDOW_ATTRS,
    shape_inputs=(0,),
)
DepthwiseConv2dNativeBackpropFilter = define_op(
    "DepthwiseConv2dNativeBackpropFilter",
    spec=_filter_spec,
    gradient=_filter_gradient,
    kernel=Kernel(prepare=_prepare_filter),
    inputs=("input", "filter_sizes", "out_backprop"),
    attrs=WINDOW_ATTRS,
    shape_inputs=(1,),
)
