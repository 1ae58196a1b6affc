"""Samples of reductions by segment."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.segments import SegmentMax, SegmentMin, SegmentProd
from tests.ops_contract.sample import Sample, apart, integers, uniform, vector

IDS = np.array([2, 0, 2, 1, 2], np.int64)


def _by(function: Any, first: float) -> Any:
    def expected(data: Any, ids: Any, target: Any) -> Any:
        start = np.full((1, *data.shape[1:]), first)
        parts = [np.concatenate([data[ids == i].astype(float), start]) for i in range(target[0])]
        return np.array([function(part, 0) for part in parts], data.dtype).reshape(target)

    return expected


F32 = np.finfo(np.float32)
ZEROS = np.array([[0.0, 2], [3, 4], [0, 5], [0, 2], [7, 3]], np.float32)
SAMPLES = [
    sample
    for op, function, first in (
        (SegmentMax, np.max, float(F32.min)),
        (SegmentMin, np.min, float(F32.max)),
        (SegmentProd, np.prod, 1.0),
    )
    for sample in (
        Sample(op, (apart(5, 2, 3), IDS, vector(3, 2, 3)), _by(function, first)),
        Sample(op, (apart(0, 2), IDS[:0], vector(4, 2)), _by(function, first), label="empty"),
        Sample(
            op,
            (
                uniform(256, 513, low=0.9, high=1.1),
                integers(256, high=9, dtype=np.int64),
                vector(9, 513),
            ),
            _by(function, first),
            label="large",
            rtol=1e-4,
        ),
    )
]
SAMPLES.append(Sample(SegmentProd, (ZEROS, IDS, vector(3, 2)), _by(np.prod, 1.0), label="zeros"))
