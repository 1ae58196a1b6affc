"""Samples of the writes to slices of a variable at positions along several axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.ops.nd_writes import ScatterNdAdd, ScatterNdSub, ScatterNdUpdate
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, integers, normal


def _after(op: OpDef, variable: Array, indices: Array, updates: Array) -> Array:
    result = variable.astype(np.float64)
    for place in np.ndindex(*indices.shape[:-1]):
        at, new = tuple(indices[place]), updates[place]
        result[at] = {ScatterNdAdd: result[at] + new, ScatterNdSub: result[at] - new, ScatterNdUpdate: new}[
            op
        ]
    return result


def _sample(op: OpDef, variable: Array, indices: Array, updates: Array, label: str) -> Sample:
    return Sample(
        op,
        (variable, indices, updates),
        lambda *inputs: _after(op, *inputs),
        written=lambda *inputs: (_after(op, *inputs),),
        rtol=1e-4,
        atol=1e-5,
        label=label,
    )


SAMPLES: list[Any] = [
    sample
    for op in (ScatterNdAdd, ScatterNdSub, ScatterNdUpdate)
    for sample in (
        _sample(op, normal(4, 5, 3), integers(6, 2, high=4), normal(6, 3), "slices"),
        _sample(op, normal(4, 5), integers(2, 7, 2, high=4, dtype=np.int64), normal(2, 7), "elements"),
        _sample(op, normal(4, 3), integers(2, 1, high=4), normal(2, 3), "rows"),
        _sample(op, normal(4, 3), integers(0, 2), normal(0), "empty"),
        _sample(op, normal(300, 4, 150), integers(99, 2, high=4), normal(99, 150), "large"),
    )
]
