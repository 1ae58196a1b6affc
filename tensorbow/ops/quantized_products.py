"""Matrix products and convolutions of 8-bit integers, summed in 32 bits (Jacob et al., 2018, section 2).

The left operand, the activations, is uint8, the weights are int8. Weights are packed in words: four
neighbours along the sum in 32 bits, the first in the lowest byte, as processors multiply them. A sum plus
bias is the result (int32), or is multiplied by a float32 per channel (float32), and rounded and saturated
(uint8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from tensorbow.kinds import AsDType, Name, checked, whole
from tensorbow.ops.argument_kinds import Padding, WindowSize
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import broadcast_to
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import define_op, require_dtype, require_rank
from tensorbow.ops.elementwise import add, multiply
from tensorbow.ops.filling import zeros
from tensorbow.ops.im2col import Unrolling, correlate
from tensorbow.ops.quantization import saturate
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.ops.sliding_windows import Windows, count_windows, image_dims, spatial_pair
from tensorbow.specs import Array, TensorSpec, compatible, float32, float64, int8, int32, uint8

__all__ = ["quantized_conv2d", "quantized_matmul"]

WORD = 4  # weights in a word
LONGEST = (2**31 - 1) // (255 * 128)  # products that a sum of 32 bits holds, whatever they are
RESULTS = (uint8, float32, int32)
WHY_CPU = "products of 8-bit integers have kernels for CPUs alone"
ZeroPoint: TypeAlias = Annotated[int, whole(0, 255)]


@checked
def quantized_matmul(
    a: Any,
    b: Any,
    bias: Any = None,
    multiplier: Any = None,
    *,
    a_zero_point: ZeroPoint = 0,
    zero_point: ZeroPoint = 0,
    dtype: AsDType = int32,
    name: Name = None,
) -> Tensor:
    """(a - a_zero_point) @ b + bias of integers, summed in 32 bits, then converted to `dtype`.

    a: uint8 [rows, inner]. b: int8 [inner, columns], with a zero point of 0. bias: int32 [columns].
    multiplier: float32, a scalar or [columns]; with scales of a, of b, and of the result: a's times b's,
    divided by the result's.
    dtype: int32, the sums; float32: the sums times `multiplier`; uint8: those rounded, halves to even, plus
    `zero_point`, and saturated. Raises InvalidArgumentError for operands of other dtypes or shapes, and more
    than 65,793 products to a sum.
    """
    with graph_of([a, b]).as_default(), name_scope(name or "quantized_matmul"):
        x, w = as_tensor(a), as_tensor(b)
        _require_weights("quantized_matmul", w.spec, 2)
        inner, columns = w.spec.dims
        words = PackWeights(reshape(w, [1, inner, columns]))
        given = _of_channels("quantized_matmul", w, bias, multiplier, a_zero_point, dtype)
        result: Tensor = QuantizedMatMul(
            x, words, *given, inner=inner, zero_point=zero_point, dtype=dtype, name="product"
        )
    return result


@checked
def quantized_conv2d(
    input: Any,
    filter: Any,
    strides: WindowSize,
    padding: Padding,
    bias: Any = None,
    multiplier: Any = None,
    *,
    input_zero_point: ZeroPoint = 0,
    zero_point: ZeroPoint = 0,
    dtype: AsDType = int32,
    dilations: WindowSize | None = None,
    name: Name = None,
) -> Tensor:
    """Convolution of integers: `conv2d` of input - input_zero_point, plus bias, converted to `dtype`.

    input: uint8 [batch, height, width, in]. filter: int8 [height, width, in, out], with a zero point of 0.
    bias, multiplier: [out], and `zero_point` and dtype: as in `quantized_matmul`. Raises
    InvalidArgumentError as that function and `conv2d` do.
    """
    op = "quantized_conv2d"
    with graph_of([input, filter]).as_default(), name_scope(name or op):
        x, w = as_tensor(input), as_tensor(filter)
        _require_weights(op, w.spec, 4)
        attrs: dict[str, Any] = {
            "strides": spatial_pair(op, strides, "strides", "NHWC"),
            "padding": padding,
            "dilations": spatial_pair(op, dilations, "dilations", "NHWC"),
        }
        rows, columns, inputs, outputs = w.spec.dims
        words = PackWeights(reshape(w, [*runs_of(w.spec.extents, attrs["dilations"]), outputs]))
        given = _of_channels(op, w, bias, multiplier, input_zero_point, dtype)
        result: Tensor = QuantizedConv2D(
            x,
            words,
            *given,
            window=(rows, columns, inputs),
            padding_value=input_zero_point,
            zero_point=zero_point,
            dtype=dtype,
            name="convolution",
            **attrs,
        )
    return result


def runs_of(filter: Sequence[int], dilations: Sequence[int]) -> tuple[int, int]:
    """Runs of neighbouring bytes of an image in a window [height, width, in]: their number, and length."""
    rows, columns, inputs = filter[:3]
    return (rows, columns * inputs) if dilations[2] == 1 or columns == 1 else (rows * columns, inputs)


def _of_channels(
    op: str, w: Tensor, bias: Any, multiplier: Any, input_zero_point: int, dtype: Any
) -> tuple[Tensor, Tensor]:
    """Bias, less the weights' sum times the zero point of the left operand, and multipliers, of channels."""
    outputs = w.spec.dims[-1]
    if dtype not in RESULTS:
        raise InvalidArgumentError(f"{op}: dtype is {dtype.name}, expected int32, float32 or uint8")
    if (multiplier is None) != (dtype == int32):
        raise InvalidArgumentError(
            f"{op}: expected a multiplier for results of uint8 and float32 alone, got "
            f"{'none' if multiplier is None else 'one'} for {dtype.name}"
        )
    shift = zeros([outputs], int32) if bias is None else as_tensor(bias)
    if shift.dtype != int32 or not compatible(shift.spec.shape, (outputs,)):
        raise InvalidArgumentError(f"{op}: bias is {shift.spec}, expected int32[{outputs}]")
    if input_zero_point:
        sums = reduce_sum(cast(w, int32), axis=[*range(w.spec.rank - 1)])
        shift = add(shift, multiply(sums, -input_zero_point))
    if multiplier is None:
        return shift, zeros([outputs], float32)
    factors = multiplier if hasattr(multiplier, "graph") else constant(multiplier, float32)
    if factors.dtype != float32 or factors.spec.shape not in (None, (), (None,), (outputs,)):
        raise InvalidArgumentError(
            f"{op}: multiplier is {factors.spec}, expected float32, a scalar or [{outputs}]"
        )
    return shift, broadcast_to(factors, [outputs])


def _require_weights(op: str, spec: TensorSpec, rank: int) -> None:
    require_dtype(op, spec, (int8,), "the weights")
    require_rank(op, spec, rank, "the weights")
    if None in spec.dims:
        raise InvalidArgumentError(f"{op}: the weights are {spec}, expected a known shape")
    if (count := math.prod(spec.extents[:-1])) > LONGEST:
        raise InvalidArgumentError(
            f"{op}: the weights {spec} have {count:,} products to a sum, of which 32 bits hold {LONGEST:,}; "
            "divide the sum, and add the parts as float32"
        )


# Weights ------------------------------------------------------------------------------------------


def _pack_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (weights,) = inputs
    require_dtype("PackWeights", weights, (int8,))
    require_rank("PackWeights", weights, 3)
    runs, length, outputs = weights.dims
    return TensorSpec((runs, None if length is None else -(-length // WORD), outputs), int32)


def _pack_scratch(node: NodeSpec) -> list[TensorSpec]:
    runs, words, outputs = node.outputs[0].extents
    return [TensorSpec((runs, words, outputs, WORD), int8)]


def _pack(call: KernelCall) -> None:
    """Words of four neighbours along the second axis; the last one's rest is 0."""
    (weights,), (out,), (quads,) = call.inputs, call.outputs, call.scratch
    quads.fill(0)
    for place in range(WORD):
        part = weights[:, place::WORD]
        np.copyto(quads[:, : part.shape[1], :, place], part)
    np.copyto(out, quads.view(np.int32)[..., 0])


def unpacked(words: Array, length: int) -> Array:
    """Weights int8 [runs, length, outputs] of words [runs, words, outputs]."""
    runs, count, outputs = words.shape
    return as_quads(np.ascontiguousarray(words)).reshape(runs, count * WORD, outputs)[:, :length]


PackWeights = define_op(
    "PackWeights",
    spec=_pack_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(run=_pack, scratch=_pack_scratch),
    inputs=("weights",),
    unknown_dtypes=lambda inputs, attrs: (int32,),
    why_cpu=WHY_CPU,
)


# Specs --------------------------------------------------------------------------------------------


def _require_operands(
    op: str, inputs: Sequence[TensorSpec], runs: tuple[int, int], attrs: Attrs
) -> TensorSpec:
    """Checks all operands but the activations' shape; returns the spec of the words."""
    x, words, bias, multiplier = inputs
    if attrs["dtype"] not in RESULTS:
        raise InvalidArgumentError(f"{op}: dtype is {attrs['dtype'].name}, expected int32, float32 or uint8")
    require_dtype(op, x, (uint8,), "the left operand")
    require_dtype(op, words, (int32,), "the words")
    outputs = words.dims[2] if words.shape is not None and len(words.dims) == 3 else None
    expected = (runs[0], -(-runs[1] // WORD), outputs)
    for what, spec, dtype, shape in (
        ("words", words, int32, expected),
        ("bias", bias, int32, (outputs,)),
        ("multiplier", multiplier, float32, (outputs,)),
    ):
        if spec.dtype != dtype or not compatible(spec.shape, shape):
            raise InvalidArgumentError(f"{op}: {what} is {spec}, expected {TensorSpec(shape, dtype)}")
    return words


def _matmul_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    words = _require_operands("quantized_matmul", inputs, (1, attrs["inner"]), attrs)
    x = inputs[0]
    require_rank("quantized_matmul", x, 2, "the left operand")
    if not compatible(x.shape, (None, attrs["inner"])):
        raise InvalidArgumentError(
            f"quantized_matmul: the left operand is {x}, expected [rows, {attrs['inner']}]"
        )
    return TensorSpec((x.dims[0], words.dims[2]), attrs["dtype"])


def _conv2d_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    op, window = "quantized_conv2d", attrs["window"]
    if len(window) != 3:
        raise InvalidArgumentError(f"{op}: window is {window}, expected (height, width, channels)")
    words = _require_operands(op, inputs, runs_of(window, attrs["dilations"]), attrs)
    batch, height, width, channels = image_dims(op, inputs[0], "the images")
    if channels not in (None, window[2]):
        raise InvalidArgumentError(
            f"{op}: the images {inputs[0]} have {channels} channels, the filter takes {window[2]}"
        )
    padding, (_, *strides, _), (_, *rates, _) = attrs["padding"], attrs["strides"], attrs["dilations"]
    rows, columns = (
        count_windows(op, extent, window[axis], strides[axis], padding, rates[axis])
        for axis, extent in enumerate((height, width))
    )
    return TensorSpec((batch, rows, columns, words.dims[2]), attrs["dtype"])


# Reference kernels --------------------------------------------------------------------------------
# Sums of integers are exact in float64, whose products are fast.


def finish(sums: Array, bias: Array, multiplier: Array, zero_point: int, single: Array, out: Array) -> None:
    """Converts sums [..., outputs], float64, to a result. single: float32 scratch of that shape.

    Changes `sums`.
    """
    np.add(sums, bias, out=sums)
    if out.dtype == np.int32:
        np.copyto(out, sums, casting="unsafe")
        return
    np.copyto(single, sums, casting="unsafe")
    if out.dtype == np.float32:
        np.multiply(single, multiplier, out=out)
        return
    np.multiply(single, multiplier, out=single)
    np.rint(single, out=single)
    saturate(single, zero_point, out)


def _matmul_scratch(node: NodeSpec) -> list[TensorSpec]:
    (rows, inner), (_, _, outputs) = node.inputs[0].extents, node.inputs[1].extents
    words = -(-inner // WORD)
    return [
        TensorSpec((rows, inner), float64),
        TensorSpec((1, words, outputs), int32),
        TensorSpec((words * WORD, outputs), float64),
        TensorSpec((rows, outputs), float64),
        TensorSpec((rows, outputs), float32),
    ]


def _prepare_matmul(call: KernelCall) -> Callable[[], None]:
    (x, words, bias, multiplier), (out,) = call.inputs, call.outputs
    left, contiguous, weights, sums, single = call.scratch
    quads = as_quads(contiguous)

    def step() -> None:
        np.copyto(contiguous, words)
        np.copyto(left, x)
        np.copyto(weights.reshape(quads.shape), quads)
        np.matmul(left, weights[: x.shape[1]], out=sums)
        finish(sums, bias, multiplier, call.attrs["zero_point"], single, out)

    return step


def as_quads(words: Array) -> Array:
    """View int8 [runs, words, 4, outputs] of contiguous words [runs, words, outputs]."""
    quads = words.view(np.int8).reshape(*words.shape, WORD)
    view: Array = quads.transpose(0, 1, 3, 2)
    return view


def _unrolling(node: NodeSpec | KernelCall, images: Sequence[int]) -> Unrolling:
    attrs = node.attrs
    windows = Windows.of(images, attrs["window"], attrs["strides"], attrs["padding"], attrs["dilations"])
    return Unrolling(images[0], windows.rows, windows.columns, images[3], float64)


def _conv2d_scratch(node: NodeSpec) -> list[TensorSpec]:
    images, words = node.inputs[0].extents, node.inputs[1].extents
    unrolling, out = _unrolling(node, images), node.outputs[0].extents
    runs, count, outputs = words
    return [
        *unrolling.scratch(),
        TensorSpec(images, float64),
        TensorSpec(words, int32),
        TensorSpec((runs, count * WORD, outputs), float64),
        TensorSpec((unrolling.depth, outputs), float64),
        TensorSpec((outputs,), float64),
        TensorSpec(out, float64),
        TensorSpec(out, float32),
    ]


def _prepare_conv2d(call: KernelCall) -> Callable[[], None]:
    """A convolution of the images less their padding's value, plus that value times the sums of filters."""
    (images, words, bias, multiplier), (out,) = call.inputs, call.outputs
    *unrolled, centred, contiguous, padded, matrix, offsets, sums, single = call.scratch
    value, quads = call.attrs["padding_value"], as_quads(contiguous)
    runs, length = runs_of(call.attrs["window"], call.attrs["dilations"])
    convolve = correlate(_unrolling(call, images.shape), centred, matrix, sums, unrolled)

    def step() -> None:
        np.copyto(centred, images)
        np.subtract(centred, value, out=centred)
        np.copyto(contiguous, words)
        np.copyto(padded.reshape(quads.shape), quads)
        np.copyto(matrix.reshape(runs, length, -1), padded[:, :length])
        np.sum(matrix, axis=0, out=offsets)
        np.multiply(offsets, value, out=offsets)
        convolve()
        np.add(sums, offsets, out=sums)
        finish(sums, bias, multiplier, call.attrs["zero_point"], single, out)

    return step


QuantizedMatMul = define_op(
    "QuantizedMatMul",
    spec=_matmul_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(prepare=_prepare_matmul, scratch=_matmul_scratch),
    inputs=("a", "words", "bias", "multiplier"),
    attrs={"inner": REQUIRED, "zero_point": 0, "dtype": int32},
    unknown_dtypes=lambda inputs, attrs: (attrs["dtype"],),
    why_cpu=WHY_CPU,
)
QuantizedConv2D = define_op(
    "QuantizedConv2D",
    spec=_conv2d_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(prepare=_prepare_conv2d, scratch=_conv2d_scratch),
    inputs=("input", "words", "bias", "multiplier"),
    attrs={
        "window": REQUIRED,
        "strides": (1, 1, 1, 1),
        "padding": "VALID",
        "dilations": (1, 1, 1, 1),
        "padding_value": 0,
        "zero_point": 0,
        "dtype": int32,
    },
    unknown_dtypes=lambda inputs, attrs: (attrs["dtype"],),
    why_cpu=WHY_CPU,
)
