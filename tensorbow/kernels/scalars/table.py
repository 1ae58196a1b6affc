"""Table of rules: the scalar expressions of each element-wise op, update and averaging op.

`RULES` is keyed by the op. Rows follow the order of arithmetic of the reference kernels, so
that the NumPy form gives their bits; where a formula differs (softplus) the tests state the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tensorbow.errors import InternalError
from tensorbow.graph import Attrs, OpDef
from tensorbow.kernels.scalars.expression import (
    Operand,
    Scalar,
    apply,
    cast,
    equal,
    exp,
    maximum,
    minimum,
    not_equal,
    select,
    sqrt,
    symbols,
)
from tensorbow.kernels.scalars.update_rules import AVERAGING_RULES, UPDATE_RULES
from tensorbow.ops import elementwise_table as ops
from tensorbow.ops.activations import LeakyRelu, LeakyReluGrad
from tensorbow.ops.control import Copy
from tensorbow.ops.integer_power import IntegerPow
from tensorbow.ops.nn import BiasAdd
from tensorbow.ops.quantization import Dequantize, Quantize, limits_of
from tensorbow.ops.selection import Cast, Select
from tensorbow.ops.state import Assign, AssignAdd, AssignSub
from tensorbow.specs import DType, float32

Rule: TypeAlias = "Callable[[Sequence[Scalar], Attrs, Mapping[str, Scalar]], Sequence[Scalar]]"
"""(inputs, attrs, step scalars by key) -> a result for each output without alias, then one for each written
input, in the order of `writes`.
"""


def results_of(
    definition: OpDef, attrs: Attrs, inputs: Sequence[DType], state: Sequence[DType]
) -> tuple[Scalar, ...]:
    """The results of an op; the symbols of its step scalars follow those of its inputs.

    inputs, state: the dtypes, `state` in the order of `definition.state`. Raises InternalError for an op
    that is not in the table.
    """
    rule = RULES.get(definition)
    if rule is None:
        raise InternalError(f"{definition.name} has no rule in the table of scalar expressions")
    given = symbols((*inputs, *state))
    scalars = dict(zip(definition.state, given[len(inputs) :], strict=True))
    return tuple(rule(given[: len(inputs)], attrs, scalars))


def inplace_of(definition: OpDef) -> tuple[tuple[int, int], ...]:
    """The (output, input) pairs that may share memory in a map of the op.

    They are those of its reference kernel, except that Select may overwrite either operand: a map reads all
    inputs of an element before it writes.
    """
    return ((0, 1), (0, 2)) if definition is Select else definition.kernels["cpu"].inplace


def _unary(function: Callable[[Scalar], Scalar]) -> Rule:
    return lambda x, attrs, state: (function(x[0]),)


def _binary(function: Callable[[Scalar, Scalar], Scalar]) -> Rule:
    return lambda x, attrs, state: (function(x[0], x[1]),)


def _operator(name: str) -> Rule:
    return lambda x, attrs, state: (apply(name, *x),)


def _sigmoid(x: Scalar) -> Scalar:
    return exp(minimum(x, 0)) / (exp(-abs(x)) + 1)


def _softplus(x: Scalar) -> Scalar:
    return maximum(x, 0) + apply("log1p", exp(-abs(x)))


def _elu(x: Scalar) -> Scalar:
    return select(x > 0, x, apply("expm1", minimum(x, 0)))


def _elu_grad(gradients: Scalar, outputs: Scalar) -> Scalar:
    return select(outputs > 0, gradients, (outputs + 1) * gradients)


def _leaky(x: Sequence[Scalar], attrs: Attrs, state: Mapping[str, Scalar]) -> Sequence[Scalar]:
    """Leaky ReLU of the only input, or of gradients, where the last input, the features, decides."""
    return (select(x[-1] > 0, x[0], x[0] * float(attrs["alpha"])),)


def _select(x: Sequence[Scalar], attrs: Attrs, state: Mapping[str, Scalar]) -> Sequence[Scalar]:
    return (select(x[0], x[1], x[2]),)


def _cast(x: Sequence[Scalar], attrs: Attrs, state: Mapping[str, Scalar]) -> Sequence[Scalar]:
    return (cast(x[0], attrs["dtype"]),)


def _quantize(x: Sequence[Scalar], attrs: Attrs, state: Mapping[str, Scalar]) -> Sequence[Scalar]:
    value, scale = x
    low, high = limits_of(attrs["dtype"])
    rounded = apply("rint", value * _over(1, scale)) + attrs["zero_point"]
    at_least = select(rounded > low, rounded, low)  # NaN is the least
    return (cast(minimum(at_least, high), attrs["dtype"]),)


def _dequantize(x: Sequence[Scalar], attrs: Attrs, state: Mapping[str, Scalar]) -> Sequence[Scalar]:
    return ((cast(x[0], float32) - attrs["zero_point"]) * x[1],)


def _over(number: Operand, x: Scalar) -> Scalar:
    return apply("divide", number, x)


def _shift(name: str) -> Rule:
    return lambda x, attrs, state: (apply(name, x[0], minimum(maximum(x[1], 0), 8 * x[1].dtype.size - 1)),)


RULES: dict[OpDef, Rule] = {
    ops.Less: _operator("less"),
    ops.LessEqual: _operator("less_equal"),
    ops.Greater: _operator("greater"),
    ops.GreaterEqual: _operator("greater_equal"),
    ops.Equal: _binary(equal),
    ops.NotEqual: _binary(not_equal),
    ops.LogicalAnd: _operator("logical_and"),
    ops.LogicalOr: _operator("logical_or"),
    ops.LogicalNot: _operator("logical_not"),
    ops.IsFinite: _operator("isfinite"),
    ops.IsNan: _operator("isnan"),
    ops.Add: _operator("add"),
    ops.Sub: _operator("subtract"),
    ops.Mul: _operator("multiply"),
    ops.RealDiv: _operator("divide"),
    ops.FloorDiv: _operator("floor_divide"),
    ops.FloorMod: _operator("remainder"),
    ops.Pow: _operator("power"),
    IntegerPow: _operator("power"),
    ops.Maximum: _binary(maximum),
    ops.Minimum: _binary(minimum),
    ops.BitwiseAnd: _operator("bitwise_and"),
    ops.BitwiseOr: _operator("bitwise_or"),
    ops.BitwiseXor: _operator("bitwise_xor"),
    ops.Invert: _operator("invert"),
    ops.LeftShift: _shift("left_shift"),
    ops.RightShift: _shift("right_shift"),
    ops.Neg: _operator("negative"),
    ops.Abs: _operator("absolute"),
    ops.Sign: _operator("sign"),
    ops.Floor: _operator("floor"),
    ops.Ceil: _operator("ceil"),
    ops.Round: _operator("rint"),
    ops.Square: _unary(lambda x: x * x),
    ops.Sqrt: _unary(sqrt),
    ops.Rsqrt: _unary(lambda x: _over(1, sqrt(x))),
    ops.Reciprocal: _unary(lambda x: _over(1, x)),
    ops.Exp: _unary(exp),
    ops.Log: _operator("log"),
    ops.Expm1: _operator("expm1"),
    ops.Log1p: _operator("log1p"),
    ops.Sin: _operator("sin"),
    ops.Cos: _operator("cos"),
    ops.Tan: _operator("tan"),
    ops.Asin: _operator("arcsin"),
    ops.Acos: _operator("arccos"),
    ops.Atan: _operator("arctan"),
    ops.Atan2: _operator("arctan2"),
    ops.Sinh: _operator("sinh"),
    ops.Cosh: _operator("cosh"),
    ops.Asinh: _operator("arcsinh"),
    ops.Acosh: _operator("arccosh"),
    ops.Atanh: _operator("arctanh"),
    ops.Erf: _operator("erf"),
    ops.Erfc: _operator("erfc"),
    ops.Lgamma: _operator("lgamma"),
    ops.Relu: _unary(lambda x: maximum(x, 0)),
    ops.Sigmoid: _unary(_sigmoid),
    ops.Tanh: _operator("tanh"),
    ops.Elu: _unary(_elu),
    ops.Softplus: _unary(_softplus),
    ops.ReluGrad: _binary(lambda gradients, features: select(features > 0, gradients, 0)),
    ops.EluGrad: _binary(_elu_grad),
    ops.SigmoidGrad: _binary(lambda y, dy: (1 - y) * (dy * y)),
    ops.TanhGrad: _binary(lambda y, dy: (1 - y * y) * dy),
    LeakyRelu: _leaky,
    LeakyReluGrad: _leaky,
    Select: _select,
    Cast: _cast,
    BiasAdd: _operator("add"),
    Quantize: _quantize,
    Dequantize: _dequantize,
    Copy: _unary(lambda x: x),
    Assign: _binary(lambda variable, value: value),
    AssignAdd: _operator("add"),
    AssignSub: _operator("subtract"),
    **UPDATE_RULES,
    **AVERAGING_RULES,
}
