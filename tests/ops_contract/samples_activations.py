"""Samples of LeakyRelu and its gradient (the other activations are in the element-wise table)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.activations import LeakyRelu, LeakyReluGrad
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, apart, normal

ATTRS = {"alpha": 0.25}


def _leaky(x: Array) -> Array:
    return np.maximum(x, x * np.float32(0.25))


def _leaky_grad(g: Array, x: Array) -> Array:
    return g * np.where(x > 0, 1, np.float32(0.25))


def _both(*shape: int, **more: Any) -> list[Sample]:
    grad = (normal(*shape), apart(*shape))
    return [
        Sample(LeakyRelu, (apart(*shape),), _leaky, ATTRS, **more),
        Sample(LeakyReluGrad, grad, _leaky_grad, ATTRS, **more),
    ]


SPECIAL = np.array([-np.inf, np.inf, np.nan, 0.0, -3e38], np.float32)

SAMPLES = [
    *_both(3, 5, second_order=True)[1:],
    *_both(3, 5)[:1],
    *_both(label="scalar"),
    *_both(0, 5, label="empty"),
    *_both(512, 513, label="large"),
    Sample(LeakyRelu, (SPECIAL,), _leaky, ATTRS, label="special", wrt=()),
]
