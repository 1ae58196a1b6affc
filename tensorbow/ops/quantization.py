"""Numbers in 8 bits: an integer q stands for (q - zero point) * scale (Jacob et al., 2018).

Products of such integers are in `quantized_products`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    Kernel,
    KernelCall,
    NodeSpec,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import AsDType, AxisNumber, Flag, Name, Number, checked, whole
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import checked_axis
from tensorbow.ops.constant import constant
from tensorbow.ops.control import stop_gradient
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import add, divide, maximum, minimum, multiply, round, subtract
from tensorbow.specs import TensorSpec, broadcast_dims, compatible, float32, int8, int32, render_dims, uint8

__all__ = [
    "dequantize",
    "fake_quant_with_min_max_args",
    "fake_quant_with_min_max_vars",
    "fake_quant_with_min_max_vars_per_channel",
    "quantize",
]

BYTES = (uint8, int8)
ZeroPoint: TypeAlias = Annotated[int, whole(-128, 255)]
Bits: TypeAlias = Annotated[int, whole(2, 16)]


def limits_of(dtype: Any) -> tuple[int, int]:
    """The least and the greatest integer of a dtype of 8 bits."""
    return (0, 255) if dtype == uint8 else (-128, 127)


@checked
def quantize(
    input: Any,
    scale: Any,
    zero_point: ZeroPoint = 0,
    dtype: AsDType = uint8,
    axis: AxisNumber | None = None,
    name: Name = None,
) -> Tensor:
    """Integers of 8 bits that stand for `input`: round(input * (1 / scale)) + zero_point, saturated.

    input: float32. scale: positive, float32, a scalar; with `axis` one per channel `[extent of that axis]`.
    dtype: uint8 or int8. Halves are rounded to even integers; NaN becomes the least integer. Raises
    InvalidArgumentError for other dtypes, shapes, and a zero point that the dtype cannot hold.
    """
    with graph_of([input, scale]).as_default():
        x = as_tensor(input)
        factors = _scales("quantize", x, scale, axis)
        result: Tensor = Quantize(x, factors, zero_point=zero_point, dtype=dtype, name=name)
    return result


@checked
def dequantize(
    input: Any, scale: Any, zero_point: ZeroPoint = 0, axis: AxisNumber | None = None, name: Name = None
) -> Tensor:
    """The numbers that integers stand for: (input - zero_point) * scale, float32.

    input: uint8 or int8, or int32, the sums of `quantized_matmul` and `quantized_conv2d`. scale: as in
    `quantize`. Raises InvalidArgumentError for other dtypes and shapes.
    """
    with graph_of([input, scale]).as_default():
        x = as_tensor(input)
        factors = _scales("dequantize", x, scale, axis)
        result: Tensor = Dequantize(x, factors, zero_point=zero_point, name=name)
    return result


def _scales(op: str, x: Tensor, scale: Any, axis: Any) -> Tensor:
    """Scales that broadcast to `x`."""
    scales = scale if isinstance(scale, Tensor) else constant(scale, float32)
    if axis is None:
        if scales.shape.ndims not in (None, 0):
            raise InvalidArgumentError(
                f"{op}: scale is {scales.spec}, expected a scalar; give axis= for one per channel"
            )
        return scales
    position = checked_axis(op, axis, x.spec.rank)
    if not compatible(scales.spec.shape, x.spec.dims[position : position + 1]):
        raise InvalidArgumentError(
            f"{op}: scale is {scales.spec}, expected one number for each element along axis {axis} of "
            f"{render_dims(x.spec.dims)}"
        )
    return reshape(scales, [-1, *[1] * (x.spec.rank - 1 - position)])


# Specs and kernels --------------------------------------------------------------------------------


def _require_scale(op: str, inputs: Sequence[TensorSpec]) -> None:
    values, scale = inputs
    require_dtype(op, scale, (float32,), "scale")
    if None in (values.shape, scale.shape):
        return
    together = broadcast_dims(values.dims, scale.dims)
    if not compatible(together, values.dims):
        raise InvalidArgumentError(
            f"{op}: scale is {scale}, expected a shape that broadcasts to {render_dims(values.dims)}"
        )


def _quantize_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dtype, zero_point = attrs["dtype"], attrs["zero_point"]
    require_dtype("quantize", inputs[0], (float32,))
    _require_scale("quantize", inputs)
    if dtype not in BYTES:
        raise InvalidArgumentError(f"quantize: dtype is {dtype.name}, expected uint8 or int8")
    low, high = limits_of(dtype)
    if not low <= zero_point <= high:
        raise InvalidArgumentError(
            f"quantize: zero_point is {zero_point}, expected {low} to {high} for {dtype.name}"
        )
    return TensorSpec(inputs[0].shape, dtype)


def _dequantize_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("dequantize", inputs[0], (*BYTES, int32))
    _require_scale("dequantize", inputs)
    return TensorSpec(inputs[0].shape, float32)


def _quantize_scratch(node: NodeSpec) -> list[TensorSpec]:
    return [TensorSpec(node.inputs[0].extents, float32), TensorSpec(node.inputs[1].extents, float32)]


def _quantize(call: KernelCall) -> None:
    (x, scale), (out,), (value, inverse) = call.inputs, call.outputs, call.scratch
    np.divide(np.float32(1), scale, out=inverse)
    np.multiply(x, inverse, out=value)
    np.rint(value, out=value)
    saturate(value, call.attrs["zero_point"], out)


def saturate(value: Any, zero_point: int, out: Any) -> None:
    """Writes rounded float32 plus a zero point as 8-bit integers; NaN is the least. Changes `value`."""
    low, high = limits_of(out.dtype)
    np.add(value, np.float32(zero_point), out=value)
    np.fmax(value, np.float32(low), out=value)
    np.minimum(value, np.float32(high), out=value)
    np.copyto(out, value, casting="unsafe")


def _dequantize(call: KernelCall) -> None:
    (x, scale), (out,) = call.inputs, call.outputs
    np.copyto(out, x, casting="unsafe")
    np.subtract(out, np.float32(call.attrs["zero_point"]), out=out)
    np.multiply(out, scale, out=out)


Quantize = define_op(
    "Quantize",
    spec=_quantize_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(run=_quantize, scratch=_quantize_scratch),
    inputs=("input", "scale"),
    attrs={"zero_point": 0, "dtype": REQUIRED},
    unknown_dtypes=lambda inputs, attrs: (attrs["dtype"],),
)


Dequantize = define_op(
    "Dequantize",
    spec=_dequantize_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(run=_dequantize),
    inputs=("input", "scale"),
    attrs={"zero_point": 0},
    unknown_dtypes=lambda inputs, attrs: (float32,),
)


# Training with rounded numbers --------------------------------------------------------------------


@checked
def fake_quant_with_min_max_args(
    inputs: Any,
    min: Number = -6.0,
    max: Number = 6.0,
    num_bits: Bits = 8,
    narrow_range: Flag = False,
    name: Name = None,
) -> Tensor:
    """`inputs` rounded to 2^num_bits equidistant numbers from `min` to `max`, still float32.

    The range is moved so that 0 is one of them. The gradient is that of clipping to the range (a
    straight-through estimator: Jacob et al., 2018, section 3). narrow_range: one number fewer, as for int8
    from -127. Raises InvalidArgumentError unless min < max.
    """
    if min >= max:
        raise InvalidArgumentError(
            f"fake_quant_with_min_max_args: min is {min:g} and max {max:g}, expected min < max"
        )
    return fake_quant_with_min_max_vars(inputs, min, max, num_bits, narrow_range, name)


@checked
def fake_quant_with_min_max_vars(
    inputs: Any,
    min: Any,
    max: Any,
    num_bits: Bits = 8,
    narrow_range: Flag = False,
    name: Name = None,
) -> Tensor:
    """`fake_quant_with_min_max_args` with scalar tensors `min` and `max`, for example variables.

    The gradient of `min` is the sum of the result's gradient where inputs lie below the range, that of `max`
    where they lie above. min < max is not checked.
    """
    with graph_of([inputs, min, max]).as_default(), name_scope(name or "fake_quant"):
        x = as_tensor(inputs)
        require_dtype("fake_quant", x.spec, (float32,))
        low, high = (v if hasattr(v, "graph") else constant(v, float32) for v in (min, max))
        first, last = float(narrow_range), float(2**num_bits - 1)
        scale = divide(subtract(high, low), last - first)
        zero_point = minimum(maximum(round(subtract(first, divide(low, scale))), first), last)
        bounds = (multiply(subtract(end, zero_point), scale) for end in (first, last))
        # The range's ends have the values of the moved range, and the gradients of min and max.
        low, high = (add(v, stop_gradient(subtract(b, v))) for v, b in zip((low, high), bounds, strict=True))
        clipped = minimum(maximum(x, low), high)
        rounded = add(multiply(round(divide(subtract(clipped, low), scale)), scale), low)
        return add(clipped, stop_gradient(subtract(rounded, clipped)))


@checked
def fake_quant_with_min_max_vars_per_channel(
    inputs: Any,
    min: Any,
    max: Any,
    num_bits: Bits = 8,
    narrow_range: Flag = False,
    name: Name = None,
) -> Tensor:
    """`fake_quant_with_min_max_vars` with `min` and `max` [channels]: a range for each of the last axis."""
    return fake_quant_with_min_max_vars(inputs, min, max, num_bits, narrow_range, name)
