"""Samples of the element-wise table, of Select, of what chooses rows, and of Cast."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.ops import elementwise_table as table
from tensorbow.ops.conditions import ConditionOfRows
from tensorbow.ops.selection import Cast, Select
from tensorbow.specs import Array, bool_, float32, float64, int32, uint8
from tests.ops_contract.sample import Sample, apart, integers, normal, uniform


def _unary(
    op: OpDef, expected: Callable[..., Any], make: Callable[..., Array] = normal, **more: Any
) -> list[Sample]:
    return [
        Sample(op, (make(3, 5),), expected, second_order=op in SECOND_ORDER, **more),
        Sample(op, (make(),), expected, label="scalar", **more),
        Sample(op, (make(2, 3, 4, dtype=np.float64),), expected, label="float64", **more),
        Sample(op, (make(3, 0, 2),), expected, label="empty", **more),
        Sample(op, (make(256, 513),), expected, label="large", **more),
    ]


def _binary(
    op: OpDef,
    expected: Callable[..., Any],
    make: Callable[..., Array] = normal,
    other: Callable[..., Array] | None = None,
    **more: Any,
) -> list[Sample]:
    second = other or make

    def sample(a: tuple[int, ...], b: tuple[int, ...], label: str, **extra: Any) -> Sample:
        return Sample(op, (make(*a), second(*b, seed=1)), expected, label=label, **{**more, **extra})

    order = op in SECOND_ORDER
    return [
        sample((3, 5), (3, 5), "equal", second_order=order),
        sample((3, 1, 5), (4, 1), "broadcast", second_order=order),
        sample((), (2, 3), "scalar"),
        sample((7,), (7,), "vector"),
        sample((3, 0), (1, 1), "empty"),
        sample((256, 513), (256, 513), "large"),
        sample((1024, 513), (513,), "large broadcast"),
    ]


SECOND_ORDER = {
    table.Mul, table.RealDiv, table.Pow, table.Square, table.Sqrt, table.Rsqrt, table.Exp, table.Log,
    table.Reciprocal, table.Erf, table.Elu, table.EluGrad, table.Softplus, table.Abs, table.Sigmoid,
    table.Tanh, table.Maximum, table.Minimum, table.SigmoidGrad, table.TanhGrad,
}  # fmt: skip


def _logical(*shape: int, seed: int = 0) -> Array:
    return integers(*shape, low=0, high=2, seed=seed).astype(bool)


def _few(*shape: int, seed: int = 0) -> Array:
    """Small whole numbers, so that many elements of two arrays are equal."""
    return integers(*shape, low=-1, high=2, seed=seed).astype(np.float32)


def _away(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Numbers of both signs, at least 0.3 from zero."""
    return np.copysign(uniform(*shape, low=0.3, dtype=dtype, seed=seed), normal(*shape, seed=seed)).astype(
        dtype
    )


def _interval(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return uniform(*shape, low=0.1, high=0.9, dtype=dtype, seed=seed)


def _above_one(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return uniform(*shape, low=1.1, high=3.0, dtype=dtype, seed=seed)


def _sigmoid(x: Array) -> Array:
    wide = x.astype(np.longdouble)
    return (1 / (1 + np.exp(-wide))).astype(x.dtype)


def _relu_grad(g: Array, y: Array) -> Array:
    return np.where(y > 0, g, np.zeros_like(g))


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.exp(x.astype(np.float64)) - 1)


def _elu_grad(g: Array, y: Array) -> Array:
    return np.where(y > 0, g, g * (y + 1))


def _erf(x: Array) -> Array:
    return np.reshape([math.erf(value) for value in x.ravel()], x.shape)


SAMPLES = [
    *_binary(table.Add, lambda x, y: x + y),
    *_binary(table.Sub, lambda x, y: x - y),
    *_binary(table.Mul, lambda x, y: x * y),
    *_binary(table.RealDiv, lambda x, y: x / y, other=_away),
    *_binary(table.FloorDiv, lambda x, y: np.floor(x / y), _away),
    *_binary(table.FloorMod, lambda x, y: x - y * np.floor(x / y), _away, rtol=1e-4, atol=1e-5),
    *_binary(table.Pow, lambda x, y: np.exp(y * np.log(x)), uniform, normal, exact_layout=False),
    *_binary(table.Maximum, lambda x, y: np.where(x > y, x, y)),
    *_binary(table.Minimum, lambda x, y: np.where(x < y, x, y)),
    *_binary(table.Less, lambda x, y: x < y, _few),
    *_binary(table.LessEqual, lambda x, y: x <= y, _few),
    *_binary(table.Greater, lambda x, y: x > y, _few),
    *_binary(table.GreaterEqual, lambda x, y: x >= y, _few),
    *_binary(table.Equal, lambda x, y: x == y, _few),
    *_binary(table.NotEqual, lambda x, y: x != y, _few),
    *_binary(table.LogicalAnd, lambda x, y: x & y, _logical),
    *_binary(table.LogicalOr, lambda x, y: x | y, _logical),
    *_binary(table.ReluGrad, _relu_grad, normal, _away),
    *_binary(table.SigmoidGrad, lambda y, g: g * y * (1 - y), _interval, normal),
    *_binary(table.TanhGrad, lambda y, g: g * (1 - y**2), _interval, normal),
    *_unary(table.Neg, lambda x: 0 - x),
    *_unary(table.Abs, lambda x: np.where(x < 0, -x, x), _away),
    *_unary(table.Sign, lambda x: (x > 0).astype(x.dtype) - (x < 0)),
    *_unary(table.Floor, lambda x: np.trunc(x) - (x < np.trunc(x))),
    *_unary(table.Ceil, lambda x: np.trunc(x) + (x > np.trunc(x))),
    *_unary(table.Round, lambda x: np.trunc(x + np.copysign(0.5, x))),
    *_unary(table.Reciprocal, lambda x: x**-1.0, _away),
    *_unary(table.Sin, lambda x: np.exp(1j * x).imag.astype(x.dtype), exact_layout=False),
    *_unary(table.Cos, lambda x: np.exp(1j * x).real.astype(x.dtype), exact_layout=False),
    *_unary(table.Erf, _erf),
    *_unary(table.Elu, _elu, _away),
    *_binary(table.EluGrad, _elu_grad, normal, _away),
    *_unary(table.Softplus, lambda x: np.log(1 + np.exp(x.astype(np.float64)))),
    *_unary(table.Square, lambda x: x * x),
    *_unary(table.Sqrt, lambda x: x**0.5, uniform),
    *_unary(table.Rsqrt, lambda x: x**-0.5, uniform),
    *_unary(table.Exp, lambda x: np.expm1(x.astype(np.float64)) + 1),
    *_unary(table.Expm1, lambda x: np.exp(x.astype(np.float64)) - 1, atol=1e-7, exact_layout=False),
    *_unary(
        table.Log1p, lambda x: np.log2(1 + x.astype(np.float64)) / np.log2(np.e), uniform, exact_layout=False
    ),
    *_unary(table.Log, lambda x: np.log2(x) / np.log2(np.e), uniform, atol=2e-6),
    *_unary(table.Relu, lambda x: np.where(x > 0, x, 0), _away),
    *_unary(table.Sigmoid, _sigmoid),
    *_unary(table.Tanh, lambda x: 1 - 2 / (np.exp(2 * x.astype(np.float64)) + 1)),
    *_unary(table.IsFinite, lambda x: np.abs(x) < np.inf),
    *_unary(table.IsNan, lambda x: x != x),
]


def _few_of(op: OpDef, expected: Callable[..., Any], make: Callable[..., Array] = normal) -> list[Sample]:
    """Samples of a function of the C library."""
    count = len(op.input_names)
    arrays = {
        shape: tuple(make(*shape, seed=i) for i in range(count)) for shape in ((3, 5), (3, 0, 2), (256, 513))
    }
    return [Sample(op, given, expected, exact_layout=False) for given in arrays.values()]


SAMPLES += [
    *_few_of(table.Tan, lambda x: np.sin(x) / np.cos(x), _interval),
    *_few_of(table.Asin, lambda x: np.arctan2(x, np.sqrt(1 - x * x)), _interval),
    *_few_of(table.Acos, lambda x: np.arctan2(np.sqrt(1 - x * x), x), _interval),
    *_few_of(table.Atan, lambda x: np.angle(1 + 1j * x)),
    *_few_of(table.Atan2, lambda y, x: np.angle(x + 1j * y), _away),
    *_few_of(table.Sinh, lambda x: (np.exp(x) - np.exp(-x)) / 2, _away),
    *_few_of(table.Cosh, lambda x: (np.exp(x) + np.exp(-x)) / 2),
    *_few_of(table.Asinh, lambda x: np.log(x + np.sqrt(x * x + 1)), uniform),
    *_few_of(table.Acosh, lambda x: np.log(x + np.sqrt(x * x - 1)), _above_one),
    *_few_of(table.Atanh, lambda x: np.log((1 + x) / (1 - x)) / 2, _interval),
    *_few_of(table.Erfc, lambda x: 1 - _erf(x)),
    *_few_of(table.Lgamma, lambda x: np.reshape([math.lgamma(v) for v in x.ravel()], x.shape), _away),
]
SPECIAL = np.array([-np.inf, np.inf, np.nan, -0.0, 0.0, 1e-40, -3e38, 3e38, 89.0, -104.0], np.float32)
SAMPLES += [
    Sample(op, (SPECIAL.copy(),), expected, label="special", wrt=(), atol=0)
    for op, expected in [
        (table.Sqrt, np.sqrt),
        (table.Exp, np.exp),
        (table.Expm1, np.expm1),
        (table.Log, np.log),
        (table.Log1p, np.log1p),
        (table.Round, np.rint),
        (table.Relu, lambda x: np.where(x <= 0, 0, x)),
        (table.Sigmoid, _sigmoid),
        (table.Tanh, np.tanh),
        (table.Erf, _erf),
        (table.Softplus, lambda x: np.where(x > 80, x, np.log1p(np.exp(x)))),
        (table.Elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
        (table.IsFinite, lambda x: np.abs(x) < np.inf),
        (table.IsNan, lambda x: x != x),
        (table.Erfc, lambda x: 1 - _erf(x)),
    ]
]
POLES = np.array([np.inf, np.nan, 0.0, -1.0, 89.0], np.float32)
SAMPLES += [
    Sample(
        table.Lgamma,
        (POLES,),
        lambda x: np.array([np.inf, np.nan, np.inf, np.inf, math.lgamma(89)]),
        label="poles",
        wrt=(),
    )
]
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 8388609.0, 1e30, 0.49999997], np.float32)
SAMPLES += [
    Sample(table.Round, (HALVES,), lambda x: np.array([-2, -2, 0, 0, 2, 2, *x[6:8], 0]), label="halves"),
    Sample(table.Expm1, (np.float32([1e-9, -1e-9, 1e-4]),), np.expm1, label="small", atol=0),
    Sample(table.Log1p, (np.float32([1e-9, -1e-9, 1e-4]),), np.log1p, label="small", atol=0),
]
SAMPLES += [
    Sample(op, (SPECIAL.copy(), np.roll(SPECIAL, 1)), expected, label="special", wrt=())
    for op, expected in [
        (table.Add, lambda x, y: x + y),
        (table.RealDiv, lambda x, y: x / y),
        (table.Maximum, np.maximum),
        (table.Minimum, np.minimum),
        (table.Less, lambda x, y: x < y),
        (table.Equal, lambda x, y: x == y),
        (table.ReluGrad, _relu_grad),
    ]
]


def _integers(op: OpDef, expected: Callable[..., Any], dtype: Any, low: int = 1) -> Sample:
    x, y = integers(4, 3, low=low, dtype=dtype), integers(3, low=1, dtype=dtype, seed=1)
    return Sample(op, (x, y), expected, label=np.dtype(dtype).name)


SAMPLES += [
    *[Sample(table.LogicalNot, (_logical(*s),), lambda x: ~x) for s in [(3, 5), (0, 2), (1024, 1031)]],
    _integers(table.Add, lambda x, y: x + y, np.int32),
    _integers(table.Mul, lambda x, y: x * y, np.int64),
    _integers(table.Maximum, np.maximum, np.uint8),
    _integers(table.FloorDiv, lambda x, y: x // y, np.int32, low=-9),
    _integers(table.FloorMod, lambda x, y: x % y, np.int32, low=-9),
    Sample(table.Equal, (_logical(3, 2), _logical(3, 2, seed=1)), lambda x, y: ~(x ^ y), label="bool"),
]


def _power_of_two(y: Array) -> Array:
    return np.int64(2) ** np.clip(y, 0, 31)


SAMPLES += [
    sample
    for op, expected in (
        (table.BitwiseAnd, lambda x, y: x & y),
        (table.BitwiseOr, lambda x, y: x | y),
        (table.BitwiseXor, lambda x, y: (x | y) - (x & y)),
        (table.LeftShift, lambda x, y: (x * _power_of_two(y)).astype(x.dtype)),
        (table.RightShift, lambda x, y: (x // _power_of_two(y)).astype(x.dtype)),
    )
    for sample in (
        Sample(op, (integers(4, 3, low=-99, high=99), integers(4, 3, low=-2, high=40, seed=1)), expected),
        Sample(op, (integers(4, 1, 3, low=-9), integers(5, 1, seed=1)), expected, label="broadcast"),
        Sample(op, (integers(0, 3), integers(3, seed=1)), expected, label="empty"),
        Sample(op, (integers(256, 513, low=-9), integers(256, 513, seed=1)), expected, label="large"),
    )
]
SAMPLES += [
    Sample(table.Invert, (integers(*shape, low=-9),), lambda x: -x - 1)
    for shape in ((4, 3), (0, 2), (256, 513))
]
SAMPLES += [Sample(table.Invert, (integers(5, dtype=np.uint8),), lambda x: 255 - x, label="uint8")]


def _where(c: Array, x: Array, y: Array) -> Array:
    return np.where(c, x, y)


SAMPLES += [
    Sample(Select, (_logical(3, 5), normal(3, 5), normal(3, 5, seed=1)), _where, label="equal"),
    Sample(Select, (_logical(3, 1), normal(5), normal(2, 1, 1, seed=1)), _where, label="broadcast"),
    Sample(Select, (_logical(), normal(2, 3), normal(2, 3, seed=1)), _where, label="scalar"),
    Sample(Select, (_logical(3, 2), integers(3, 2), integers(3, 2, seed=1)), _where, label="int32"),
    Sample(Select, (_logical(3, 2), _logical(3, 2, seed=1), _logical(3, 2, seed=2)), _where, label="bool"),
    Sample(Select, (_logical(0, 5), normal(0, 5), normal(5)), _where, label="empty"),
    Sample(Select, (_logical(256, 513), normal(256, 513), normal(513)), _where, label="large"),
    Sample(
        ConditionOfRows,
        (_logical(3), normal(3, 3), normal(3, 3)),
        lambda c, x, y: c[:, None],
        label="rows of a square",
    ),
    Sample(
        ConditionOfRows,
        (_logical(2), normal(), normal(2, 3, 4)),
        lambda c, x, y: c[:, None, None],
        label="rows",
    ),
    Sample(ConditionOfRows, (_logical(3, 2), normal(3, 2), normal(3, 2)), lambda c, x, y: c, label="equal"),
    Sample(ConditionOfRows, (_logical(), normal(3, 2), normal(3, 2)), lambda c, x, y: c, label="scalar"),
    Sample(
        ConditionOfRows, (_logical(0), normal(0, 2), normal(0, 2)), lambda c, x, y: c[:, None], label="empty"
    ),
    Sample(
        ConditionOfRows,
        (_logical(513), normal(513, 256), normal(513, 256)),
        lambda c, x, y: c[:, None],
        label="large",
    ),
    Sample(Cast, (apart(3, 5),), lambda x: x.astype(np.float64), {"dtype": float64}),
    Sample(Cast, (normal(3, 5),), lambda x: x, {"dtype": float32}, label="same", wrt=()),
    Sample(Cast, (apart(3, 5, step=0.75),), np.trunc, {"dtype": int32}, label="to int32"),
    Sample(Cast, (_logical(3, 5),), lambda x: np.where(x, 1.0, 0.0), {"dtype": float32}, label="from bool"),
    Sample(Cast, (integers(3, 5, low=-1, high=2),), lambda x: x != 0, {"dtype": bool_}, label="to bool"),
    Sample(Cast, (integers(3, 5, high=256),), lambda x: x, {"dtype": uint8}, label="to uint8"),
    Sample(Cast, (normal(0, 5),), lambda x: x, {"dtype": float64}, label="empty"),
    Sample(Cast, (normal(256, 513),), lambda x: x.astype(np.float64), {"dtype": float64}, label="large"),
]
