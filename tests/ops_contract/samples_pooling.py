"""Samples of max pooling and its derivatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tensorbow.ops.pooling import MaxPool, MaxPoolGrad, MaxPoolGradGrad
from tensorbow.specs import Array
from tests.ops_contract.naive_windows import (
    naive_max_pool,
    naive_max_pool_gradient,
    naive_max_pool_gradient_gradient,
)
from tests.ops_contract.sample import Sample, apart, integers, normal


def three(
    label: str, x: Array, window: tuple[int, int], strides: tuple[int, int], padding: str, **options: Any
) -> list[Sample]:
    """Sample of each of the three ops, for one pooling."""
    how = window, strides, padding
    y = naive_max_pool(x, *how)
    attrs = {"ksize": (1, *window, 1), "strides": (1, *strides, 1), "padding": padding}
    shared = {"attrs": attrs, "label": label, **options}
    derivative = {**shared, "wrt": (2,)}  # the maxima do not move
    return [
        Sample(MaxPool, (x,), expected=lambda x: naive_max_pool(x, *how), second_order=True, **shared),
        Sample(
            MaxPoolGrad,
            (x, y, normal(*y.shape)),
            expected=lambda x, y, dy: naive_max_pool_gradient(x, dy, *how),
            second_order=True,
            **derivative,
        ),
        Sample(
            MaxPoolGradGrad,
            (x, y.copy(), normal(*x.shape)),
            expected=lambda x, y, dx: naive_max_pool_gradient_gradient(x, dx, *how),
            second_order=True,
            **derivative,
        ),
    ]


def ties(*shape: int) -> Array:
    """Zeros and ones: most windows have their maximum more than once."""
    return np.asarray(np.random.default_rng(0).integers(0, 2, shape), np.float32)


def of_bytes(label: str, x: Array, window: tuple[int, int], padding: str) -> Sample:
    """Maxima of uint8, which have no derivatives."""
    attrs = {"ksize": (1, *window, 1), "strides": (1, 2, 2, 1), "padding": padding}

    def expected(x: Array) -> Array:
        return naive_max_pool(x.astype(np.float32), window, (2, 2), padding).astype(np.uint8)

    return Sample(MaxPool, (x,), expected=expected, attrs=attrs, label=label)


SAMPLES = [
    of_bytes("bytes", integers(2, 6, 8, 5, high=256, dtype=np.uint8), (2, 2), "VALID"),
    of_bytes("bytes same", integers(2, 5, 7, 70, high=256, dtype=np.uint8), (3, 2), "SAME"),
    *three("valid", apart(2, 6, 8, 3), (2, 2), (2, 2), "VALID"),
    *three("rest", apart(2, 7, 8, 3), (3, 2), (3, 3), "VALID"),
    *three("same", apart(2, 5, 6, 3), (2, 3), (2, 2), "SAME"),
    *three("overlapping", apart(2, 6, 7, 3), (3, 2), (2, 1), "VALID"),
    *three("overlapping same", apart(2, 5, 7, 3), (4, 3), (1, 2), "SAME"),
    *three("wider than the image", apart(2, 3, 5, 3), (11, 14), (1, 9), "SAME"),
    *three("wide strides", apart(2, 9, 8, 3), (2, 1), (3, 4), "SAME"),
    *three("one", apart(1, 1, 1, 1), (1, 1), (1, 1), "VALID"),
    *three("negative", apart(2, 3, 4, 5) - 100, (2, 2), (1, 1), "SAME"),
    *three("empty", apart(0, 6, 8, 3), (2, 2), (2, 2), "VALID"),
    *three("large", apart(5, 31, 28, 37, step=0.001), (2, 3), (2, 3), "VALID"),
    *[
        replace(s, wrt=(), second_order=False)
        for s in three("ties", ties(2, 9, 7, 5), (3, 2), (1, 2), "SAME")
    ],
]
