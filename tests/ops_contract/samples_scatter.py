"""Samples of the writes to rows of a variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.ops.scatter import (
    ScatterAdd,
    ScatterDiv,
    ScatterMax,
    ScatterMin,
    ScatterMul,
    ScatterSub,
    ScatterUpdate,
)
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, integers, normal


def _after(op: OpDef, variable: Array, indices: Array, rows: Array) -> Array:
    result = variable.astype(np.float64)
    broadcast = np.broadcast_to(rows, (*indices.shape, *variable.shape[1:]))
    for index in np.ndindex(*indices.shape):
        if indices[index] == -1:
            continue
        old, new = result[indices[index]], broadcast[index]
        changed = {
            ScatterAdd: old + new,
            ScatterSub: old - new,
            ScatterMul: old * new,
            ScatterDiv: np.trunc(old / new) if variable.dtype.kind == "i" else old / new,
            ScatterMax: np.maximum(old, new),
            ScatterMin: np.minimum(old, new),
            ScatterUpdate: new + 0 * old,
        }
        result[indices[index]] = changed[op]
    return result


def _sample(op: OpDef, variable: Array, indices: Array, rows: Array, **more: Any) -> Sample:
    return Sample(
        op,
        (variable, indices, rows),
        lambda *inputs: _after(op, *inputs),
        written=lambda *inputs: (_after(op, *inputs),),
        rtol=1e-4,
        atol=1e-5,
        **more,
    )


SAMPLES = [
    sample
    for op in (ScatterAdd, ScatterSub, ScatterMul, ScatterDiv, ScatterMax, ScatterMin, ScatterUpdate)
    for sample in (
        _sample(op, normal(5, 3), integers(7, high=5), normal(7, 3)),
        _sample(
            op, normal(4, 2, 3), integers(3, 2, high=4, dtype=np.int64), normal(3, 2, 2, 3), label="rank 2"
        ),
        _sample(op, normal(6), integers(4, high=6), normal(4), label="vector"),
        _sample(op, normal(6, 2), np.array(3, np.int32), normal(2), label="one index"),
        _sample(op, normal(6, 2), integers(3, high=6), normal(), label="scalar"),
        _sample(op, integers(5, 2), integers(3, high=5), integers(3, 2, low=1), label="int32"),
        _sample(op, normal(5, 3), integers(0), normal(0, 3), label="empty"),
        _sample(op, normal(600, 300), integers(512, high=600), normal(512, 300), label="large"),
    )
]
SAMPLES += [
    _sample(op, normal(4, 3), np.int32([2, -1, 2, -1]), rows, label=label, attrs={"allow_unused": True})
    for op in (ScatterAdd, ScatterSub)
    for label, rows in (("unused", normal(4, 3, seed=1)), ("unused, scalar", normal()))
]
