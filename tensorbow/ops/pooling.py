"""Max pooling of NHWC images, its gradient, and the gradient's gradient.

If a window has its maximum more than once, the first in row-major order gets the gradient, as in
TensorFlow. The kernels loop over the elements of a window, never over windows: each element is one
strided view of the images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Kernel, KernelCall, NodeSpec, Operation, Tensor
from tensorbow.kinds import Name, checked
from tensorbow.ops.argument_kinds import DataFormat, Padding, WindowSize
from tensorbow.ops.data_format import with_channels_last
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.selection import through_float32
from tensorbow.ops.sliding_windows import (
    Windows,
    image_dims,
    pool_attrs,
    pooled_dims,
)
from tensorbow.specs import (
    FLOATING,
    Array,
    Dims,
    TensorSpec,
    bool_,
    compatible,
    int32,
    int64,
    render_dims,
    uint8,
)

__all__ = ["max_pool", "max_pool2d"]

MASK_BYTES = 1 << 20  # bytes of masks over the windows, per piece of the gradient kernels
POOL_ATTRS = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "VALID"}


@checked
def max_pool(
    value: Any,
    ksize: WindowSize,
    strides: WindowSize,
    padding: Padding,
    data_format: DataFormat = "NHWC",
    name: Name = None,
) -> Tensor:
    """The maximum of each window of images [batch, height, width, channels]; also named `max_pool2d`.

    `ksize` and `strides` are an integer, [height, width] or [1, height, width, 1]; `padding` is "SAME"
    (padding is never the maximum) or "VALID". Returns [batch, rows, columns, channels], floating or
    uint8, halves computed as float32. With data format NCHW the channels of all of these are second.

    Raises InvalidArgumentError for a window larger than a VALID image, and for invalid windows, strides,
    paddings or data formats.
    """
    attrs = pool_attrs("max_pool", ksize, strides, padding, data_format)
    return through_float32(
        lambda x, name: with_channels_last(
            "max_pool", lambda images: MaxPool(images, name=name, **attrs), x, data_format
        ),
        value,
        name,
    )


max_pool2d = max_pool


# Specs and gradients ------------------------------------------------------------------------------


def _pooled_dims(images: TensorSpec, attrs: Attrs) -> Dims:
    return pooled_dims("max_pool", image_dims("max_pool", images, "the images"), attrs)


def _max_pool_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("max_pool", inputs[0], (*FLOATING, uint8), "the images")
    return TensorSpec(_pooled_dims(inputs[0], attrs), inputs[0].dtype)


def _require_like(given: TensorSpec, dims: Dims, what: str) -> None:
    if not compatible(dims, given.shape):
        raise InvalidArgumentError(f"max_pool gradient: {what} is {given}, expected {render_dims(dims)}")


def _max_pool_grad_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    images, pooled, gradient = inputs
    require_dtype("max_pool gradient", images, FLOATING, "the images")
    dtype = require_same_dtype("max_pool gradient", inputs)
    dims = _pooled_dims(images, attrs)
    _require_like(pooled, dims, "the result")
    _require_like(gradient, dims, "its gradient")
    return TensorSpec(images.shape, dtype)


def _max_pool_grad_grad_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    images, pooled, gradient = inputs
    require_dtype("max_pool gradient", images, FLOATING, "the images")
    dtype = require_same_dtype("max_pool gradient", inputs)
    dims = _pooled_dims(images, attrs)
    _require_like(pooled, dims, "the result")
    _require_like(gradient, tuple(image_dims("max_pool gradient", images, "the images")), "the gradient")
    return TensorSpec(dims, dtype)


def _max_pool_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    if not gradient.dtype.is_floating:
        return [None]
    return [MaxPoolGrad(op.inputs[0], op.outputs[0], gradient, **op.attrs)]


def _max_pool_grad_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    """Gradient of the third input only: the positions of maxima are constant almost everywhere."""
    return [None, None, MaxPoolGradGrad(op.inputs[0], op.inputs[1], gradient, **op.attrs)]


def _max_pool_grad_grad_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    return [None, None, MaxPoolGrad(op.inputs[0], op.inputs[1], gradient, **op.attrs)]


# Reference kernels --------------------------------------------------------------------------------

_Element = tuple[tuple[Array, ...], Array, Array, Array]  # arguments of `_mark`, bits, flow, target
_Plan = list[tuple[Array, list[_Element]]]


def _prepare_max_pool(call: KernelCall) -> Callable[[], None]:
    (images,), (pooled,) = call.inputs, call.outputs
    if not pooled.size:
        return lambda: None
    elements = Windows.of_pool(images.shape, call.attrs).elements()
    plan = [(pooled[windows], images[pixels]) for _, windows, pixels in elements]

    def step() -> None:
        pooled.fill(-np.inf if pooled.dtype.kind == "f" else 0)
        for best, element in plan:
            np.maximum(best, element, out=best)

    return step


def _mask_scratch(node: NodeSpec) -> list[TensorSpec]:
    """Three masks for the windows of some images: waiting for their maximum, found here, bits of that."""
    images = node.inputs[0]
    batch, rows, columns, channels = node.inputs[1].extents
    each = rows * columns * channels
    fitting = max(1, MASK_BYTES // max(1, each * (2 + images.dtype.size)))
    shape = (min(batch, fitting), rows, columns, channels)
    return [
        TensorSpec(shape, bool_),
        TensorSpec(shape, bool_),
        TensorSpec(shape, _bits_of(images.dtype.size)),
    ]


def _bits_of(nbytes: int) -> Any:
    return int32 if nbytes == 4 else int64


def _mark(images: Array, pooled: Array, waiting: Array, here: Array, bits: Array) -> None:
    """bits = all ones where this element is its window's first maximum, else zero; updates `waiting`.

    Tests "not less than the maximum", not "equal to it", so that a window with NaN marks one element, too.
    """
    np.less(images, pooled, out=here)
    np.less(here, waiting, out=here)  # waiting, and not less than the maximum
    np.not_equal(waiting, here, out=waiting)
    np.copyto(bits, here)
    np.subtract(0, bits, out=bits)  # NumPy 2.4's negative is wrong in place on short strided integers


def _plan(
    call: KernelCall, windows: Windows, flow: Array, target: Array, to_images: bool
) -> list[tuple[Array, list[tuple[tuple[Array, ...], Array, Array, Array]]]]:
    """Pieces of some images: (waiting, per window element: arguments of `_mark`, bits, flow, target).

    to_images: the flow goes from the windows to the images; otherwise the other way.
    """
    images, pooled, _ = call.inputs
    plan: _Plan = []
    step = len(call.scratch[0])
    for start in range(0, len(images), max(1, step)):
        chosen = slice(start, min(start + step, len(images)))
        waiting, here, bits = (array[: chosen.stop - start] for array in call.scratch)
        elements: list[_Element] = []
        for _, part, pixels in windows.elements():
            marked = (images[chosen][pixels], pooled[chosen][part], waiting[part], here[part], bits[part])
            source, goal = (part, pixels) if to_images else (pixels, part)
            elements.append((marked, bits[part], flow[chosen][source], target[chosen][goal]))
        plan.append((waiting, elements))
    return plan


def _prepare_max_pool_grad(call: KernelCall) -> Callable[[], None]:
    """Masks select bits of the gradient instead of multiplying, since 0 * inf is NaN."""
    (result,) = call.outputs
    windows = Windows.of_pool(result.shape, call.attrs)
    plan = _plan(call, windows, _as_bits(call.inputs[2]), result, to_images=True)

    def step() -> None:
        result.fill(0)
        for waiting, elements in plan:
            waiting.fill(True)
            for marked, bits, flow, target in elements:
                _mark(*marked)
                np.bitwise_and(bits, flow, out=bits)
                selected = bits.view(target.dtype)
                if windows.overlap:
                    np.add(target, selected, out=target)
                else:
                    np.copyto(target, selected)

    return step


def _prepare_max_pool_grad_grad(call: KernelCall) -> Callable[[], None]:
    (result,) = call.outputs
    windows = Windows.of_pool(call.inputs[0].shape, call.attrs)
    plan = _plan(call, windows, _as_bits(call.inputs[2]), _as_bits(result), to_images=False)

    def step() -> None:
        result.fill(0)
        for waiting, elements in plan:
            waiting.fill(True)
            for marked, bits, flow, target in elements:
                _mark(*marked)
                np.bitwise_and(bits, flow, out=bits)
                np.bitwise_or(target, bits, out=target)

    return step


def _as_bits(array: Array) -> Array:
    return array.view(np.int32 if array.dtype.itemsize == 4 else np.int64)


MaxPool = define_op(
    "MaxPool",
    spec=_max_pool_spec,
    gradient=_max_pool_gradient,
    kernel=Kernel(prepare=_prepare_max_pool),
    inputs=("input",),
    attrs=POOL_ATTRS,
)
MaxPoolGrad = define_op(
    "MaxPoolGrad",
    spec=_max_pool_grad_spec,
    gradient=_max_pool_grad_gradient,
    kernel=Kernel(prepare=_prepare_max_pool_grad, scratch=_mask_scratch),
    inputs=("orig_input", "orig_output", "grad"),
    attrs=POOL_ATTRS,
)
MaxPoolGradGrad = define_op(
    "MaxPoolGradGrad",
    spec=_max_pool_grad_grad_spec,
    gradient=_max_pool_grad_grad_gradient,
    kernel=Kernel(prepare=_prepare_max_pool_grad_grad, scratch=_mask_scratch),
    inputs=("orig_input", "orig_output", "grad"),
    attrs=POOL_ATTRS,
)
