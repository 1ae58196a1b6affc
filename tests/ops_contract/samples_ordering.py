"""Samples of TopKV2 and of the random permutation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.ordering import TopKV2
from tensorbow.ops.random import RandomPermutation
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, apart, integers, normal, vector
from tests.ops_contract.samples_random import SEEDS, STATE, words_of


def _top(x: Array, k: int, **more: Any) -> Sample:
    def expected(x: Array) -> tuple[Array, Array]:
        """Rows sorted by value and then position."""
        rows = [
            sorted(range(x.shape[-1]), key=lambda i, row=row: (-float(row[i]), i))[:k]
            for row in x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1])
        ]
        indices = np.array(rows, np.int64).reshape(*x.shape[:-1], k)
        return np.take_along_axis(x, indices, -1), indices

    return Sample(TopKV2, (x,), expected, {"k": k}, **more)


def _permutation(count: int) -> Array:
    """Positions sorted by random numbers whose low bits are the position."""
    bits = max(count - 1, 0).bit_length()
    keys = [((int(a) << 32 | int(b)) >> bits << bits) | i for i, (a, b) in enumerate(words_of(count, 2))]
    return np.array([key & (2**bits - 1) for key in sorted(keys)], np.int64)


SAMPLES = [
    _top(apart(3, 5), 2),
    _top(apart(2, 3, 7), 3, label="rank 3", second_order=False),
    _top(apart(6), 6, label="vector, all"),
    _top(integers(4, 6, high=3), 4, label="ties"),
    _top(np.array([[-np.inf, 1, -np.inf, np.inf]], np.float32), 3, label="infinities", wrt=()),
    _top(integers(3, 4, high=250, dtype=np.uint8), 2, label="uint8"),
    _top(apart(3, 4), 0, label="none of them", wrt=()),
    _top(normal(0, 4), 2, label="empty"),
    _top(normal(3, 0), 0, label="no elements"),
    _top(apart(200, 700, step=2**-20), 5, label="large"),
    *[
        Sample(
            RandomPermutation,
            (vector(count),),
            lambda shape: _permutation(int(shape[0])),
            SEEDS,
            label=label,
            state=STATE,
        )
        for count, label in ((11, ""), (16, "power of 2"), (1, "one"), (0, "empty"), (70_001, "large"))
    ],
]
