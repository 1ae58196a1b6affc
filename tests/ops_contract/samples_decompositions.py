"""Samples of decompositions and linear equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.decompositions import Qr, SelfAdjointEigV2, Svd
from tensorbow.ops.linear_equations import Cholesky, MatrixSolve, MatrixTriangularSolve
from tensorbow.ops.lu_decomposition import LogMatrixDeterminant, Lu
from tensorbow.ops.matrix_functions import MatrixExponential, MatrixLogarithm, MatrixSquareRoot
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


def _of_eigenvalues(function: Any) -> Any:
    """The function of matrices by their eigenvalues and eigenvectors, which are no symmetric ones."""

    def result(x: Array) -> Array:
        values, vectors = np.linalg.eig(x.astype(np.float64))
        return np.asarray((vectors * function(values)[..., None, :]) @ np.linalg.inv(vectors)).real

    return result


def _close(*shape: int) -> Array:
    """Matrices that are not symmetric and whose eigenvalues are positive."""
    return _lower(*shape) @ np.asarray(np.triu(normal(*shape, seed=2)) / 9 + np.eye(shape[-1]), np.float32)


def _eliminated(x: Array) -> tuple[Array, Array]:
    """Factors by elimination, of matrices whose rows stay."""
    x = x.astype(np.float64)
    for k in range(x.shape[-1]):
        x[..., k + 1 :, k] /= x[..., k : k + 1, k]
        x[..., k + 1 :, k + 1 :] -= x[..., k + 1 :, k, None] * x[..., k, None, k + 1 :]
    return x, np.broadcast_to(np.arange(x.shape[-1]), x.shape[:-1])


def _of_determinant(x: Array) -> tuple[Array, Array]:
    found = np.linalg.det(x.astype(np.float64))
    return np.sign(found), np.log(np.abs(found))


def _mixed(x: Array) -> Array:
    """Rows of large diagonals, in another order."""
    return np.ascontiguousarray(x[..., ::-1, :])


SAMPLES = [
    *(
        Sample(
            op, (x(*shape),), _of_eigenvalues(function), label=label, second_order=shape == (4, 4), **LOOSE
        )
        for op, x, function in (
            (MatrixExponential, _spread, np.exp),
            (MatrixLogarithm, _close, np.log),
            (MatrixSquareRoot, _close, np.sqrt),
        )
        for label, shape in (("", (4, 4)), ("stack", (2, 3, 3)))
    ),
    *(
        Sample(op, (np.zeros(shape, np.float32),), lambda x: x, label=f"empty {len(shape)}")
        for op in (MatrixExponential, MatrixLogarithm, MatrixSquareRoot)
        for shape in ((0, 3, 3), (2, 0, 0))
    ),
    *(
        Sample(op, (_positive(250, 24, 24),), None, label="large", **LOOSE)  # temporaries are of one matrix
        for op in (MatrixExponential, MatrixLogarithm, MatrixSquareRoot, Lu, LogMatrixDeterminant)
    ),
    Sample(MatrixSquareRoot, (_positive(4, 4),), _of_eigenvalues(np.sqrt), label="symmetric", **LOOSE),
    Sample(MatrixLogarithm, (_positive(4, 4),), _of_eigenvalues(np.log), label="symmetric", **LOOSE),
    Sample(Lu, (_close(4, 4),), _eliminated, second_order=True, through=(0,), **LOOSE),
    Sample(
        Lu,
        (_mixed(_close(2, 3, 3)),),
        lambda x: (_eliminated(x[..., ::-1, :])[0], np.broadcast_to([2, 1, 0], (2, 3))),
        label="exchanged",
        through=(0,),
        **LOOSE,
    ),
    Sample(Lu, (np.zeros((0, 3, 3), np.float32),), lambda x: (x, x[:, 0].astype(np.int32)), label="empty"),
    Sample(LogMatrixDeterminant, (_spread(4, 4),), _of_determinant, through=(1,), second_order=True, **LOOSE),
    Sample(LogMatrixDeterminant, (_spread(2, 3, 3),), _of_determinant, label="stack", through=(1,), **LOOSE),
    Sample(
        LogMatrixDeterminant,
        (np.zeros((0, 3, 3), np.float32),),
        lambda x: (x[:, 0, 0], x[:, 0, 0]),
        label="empty",
    ),
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
