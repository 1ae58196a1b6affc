"""Samples of places in sorted rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.positions import SearchSorted
from tensorbow.specs import Array, int64
from tests.ops_contract.sample import Sample, integers, normal


def _sample(rows: Array, values: Array, side: Any = "left", **attrs: Any) -> Sample:
    def expected(rows: Array, values: Array) -> Array:
        beside = rows[..., None, :] < values[..., :, None]
        if side == "right":
            beside = rows[..., None, :] <= values[..., :, None]
        return np.asarray(beside.sum(-1))

    label = f"{side} {rows.shape} {values.shape} {rows.dtype}"
    return Sample(SearchSorted, (rows, values), expected, {"side": side, **attrs}, label=label)


ROWS = np.sort(integers(3, 7, high=5), -1)
SAMPLES = [
    _sample(ROWS, integers(3, 4, low=-1, high=7)),
    _sample(ROWS, integers(3, 4, low=-1, high=7), "right", out_type=int64),
    _sample(np.sort(normal(6)), normal(5, seed=1)),
    _sample(np.sort(normal(6)), normal(0)),
    _sample(np.zeros((2, 0)), normal(2, 3, dtype=np.float64)),
    _sample(np.sort(normal(40, 20)), normal(40, 4000)),
]
