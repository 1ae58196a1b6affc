"""ONNX nodes for operations of 8-bit integers: QLinearConv, ConvInteger, MatMulInteger and conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.errors import UnimplementedError
from tensorbow.graph import Operation, Tensor
from tensorbow.interop.onnx.graph_writer import GraphWriter, writes
from tensorbow.interop.onnx.op_writers import IMAGES, window_attributes
from tensorbow.ops.quantized_products import runs_of, unpacked
from tensorbow.specs import Array, float32, int32


@writes("Quantize", "Dequantize")
def _convert(w: GraphWriter, op: Operation) -> None:
    x, scale = op.inputs
    known = w.known(scale)
    if known is None or known.size != 1:
        raise UnimplementedError(f"its scale must be one constant number, got {scale.spec}")
    coded = op.inputs[0] if op.definition.name == "Dequantize" else op.outputs[0]
    zero_point = w.constant(op.attrs["zero_point"], coded.dtype.as_numpy_dtype)
    node = f"{op.definition.name}Linear"
    name = w.node(node, [w.name(x, w.order(x)), w.constant(known.reshape(()), np.float32), zero_point])
    w.name_result(op.outputs[0], name, w.order(x))


@writes("PackWeights")
def _pack(w: GraphWriter, op: Operation) -> None:
    """Quantised words: of constant weights the writer computes them."""
    raise UnimplementedError(f"its weights must be constant, {op.inputs[0].name} is not")


@writes("QuantizedConv2D")
def _conv(w: GraphWriter, op: Operation) -> None:
    images, window = op.inputs[0], op.attrs["window"]
    _, length = runs_of(window, op.attrs["dilations"])
    weights, bias, multiplier = _operands(w, op, length)
    filters = weights.reshape(*window, -1)
    zero_point = op.attrs["padding_value"]
    bias = bias + zero_point * weights.astype(np.int64).sum(
        axis=(0, 1)
    )  # ONNX subtracts the zero point itself
    attrs = window_attributes(op, images, window[:2])
    x, kernel = w.name(images, IMAGES), w.store("kernel", filters.transpose(3, 2, 0, 1))
    point = w.constant(zero_point, np.uint8)
    if op.outputs[0].dtype in (int32, float32):
        sums = w.node("ConvInteger", [x, kernel, point], **attrs)
        result = w.node("Add", [sums, w.constant(bias.reshape(-1, 1, 1), np.int32)])
        name = _scaled(w, op, result, multiplier.reshape(-1, 1, 1))
    else:
        one = w.constant(1, np.float32)
        of_weights = [w.constant(multiplier, np.float32), w.constant(np.zeros(len(multiplier)), np.int8)]
        ends = [one, w.constant(op.attrs["zero_point"], np.uint8), w.constant(bias, np.int32)]
        name = w.node("QLinearConv", [x, one, point, kernel, *of_weights, *ends], **attrs)
    w.name_result(op.outputs[0], name, IMAGES)


@writes("QuantizedMatMul")
def _matmul(w: GraphWriter, op: Operation) -> None:
    weights, bias, multiplier = _operands(w, op, op.attrs["inner"])
    sums = w.node("MatMulInteger", [w.name(op.inputs[0]), w.store("weights", weights[0])])
    result = _scaled(w, op, w.node("Add", [sums, w.constant(bias, np.int32)]), multiplier)
    if op.outputs[0].dtype not in (int32, float32):
        point = w.constant(op.attrs["zero_point"], np.uint8)
        result = w.node("QuantizeLinear", [result, w.constant(1, np.float32), point])
    w.name_result(op.outputs[0], result)


def _operands(w: GraphWriter, op: Operation, length: int) -> tuple[Array, Array, Array]:
    """Weights int8 [runs, length, outputs], bias int64 and multipliers [outputs]. They must be constant."""
    words, bias, multiplier = (_constant(w, tensor) for tensor in op.inputs[1:])
    return unpacked(words, length), bias.astype(np.int64), multiplier


def _constant(w: GraphWriter, tensor: Tensor) -> Array:
    known = w.known(tensor)
    if known is None:
        raise UnimplementedError(f"its weights, bias and multipliers must be constant, {tensor.name} is not")
    return known


def _scaled(w: GraphWriter, op: Operation, sums: str, multiplier: Any) -> str:
    """Sums as they are, or times the multipliers."""
    if op.outputs[0].dtype == int32:
        return sums
    single = w.node("Cast", [sums], to=w.onnx.TensorProto.FLOAT)
    return w.node("Mul", [single, w.constant(multiplier, np.float32)])
