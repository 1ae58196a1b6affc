"""Functions of statistics: incomplete gamma and beta functions, zeta and polygamma; element by element.

Computed in float64 some hundred elements at a time, by NumPy: series and continued fractions (Press et al.,
Numerical Recipes, chapter 6), Euler-Maclaurin's sum for zeta. There are no GPU kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorbow.graph import NOT_DIFFERENTIABLE, Kernel, OpDef, Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Name, checked
from tensorbow.ops.definition import define_op
from tensorbow.ops.elementwise_table import (
    Add,
    Elementwise,
    Exp,
    Gradients,
    Lgamma,
    Log,
    Log1p,
    Mul,
    Neg,
    Sub,
)
from tensorbow.ops.reductions import reduce_sum
from tensorbow.specs import FLOATING, Array

__all__ = ["betainc", "igamma", "igammac", "lbeta", "polygamma", "zeta"]

EPSILON = 1e-15  # where series and fractions end
PIECE = 512  # elements at a time
MOST_TERMS = 5000
TINY = 1e-300
# B(2j) / (2j)!, Bernoulli's numbers, of Euler and Maclaurin's sum
BERNOULLI = (
    *(1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000),
    *(1 / 74724249600, -3617 / 10670622842880000),
)

_factorial = np.vectorize(lambda n: math.gamma(n + 1) if 0 <= n < 170 else math.inf, otypes=[np.float64])


def _in_pieces(function: Callable[..., Array]) -> Any:
    """A kernel that calls a function of float64 vectors of some hundred elements."""

    def compute(*inputs: Array, out: Array) -> None:
        arrays = [np.broadcast_to(x, out.shape) for x in inputs]
        for index in np.ndindex(*out.shape[:-1]):
            for first in range(0, out.shape[-1] if out.ndim else 1, PIECE):
                place = (*index, slice(first, first + PIECE)) if out.ndim else ()
                out[place] = function(*(np.array(x[place], np.float64, ndmin=1) for x in arrays)).reshape(
                    out[place].shape
                )

    return compute


def defined(name: str, inputs: str, function: Callable[..., Array], gradient: Gradients | None) -> OpDef:
    row = Elementwise(name, tuple(inputs.split()), _in_pieces(function), FLOATING, gradient)
    return define_op(
        name,
        spec=row.spec,
        gradient=NOT_DIFFERENTIABLE if gradient is None else row.differentiate,
        kernel=Kernel(run=row.run),
        inputs=row.inputs,
        uniform_dtype=True,
        why_cpu="NumPy computes it by series",
    )


# Gamma ----------------------------------------------------------------------------------------------------


def _log_gamma(x: Array) -> Array:
    """lgamma of x > 0: recurrence up to 10, then Stirling's series."""
    product, z = np.ones_like(x), x.copy()
    for _ in range(10):
        low = z < 10
        product *= np.where(low, z, 1)
        z = np.where(low, z + 1, z)
    square = 1 / (z * z)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))) / z
    total: Array = (z - 0.5) * np.log(z) - z + 0.5 * math.log(2 * math.pi) + series - np.log(product)
    return total


def _digamma(x: Array) -> Array:
    """digamma of x > 0: recurrence up to 8, then the asymptotic series."""
    result, z = np.zeros_like(x), x.copy()
    for _ in range(8):
        low = z < 8
        result -= np.where(low, 1 / np.where(low, z, 1), 0)
        z = np.where(low, z + 1, z)
    square = 1 / (z * z)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    total: Array = result + np.log(z) - 0.5 / z - series
    return total


def _series(a: Array, x: Array) -> tuple[Array, Array]:
    """P(a, x) by its series, and its derivative by a; for a > 0, 0 < x."""
    total, slope = np.ones_like(a), np.zeros_like(a)
    term, of_term, n = np.ones_like(a), np.zeros_like(a), a.copy()
    for _ in range(MOST_TERMS):
        n += 1
        of_term -= 1 / n  # the derivative of log(term)
        term = term * x / n
        total += term
        slope += term * of_term
        if not (term > EPSILON / 10 * total).any():
            break
    factor = np.exp(a * np.log(x) - x - _log_gamma(a + 1))
    return factor * total, factor * (slope + total * (np.log(x) - _digamma(a + 1)))


def _fraction(a: Array, x: Array) -> Array:
    """1 - P(a, x) by its continued fraction, for x >= a + 1."""
    b = x + 1 - a
    c, d = np.full_like(a, 1 / TINY), 1 / b
    h = d.copy()
    for i in range(1, MOST_TERMS):
        factor = -i * (i - a)
        b = b + 2
        d = 1 / _away_from_zero(factor * d + b)
        c = _away_from_zero(b + factor / c)
        h *= d * c
        if not (np.abs(d * c - 1) > EPSILON).any():
            break
    result: Array = np.exp(a * np.log(x) - x - _log_gamma(a)) * h
    return result


def _away_from_zero(x: Array) -> Array:
    return np.where(np.abs(x) < TINY, TINY, x)


def _gamma_parts(a: Array, x: Array) -> tuple[Array, Array]:
    """P(a, x) and 1 - P(a, x)."""
    valid = (a > 0) & (x >= 0) & np.isfinite(a)
    inner = valid & (x > 0) & np.isfinite(x)
    low = inner & (x < a + 1)
    high = inner & ~low
    lower = np.where(valid, np.where(x > 0, 1.0, 0.0), np.nan)
    upper = 1 - lower
    if low.any():
        lower[low] = _series(a[low], x[low])[0]
        upper[low] = 1 - lower[low]
    if high.any():
        upper[high] = _fraction(a[high], x[high])
        lower[high] = 1 - upper[high]
    return lower, upper


def _slope_by_a(a: Array, x: Array) -> Array:
    valid = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    result = np.where((a > 0) & (x >= 0), 0.0, np.nan)
    if valid.any():
        result[valid] = _series(a[valid], x[valid])[1]
    return result


def _density(a: Array, x: Array) -> Array:
    result: Array = np.exp((a - 1) * np.log(x) - x - _log_gamma(a))
    return result


def _igamma_gradient(sign: int) -> Gradients:
    def gradient(g: Tensor, z: Tensor, a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        g = g if sign > 0 else Neg(g)
        density = Exp(Sub(Sub(Mul(Sub(a, 1), Log(x)), x), Lgamma(a)))
        return Mul(g, IgammaGradA(a, x)), Mul(g, density)

    return gradient


IgammaGradA = defined("IgammaGradA", "a x", _slope_by_a, None)
Igamma = defined("Igamma", "a x", lambda a, x: _gamma_parts(a, x)[0], _igamma_gradient(1))
Igammac = defined("Igammac", "a x", lambda a, x: _gamma_parts(a, x)[1], _igamma_gradient(-1))
RandomGammaGrad = defined(
    "RandomGammaGrad", "alpha sample", lambda a, x: -_slope_by_a(a, x) / _density(a, x), None
)


# Beta -----------------------------------------------------------------------------------------------------


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    c = np.ones_like(a)
    d = 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    h = d.copy()
    for m in range(1, MOST_TERMS):
        before = h
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + factor * d)
            c = _away_from_zero(1 + factor / c)
            h = h * d * c
        if not (np.abs(h - before) > EPSILON * np.abs(h)).any():
            break
    result: Array = h
    return result


def _beta(a: Array, b: Array, x: Array) -> Array:
    valid = (a > 0) & (b > 0) & (x >= 0) & (x <= 1)
    inner = valid & (x > 0) & (x < 1) & np.isfinite(a) & np.isfinite(b)
    result = np.where(valid, np.where(x >= 1, 1.0, 0.0), np.nan)
    a, b, x = a[inner], b[inner], x[inner]
    turned = x > (a + 1) / (a + b + 2)
    a, b, x = np.where(turned, b, a), np.where(turned, a, b), np.where(turned, 1 - x, x)
    logarithm = _log_gamma(a + b) - _log_gamma(a) - _log_gamma(b) + a * np.log(x) + b * np.log1p(-x)
    part = np.exp(logarithm) * _beta_fraction(a, b, x) / a
    result[inner] = np.where(turned, 1 - part, part)
    return result


def _beta_gradient(g: Tensor, z: Tensor, a: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor | None, ...]:
    scale = Sub(Add(Lgamma(a), Lgamma(b)), Lgamma(Add(a, b)))
    density = Exp(Sub(Add(Mul(Sub(b, 1), Log1p(Neg(x))), Mul(Sub(a, 1), Log(x))), scale))
    return None, None, Mul(g, density)


Betainc = defined("Betainc", "a b x", _beta, _beta_gradient)


# Zeta -----------------------------------------------------------------------------------------------------


def _zeta(x: Array, q: Array) -> Array:
    """The sum of (q + k)^-x over k from 0 on: some terms, then Euler and Maclaurin's formula."""
    total, z = np.zeros_like(x), q.copy()
    for k in range(MOST_TERMS):
        low = z < 12
        if not low.any() or (k > 24 and not np.isfinite(total[low]).any()):
            break
        total += np.where(low, np.power(np.where(low, z, 1), -x), 0)
        z = np.where(low, z + 1, z)
    rest = z ** (1 - x) / (x - 1) + 0.5 * z**-x
    factor = x * z ** (-x - 1)
    for j, coefficient in enumerate(BERNOULLI):
        rest += coefficient * factor
        factor = factor * (x + 2 * j + 1) * (x + 2 * j + 2) / (z * z)
    is_pole = (x == 1) | ((q <= 0) & (q == np.floor(q)))
    undefined = (x < 1) | ((q <= 0) & (x != np.floor(x))) | np.isnan(x) | np.isnan(q)
    return np.where(undefined, np.nan, np.where(is_pole, np.inf, total + rest))


def _polygamma(n: Array, x: Array) -> Array:
    order = np.where((n > 0) & (n == np.floor(n)) & (n < 170), n, 1)
    sign = np.where(order % 2 == 1, 1.0, -1.0)
    result = sign * _factorial(order) * _zeta(order + 1, x)
    first = _digamma(np.where(x > 0, x, 1))
    below = np.where(x > 0, first, np.nan)
    reflect = (x <= 0) & (x != np.floor(x)) & (n == 0)
    if reflect.any():
        low = x[reflect]
        below[reflect] = _digamma(1 - low) - math.pi / np.tan(math.pi * (low - np.round(low)))
    return np.where(n == 0, below, np.where(order == n, result, np.nan))


Zeta: OpDef = defined(
    "Zeta", "x q", _zeta, lambda g, z, x, q: (None, Mul(g, Neg(Mul(x, Zeta(Add(x, 1), q)))))
)
Polygamma: OpDef = defined(
    "Polygamma", "a x", _polygamma, lambda g, z, a, x: (None, Mul(g, Polygamma(Add(a, 1), x)))
)


# Functions ------------------------------------------------------------------------------------------------


@checked
def igamma(a: Any, x: Any, name: Name = None) -> Tensor:
    """The lower regularised incomplete gamma function P(a, x), for a > 0 and x >= 0; NaN elsewhere.

    float32 or float64, on CPU devices; with gradients by both.
    """
    return Igamma.tensor(a, x, name=name)


@checked
def igammac(a: Any, x: Any, name: Name = None) -> Tensor:
    """The upper regularised incomplete gamma function, 1 - `igamma`(a, x), accurate where it is small."""
    return Igammac.tensor(a, x, name=name)


@checked
def betainc(a: Any, b: Any, x: Any, name: Name = None) -> Tensor:
    """The regularised incomplete beta function I_x(a, b), for a, b > 0 and x in [0, 1]; NaN elsewhere.

    float32 or float64, on CPU devices; with a gradient by x, as in TensorFlow.
    """
    return Betainc.tensor(a, b, x, name=name)


@checked
def zeta(x: Any, q: Any, name: Name = None) -> Tensor:
    """Hurwitz's zeta function, the sum of (q + k)^-x over k = 0, 1, ...; for x > 1, with a gradient by q."""
    return Zeta.tensor(x, q, name=name)


@checked
def polygamma(a: Any, x: Any, name: Name = None) -> Tensor:
    """The derivative of order `a` of `digamma` at x; a: whole numbers of a floating dtype. Gradient by x."""
    return Polygamma.tensor(a, x, name=name)


@checked
def lbeta(x: Any, name: Name = None) -> Tensor:
    """The logarithm of the absolute value of the beta function along the last axis (floating)."""
    tensor = as_tensor(x)
    with graph_of([tensor]).as_default(), name_scope(name or "lbeta"):
        return Sub.tensor(reduce_sum(Lgamma(tensor), -1), Lgamma(reduce_sum(tensor, -1)))
