"""Linear equations of matrices and stacks of them, and Cholesky's decomposition (gradient: Murray, 2016).

There are no GPU kernels: without a device request, they run on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Kernel, Operation, Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Flag, Name, checked
from tensorbow.ops.definition import define_op, require_same_dtype
from tensorbow.ops.diagonals import MatrixDiag, MatrixDiagPart
from tensorbow.ops.elementwise import (
    add,
    log,
    multiply,
    negative,
    subtract,
)
from tensorbow.ops.lapack import WHY_CPU, by_matrix, identity_like, require_matrices, symmetric
from tensorbow.ops.linalg import square_dims
from tensorbow.ops.matmul import matmul
from tensorbow.ops.matrix_bands import band_of
from tensorbow.ops.reductions import reduce_sum
from tensorbow.specs import Array, TensorSpec, compatible

__all__ = [
    "cholesky",
    "cholesky_solve",
    "logdet",
    "matrix_solve",
    "matrix_triangular_solve",
]

BLOCK = 32  # rows that a triangular solve eliminates at once


# Cholesky -----------------------------------------------------------------------------------------------


def _cholesky_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """L^-T (P + P^T) L^-1 / 2, where P is the lower triangle of L^T g, its diagonal halved (Murray, 2016)."""
    (factor,) = op.outputs
    halved = multiply(0.5, MatrixDiag(MatrixDiagPart(matmul(factor, g, transpose_a=True))))
    lower = subtract(band_of(matmul(factor, g, transpose_a=True), -1, 0), halved)
    upper = subtract(band_of(matmul(g, factor, transpose_a=True), 0, -1), halved)
    inverse = MatrixTriangularSolve(factor, identity_like(MatrixDiagPart(factor)), lower=True)
    middle = multiply(0.5, add(lower, upper))
    return [matmul(inverse, matmul(middle, inverse), transpose_a=True)]


Cholesky = define_op(
    "Cholesky",
    spec=lambda inputs, attrs: TensorSpec(square_dims("Cholesky", inputs[0]), inputs[0].dtype),
    gradient=_cholesky_gradient,
    kernel=Kernel(prepare=by_matrix("Cholesky", lambda attrs, x: [np.linalg.cholesky(symmetric(x))])),
    inputs=("input",),
    why_cpu=WHY_CPU,
)


@checked
def cholesky(input: Any, name: Name = None) -> Tensor:
    """The lower triangular L `[..., n, n]` with L L^T = `input`, symmetric positive definite, floating.

    The mean of the input and its transpose is decomposed, so that its gradient is symmetric. Raises
    InvalidArgumentError at run time for a matrix that is not positive definite.
    """
    return Cholesky.tensor(input, name=name)


@checked
def cholesky_solve(chol: Any, rhs: Any, name: Name = None) -> Tensor:
    """The X `[..., n, k]` with L L^T X = `rhs` `[..., n, k]`, for L = `chol` as `cholesky` gives it."""
    with graph_of([chol, rhs]).as_default(), name_scope(name or "cholesky_solve"):
        factor = as_tensor(chol)
        first = MatrixTriangularSolve(factor, rhs, lower=True)
        return MatrixTriangularSolve.tensor(factor, first, lower=True, adjoint=True)


@checked
def logdet(matrix: Any, name: Name = None) -> Tensor:
    """The logarithm of the determinant of symmetric positive definite matrices `[..., n, n]`: `[...]`."""
    with graph_of([matrix]).as_default(), name_scope(name or "logdet"):
        return multiply(2.0, reduce_sum(log(MatrixDiagPart(Cholesky(matrix))), -1))


# Linear equations ---------------------------------------------------------------------------------------


def _solve_spec(op: str) -> Callable[[Sequence[TensorSpec], Attrs], TensorSpec]:
    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        matrix, rhs = inputs
        require_same_dtype(op, inputs)
        dims = square_dims(op, matrix)
        require_matrices(op, rhs, "rhs")
        if not compatible(dims[:-1], rhs.dims[:-1]):
            raise InvalidArgumentError(
                f"{op}: matrix {matrix} and rhs {rhs}, expected [..., n, n] and [..., n, k] with the same "
                "leading axes; use tb.expand_dims or tb.tile"
            )
        lead = [a if b is None else b for a, b in zip(dims[:-1], rhs.dims[:-1], strict=True)]
        return TensorSpec((*lead, rhs.dims[-1]), rhs.dtype)

    return spec


def _solve(attrs: Attrs, matrix: Array, rhs: Array) -> list[Array]:
    return [np.linalg.solve(matrix.T if attrs["adjoint"] else matrix, rhs)]


def _solve_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """X = A^-1 B: B's is A^-T g, A's that times -X^T."""
    (x,) = op.outputs
    of_rhs = MatrixSolve(op.inputs[0], g, adjoint=not op.attrs["adjoint"])
    first, second = (x, of_rhs) if op.attrs["adjoint"] else (of_rhs, x)
    return [negative(matmul(first, second, transpose_b=True)), of_rhs]


MatrixSolve = define_op(
    "MatrixSolve",
    spec=_solve_spec("MatrixSolve"),
    gradient=_solve_gradient,
    kernel=Kernel(prepare=by_matrix("MatrixSolve", _solve)),
    inputs=("matrix", "rhs"),
    attrs={"adjoint": False},
    why_cpu=WHY_CPU,
)


@checked
def matrix_solve(matrix: Any, rhs: Any, adjoint: Flag = False, name: Name = None) -> Tensor:
    """The X `[..., n, k]` with A X = `rhs`, for A = `matrix` `[..., n, n]`; with `adjoint` A^T X = `rhs`.

    Raises InvalidArgumentError at run time for a singular matrix.
    """
    return MatrixSolve.tensor(matrix, rhs, adjoint=adjoint, name=name)


def _triangular_solve(attrs: Attrs, matrix: Array, rhs: Array) -> list[Array]:
    """Substitution block by block: a product for the blocks solved before, then LAPACK for the block."""
    lower = attrs["lower"]
    triangle = np.tril(matrix) if lower else np.triu(matrix)
    if (np.diagonal(triangle) == 0).any():
        row = int(np.argmin(np.diagonal(triangle) != 0))
        raise InvalidArgumentError(
            f"MatrixTriangularSolve: element [{row}, {row}] of a matrix is 0, so it is not invertible"
        )
    if attrs["adjoint"]:
        triangle, lower = triangle.T, not lower
    count = len(triangle)
    result = np.empty(rhs.shape, rhs.dtype)
    starts = range(0, count, BLOCK)
    for start in starts if lower else reversed(starts):
        block = slice(start, min(start + BLOCK, count))
        solved = slice(0, start) if lower else slice(block.stop, count)
        left = rhs[block] - triangle[block, solved] @ result[solved]
        try:
            result[block] = np.linalg.solve(triangle[block, block], left)
        except np.linalg.LinAlgError:  # it exchanges rows, by which a small pivot may become 0
            result[block] = _by_rows(triangle[block, block], left, lower)
    return [result]


def _by_rows(triangle: Array, rhs: Array, lower: bool) -> Array:
    """Substitution row by row, without exchanges; what exceeds the dtype is infinite or NaN."""
    count, result = len(triangle), np.empty_like(rhs)
    with np.errstate(all="ignore"):
        for row in range(count) if lower else reversed(range(count)):
            solved = slice(0, row) if lower else slice(row + 1, count)
            result[row] = (rhs[row] - triangle[row, solved] @ result[solved]) / triangle[row, row]
    return result


def _triangular_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    (x,) = op.outputs
    lower, adjoint = op.attrs["lower"], op.attrs["adjoint"]
    of_rhs = MatrixTriangularSolve(op.inputs[0], g, lower=lower, adjoint=not adjoint)
    first, second = (x, of_rhs) if adjoint else (of_rhs, x)
    of_matrix = negative(matmul(first, second, transpose_b=True))
    return [band_of(of_matrix, -1, 0) if lower else band_of(of_matrix, 0, -1), of_rhs]


MatrixTriangularSolve = define_op(
    "MatrixTriangularSolve",
    spec=_solve_spec("MatrixTriangularSolve"),
    gradient=_triangular_gradient,
    kernel=Kernel(prepare=by_matrix("MatrixTriangularSolve", _triangular_solve)),
    inputs=("matrix", "rhs"),
    attrs={"lower": True, "adjoint": False},
    why_cpu=WHY_CPU,
)


@checked
def matrix_triangular_solve(
    matrix: Any, rhs: Any, lower: Flag = True, adjoint: Flag = False, name: Name = None
) -> Tensor:
    """The X `[..., n, k]` with A X = `rhs`, where A is the lower or upper triangle of `matrix` `[..., n, n]`.

    adjoint: solve A^T X = `rhs`. Raises InvalidArgumentError at run time for a 0 on the diagonal.
    """
    return MatrixTriangularSolve.tensor(matrix, rhs, lower=lower, adjoint=adjoint, name=name)
