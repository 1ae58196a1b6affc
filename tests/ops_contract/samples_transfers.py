"""Samples of lossy transfers."""

from __future__ import annotations

import numpy as np

from tensorbow.ops.transfers import Narrow16, Widen16
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, normal

SHAPES = {"": (3, 5), "scalar": (), "empty": (0, 5), "large": (256, 513)}


def _halves(x: Array) -> Array:
    upper = (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype("<u2")
    return upper.view(np.uint8).reshape(*np.shape(x), 2)


def _wide(halves: Array) -> Array:
    upper = np.ascontiguousarray(halves).view("<u2")[..., 0].astype(np.uint32)
    return (upper << 16).view(np.float32)


SAMPLES = [
    *(Sample(Narrow16, (normal(*shape),), _halves, label=label) for label, shape in SHAPES.items()),
    *(
        Sample(Widen16, (_halves(np.asarray(normal(*shape))),), _wide, label=label)
        for label, shape in SHAPES.items()
    ),
]
