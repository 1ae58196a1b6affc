"""Samples of the writes to slices of a variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.sliced_writes import StridedSliceAssign
from tests.ops_contract.sample import Sample, normal


def _sample(shape: tuple[int, ...], value: Any, index: Any, numpy_index: Any, label: str) -> Sample:
    def after(variable: Any, value: Any) -> Any:
        result = variable.copy()
        result[numpy_index] = value
        return result

    return Sample(
        StridedSliceAssign,
        (normal(*shape), value),
        after,
        {"index": index},
        written=lambda *inputs: (after(*inputs),),
        label=label,
    )


BOX = ((1, 3, None), "...", (None, None, -2))
SAMPLES = [
    _sample((4, 2, 5), normal(2, 2, 3), BOX, np.s_[1:3, :, ::-2], "box"),
    _sample((4, 5), normal(5, seed=1), (-1,), np.s_[-1], "row"),
    _sample((4, 5), np.float32(7), ((0, 2, None), 3), np.s_[:2, 3], "scalar"),
    _sample((4, 5), normal(1, 5, seed=1), ("new", 2), np.s_[None, 2], "new axis"),
    _sample((4, 5), normal(0, 5), ((3, 3, None),), np.s_[3:3], "empty"),
    _sample((300, 500), normal(150, 500, seed=1), ((None, None, 2),), np.s_[::2], "large"),
]
