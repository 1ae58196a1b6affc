"""Samples of decompositions and linear equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.decompositions import Qr, SelfAdjointEigV2, Svd
from tensorbow.ops.linear_equations import Cholesky, MatrixSolve, MatrixTriangularSolve
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, normal

LOOSE: dict[str, Any] = {"exact_layout": False, "rtol": 2e-4, "atol": 2e-5}


def _spread(*shape: int) -> Array:
    """Matrices with singular values that keep a distance."""
    rows, columns = shape[-2:]
    steps = 1.0 + np.arange(min(rows, columns))
    left = np.linalg.qr(normal(*shape[:-1], rows).astype(np.float64))[0]
    right = np.linalg.qr(normal(*shape[:-2], columns, columns, seed=1).astype(np.float64))[0]
    count = min(rows, columns)
    return np.asarray((left[..., :count] * steps) @ right[..., :count, :], np.float32)


def _positive(*shape: int) -> Array:
    x = _spread(*shape)
    return np.asarray(np.swapaxes(x, -1, -2) @ x / shape[-1], np.float32)


def _symmetric(*shape: int) -> Array:
    return _positive(*shape) - np.eye(shape[-1], dtype=np.float32)


def _banachiewicz(x: Array) -> Array:
    """Cholesky's factor, column by column."""
    x = (x + np.swapaxes(x, -1, -2)).astype(np.float64) / 2
    out = np.zeros_like(x)
    for j in range(x.shape[-1]):
        out[..., j, j] = np.sqrt(x[..., j, j] - (out[..., j, :j] ** 2).sum(-1))
        rest = x[..., j + 1 :, j] - (out[..., j + 1 :, :j] * out[..., j : j + 1, :j]).sum(-1)
        out[..., j + 1 :, j] = rest / out[..., j, j][..., None]
    return out


def _solved(matrix: Array, rhs: Array) -> Array:
    return np.linalg.inv(matrix.astype(np.float64)) @ rhs


def _lower(*shape: int) -> Array:
    return np.asarray(
        np.tril(normal(*shape)) / shape[-1] + 2 * np.eye(shape[-1]) + np.triu(normal(*shape), 1), np.float32
    )


def _values(x: Array) -> Array:
    """Singular values by the characteristic polynomial of the smaller Gram matrix."""
    x = x.astype(np.float64)
    gram = x @ np.swapaxes(x, -1, -2) if x.shape[-2] <= x.shape[-1] else np.swapaxes(x, -1, -2) @ x
    return np.sqrt(np.sort(np.linalg.eigvals(gram).real)[..., ::-1])


def _eigenvalues(x: Array) -> Array:
    return np.sort(np.linalg.eigvals((x + np.swapaxes(x, -1, -2)).astype(np.float64) / 2).real)


def _only_values(x: Array) -> tuple[Array | None, ...]:
    return _values(x), None, None


SAMPLES = [
    Sample(Cholesky, (_positive(5, 5),), _banachiewicz, second_order=True, **LOOSE),
    Sample(Cholesky, (_positive(2, 3, 4, 4),), _banachiewicz, label="stack", **LOOSE),
    Sample(Cholesky, (np.zeros((0, 3, 3), np.float32),), lambda x: x, label="empty"),
    Sample(Cholesky, (np.zeros((2, 0, 0), np.float32),), lambda x: x, label="no rows"),
    Sample(
        Cholesky,
        (_positive(50, 50, 50),),
        _banachiewicz,
        label="large",
        **{**LOOSE, "rtol": 2e-3, "atol": 1e-3},
    ),
    Sample(MatrixSolve, (_positive(4, 4), normal(4, 3)), _solved, second_order=True, **LOOSE),
    Sample(
        MatrixSolve,
        (_spread(2, 5, 5), normal(2, 5, 3)),
        lambda a, b: _solved(np.swapaxes(a, -1, -2), b),
        {"adjoint": True},
        label="adjoint",
        **LOOSE,
    ),
    Sample(MatrixSolve, (_spread(4, 4), normal(4, 0)), lambda a, b: b, label="empty"),
    Sample(MatrixSolve, (_lower(12, 110, 110), normal(12, 110, 7)), None, label="large", **LOOSE),
    *(
        Sample(
            MatrixTriangularSolve,
            (_lower(2, 4, 4) if lower else np.swapaxes(_lower(2, 4, 4), -1, -2).copy(), normal(2, 4, 3)),
            lambda a, b, lower=lower, adjoint=adjoint: _solved(
                np.swapaxes(np.tril(a) if lower else np.triu(a), -1, -2)
                if adjoint
                else (np.tril(a) if lower else np.triu(a)),
                b,
            ),
            {"lower": lower, "adjoint": adjoint},
            label=f"{'lower' if lower else 'upper'}{' adjoint' if adjoint else ''}",
            second_order=lower,
            **LOOSE,
        )
        for lower in (True, False)
        for adjoint in (True, False)
    ),
    Sample(
        MatrixTriangularSolve,
        (_lower(71, 71), normal(71, 2)),
        lambda a, b: _solved(np.tril(a), b),
        label="blocks",
        wrt=(1,),
        **LOOSE,
    ),
    Sample(MatrixTriangularSolve, (_lower(3, 3), normal(3, 0)), lambda a, b: b, label="empty"),
    Sample(MatrixTriangularSolve, (_lower(12, 110, 110), normal(12, 110, 7)), None, label="large", **LOOSE),
    Sample(Qr, (_spread(5, 3),), None, **LOOSE),
    Sample(Qr, (_spread(2, 4, 4),), None, label="stack", **LOOSE),
    Sample(Qr, (_spread(3, 5),), None, label="wide", wrt=(), **LOOSE),
    Sample(Qr, (_spread(3, 5),), None, {"full_matrices": True}, label="full", wrt=(), **LOOSE),
    Sample(Qr, (np.zeros((0, 4, 3), np.float32),), lambda x: (x, x[:, :3]), label="empty"),
    Sample(Qr, (_spread(40, 60, 55),), None, label="large", **LOOSE),
    Sample(Svd, (_spread(5, 3),), _only_values, **LOOSE),
    Sample(Svd, (_spread(3, 5),), _only_values, label="wide", **LOOSE),
    Sample(Svd, (_spread(2, 3, 3),), _only_values, label="stack", **LOOSE),
    Sample(Svd, (_spread(3, 5),), _only_values, {"full_matrices": True}, label="full", through=(0,), **LOOSE),
    Sample(Svd, (_spread(4, 3),), _values, {"compute_uv": False}, label="values", **LOOSE),
    Sample(Svd, (np.zeros((0, 4, 3), np.float32),), lambda x: (x[:, 0], x, x[:, :3]), label="empty"),
    Sample(Svd, (_spread(40, 60, 55),), None, label="large", **LOOSE),
    Sample(SelfAdjointEigV2, (_symmetric(4, 4),), lambda x: (_eigenvalues(x), None), **LOOSE),
    Sample(
        SelfAdjointEigV2, (_symmetric(2, 3, 3),), lambda x: (_eigenvalues(x), None), label="stack", **LOOSE
    ),
    Sample(
        SelfAdjointEigV2, (_symmetric(4, 4),), _eigenvalues, {"compute_v": False}, label="values", **LOOSE
    ),
    Sample(SelfAdjointEigV2, (np.zeros((0, 3, 3), np.float32),), lambda x: (x[:, 0], x), label="empty"),
    Sample(SelfAdjointEigV2, (_symmetric(40, 60, 60),), None, label="large", **LOOSE),
]
