"""Modified Bessel functions of the first kind, of orders 0 and 1, element by element.

Computed in float64 by their power series, whose terms are all positive, and for large arguments by Hankel's
asymptotic series (Abramowitz and Stegun, 9.6.10 and 9.7.1). There are no GPU kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorbow.graph import OpDef, Tensor, as_tensor, name_scope
from tensorbow.kinds import Name, checked
from tensorbow.ops.elementwise_table import Abs, Equal, Exp, Mul, RealDiv, Sign, Sub
from tensorbow.ops.selection import select
from tensorbow.ops.special_functions import EPSILON, MOST_TERMS, defined
from tensorbow.specs import Array

__all__ = ["bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e"]

LARGE = 40.0  # from here on the asymptotic series has the digits of float64


def _scaled(order: int) -> Callable[[Array], Array]:
    """exp(-|x|) times the function of that order, as a function of a float64 vector."""

    def compute(x: Array) -> Array:
        size = np.abs(x)
        is_large = size > LARGE
        small, large = np.where(is_large, 0, size), np.where(is_large, size, LARGE)
        quarter = small * small / 4
        term = total = np.ones_like(size)
        for k in range(1, MOST_TERMS):
            term = term * quarter / (k * (k + order))
            total = total + term
            if not (term > EPSILON / 10 * total).any():
                break
        low = total * np.exp(-small) * (small / 2) ** order
        term = series = np.ones_like(size)
        for k in range(1, 30):
            term = term * ((2 * k - 1) ** 2 - 4 * order * order) / (8 * k * large)
            series = series + term
        result: Array = np.where(is_large, series / np.sqrt(2 * np.pi * large), low)
        result[np.isnan(x)] = np.nan
        return np.sign(x) ** order * result

    return compute


def _slope_0(g: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor]:
    return (Mul(g, Sub(BesselI1e(x), Mul(Sign(x), z))),)


def _slope_1(g: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor]:
    at_zero = Equal(x, 0)
    ratio = select(at_zero, 0.5, RealDiv(z, select(at_zero, 1, x)))  # 1/2 is its limit
    return (Mul(g, Sub(Sub(BesselI0e(x), Mul(Sign(x), z)), ratio)),)


BesselI0e: OpDef = defined("BesselI0e", "x", _scaled(0), _slope_0)
BesselI1e: OpDef = defined("BesselI1e", "x", _scaled(1), _slope_1)


@checked
def bessel_i0e(x: Any, name: Name = None) -> Tensor:
    """exp(-|x|) `bessel_i0`(x), without overflow; float32 or float64, on CPU devices."""
    return BesselI0e.tensor(x, name=name)


@checked
def bessel_i1e(x: Any, name: Name = None) -> Tensor:
    """exp(-|x|) `bessel_i1`(x), without overflow; float32 or float64, on CPU devices."""
    return BesselI1e.tensor(x, name=name)


@checked
def bessel_i0(x: Any, name: Name = None) -> Tensor:
    """The modified Bessel function of the first kind of order 0; float32 or float64, on CPU devices."""
    return _unscaled(BesselI0e, x, name or "bessel_i0")


@checked
def bessel_i1(x: Any, name: Name = None) -> Tensor:
    """The modified Bessel function of the first kind of order 1; float32 or float64, on CPU devices."""
    return _unscaled(BesselI1e, x, name or "bessel_i1")


def _unscaled(scaled: OpDef, x: Any, name: str) -> Tensor:
    tensor = as_tensor(x)
    with tensor.graph.as_default(), name_scope(name):
        return Mul.tensor(Exp(Abs(tensor)), scaled(tensor))
