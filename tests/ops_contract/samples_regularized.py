"""Samples of updates with L1 and L2 regularisation, dense and by rows. Some weights become zero."""

from __future__ import annotations

import numpy as np

from tensorbow.ops.regularized_updates import (
    ApplyAdagradDA,
    ApplyFtrl,
    ApplyProximalAdagrad,
    ApplyProximalGradientDescent,
    SparseApplyAdagradDA,
    SparseApplyFtrl,
    SparseApplyProximalAdagrad,
    SparseApplyProximalGradientDescent,
)
from tensorbow.specs import Array
from tests.ops_contract.samples_adaptive import row_samples, update_samples


def _ftrl(
    w: Array,
    n: Array,
    z: Array,
    g: Array,
    rate: Array,
    l1: Array,
    l2: Array,
    learning_rate_power: float = -0.5,
    l2_shrinkage: float = 0.0,
) -> tuple[Array, ...]:
    after = n + g**2
    z = z + g + 2 * l2_shrinkage * w - (after**-learning_rate_power - n**-learning_rate_power) / rate * w
    quadratic = after**-learning_rate_power / rate + 2 * l2
    return np.where(np.abs(z) > l1, (np.sign(z) * l1 - z) / quadratic, 0), after, z


def _descent(w: Array, g: Array, rate: Array, l1: Array, l2: Array) -> tuple[Array, ...]:
    w = w - rate * g
    return (np.sign(w) * np.maximum(np.abs(w) - rate * l1, 0) / (1 + rate * l2),)


def _adagrad(w: Array, a: Array, g: Array, rate: Array, l1: Array, l2: Array) -> tuple[Array, ...]:
    a = a + g**2
    return *_descent(w, g, rate / np.sqrt(a), l1, l2), a


def _dual_averaging(w: Array, s: Array, q: Array, g: Array, *scalars: Array) -> tuple[Array, ...]:
    rate, l1, l2, step = scalars
    s, q = s + g, q + g**2
    shrunk = np.sign(s) * np.maximum(np.abs(s) - l1 * step, 0)
    return -rate * shrunk / (l2 * step * rate + np.sqrt(q)), s, q


SAMPLES = [
    *update_samples(ApplyFtrl, _ftrl, 2, (0.5, 2.75, 0.25)),
    *update_samples(ApplyFtrl, _ftrl, 2, (0.5, 0.0, 0.25), learning_rate_power=-0.75, l2_shrinkage=0.125),
    *update_samples(ApplyProximalGradientDescent, _descent, 0, (0.5, 0.5, 0.25)),
    *update_samples(ApplyProximalAdagrad, _adagrad, 1, (0.5, 0.5, 0.25)),
    *update_samples(ApplyAdagradDA, _dual_averaging, 2, (0.5, 0.75, 0.25, 3.0)),
    *row_samples(SparseApplyFtrl, _ftrl, 2, (0.5, 2.75, 0.25)),
    *row_samples(SparseApplyFtrl, _ftrl, 2, (0.5, 0.0, 0.25), learning_rate_power=-0.75, l2_shrinkage=0.125),
    *row_samples(SparseApplyProximalGradientDescent, _descent, 0, (0.5, 0.5, 0.25)),
    *row_samples(SparseApplyProximalAdagrad, _adagrad, 1, (0.5, 0.5, 0.25)),
    *row_samples(SparseApplyAdagradDA, _dual_averaging, 2, (0.5, 0.75, 0.25, 3.0)),
]
