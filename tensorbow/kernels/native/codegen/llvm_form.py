"""Scalar expressions in LLVM IR: on vectors of any width, or single elements.

A bool is one bit in registers and a byte in memory. Integers wrap around. A product is never contracted
with a sum, so every operation rounds as NumPy's does; transcendental functions come from `vector_math`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from tensorbow.errors import InternalError
from tensorbow.kernels.native.codegen import vector_math
from tensorbow.kernels.native.codegen.emitter import Emitter, constant, type_of
from tensorbow.kernels.scalars.expression import CAST, CONSTANT, FUNCTIONS, SELECT, Scalar
from tensorbow.specs import DType, bool_, float32, int32, uint8

BIT = ir.IntType(1)

_COMPARISONS = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "=="}
_INTRINSICS = {name: name for name in ("floor", "ceil", "rint", "sqrt")} | {"absolute": "fabs"}
_FUNCTIONS: dict[str, Callable[..., ir.Value]] = {
    "power": vector_math.power,
    "arctan2": vector_math.of_library("atan2"),
    **{name: vector_math.of_library(of_c) for name, of_c in FUNCTIONS.items()},
    **{name: getattr(vector_math, name) for name in ("exp", "expm1", "log", "log1p", "tanh", "erf")},
}
_FLOATING = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv", "negative": "fneg"}
_INTEGER = {
    "add": "add", "subtract": "sub", "multiply": "mul", "negative": "neg", "bitwise_and": "and_",
    "bitwise_or": "or_", "bitwise_xor": "xor", "invert": "not_", "left_shift": "shl",
}  # fmt: skip
INTEGERS_RAISE = frozenset(("floor_divide", "remainder", "power"))  # left to the reference kernel


def register_type(dtype: DType, lanes: int) -> ir.Type:
    """Type of `lanes` elements in registers; a scalar type for one lane."""
    single = BIT if dtype == bool_ else type_of(dtype)
    return single if lanes == 1 else ir.VectorType(single, lanes)


def to_llvm(
    emitter: Emitter, results: Sequence[Scalar], known: Mapping[Scalar, ir.Value], lanes: int
) -> list[ir.Value]:
    """Emits the expressions. known: values of inputs, and of nodes already emitted.

    Raises InternalError for an operator without an LLVM form.
    """
    values = dict(known)

    def value(node: Scalar) -> ir.Value:
        made = values.get(node)
        if made is None:
            if node.operator == CONSTANT:
                made = constant(register_type(node.dtype, lanes), _literal(node))
            else:
                made = _emit(emitter, node, [value(operand) for operand in node.operands], lanes)
            values[node] = made
        return made

    return [value(node) for node in results]


def _literal(node: Scalar) -> float:
    return node.argument if node.dtype.is_floating else int(node.argument)


def _emit(emitter: Emitter, node: Scalar, values: Sequence[ir.Value], lanes: int) -> ir.Value:
    operator, b = node.operator, emitter.builder
    if operator == SELECT:
        return b.select(*values)
    dtype = node.operands[0].dtype
    if operator == CAST:
        return _cast(emitter, values[0], dtype, node.dtype, lanes)
    if operator in _COMPARISONS:
        return _compare(emitter, _COMPARISONS[operator], dtype, *values)
    if operator == "not_equal":
        return _differ(emitter, dtype, *values)
    if operator == "logical_and":
        return b.and_(*values)
    if operator == "logical_or":
        return b.or_(*values)
    if operator == "logical_not":
        return b.xor(values[0], constant(values[0].type, 1))
    if operator in ("maximum", "minimum"):
        return _extreme(emitter, operator, node, values)
    if operator == "sign":
        return _sign(emitter, dtype, values[0])
    if dtype.is_floating:
        return _floating(emitter, operator, dtype, values)
    return _integer(emitter, operator, dtype, values)


def _compare(emitter: Emitter, sign: str, dtype: DType, x: ir.Value, y: ir.Value) -> ir.Value:
    """A comparison; false if either is NaN."""
    b = emitter.builder
    if dtype.is_floating:
        return b.fcmp_ordered(sign, x, y)
    return (b.icmp_unsigned if dtype in (uint8, bool_) else b.icmp_signed)(sign, x, y)


def _differ(emitter: Emitter, dtype: DType, x: ir.Value, y: ir.Value) -> ir.Value:
    b = emitter.builder
    return b.fcmp_unordered("!=", x, y) if dtype.is_floating else b.icmp_signed("!=", x, y)


def _extreme(emitter: Emitter, operator: str, node: Scalar, values: Sequence[ir.Value]) -> ir.Value:
    """The greater or the lesser value; NaN if either is NaN."""
    b, (x, y) = emitter.builder, values
    sign, dtype = (">" if operator == "maximum" else "<"), node.dtype
    if not dtype.is_floating:
        return b.select(_compare(emitter, sign, dtype, x, y), x, y)
    chosen = b.select(b.fcmp_unordered(sign, x, y), x, y)  # x if either is NaN
    second = node.operands[1]
    if second.operator == CONSTANT and not math.isnan(second.argument):
        return chosen
    return b.select(b.fcmp_unordered("uno", y, y), y, chosen)


def _sign(emitter: Emitter, dtype: DType, x: ir.Value) -> ir.Value:
    """1, -1, or x itself if it is 0 or NaN."""
    b, zero = emitter.builder, constant(x.type, 0)
    value = b.select(_compare(emitter, ">", dtype, x, zero), constant(x.type, 1), x)
    if dtype == uint8:
        return value
    return b.select(_compare(emitter, "<", dtype, x, zero), constant(x.type, -1), value)


def _floating(emitter: Emitter, operator: str, dtype: DType, values: Sequence[ir.Value]) -> ir.Value:
    b, kind = emitter.builder, values[0].type
    if operator in _FLOATING:
        return getattr(b, _FLOATING[operator])(*values)
    if operator in _INTRINSICS:
        return emitter.intrinsic(_INTRINSICS[operator], kind, *values)
    if operator in _FUNCTIONS:
        return _FUNCTIONS[operator](emitter, *values)
    if operator == "isnan":
        return b.fcmp_unordered("uno", values[0], values[0])
    if operator == "isfinite":
        return b.fcmp_ordered("<", emitter.intrinsic("fabs", kind, values[0]), constant(kind, math.inf))
    if operator == "truncate16":
        return _truncate16(emitter, dtype, *values)
    if operator == "remainder":
        return _remainder(emitter, *values)
    if operator == "floor_divide":
        return _floor_divide(emitter, *values)
    raise InternalError(f"scalar operator {operator} has no LLVM form for {dtype.name}")


def _integer(emitter: Emitter, operator: str, dtype: DType, values: Sequence[ir.Value]) -> ir.Value:
    b = emitter.builder
    if operator in _INTEGER:
        return getattr(b, _INTEGER[operator])(*values)
    if operator == "right_shift":
        return (b.lshr if dtype == uint8 else b.ashr)(*values)
    if operator == "absolute":
        (x,) = values
        if dtype == uint8:
            return x
        zero = constant(x.type, 0)
        return b.select(b.icmp_signed("<", x, zero), b.sub(zero, x), x)
    raise InternalError(f"scalar operator {operator} has no LLVM form for {dtype.name}")


def _truncate16(emitter: Emitter, dtype: DType, x: ir.Value) -> ir.Value:
    b, lanes = emitter.builder, x.type.count if isinstance(x.type, ir.VectorType) else 1
    single, bits = register_type(float32, lanes), register_type(int32, lanes)
    narrow = x if dtype == float32 else b.fptrunc(x, single)
    upper = b.and_(b.bitcast(narrow, bits), constant(bits, -65536))
    value = b.bitcast(upper, single)
    return value if dtype == float32 else b.fpext(value, x.type)


def _remainder(emitter: Emitter, x: ir.Value, y: ir.Value) -> ir.Value:
    """The remainder with the sign of y, as NumPy's."""
    b, zero = emitter.builder, constant(x.type, 0.0)
    rest = vector_math.remainder(emitter, x, y)
    differ = b.xor(b.fcmp_ordered("<", y, zero), b.fcmp_ordered("<", rest, zero))
    value = b.select(differ, b.fadd(rest, y), rest)
    none = emitter.intrinsic("copysign", x.type, zero, y)
    return b.select(b.fcmp_ordered("==", rest, zero), none, value)


def _floor_divide(emitter: Emitter, x: ir.Value, y: ir.Value) -> ir.Value:
    """The floor of the exact quotient, computed from the remainder as NumPy does; x / y for y = 0."""
    b, kind = emitter.builder, x.type
    zero, one = constant(kind, 0.0), constant(kind, 1.0)
    rest = vector_math.remainder(emitter, x, y)
    quotient = b.fdiv(b.fsub(x, rest), y)
    below = b.xor(b.fcmp_ordered("<", y, zero), b.fcmp_ordered("<", rest, zero))
    below = b.and_(below, b.fcmp_unordered("!=", rest, zero))
    quotient = b.select(below, b.fsub(quotient, one), quotient)
    whole = emitter.intrinsic("floor", kind, quotient)
    up = b.fcmp_ordered(">", b.fsub(quotient, whole), constant(kind, 0.5))
    whole = b.select(up, b.fadd(whole, one), whole)
    straight = b.fdiv(x, y)
    none = emitter.intrinsic("copysign", kind, zero, straight)
    whole = b.select(b.fcmp_ordered("==", whole, zero), none, whole)
    return b.select(b.fcmp_ordered("==", y, zero), straight, whole)


def _cast(emitter: Emitter, x: ir.Value, source: DType, target: DType, lanes: int) -> ir.Value:
    """Converts as C compilers do; float to uint8 goes via int, so that -1 becomes 255."""
    b, kind = emitter.builder, register_type(target, lanes)
    if target == bool_:
        return _differ(emitter, source, x, constant(x.type, 0))
    if source.is_floating and target.is_floating:
        return b.fpext(x, kind) if target.size > source.size else b.fptrunc(x, kind)
    if source.is_floating:
        if target == uint8:
            return b.trunc(b.fptosi(x, register_type(int32, lanes)), kind)
        return b.fptosi(x, kind)
    unsigned = source in (uint8, bool_)
    if target.is_floating:
        return (b.uitofp if unsigned else b.sitofp)(x, kind)
    if source != bool_ and target.size < source.size:
        return b.trunc(x, kind)
    return (b.zext if unsigned else b.sext)(x, kind)
