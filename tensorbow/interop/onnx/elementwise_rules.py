"""Rules for element-wise ONNX ops: the order of axes of their inputs stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tensorbow.graph import Tensor
from tensorbow.interop.onnx.graph_builder import GraphBuilder, rule
from tensorbow.interop.onnx.held_values import AxisOrder, Held
from tensorbow.interop.onnx.model_file import OnnxNode, import_onnx
from tensorbow.ops import activations, elementwise
from tensorbow.ops.control import identity
from tensorbow.ops.elementwise import add, divide, maximum, minimum, multiply, subtract
from tensorbow.ops.nn import dropout
from tensorbow.ops.selection import cast, select
from tensorbow.specs import as_dtype

UNARY: dict[str, Callable[..., Tensor]] = {
    "Abs": elementwise.abs,
    "Ceil": elementwise.ceil,
    "Cos": elementwise.cos,
    "Erf": elementwise.erf,
    "Exp": elementwise.exp,
    "Floor": elementwise.floor,
    "IsInf": elementwise.is_inf,
    "IsNaN": elementwise.is_nan,
    "Log": elementwise.log,
    "Neg": elementwise.negative,
    "Not": elementwise.logical_not,
    "Reciprocal": elementwise.reciprocal,
    "Relu": elementwise.relu,
    "Round": elementwise.round,
    "Sigmoid": elementwise.sigmoid,
    "Sign": elementwise.sign,
    "Sin": elementwise.sin,
    "Softplus": activations.softplus,
    "Softsign": activations.softsign,
    "Sqrt": elementwise.sqrt,
    "Tanh": elementwise.tanh,
}


def _divided(x: Tensor, y: Tensor) -> Tensor:
    """Division that truncates integers towards zero."""
    if x.dtype.is_floating:
        return divide(x, y)
    sign = multiply(elementwise.sign(x), elementwise.sign(y))
    return multiply(elementwise.floordiv(elementwise.abs(x), elementwise.abs(y)), sign)


def _power(x: Tensor, y: Tensor) -> Tensor:
    return elementwise.pow(x, cast(y, x.dtype))


def _slope(x: Tensor, slope: Tensor) -> Tensor:
    """PRelu: negative elements times a slope."""
    return add(elementwise.relu(x), multiply(slope, minimum(x, 0)))


BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "And": elementwise.logical_and,
    "Div": _divided,
    "Equal": elementwise.equal,
    "Greater": elementwise.greater,
    "GreaterOrEqual": elementwise.greater_equal,
    "Less": elementwise.less,
    "LessOrEqual": elementwise.less_equal,
    "Or": elementwise.logical_or,
    "PRelu": _slope,
    "Pow": _power,
    "Sub": subtract,
    "Xor": elementwise.logical_xor,
}
VARIADIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": add,
    "Max": maximum,
    "Mean": add,
    "Min": minimum,
    "Mul": multiply,
    "Sum": add,
}


def aligned(b: GraphBuilder, values: Sequence[Held]) -> tuple[list[Tensor], AxisOrder | None]:
    """The tensors in one order of axes, so that they broadcast as in ONNX; and that order."""
    rank = max(held.rank for held in values)
    orders = [held.axes for held in values if held.rank == rank and held.axes and held.known is None]
    if not orders:
        return [b.tensor(held) for held in values], None
    return [b.tensor(held, orders[0]) for held in values], orders[0]


@rule(*UNARY)
def _unary(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    return apply(b, UNARY[node.op], x)


def apply(b: GraphBuilder, function: Callable[[Tensor], Tensor], x: Held) -> Held:
    """An element-wise function of one value."""
    return Held(None, function(b.tensor(x, x.axes)), x.axes)


@rule(*BINARY, *VARIADIC)
def _several(b: GraphBuilder, node: OnnxNode, *values: Held) -> Held:
    tensors, order = aligned(b, values)
    result = reduce(BINARY.get(node.op) or VARIADIC[node.op], tensors)
    if node.op == "Mean":
        result = divide(result, float(len(values)))
    return Held(None, identity(result) if len(tensors) == 1 else result, order)


@rule("Mod")
def _mod(b: GraphBuilder, node: OnnxNode, x: Held, y: Held) -> Held:
    (p, q), order = aligned(b, (x, y))
    if not node.attrs.get("fmod"):
        return Held(None, elementwise.mod(p, q), order)
    return Held(None, subtract(p, multiply(_truncated(divide(p, q)), q)), order)


def _truncated(x: Tensor) -> Tensor:
    return multiply(elementwise.floor(elementwise.abs(x)), elementwise.sign(x))


@rule("Where")
def _where(b: GraphBuilder, node: OnnxNode, *values: Held) -> Held:
    (condition, x, y), order = aligned(b, values)
    return Held(None, select(condition, x, y), order)


@rule("Clip")
def _clip(
    b: GraphBuilder, node: OnnxNode, x: Held, low: Held | None = None, high: Held | None = None
) -> Held:
    least = b.number(low, "min", node.attrs.get("min"))
    most = b.number(high, "max", node.attrs.get("max"))

    def clip(t: Tensor) -> Tensor:
        t = t if most is None else minimum(t, most)
        return t if least is None else maximum(t, least)

    return apply(b, clip, x)


@rule("Cast", "CastLike")
def _cast(b: GraphBuilder, node: OnnxNode, x: Held, like: Held | None = None) -> Held:
    if like is not None:
        dtype = as_dtype(like.known.dtype) if like.known is not None else like.tensor.dtype
    else:
        dtype = as_dtype(import_onnx().helper.tensor_dtype_to_np_dtype(node.attrs["to"]))
    return apply(b, lambda t: cast(t, dtype), x)


@rule("Identity")
def _identity(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    return x


@rule("Dropout")
def _dropout(
    b: GraphBuilder, node: OnnxNode, x: Held, ratio: Held | None = None, mode: Held | None = None
) -> Any:
    rate = b.number(ratio, "ratio", node.attrs.get("ratio", 0.5))
    if not b.training or not rate:
        return x
    return apply(b, lambda t: dropout(t, rate=rate), x)


@rule("Gelu")
def _gelu(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    return apply(b, lambda t: activations.gelu(t, node.attrs.get("approximate") == "tanh"), x)


@rule("LeakyRelu")
def _leaky_relu(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    return apply(b, lambda t: activations.leaky_relu(t, node.attrs.get("alpha", 0.01)), x)


@rule("Elu", "Celu")
def _elu(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    alpha = node.attrs.get("alpha", 1.0)

    def elu(t: Tensor) -> Tensor:
        if alpha == 1.0:
            return activations.elu(t)
        low = minimum(t, 0)
        inner = elementwise.expm1(divide(low, alpha) if node.op == "Celu" else low)
        return add(elementwise.relu(t), multiply(inner, alpha))

    return apply(b, elu, x)


@rule("Selu")
def _selu(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    alpha = node.attrs.get("alpha", 1.67326319217681884765625)
    gamma = node.attrs.get("gamma", 1.05070102214813232421875)

    def selu(t: Tensor) -> Tensor:
        low = multiply(elementwise.expm1(minimum(t, 0)), alpha)
        return multiply(add(elementwise.relu(t), low), gamma)

    return apply(b, selu, x)


@rule("HardSigmoid", "HardSwish")
def _hard(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    swish = node.op == "HardSwish"
    alpha, beta = node.attrs.get("alpha", 1 / 6 if swish else 0.2), node.attrs.get("beta", 0.5)

    def hard(t: Tensor) -> Tensor:
        gate = minimum(maximum(add(multiply(t, alpha), beta), 0), 1)
        return multiply(t, gate) if swish else gate

    return apply(b, hard, x)


@rule("Swish")
def _swish(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    alpha = node.attrs.get("alpha", 1.0)
    return apply(b, lambda t: multiply(t, elementwise.sigmoid(multiply(t, alpha))), x)


@rule("Mish")
def _mish(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    return apply(b, lambda t: multiply(t, elementwise.tanh(activations.softplus(t))), x)
