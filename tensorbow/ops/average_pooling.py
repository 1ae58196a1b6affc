"""Average pooling of NHWC images and its gradient. Padding is not counted.

As in `pooling`, the kernels loop over the elements of a window, never over windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Kernel, KernelCall, NodeSpec, Operation, Tensor
from tensorbow.kinds import Name, checked
from tensorbow.ops.argument_kinds import DataFormat, Padding, WindowSize
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.data_format import with_channels_last
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.selection import through_float32
from tensorbow.ops.sliding_windows import (
    Axis,
    Windows,
    image_dims,
    pool_attrs,
    pooled_dims,
    sizes_of,
)
from tensorbow.specs import FLOATING, Array, TensorSpec, compatible, render_dims

__all__ = ["avg_pool", "avg_pool2d"]

POOL_ATTRS = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "VALID"}


@checked
def avg_pool(
    value: Any,
    ksize: WindowSize,
    strides: WindowSize,
    padding: Padding,
    data_format: DataFormat = "NHWC",
    name: Name = None,
) -> Tensor:
    """The mean of each window of images [batch, height, width, channels]; also named `avg_pool2d`.

    `ksize` and `strides` are an integer, [height, width] or [1, height, width, 1]; `padding` is "SAME"
    (averages only the elements on the image) or "VALID". Returns [batch, rows, columns, channels],
    floating, halves computed as float32. With data format NCHW the channels of all of these are second.

    Raises InvalidArgumentError for a window larger than a VALID image, and for invalid windows, strides,
    paddings or data formats.
    """
    attrs = pool_attrs("avg_pool", ksize, strides, padding, data_format)
    return through_float32(
        lambda x, name: with_channels_last(
            "avg_pool", lambda images: AvgPool(images, name=name, **attrs), x, data_format
        ),
        value,
        name,
    )


avg_pool2d = avg_pool


# Specs --------------------------------------------------------------------------------------------


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("avg_pool", inputs[0], FLOATING, "the images")
    return TensorSpec(
        pooled_dims("avg_pool", image_dims("avg_pool", inputs[0], "the images"), attrs), inputs[0].dtype
    )


def _grad_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    sizes, gradient = inputs
    require_dtype("avg_pool gradient", gradient, FLOATING, "the gradient")
    dims = sizes_of("avg_pool gradient", sizes, "the images' shape")
    expected = pooled_dims("avg_pool", dims, attrs)
    if not compatible(expected, gradient.shape):
        raise InvalidArgumentError(f"avg_pool gradient: expected {render_dims(expected)}, got {gradient}")
    return TensorSpec(dims, gradient.dtype)


# Reference kernels --------------------------------------------------------------------------------


def _on_image(axis: Axis) -> Array:
    """Number of elements of each window that are on the image."""
    starts = np.arange(axis.count) * axis.stride - axis.before
    return np.minimum(starts + axis.window, axis.extent) - np.maximum(starts, 0)


def _weights(windows: Windows, dtype: Any) -> Array:
    """One over the number of elements of each window, [rows, columns, 1]."""
    counts = np.multiply.outer(_on_image(windows.rows), _on_image(windows.columns))
    return np.asarray(1 / counts[..., None], dtype)


def _prepare(call: KernelCall) -> Callable[[], None]:
    (images,), (pooled,) = call.inputs, call.outputs
    if not pooled.size:
        return lambda: None
    windows = Windows.of_pool(images.shape, call.attrs)
    weights = _weights(windows, pooled.dtype)
    plan = [(pooled[part], images[pixels]) for _, part, pixels in windows.elements()]

    def step() -> None:
        pooled.fill(0)
        for total, element in plan:
            np.add(total, element, out=total)
        np.multiply(pooled, weights, out=pooled)

    return step


def _grad_scratch(node: NodeSpec) -> list[TensorSpec]:
    """Contribution of each window to each of its elements."""
    return [TensorSpec(node.inputs[1].shape, node.inputs[1].dtype)]


def _prepare_grad(call: KernelCall) -> Callable[[], None]:
    (_, gradient), (result,), (share,) = call.inputs, call.outputs, call.scratch
    if not result.size:
        return lambda: None
    windows = Windows.of_pool(result.shape, call.attrs)
    weights = _weights(windows, result.dtype)
    plan = [(result[pixels], share[part]) for _, part, pixels in windows.elements()]

    def step() -> None:
        result.fill(0)
        np.multiply(gradient, weights, out=share)
        for target, part in plan:
            np.add(target, part, out=target)

    return step


def _gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    return [AvgPoolGrad(shape(op.inputs[0]), gradient, **op.attrs)]


AvgPool = define_op(
    "AvgPool",
    spec=_spec,
    gradient=_gradient,
    kernel=Kernel(prepare=_prepare),
    inputs=("value",),
    attrs=POOL_ATTRS,
)
AvgPoolGrad = define_op(
    "AvgPoolGrad",
    spec=_grad_spec,
    gradient=lambda op, gradient: [None, AvgPool(gradient, **op.attrs)],
    kernel=Kernel(prepare=_prepare_grad, scratch=_grad_scratch),
    inputs=("orig_input_shape", "grad"),
    attrs=POOL_ATTRS,
    shape_inputs=(0,),
    unknown_dtypes=lambda inputs, attrs: (inputs[1].dtype,),
)
