"""Samples of MatMul, of its batched form, and of inverse and determinant."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.linalg import MatrixDeterminant, MatrixInverse
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, integers, normal


def _product(a: Array, b: Array, turn_a: bool = False, turn_b: bool = False, **more: Any) -> Sample:
    subscripts = f"{'ji' if turn_a else 'ij'},{'kj' if turn_b else 'jk'}->ik"
    return Sample(
        MatMul,
        (a, b),
        lambda x, y: np.einsum(subscripts, x.astype(np.float64), y.astype(np.float64)),
        {"transpose_a": turn_a, "transpose_b": turn_b},
        exact_layout=False,  # BLAS sums in another order when a matrix comes transposed
        rtol=1e-5,
        atol=1e-3 if more.get("label") == "large" else 1e-5,
        **more,
    )


SAMPLES = [
    _product(normal(3, 4), normal(4, 5), second_order=True),
    _product(normal(4, 3), normal(4, 5), True, label="a transposed", second_order=True),
    _product(normal(3, 4), normal(5, 4), False, True, label="b transposed", second_order=True),
    _product(normal(4, 3), normal(5, 4), True, True, label="both transposed", second_order=True),
    _product(normal(1, 7), normal(7, 1), label="vectors"),
    _product(integers(3, 4), integers(4, 5), label="int32"),
    _product(normal(0, 4), normal(4, 5), label="empty rows"),
    _product(normal(3, 0), normal(0, 5), label="empty sum"),
    _product(normal(513, 256), normal(256, 300), label="large"),
]


def _batched(a: Array, b: Array, turn_a: bool = False, turn_b: bool = False, **more: Any) -> Sample:
    subscripts = f"...{'ji' if turn_a else 'ij'},...{'kj' if turn_b else 'jk'}->...ik"
    return Sample(
        BatchMatMulV2,
        (a, b),
        lambda x, y: np.einsum(subscripts, x.astype(np.float64), y.astype(np.float64)),
        {"adj_x": turn_a, "adj_y": turn_b},
        exact_layout=False,
        rtol=1e-5,
        atol=1e-4,
        **more,
    )


SAMPLES += [
    _batched(normal(2, 3, 4), normal(2, 4, 5), second_order=True),
    _batched(normal(2, 4, 3), normal(2, 4, 5), True, label="x turned", second_order=True),
    _batched(normal(2, 3, 4), normal(2, 5, 4), False, True, label="y turned", second_order=True),
    _batched(normal(2, 4, 3), normal(2, 5, 4), True, True, label="both turned", second_order=True),
    _batched(normal(6, 1, 3, 4), normal(2, 4, 5), label="broadcast", second_order=True),
    _batched(normal(3, 4), normal(2, 5, 4), False, True, label="matrix and stack"),
    _batched(normal(3, 4), normal(4, 5), label="matrices"),
    _batched(integers(2, 3, 4), integers(2, 4, 5), label="int32"),
    _batched(normal(0, 3, 4), normal(4, 5), label="empty"),
    _batched(normal(2, 3, 0), normal(2, 0, 5), label="empty sum"),
    _batched(normal(23, 100, 110), normal(23, 110, 90), label="large"),
]


def _regular(*shape: int) -> Array:
    """Diagonally dominant matrices."""
    return np.asarray(normal(*shape) / np.sqrt(shape[-1]) + 3 * np.eye(shape[-1]), np.float32)


def _inverse(x: Array) -> Array:
    return np.linalg.solve(x.astype(np.float64), np.broadcast_to(np.eye(x.shape[-1]), x.shape))


def _adjoint(x: Array) -> Array:
    return _inverse(x).swapaxes(-1, -2)


def _determinant(x: Array) -> Array:
    """Determinant by eigenvalues."""
    return np.linalg.eigvals(x.astype(np.float64)).prod(axis=-1).real


LOOSE: dict[str, Any] = {"exact_layout": False, "rtol": 1e-4, "atol": 1e-5}

SAMPLES += [
    Sample(MatrixInverse, (_regular(4, 4),), _inverse, second_order=True, **LOOSE),
    Sample(MatrixInverse, (_regular(2, 3, 5, 5),), _inverse, label="stack", second_order=True, **LOOSE),
    Sample(
        MatrixInverse,
        (_regular(2, 3, 3),),
        _adjoint,
        {"adjoint": True},
        label="adjoint",
        second_order=True,
        **LOOSE,
    ),
    Sample(MatrixInverse, (_regular(0, 3, 3),), lambda x: x, label="empty"),
    Sample(MatrixInverse, (np.zeros((2, 0, 0), np.float32),), lambda x: x, label="no rows"),
    Sample(MatrixInverse, (_regular(40, 60, 60),), _inverse, label="large", **LOOSE),
    Sample(MatrixDeterminant, (_regular(4, 4),), _determinant, second_order=True, **LOOSE),
    Sample(
        MatrixDeterminant, (_regular(2, 3, 5, 5),), _determinant, label="stack", second_order=True, **LOOSE
    ),
    Sample(MatrixDeterminant, (_regular(0, 3, 3),), lambda x: np.zeros(0), label="empty"),
    Sample(MatrixDeterminant, (np.zeros((2, 0, 0), np.float32),), lambda x: np.ones(2), label="no rows"),
    Sample(MatrixDeterminant, (_regular(1000, 12, 12),), _determinant, label="large", **LOOSE),
]
