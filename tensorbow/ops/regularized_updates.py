"""Updates with L1 and L2 regularisation, dense and by rows: FTRL, proximal updates, dual averaging.

The formulas are TensorFlow 1's (ApplyFtrlV2, ApplyProximalGradientDescent, ApplyProximalAdagrad,
ApplyAdagradDA). The penalty is not part of the gradient: weights below its threshold become exactly zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.ops.adaptive_updates import define_update
from tensorbow.ops.sparse_adaptive_updates import define_row_update
from tensorbow.specs import Array


def _clip(x: Array, limit: Array, out: Array) -> None:
    """The numbers between -limit and limit that are nearest to x; x minus them is x shrunk by the limit."""
    np.maximum(x, -limit, out=out)
    np.minimum(out, limit, out=out)


def _power(total: Array, exponent: float, out: Array) -> None:
    if exponent == 0.5:
        np.sqrt(total, out=out)
    else:
        np.power(total, total.dtype.type(exponent), out=out)


def _ftrl(
    a: Array,
    b: Array,
    w: Array,
    total: Array,
    linear: Array,
    g: Array,
    *scalars: Array,
    learning_rate_power: float,
    l2_shrinkage: float,
) -> None:
    rate, l1, l2 = scalars
    np.add(linear, g, out=linear)
    _power(total, -learning_rate_power, b)
    np.multiply(g, g, out=a)
    np.add(total, a, out=total)
    _power(total, -learning_rate_power, a)
    np.subtract(a, b, out=b)
    np.divide(b, rate, out=b)
    np.multiply(b, w, out=b)
    np.subtract(linear, b, out=linear)
    if l2_shrinkage:
        np.multiply(w, w.dtype.type(2 * l2_shrinkage), out=b)
        np.add(linear, b, out=linear)
    np.divide(a, rate, out=a)
    np.add(a, 2 * l2, out=a)
    np.maximum(a, np.finfo(a.dtype).tiny, out=a)  # zero where no gradient was different from zero
    _clip(linear, l1, b)
    np.subtract(b, linear, out=b)
    np.divide(b, a, out=w)


def _descent(a: Array, b: Array, w: Array, g: Array, rate: Array, l1: Array, l2: Array) -> None:
    np.multiply(g, rate, out=a)
    np.subtract(w, a, out=w)
    _clip(w, rate * l1, b)
    np.subtract(w, b, out=w)
    np.divide(w, rate * l2 + 1, out=w)


def _adagrad(a: Array, b: Array, w: Array, total: Array, g: Array, *scalars: Array) -> None:
    rate, l1, l2 = scalars
    np.multiply(g, g, out=b)
    np.add(total, b, out=total)
    np.sqrt(total, out=b)
    np.divide(rate, b, out=b)
    np.multiply(g, b, out=a)
    np.subtract(w, a, out=w)
    np.multiply(b, l1, out=b)
    np.negative(b, out=a)
    np.maximum(w, a, out=a)
    np.minimum(a, b, out=a)
    np.subtract(w, a, out=w)
    np.sqrt(total, out=b)
    np.divide(rate, b, out=b)
    np.multiply(b, l2, out=b)
    np.add(b, 1, out=b)
    np.divide(w, b, out=w)


def _dual_averaging(
    a: Array, b: Array, w: Array, total: Array, squares: Array, g: Array, *scalars: Array
) -> None:
    rate, l1, l2, step = scalars
    np.add(total, g, out=total)
    np.multiply(g, g, out=b)
    np.add(squares, b, out=squares)
    np.sqrt(squares, out=a)
    np.add(a, l2 * step * rate, out=a)
    _clip(total, l1 * step, b)
    np.subtract(b, total, out=b)
    np.multiply(b, rate, out=b)
    np.divide(b, a, out=w)


def _define(
    name: str,
    slots: Sequence[str],
    scalars: Sequence[str],
    formula: Callable[..., None],
    doc: str,
    attrs: Mapping[str, Any] | None = None,
) -> tuple[OpDef, OpDef]:
    """The update of a whole variable, and that of the rows that have a gradient."""
    dense = define_update(f"Apply{name}", slots, ("learning_rate", *scalars), formula, doc, attrs=attrs or {})
    return dense, define_row_update(f"SparseApply{name}", slots, scalars, formula, attrs or {})


ApplyFtrl, SparseApplyFtrl = _define(
    "Ftrl",
    ("accum", "linear"),
    ("l1", "l2"),
    _ftrl,
    "z += g + 2 l2_shrinkage w - ((n + g^2)^-power - n^-power) / rate * w; n += g^2; "
    "w = 0 if |z| <= l1, else (sign(z) l1 - z) / (n^-power / rate + 2 l2), with power = learning_rate_power",
    {"learning_rate_power": -0.5, "l2_shrinkage": 0.0},
)
ApplyProximalGradientDescent, SparseApplyProximalGradientDescent = _define(
    "ProximalGradientDescent",
    (),
    ("l1", "l2"),
    _descent,
    "w -= rate * g; w = sign(w) max(|w| - rate * l1, 0) / (1 + rate * l2)",
)
ApplyProximalAdagrad, SparseApplyProximalAdagrad = _define(
    "ProximalAdagrad",
    ("accumulator",),
    ("l1", "l2"),
    _adagrad,
    "a += g^2; r = rate / sqrt(a); w -= r * g; w = sign(w) max(|w| - r * l1, 0) / (1 + r * l2)",
)
ApplyAdagradDA, SparseApplyAdagradDA = _define(
    "AdagradDA",
    ("gradient_accumulator", "gradient_squared_accumulator"),
    ("l1", "l2", "step"),
    _dual_averaging,
    "s += g; q += g^2; w = -rate sign(s) max(|s| - l1 * step, 0) / (l2 * step * rate + sqrt(q))",
)
