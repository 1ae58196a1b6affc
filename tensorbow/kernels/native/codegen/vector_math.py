"""Floating-point functions as generated code, for scalars and vectors of any width.

exp, expm1, log, log1p, tanh and erf of float32 are polynomials on short intervals, within 2 to 4 units of the
last place (see the tests); the polynomials interpolate at Chebyshev nodes, which is close to
optimal, and are computed when first emitted. Other functions and dtypes call the C library, lane by lane.
A number gives the same bits in a vector and alone. NaN and infinities follow IEEE 754.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
from llvmlite import ir

from tensorbow.errors import InternalError
from tensorbow.kernels.native.codegen.emitter import Emitter, constant, lanes_of
from tensorbow.kernels.scalars.expression import FUNCTIONS

FLOAT, WORD = ir.FloatType(), ir.IntType(32)
LIBRARY = (*FUNCTIONS.values(), "atan2", "pow", "fmod")  # all that are called

MANTISSA = 23  # bits of a float32's fraction
SMALLEST_NORMAL = 2.0**-126
ROUNDER = 1.5 * 2.0**MANTISSA  # adding it leaves the nearest integer to a small float32 in the low bits
LOG_2 = math.log(2)
LOG_2_HIGH = 0.693359375  # so few bits that its product with an exponent is exact
LOG_2_LOW = LOG_2 - LOG_2_HIGH
ROOT_BITS = 0x3F3504F3  # of the float32 sqrt(1/2)
BIAS = 127

Interpolation: TypeAlias = "tuple[Callable[[float], float], int, float, float]"
"""A function, a degree (an odd one has no node at the middle of the interval), and the interval."""


@cache
def _coefficients(function: Callable[[float], float], degree: int, low: float, high: float) -> list[float]:
    """Coefficients of an interpolating polynomial, constant first."""
    from numpy.polynomial import Chebyshev, Polynomial  # slow to load, and seldom needed

    series = Chebyshev.interpolate(np.vectorize(function, otypes=[float]), degree, [low, high])
    return [float(c) for c in series.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef]


_EXPM1 = (lambda r: (math.expm1(r) - r) / r**2, 5, -LOG_2 / 2, LOG_2 / 2)
_LOG1P = (lambda f: (math.log1p(f) - f + f * f / 2) / f**3, 9, math.sqrt(0.5) - 1, math.sqrt(2) - 1)
_ERF = (lambda s: math.erf(math.sqrt(s)) / math.sqrt(s), 7, 0, 1)  # in the squared argument
_LOG_ERFC = (lambda u: math.log(math.erfc(1 + u)), 9, 0, 3)  # from 1 on
_EIGHTH = math.pi / 4  # of a turn; squares below
_SIN = (lambda s: (math.sin(math.sqrt(s)) - math.sqrt(s)) / s**1.5, 3, 0, _EIGHTH**2)
_COS = (lambda s: (math.cos(math.sqrt(s)) - 1 + s / 2) / s**2, 3, 0, _EIGHTH**2)
_QUARTER = (1.5703125, 4.837512969970703e-4, 7.54978995489188e-8)  # of a turn: their sum; few bits in each


def exp(emitter: Emitter, x: ir.Value) -> ir.Value:
    """e to the power of x."""
    if not _is_float(x):
        return library(emitter, "exp", x)
    b = emitter.builder
    whole, rest = _reduced(emitter, _clamp(emitter, x, -104.0, 89.0))
    half = b.ashr(whole, constant(whole.type, 1))
    value = b.fadd(_expm1_of(emitter, rest), constant(x.type, 1.0))
    return b.fmul(b.fmul(value, _power_of_2(emitter, half)), _power_of_2(emitter, b.sub(whole, half)))


def expm1(emitter: Emitter, x: ir.Value) -> ir.Value:
    """exp(x) - 1, accurate near 0."""
    if not _is_float(x):
        return library(emitter, "expm1", x)
    b = emitter.builder
    whole, rest = _reduced(emitter, _clamp(emitter, x, -18.0, 89.0))
    # 2 ** whole * (value + 1) - 1, halved to avoid 2 ** 128
    scale = _power_of_2(emitter, b.sub(whole, constant(whole.type, 1)))
    value = _fma(emitter, _expm1_of(emitter, rest), scale, b.fsub(scale, constant(x.type, 0.5)))
    return _where_zero(emitter, x, b.fadd(value, value))


def log(emitter: Emitter, x: ir.Value) -> ir.Value:
    """The natural logarithm; NaN below 0."""
    if not _is_float(x):
        return library(emitter, "log", x)
    b, kind = emitter.builder, x.type
    word = _word(kind)
    tiny = b.fcmp_ordered("<", x, constant(kind, SMALLEST_NORMAL))
    normal = b.select(tiny, b.fmul(x, constant(kind, 2.0**MANTISSA)), x)
    bits = b.bitcast(normal, word)
    whole = b.ashr(b.sub(bits, constant(word, ROOT_BITS)), constant(word, MANTISSA))
    rest = b.sub(bits, b.shl(whole, constant(word, MANTISSA)))
    f = b.fsub(b.bitcast(rest, kind), constant(kind, 1.0))
    whole = b.sub(whole, b.select(tiny, constant(word, MANTISSA), constant(word, 0)))
    e = b.sitofp(whole, kind)
    square = b.fmul(f, f)
    small = b.fmul(b.fmul(_polynomial(emitter, _LOG1P, f), f), square)
    small = _fma(emitter, e, constant(kind, LOG_2_LOW), small)
    small = _fma(emitter, square, constant(kind, -0.5), small)
    value = _fma(emitter, e, constant(kind, LOG_2_HIGH), b.fadd(f, small))
    value = b.select(b.fcmp_ordered("<", x, constant(kind, math.inf)), value, x)  # infinity and NaN
    negative = b.fcmp_ordered("<", x, constant(kind, 0.0))
    value = b.select(negative, constant(kind, math.nan), value)
    return b.select(b.fcmp_ordered("==", x, constant(kind, 0.0)), constant(kind, -math.inf), value)


def log1p(emitter: Emitter, x: ir.Value) -> ir.Value:
    """log(1 + x), accurate near 0."""
    if not _is_float(x):
        return library(emitter, "log1p", x)
    b, kind = emitter.builder, x.type
    one = constant(kind, 1.0)
    sum_ = b.fadd(x, one)
    large = b.fcmp_ordered(">", x, one)
    lost = b.select(large, b.fsub(one, b.fsub(sum_, x)), b.fsub(x, b.fsub(sum_, one)))
    inside = b.and_(
        b.fcmp_ordered(">", sum_, constant(kind, 0.0)), b.fcmp_ordered("<", sum_, constant(kind, math.inf))
    )
    correction = b.select(inside, b.fdiv(lost, sum_), constant(kind, 0.0))
    return _where_zero(emitter, x, b.fadd(log(emitter, sum_), correction))


def tanh(emitter: Emitter, x: ir.Value) -> ir.Value:
    """The hyperbolic tangent."""
    if not _is_float(x):
        return library(emitter, "tanh", x)
    b, kind = emitter.builder, x.type
    size = _clamp(emitter, emitter.intrinsic("fabs", kind, x), 0.0, 10.0)
    grown = expm1(emitter, b.fadd(size, size))
    value = b.fdiv(grown, b.fadd(grown, constant(kind, 2.0)))
    return emitter.intrinsic("copysign", kind, value, x)


def erf(emitter: Emitter, x: ir.Value) -> ir.Value:
    """The error function."""
    if not _is_float(x):
        return library(emitter, "erf", x)
    b, kind = emitter.builder, x.type
    one = constant(kind, 1.0)
    size = _clamp(emitter, emitter.intrinsic("fabs", kind, x), 0.0, 4.0)
    near = b.fmul(size, _polynomial(emitter, _ERF, b.fmul(size, size)))
    far = b.fsub(one, exp(emitter, _polynomial(emitter, _LOG_ERFC, b.fsub(size, one))))
    value = b.select(b.fcmp_ordered(">", size, one), far, near)
    return emitter.intrinsic("copysign", kind, value, x)


def sine_and_cosine(emitter: Emitter, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Sine and cosine; float32 within two turns of 0, to 2 units in the last place or 1e-7."""
    if not _is_float(x):
        return library(emitter, "sin", x), library(emitter, "cos", x)
    b, kind = emitter.builder, x.type
    word = _word(kind)
    rounder = constant(kind, ROUNDER)
    shifted = b.fadd(b.fmul(x, constant(kind, 2 / math.pi)), rounder)
    quarters = b.sub(b.bitcast(shifted, word), constant(word, int(np.float32(ROUNDER).view(np.int32))))
    whole, rest = b.fsub(shifted, rounder), x
    for part in _QUARTER:
        rest = _fma(emitter, whole, constant(kind, -part), rest)
    square = b.fmul(rest, rest)
    sine = _fma(emitter, b.fmul(square, rest), _polynomial(emitter, _SIN, square), rest)
    cosine = _fma(emitter, b.fmul(square, square), _polynomial(emitter, _COS, square), constant(kind, 1.0))
    cosine = _fma(emitter, square, constant(kind, -0.5), cosine)
    one, two = constant(word, 1), constant(word, 2)
    odd = b.icmp_signed("!=", b.and_(quarters, one), constant(word, 0))
    values = []
    for first, second, turned in ((sine, cosine, quarters), (cosine, sine, b.add(quarters, one))):
        sign = b.shl(b.and_(turned, two), constant(word, 30))
        bits = b.bitcast(b.select(odd, second, first), word)
        values.append(b.bitcast(b.xor(bits, sign), kind))
    return values[0], values[1]


def power(emitter: Emitter, x: ir.Value, y: ir.Value) -> ir.Value:
    """x to the power of y."""
    return library(emitter, "pow", x, y)


def remainder(emitter: Emitter, x: ir.Value, y: ir.Value) -> ir.Value:
    """The remainder of x after whole multiples of y, with the sign of x: C's fmod."""
    return library(emitter, "fmod", x, y)


def of_library(name: str) -> Callable[..., ir.Value]:
    """The emitter of calls of a function of the C library."""
    return lambda emitter, *values: library(emitter, name, *values)


def library(emitter: Emitter, name: str, *values: ir.Value) -> ir.Value:
    """A function of the C library, per lane. Raises InternalError for one that is not in LIBRARY."""
    if name not in LIBRARY:
        raise InternalError(f"{name} is no function of the C library that native code calls")
    kind = values[0].type
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    if not isinstance(kind, ir.VectorType):
        return emitter.builder.call(_declared(emitter.module, name, element, len(values)), values)
    full = f"tb_{name}_{'f' if element == FLOAT else 'd'}{kind.count}"
    function = emitter.module.globals.get(full)
    if function is None:
        function = _by_lane(emitter, full, name, kind, len(values))
    return emitter.builder.call(function, values)


def _declared(module: ir.Module, name: str, element: ir.Type, count: int) -> ir.Function:
    name += "f" if element == FLOAT else ""
    found = module.globals.get(name)
    return found or ir.Function(module, ir.FunctionType(element, [element] * count), name)


def _by_lane(emitter: Emitter, full: str, name: str, kind: ir.VectorType, count: int) -> ir.Function:
    """A function on vectors that loops over their lanes."""
    function = ir.Function(emitter.module, ir.FunctionType(kind, [kind] * count), full)
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    inner = emitter.of_function(builder)
    result = builder.alloca(kind)
    with inner.loop(kind.count) as lane:
        number = library(inner, name, *(builder.extract_element(value, lane) for value in function.args))
        values = builder.insert_element(inner.load(result, kind, 4), number, lane)
        inner.store(values, result, 4)
    builder.ret(inner.load(result, kind, 4))
    return function


# Parts of the polynomial functions --------------------------------------------------------------------


def _is_float(x: ir.Value) -> bool:
    return bool((x.type.element if isinstance(x.type, ir.VectorType) else x.type) == FLOAT)


def _word(kind: ir.Type) -> ir.Type:
    count = lanes_of(kind)
    return ir.VectorType(WORD, count) if isinstance(kind, ir.VectorType) else WORD


def _fma(emitter: Emitter, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """x * y + z, fused if the processor can."""
    return emitter.intrinsic("fmuladd", x.type, x, y, z)


def _polynomial(emitter: Emitter, interpolation: Interpolation, x: ir.Value) -> ir.Value:
    *lower, highest = _coefficients(*interpolation)
    value = constant(x.type, highest)
    for coefficient in reversed(lower):
        value = _fma(emitter, value, x, constant(x.type, coefficient))
    return value


def _clamp(emitter: Emitter, x: ir.Value, low: float, high: float) -> ir.Value:
    """x limited to [low, high]; NaN stays."""
    b = emitter.builder
    bounds = constant(x.type, low), constant(x.type, high)
    x = b.select(b.fcmp_ordered("<", x, bounds[0]), bounds[0], x)
    return b.select(b.fcmp_ordered(">", x, bounds[1]), bounds[1], x)


def _where_zero(emitter: Emitter, x: ir.Value, value: ir.Value) -> ir.Value:
    """x itself where it is 0, to keep its sign; else `value`."""
    b = emitter.builder
    return b.select(b.fcmp_ordered("==", x, constant(x.type, 0.0)), x, value)


def _reduced(emitter: Emitter, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """x as an integer multiple of log(2) and a remainder of at most half of it."""
    b, kind = emitter.builder, x.type
    rounder = constant(kind, ROUNDER)
    shifted = _fma(emitter, x, constant(kind, 1 / LOG_2), rounder)
    whole = b.fsub(shifted, rounder)
    rest = _fma(emitter, whole, constant(kind, -LOG_2_HIGH), x)
    rest = _fma(emitter, whole, constant(kind, -LOG_2_LOW), rest)
    word = _word(kind)
    bits = int(np.float32(ROUNDER).view(np.int32))
    return b.sub(b.bitcast(shifted, word), constant(word, bits)), rest


def _expm1_of(emitter: Emitter, rest: ir.Value) -> ir.Value:
    square = emitter.builder.fmul(rest, rest)
    return _fma(emitter, square, _polynomial(emitter, _EXPM1, rest), rest)


def _power_of_2(emitter: Emitter, whole: ir.Value) -> ir.Value:
    """2 ** whole, for -126 to 127."""
    b, kind = emitter.builder, whole.type
    bits = b.shl(b.add(whole, constant(kind, BIAS)), constant(kind, MANTISSA))
    target = ir.VectorType(FLOAT, kind.count) if isinstance(kind, ir.VectorType) else FLOAT
    return b.bitcast(bits, target)
