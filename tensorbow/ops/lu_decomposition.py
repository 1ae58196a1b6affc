"""LU decomposition with row exchanges, and the determinant's sign and logarithm, of stacks of matrices.

Each matrix is computed on its own, in float64. There are no GPU kernels: without a device request, they run
on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorbow.graph import Attrs, Kernel, Operation, Tensor
from tensorbow.kinds import AsDType, Name, checked
from tensorbow.ops.arrays import expand_dims
from tensorbow.ops.broadcasting import ones_like, shape
from tensorbow.ops.definition import define_op
from tensorbow.ops.diagonals import MatrixDiag, MatrixDiagPart
from tensorbow.ops.elementwise import add, multiply, subtract
from tensorbow.ops.indexing import one_hot
from tensorbow.ops.lapack import WHY_CPU, by_matrix, in_float64
from tensorbow.ops.linalg import MatrixInverse, square_dims
from tensorbow.ops.linear_equations import MatrixTriangularSolve
from tensorbow.ops.matmul import matmul
from tensorbow.ops.matrix_bands import matrix_band_part
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import Array, TensorSpec, int32

__all__ = ["lu", "slogdet"]


class FactorsAndOrder(NamedTuple):
    """Result of `tb.linalg.lu`: the factors L and U in one matrix, and the order of the rows."""

    lu: Tensor
    p: Tensor


class SignAndLogarithm(NamedTuple):
    """Result of `tb.linalg.slogdet`: signs of determinants, and logarithms of their absolute values."""

    sign: Tensor
    log_abs_determinant: Tensor


def _lu(a: Array) -> list[Array]:
    order = np.arange(len(a))
    for step in range(len(a)):
        pivot = step + int(np.argmax(np.abs(a[step:, step])))
        if not a[pivot, step]:
            raise np.linalg.LinAlgError("is not invertible; add a multiple of the identity")
        if pivot != step:
            a[[step, pivot]], order[[step, pivot]] = a[[pivot, step]], order[[pivot, step]]
        a[step + 1 :, step] /= a[step, step]
        a[step + 1 :, step + 1 :] -= np.outer(a[step + 1 :, step], a[step, step + 1 :])
    return [a, order]


def _lu_gradient(op: Operation, g: Tensor | None, _: Tensor | None = None) -> list[Tensor | None]:
    """P^T L^-T (strict lower triangle of L^T gL + upper triangle of gU U^T) U^-T."""
    if g is None:
        return [None]
    factors, order = op.outputs
    ones = MatrixDiag(ones_like(MatrixDiagPart(factors)))
    lower = add(_strictly_lower(factors), ones)
    upper = matrix_band_part(factors, 0, -1)
    of_lower = _strictly_lower(matmul(lower, _strictly_lower(g), transpose_a=True))
    of_upper = matrix_band_part(matmul(matrix_band_part(g, 0, -1), upper, transpose_b=True), 0, -1)
    left = MatrixTriangularSolve(lower, add(of_lower, of_upper), lower=True, adjoint=True)
    inverse = MatrixTriangularSolve(upper, ones, lower=False)
    rows = one_hot(order, strided_slice(shape(factors), -1), dtype=g.dtype)
    return [matmul(rows, matmul(left, inverse, transpose_b=True), transpose_a=True)]


def _strictly_lower(x: Tensor) -> Tensor:
    return subtract(x, matrix_band_part(x, 0, -1))


def _lu_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    dims = square_dims("Lu", inputs[0])
    return [TensorSpec(dims, inputs[0].dtype), TensorSpec(dims[:-1], attrs["output_idx_type"])]


Lu = define_op(
    "Lu",
    spec=_lu_spec,
    gradient=_lu_gradient,
    kernel=Kernel(prepare=by_matrix("Lu", in_float64(_lu))),
    inputs=("input",),
    attrs={"output_idx_type": int32},
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype, attrs["output_idx_type"]),
    why_cpu=WHY_CPU,
    doc="The LU decomposition of matrices whose rows are exchanged.",
)


@checked
def lu(input: Any, output_idx_type: AsDType = int32, name: Name = None) -> FactorsAndOrder:
    """The LU decomposition of each matrix of `input` `[..., n, n]`, floating, with exchanged rows.

    Returns `lu` `[..., n, n]`, with U in the upper triangle and below it L, whose diagonal is 1, and `p`
    `[..., n]`, int32 or int64: row i of L U is row p[i] of the matrix. Raises InvalidArgumentError at run
    time for a singular matrix.
    """
    return FactorsAndOrder(*Lu(input, output_idx_type=output_idx_type, name=name))


# Determinant ------------------------------------------------------------------------------------------


def _determinant_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    result = TensorSpec(square_dims("LogMatrixDeterminant", inputs[0])[:-2], inputs[0].dtype)
    return [result, result]


def _determinant_gradient(op: Operation, _: Tensor | None, g: Tensor | None = None) -> list[Tensor | None]:
    """g A^-T: the sign is constant."""
    if g is None:
        return [None]
    wide = expand_dims(expand_dims(g, -1), -1)
    return [multiply(wide, MatrixInverse(op.inputs[0], adjoint=True))]


LogMatrixDeterminant = define_op(
    "LogMatrixDeterminant",
    spec=_determinant_spec,
    gradient=_determinant_gradient,
    kernel=Kernel(prepare=by_matrix("LogMatrixDeterminant", in_float64(np.linalg.slogdet))),
    inputs=("input",),
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype,) * 2,
    why_cpu=WHY_CPU,
    doc="The sign and the logarithm of the absolute value of determinants.",
)


@checked
def slogdet(input: Any, name: Name = None) -> SignAndLogarithm:
    """The sign of the determinant of each matrix `[..., n, n]`, floating, and its absolute value's logarithm.

    Both are `[...]`. A singular matrix has sign 0 and minus infinity; the gradient computes the inverse.
    """
    return SignAndLogarithm(*LogMatrixDeterminant(input, name=name))
