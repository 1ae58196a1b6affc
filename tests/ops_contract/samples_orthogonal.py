"""Samples of orthonormal columns."""

from __future__ import annotations

import numpy as np

from tensorbow.ops.orthogonal import Orthonormal
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, normal


def _gram_schmidt(x: Array) -> Array:
    columns: list[Array] = []
    for column in x.astype(np.float64).T:
        for _ in range(2):  # twice is enough
            for other in columns:
                column = column - other * (other @ column)
        columns.append(column / np.sqrt(column @ column))
    return np.stack(columns, 1) if columns else np.zeros(x.shape)


SAMPLES = [
    Sample(
        Orthonormal, (normal(*shape),), _gram_schmidt, label=label, rtol=1e-3, atol=1e-4, exact_layout=False
    )
    for label, shape in {"": (7, 3), "square": (4, 4), "empty": (5, 0)}.items()
]
