"""Gradients of steps in dynamic mode against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tensorbow as tb
from tensorbow.specs import Array

STEP = 1e-5


def check_slopes(session: Any, function: Callable[..., Sequence[Any]], values: Sequence[Array]) -> None:
    """Raises AssertionError unless gradients agree with differences along random directions."""
    rng = np.random.default_rng(len(values))
    arrays = [np.asarray(value, np.float64) for value in values]
    inputs = [tb.placeholder(tb.float64, [None] * a.ndim) for a in arrays]
    outputs = list(function(*inputs))
    shapes = [np.shape(y) for y in session.run(outputs, dict(zip(inputs, arrays, strict=True)))]
    weights = [rng.standard_normal(shape) for shape in shapes]
    total = tb.add_n([tb.reduce_sum(y * weight) for y, weight in zip(outputs, weights, strict=True)])
    gradients = [tb.convert_to_tensor(g) for g in tb.gradients(total, inputs)]
    found = session.run(gradients, dict(zip(inputs, arrays, strict=True)))
    for _ in range(2):
        directions = [rng.standard_normal(a.shape) for a in arrays]
        ends = [
            session.run(
                total, {x: a + sign * STEP * d for x, a, d in zip(inputs, arrays, directions, strict=True)}
            )
            for sign in (1, -1)
        ]
        slope = (ends[0] - ends[1]) / (2 * STEP)
        expected = sum(float((g * d).sum()) for g, d in zip(found, directions, strict=True))
        np.testing.assert_allclose(expected, slope, rtol=1e-6, atol=1e-8)
