"""Samples of checks, with values that pass."""

from __future__ import annotations

import numpy as np

from tensorbow.ops.checks import AssertOp, CheckBelow, CheckNumerics, PrintOp
from tests.ops_contract.sample import Sample, integers, normal

TRUE = np.ones((2, 3), np.bool_)


def _same(x, *data):
    return x


SAMPLES = [
    Sample(AssertOp, (TRUE, normal(4)), lambda *inputs: (), {"message": "data"}),
    Sample(AssertOp, (TRUE[:0],), lambda *inputs: (), label="empty"),
    Sample(AssertOp, (np.ones((600, 1000), np.bool_), normal(3)), lambda *inputs: (), label="large"),
    Sample(CheckBelow, (np.int32(3),), _same, {"limit": 5}),
    Sample(CheckBelow, (np.int64(-3),), _same, {"limit": -2}, label="negative"),
    *(
        Sample(CheckNumerics, (normal(*shape),), _same, {"message": "x"}, label=label)
        for label, shape in (("", (3, 5)), ("empty", (3, 0)), ("large", (256, 513)))
    ),
    *(
        Sample(PrintOp, (normal(*shape), integers(4)), _same, {"message": "x: "}, label=label)
        for label, shape in (("", (3, 5)), ("empty", (3, 0)), ("large", (256, 513)))
    ),
]
