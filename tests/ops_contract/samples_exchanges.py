"""Samples of exchanges, as a step of one replica has them; AllSum also of three replicas of a device."""

from __future__ import annotations

import numpy as np

from tensorbow.ops.exchanges import AllGather, AllSum, Broadcast, ReplicaId
from tests.ops_contract.sample import Sample, normal

SHAPES = {"": (3, 5), "empty": (0, 5), "large": (256, 513)}

FIRST = {"replica": 0}  # read by their gradients

SAMPLES = [
    *(Sample(AllSum, (normal(*shape),), lambda x: x, label=label) for label, shape in SHAPES.items()),
    Sample(AllSum, tuple(normal(3, 5, seed=i) for i in range(3)), lambda a, b, c: (a + b) + c, label="three"),
    *(
        Sample(AllGather, (normal(*shape),), lambda x: x[None], {"replicas": 1}, label=label, state=FIRST)
        for label, shape in SHAPES.items()
    ),
    *(
        Sample(Broadcast, (normal(*shape),), lambda x: x, label=label, state=FIRST)
        for label, shape in SHAPES.items()
    ),
    Sample(ReplicaId, (), lambda: np.int32(3), state={"replica": 3}),
]
