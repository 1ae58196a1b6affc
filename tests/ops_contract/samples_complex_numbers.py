"""Samples of complex numbers: their parts, arithmetic, functions and transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.ops import elementwise_table as table
from tensorbow.ops import fourier
from tensorbow.ops.complex_numbers import Angle, Complex, ComplexAbs, Imag, Real
from tensorbow.ops.cumulative import Cumprod, Cumsum, Recurrence
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tensorbow.ops.reductions import Mean, Prod, Sum
from tensorbow.ops.selection import Cast
from tensorbow.specs import Array, complex128, float64
from tests.ops_contract.sample import Sample, normal

ROUGH: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5, "exact_layout": False}


def numbers(*shape: int, seed: int = 0, dtype: Any = np.complex64) -> Array:
    """Complex numbers with normally distributed parts."""
    return np.asarray(normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 100), dtype)


def _unary(op: OpDef, expected: Callable[..., Any], **more: Any) -> list[Sample]:
    return [
        Sample(
            op,
            (0.7 * numbers(3, 5),),
            expected,
            rtol=1e-4,
            atol=1e-5,
            label="complex",
            exact_layout=False,
            **more,
        ),
        Sample(
            op, (numbers(4, dtype=np.complex128),), expected, label="complex128", exact_layout=False, **more
        ),
        Sample(op, (numbers(0, 5),), expected, label="complex empty", **more),
    ]


def _binary(op: OpDef, expected: Callable[..., Any], **more: Any) -> list[Sample]:
    return [
        Sample(
            op,
            (numbers(3, 5), numbers(5, seed=1)),
            expected,
            rtol=1e-4,
            label="complex",
            exact_layout=False,
            **more,
        ),
        Sample(op, (numbers(2, 0), numbers(1, seed=1)), expected, label="complex empty", **more),
    ]


def _recurrence(x: Array, terms: Array) -> Array:
    result = np.zeros_like(x)
    for i in range(1, len(x)):
        result[i] = terms[i - 1] + x[i - 1] * result[i - 1]
    return result


def _with_large(op: OpDef, expected: Callable[..., Any]) -> list[Sample]:
    return [
        Sample(op, (numbers(3, 5),), expected, rtol=1e-5, exact_layout=False),
        Sample(op, (numbers(4, dtype=np.complex128),), expected, label="double", exact_layout=False),
        Sample(op, (numbers(0, 2),), expected, label="empty"),
        Sample(op, (numbers(256, 517),), expected, rtol=1e-5, label="large"),
    ]


_FUNCTIONS: list[tuple[OpDef, Callable[..., Any]]] = [
    (table.Neg, np.negative), (table.Square, np.square), (table.Sqrt, np.sqrt), (table.Exp, np.exp),
    (table.Rsqrt, lambda x: 1 / np.sqrt(x)), (table.Reciprocal, lambda x: 1 / x), (table.Log, np.log),
    (table.Expm1, np.expm1), (table.Log1p, np.log1p), (table.Sin, np.sin), (table.Cos, np.cos),
    (table.Tan, np.tan), (table.Asin, np.arcsin), (table.Acos, np.arccos), (table.Atan, np.arctan),
    (table.Sinh, np.sinh), (table.Cosh, np.cosh), (table.Asinh, np.arcsinh), (table.Acosh, np.arccosh),
    (table.Atanh, np.arctanh), (table.Tanh, np.tanh), (table.Sign, lambda x: x / np.abs(x)),
    (table.Sigmoid, lambda x: 1 / (1 + np.exp(-x))),
]  # fmt: skip


def _transforms() -> list[Sample]:
    samples = []
    for axes, forward, inverse in (
        (1, fourier.FFT, fourier.IFFT),
        (2, fourier.FFT2D, fourier.IFFT2D),
        (3, fourier.FFT3D, fourier.IFFT3D),
    ):
        over = tuple(range(-axes, 0))
        shape, many = (2, 3, 4, 5)[-axes - 1 :], ((64, 1100), (64, 2, 550), (64, 2, 2, 275))[axes - 1]
        for op, function in ((forward, np.fft.fftn), (inverse, np.fft.ifftn)):

            def expected(x: Array, function: Any = function, over: Any = over) -> Array:
                return np.asarray(function(x, axes=over))

            more: dict[str, Any] = {"expected": expected, "rtol": 1e-4, "atol": 1e-5, "exact_layout": False}
            samples.append(Sample(op, (numbers(*shape),), **more))
            samples.append(Sample(op, (numbers(*shape[1:], seed=1),), label="one", second_order=True, **more))
            samples.append(Sample(op, (numbers(0, *shape[1:]),), label="empty", **more))
            samples.append(Sample(op, (numbers(*many),), label="large", **more))
    return samples


def _real_transforms() -> list[Sample]:
    samples = []
    tolerance: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5, "exact_layout": False}
    for axes, pair, back in (
        (1, (fourier.RFFT, fourier.RFFTGrad), (fourier.IRFFT, fourier.IRFFTGrad)),
        (2, (fourier.RFFT2D, fourier.RFFT2DGrad), (fourier.IRFFT2D, fourier.IRFFT2DGrad)),
        (3, (fourier.RFFT3D, fourier.RFFT3DGrad), (fourier.IRFFT3D, fourier.IRFFT3DGrad)),
    ):
        over = tuple(range(-axes, 0))
        shape, many = (2, 3, 4, 5)[-axes - 1 :], ((128, 1100), (128, 2, 550), (128, 2, 2, 275))[axes - 1]
        for lengths in (None, (3, 6, 4)[-axes:], (2, 3, 7)[-axes:]):
            attrs = {"fft_length": lengths}

            def of_real(x: Array, lengths: Any = lengths, over: Any = over) -> Array:
                return np.asarray(np.fft.rfftn(x, lengths, axes=over))

            def to_real(x: Array, lengths: Any = lengths, over: Any = over) -> Array:
                return np.asarray(np.fft.irfftn(x, lengths, axes=over))

            more = {**tolerance, "label": str(lengths), "second_order": True}
            real, halves = normal(*shape), numbers(*shape)
            samples.append(Sample(pair[0], (real,), of_real, attrs, **more))
            samples.append(Sample(back[0], (halves,), to_real, attrs, **more))
            results = of_real(real), to_real(halves)
            for op, result, x in ((pair[1], results[0], real), (back[1], results[1], halves)):
                gradient = numbers(*result.shape, seed=3)
                gradient = gradient if op is pair[1] else gradient.real
                samples.append(Sample(op, (gradient, np.array(x.shape, np.int32)), None, attrs, **more))
        for op, adjoint, transform, kind in (
            (*pair, np.fft.rfftn, np.real), (*back, np.fft.irfftn, np.asarray)
        ):  # fmt: skip
            for of, label in ((shape, "empty"), (many, "large")):
                extents = (0, *of[1:]) if label == "empty" else of
                x = kind(numbers(*extents))
                result = np.asarray(transform(x, axes=over), np.complex64 if op is pair[0] else np.float32)
                samples.append(Sample(op, (x,), lambda x, result=result: result, label=label, **tolerance))
                inputs = (result, np.array(x.shape, np.int32))
                samples.append(Sample(adjoint, inputs, None, label=label, **tolerance))
    return samples


SAMPLES = [
    *(sample for op, expected in _FUNCTIONS for sample in _unary(op, expected)),
    *_with_large(table.Conj, np.conj),
    *_with_large(Real, np.real),
    *_with_large(Imag, np.imag),
    *_with_large(ComplexAbs, np.abs),
    *_with_large(Angle, np.angle),
    Sample(Complex, (normal(3, 1), normal(5, seed=1)), lambda x, y: x + 1j * y),
    Sample(Complex, (normal(3, dtype=np.float64), normal(3, dtype=np.float64)), lambda x, y: x + 1j * y),
    Sample(Complex, (normal(0, 3), normal(0, 3)), lambda x, y: x + 1j * y, label="empty"),
    Sample(Complex, (normal(256, 517), normal(256, 517, seed=1)), lambda x, y: x + 1j * y, label="large"),
    *_binary(table.Add, np.add),
    *_binary(table.Sub, np.subtract),
    *_binary(table.Mul, np.multiply, second_order=True),
    *_binary(table.RealDiv, np.divide),
    *_binary(table.Pow, np.power, gradient_rtol=1e-4),
    *_binary(table.TanhGrad, lambda y, dy: (1 - y * y) * dy),
    *_binary(table.SigmoidGrad, lambda y, dy: y * (1 - y) * dy),
    Sample(Sum, (numbers(3, 4, 5),), lambda x: x.sum(1), {"axis": (1,)}, label="complex", **ROUGH),
    Sample(Mean, (numbers(3, 4),), lambda x: x.mean(0), {"axis": (0,)}, label="complex", **ROUGH),
    Sample(Prod, (numbers(3, 4),), lambda x: x.prod(1), {"axis": (1,)}, label="complex", **ROUGH),
    Sample(Cumsum, (numbers(3, 4),), lambda x: x.cumsum(1), {"axis": 1}, label="complex", **ROUGH),
    Sample(Cumprod, (numbers(3, 4),), lambda x: x.cumprod(1), {"axis": 1}, label="complex", **ROUGH),
    Sample(
        Recurrence, (numbers(4, 3), numbers(4, 3, seed=1)), _recurrence, label="complex", **ROUGH
    ),
    *(
        Sample(
            MatMul,
            (numbers(*((4, 3) if a else (3, 4))), numbers(*((5, 4) if b else (4, 5)))),
            lambda x, y, a=a, b=b: (x.T if a else x) @ (y.T if b else y),
            {"transpose_a": a, "transpose_b": b},
            label=f"complex {a} {b}", rtol=1e-4, atol=1e-5, exact_layout=False,
        )
        for a in (False, True) for b in (False, True)
    ),
    *(
        Sample(
            BatchMatMulV2,
            (numbers(2, *((4, 3) if a else (3, 4))), numbers(1, *((5, 4) if b else (4, 5)))),
            lambda x, y, a=a, b=b: (
                (np.conj(np.swapaxes(x, 1, 2)) if a else x) @ (np.conj(np.swapaxes(y, 1, 2)) if b else y)
            ),
            {"adj_x": a, "adj_y": b},
            label=f"complex {a} {b}", rtol=1e-4, atol=1e-5, exact_layout=False,
        )
        for a in (False, True) for b in (False, True)
    ),
    Sample(Cast, (numbers(3, 4),), np.real, {"dtype": float64}, label="complex to real"),
    Sample(Cast, (normal(3, 4),), lambda x: x + 0j, {"dtype": complex128}, label="real to complex"),
    *_transforms(),
    *_real_transforms(),
]  # fmt: skip
