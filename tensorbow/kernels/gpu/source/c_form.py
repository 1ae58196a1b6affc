"""Scalar expressions as C++ text that both NVRTC and a host compiler accept.

Integers wrap around as NumPy's do: they are computed unsigned, since signed overflow is undefined. A product
is never contracted with a sum to a fused multiply-add, so that an expression has the same bits
wherever it is compiled; these kernels are bound by memory, not by arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tensorbow.errors import InternalError
from tensorbow.kernels.gpu.runtime.program import C_TYPES as TYPES
from tensorbow.kernels.scalars.expression import CAST, CONSTANT, FUNCTIONS, INPUT, SELECT, Scalar, in_order
from tensorbow.specs import DType, bool_, float32, float64, int64, uint8

_UNSIGNED = {"int32": "unsigned int", "int64": "unsigned long long", "uint8": "unsigned int"}
_INFIX = {
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
    "logical_and": "&&",
    "logical_or": "||",
}
_ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*"}
_BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<"}
_MATH = {"power": "pow", "absolute": "fabs", "arctan2": "atan2", **FUNCTIONS} | {
    name: name for name in ("floor", "ceil", "rint", "sqrt")
}
_HELPERS = {
    "multiply": """\
template <typename T> static __device__ inline T tb_multiply(T x, T y) {
#ifdef __CUDACC_RTC__
    if constexpr (sizeof(T) == 4) return __fmul_rn(x, y); else return __dmul_rn(x, y);
#else
    return x * y;
#endif
}
""",
    "maximum": """\
template <typename T> static __device__ inline T tb_maximum(T x, T y) { return x > y || x != x ? x : y; }
""",
    "minimum": """\
template <typename T> static __device__ inline T tb_minimum(T x, T y) { return x < y || x != x ? x : y; }
""",
    "sign": """\
template <typename T> static __device__ inline T tb_sign(T x) {
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : x == T(0) ? T(0) : x;
}
""",
    "remainder": """\
template <typename T> static __device__ inline T tb_fmod(T x, T y) {
    if constexpr (sizeof(T) == 4) return fmodf(x, y); else return fmod(x, y);
}
template <typename T> static __device__ inline T tb_remainder(T x, T y) {  // floating: the sign of y
    T rest = tb_fmod(x, y);
    if (rest == T(0)) return y < T(0) ? -T(0) : T(0);
    return (y < T(0)) != (rest < T(0)) ? rest + y : rest;
}
""",
    "floor_divide": """\
template <typename T> static __device__ inline T tb_floor(T x) {
    if constexpr (sizeof(T) == 4) return floorf(x); else return floor(x);
}
template <typename T> static __device__ inline T tb_floor_divide(T x, T y) {  // of the exact quotient
    if (y == T(0)) return x / y;
    T rest = tb_fmod(x, y);
    T quotient = (x - rest) / y;
    if (rest != T(0) && (y < T(0)) != (rest < T(0))) quotient -= T(1);
    T whole = tb_floor(quotient);
    return quotient - whole > T(0.5) ? whole + T(1) : whole;
}
""",
    "truncate16": """\
template <typename T> static __device__ inline T tb_truncate16(T x) {  // a bfloat16, towards zero
    union { float value; unsigned int bits; } single;
    single.value = float(x);
    single.bits &= 0xffff0000u;
    return T(single.value);
}
""",
    "integer_remainder": """\
template <typename T> static __device__ inline T tb_integer_remainder(T x, T y) {  // 0 for y = 0
    if (y == T(0) || (T(-1) < T(0) && y == T(-1))) return T(0);
    T rest = x % y;
    return rest != T(0) && (y < T(0)) != (rest < T(0)) ? T(rest + y) : rest;
}
""",
    "integer_floor_divide": """\
// 0 for y = 0; the lowest number by -1 wraps around
template <typename T, typename U> static __device__ inline T tb_integer_floor_divide(T x, T y) {
    if (y == T(0)) return T(0);
    if (T(-1) < T(0) && y == T(-1)) return T(U(0) - U(x));
    T quotient = x / y;
    return x % y != T(0) && (x < T(0)) != (y < T(0)) ? T(quotient - T(1)) : quotient;
}
""",
    "integer_power": """\
// By squaring; wraps around. 0 for a negative exponent, which is no integer's
template <typename T, typename U> static __device__ inline T tb_integer_power(T x, T y) {
    if (y < T(0)) return T(0);
    U power = U(1), square = U(x);
    for (U rest = U(y); rest != U(0); rest >>= 1, square *= square)
        if (rest & U(1)) power *= square;
    return T(power);
}
""",
}
_NEEDS = {"floor_divide": ("remainder", "floor_divide")}


@dataclass(frozen=True)
class CForm:
    """`helpers`: functions the code needs; after `statements`, `results` are the names of the values."""

    helpers: str
    statements: tuple[str, ...]
    results: tuple[str, ...]


def to_c(results: Sequence[Scalar], names: Sequence[str]) -> CForm:
    """The expressions as C++ statements; `names[n]` is the text of input n.

    Equal trees give equal text. Raises InternalError for an operator without a C++ form.
    """
    values: dict[Scalar, str] = {}
    statements: list[str] = []
    helpers: dict[str, None] = {}
    for node in in_order(results):
        if node.operator == INPUT:
            values[node] = names[int(node.argument)]
        elif node.operator == CONSTANT:
            values[node] = literal(node.argument, node.dtype)
        else:
            text = _text(node, [values[operand] for operand in node.operands], helpers)
            values[node] = f"t{len(statements)}"
            statements.append(f"const {TYPES[node.dtype.name]} {values[node]} = {text};")
    ordered = [name for name in _HELPERS if name in helpers]
    return CForm(
        "".join(_HELPERS[name] for name in ordered),
        tuple(statements),
        tuple(values[node] for node in results),
    )


def literal(value: float, dtype: DType) -> str:
    """A constant in C++, of exactly that value and type."""
    kind = TYPES[dtype.name]
    if dtype == bool_:
        return "true" if value else "false"
    if dtype.is_floating:
        if math.isnan(value):
            return f"({kind})TB_NAN"
        if math.isinf(value):
            return f"({kind}){'-' if value < 0 else ''}TB_INFINITY"
        text = f"{float(value)!r}{'f' if dtype == float32 else ''}"
        return f"({text})" if text.startswith("-") else text
    suffix = "LL" if dtype == int64 else ""
    whole = int(value)
    if whole < 0:  # the lowest integer has no literal
        return f"(-{-(whole + 1)}{suffix} - 1)"
    return f"({kind}){whole}" if dtype == uint8 else f"{whole}{suffix}"


def _text(node: Scalar, values: Sequence[str], helpers: dict[str, None]) -> str:
    operator = node.operator
    if operator == SELECT:
        return f"{values[0]} ? {values[1]} : {values[2]}"
    dtype = node.operands[0].dtype
    if operator == CAST:
        return _cast(values[0], dtype, node.dtype)
    if operator in _INFIX:
        return f"{values[0]} {_INFIX[operator]} {values[1]}"
    if operator == "logical_not":
        return f"!{values[0]}"
    if operator == "isnan":
        return f"{values[0]} != {values[0]}"
    if operator == "isfinite":
        return f"{values[0]} - {values[0]} == {literal(0, dtype)}"
    if operator in ("maximum", "minimum", "sign", "truncate16"):
        return _call(operator, values, helpers)
    return (
        _floating(operator, dtype, values, helpers)
        if dtype.is_floating
        else _integer(operator, dtype, values, helpers)
    )


def _call(name: str, values: Sequence[str], helpers: dict[str, None]) -> str:
    helpers.update(dict.fromkeys(_NEEDS.get(name, (name,))))
    return f"tb_{name}({', '.join(values)})"


def _floating(operator: str, dtype: DType, values: Sequence[str], helpers: dict[str, None]) -> str:
    if operator in ("add", "subtract"):
        return f"{values[0]} {_ARITHMETIC[operator]} {values[1]}"
    if operator == "divide":
        return f"{values[0]} / {values[1]}"
    if operator == "negative":
        return f"-{values[0]}"
    if operator in ("multiply", "remainder", "floor_divide"):
        return _call(operator, values, helpers)
    if operator not in _MATH:
        raise InternalError(f"scalar operator {operator} has no C++ form for {dtype.name}")
    return f"{_MATH[operator]}{'' if dtype == float64 else 'f'}({', '.join(values)})"


def _integer(operator: str, dtype: DType, values: Sequence[str], helpers: dict[str, None]) -> str:
    kind, wide = TYPES[dtype.name], _UNSIGNED.get(dtype.name, "")
    parts = [f"({wide}){value}" for value in values]
    if operator in (infix := _ARITHMETIC | _BITWISE):
        return f"({kind})({parts[0]} {infix[operator]} {parts[1]})"
    if operator == "right_shift":  # a signed number keeps its sign
        return f"({kind})({values[0]} >> {values[1]})"
    if operator == "invert":
        return f"({kind})~{parts[0]}"
    if operator == "negative":
        return f"({kind})(({wide})0 - {parts[0]})"
    if operator == "absolute":
        return (
            values[0]
            if dtype == uint8
            else f"{values[0]} < 0 ? ({kind})(({wide})0 - {parts[0]}) : {values[0]}"
        )
    if operator == "remainder":
        return _call("integer_remainder", values, helpers)
    if operator in ("floor_divide", "power"):
        name = f"integer_{operator}"
        helpers[name] = None
        return f"tb_{name}<{kind}, {wide}>({values[0]}, {values[1]})"
    raise InternalError(f"scalar operator {operator} has no C++ form for {dtype.name}")


def _cast(value: str, source: DType, target: DType) -> str:
    if target == bool_:
        return f"{value} != {literal(0, source)}"
    if target == uint8 and source.is_floating:  # via int, as hosts do: -1 becomes 255
        return f"(unsigned char)(int){value}"
    return f"({TYPES[target.name]}){value}"
