"""Samples of equations of tridiagonal matrices, against NumPy's dense ones."""

from __future__ import annotations

import numpy as np

from tensorbow.ops.tridiagonal import TridiagonalSolve
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, normal


def _dense(diagonals: Array) -> Array:
    *lead, _, n = diagonals.shape
    matrix = np.zeros((*lead, n, n))
    for i in range(n):
        matrix[..., i, i] = diagonals[..., 1, i]
        if i + 1 < n:
            matrix[..., i, i + 1] = diagonals[..., 0, i]
            matrix[..., i + 1, i] = diagonals[..., 2, i + 1]
    return matrix


def _solved(diagonals: Array, rhs: Array) -> Array:
    return np.asarray(np.linalg.solve(_dense(diagonals), rhs.astype(np.float64)))


def _exchanged(*shape: int) -> Array:
    """Diagonals whose main one is small, so that rows are exchanged."""
    diagonals = normal(*shape) + np.array([[2], [0.1], [3]], np.float32)
    return np.asarray(diagonals, np.float32)


def _dominant(*shape: int) -> Array:
    return np.asarray(normal(*shape) + np.array([[0], [6], [0]]), np.float32)


def _sample(diagonals: Array, rhs: Array, label: str) -> Sample:
    twice = label == "one"
    return Sample(
        TridiagonalSolve,
        (diagonals, rhs),
        _solved,
        label=label,
        rtol=2e-3,
        atol=2e-4,
        second_order=twice,
    )


SAMPLES = [
    _sample(_dominant(3, 5), normal(5, 2), "one"),
    _sample(_exchanged(2, 3, 6), normal(2, 6, 4), "exchanged"),
    _sample(_dominant(4, 3, 1), normal(4, 1, 2), "scalars"),
    _sample(_dominant(2, 3, 2), normal(2, 2, 3), "two rows"),
    _sample(_dominant(0, 3, 4), normal(0, 4, 2), "empty"),
    _sample(_dominant(3, 0), normal(0, 2), "no rows"),
    _sample(_dominant(40, 3, 50), normal(40, 50, 66), "large"),
]
