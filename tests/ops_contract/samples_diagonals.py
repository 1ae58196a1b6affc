"""Samples of the diagonals of matrices."""

from __future__ import annotations

import numpy as np

from tensorbow.ops.diagonals import MatrixDiag, MatrixDiagPart
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, integers, normal


def _part(x: Array) -> Array:
    return np.diagonal(x, axis1=-2, axis2=-1)


def _matrices(d: Array) -> Array:
    return np.where(np.eye(d.shape[-1], dtype=bool), d[..., None], 0)


SAMPLES = [
    Sample(MatrixDiagPart, (normal(4, 4),), _part),
    Sample(MatrixDiagPart, (normal(2, 3, 5, 5),), _part, label="stack"),
    Sample(MatrixDiagPart, (integers(3, 3),), _part, label="int32"),
    Sample(MatrixDiagPart, (normal(1, 1),), _part, label="one"),
    Sample(MatrixDiagPart, (normal(0, 3, 3),), _part, label="empty"),
    Sample(MatrixDiagPart, (normal(2, 0, 0),), _part, label="no rows"),
    Sample(MatrixDiagPart, (normal(400, 400),), _part, label="large"),
    Sample(MatrixDiag, (normal(4),), _matrices),
    Sample(MatrixDiag, (normal(2, 3, 5),), _matrices, label="stack"),
    Sample(MatrixDiag, (integers(3),), _matrices, label="int32"),
    Sample(MatrixDiag, (normal(0, 3),), _matrices, label="empty"),
    Sample(MatrixDiag, (normal(2, 0),), _matrices, label="no rows"),
    Sample(MatrixDiag, (normal(400),), _matrices, label="large"),
]
