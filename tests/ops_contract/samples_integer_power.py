"""Samples of the power of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.integer_power import IntegerPow
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, integers


def _power(x: Array, y: Array) -> Array:
    """Power by repeated products, which wrap around."""
    result = np.ones(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    for step in range(int(y.max(initial=0))):
        result = np.where(step < y, result * x, result)
    return result


def _sample(x: Array, y: Array, **more: Any) -> Sample:
    return Sample(IntegerPow, (x, y), _power, **more)


SAMPLES = [
    _sample(integers(3, 5), integers(3, 5, high=4, seed=1)),
    _sample(integers(3, 1, 5), integers(4, 1, high=4), label="broadcast"),
    _sample(np.asarray(7, np.int64), np.asarray(3, np.int64), label="scalar"),
    _sample(integers(2, 3, dtype=np.int64), integers(3, high=9, dtype=np.int64), label="int64"),
    _sample(integers(6, high=200, dtype=np.uint8), integers(6, high=5, dtype=np.uint8), label="uint8"),
    _sample(np.array([2, 3], np.int32), np.array([31, 40], np.int32), label="overflow"),
    _sample(np.array([0, 5], np.int32), np.array([0, 0], np.int32), label="zeros"),
    _sample(integers(3, 0), integers(1, 1, high=4), label="empty"),
    _sample(integers(256, 513), integers(256, 513, high=3, seed=1), label="large"),
]
