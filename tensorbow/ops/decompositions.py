"""QR decomposition, least squares, singular values and eigenvalues, of matrices and stacks of them.

Gradients are compositions of other ops, after Townsend (2016) and Giles (2008). There are no GPU kernels:
without a device request, they run on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import UnimplementedError
from tensorbow.graph import Attrs, Kernel, Operation, Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Flag, Name, NonNegative, checked
from tensorbow.ops.arrays import concat, expand_dims
from tensorbow.ops.broadcasting import shape, zeros_like
from tensorbow.ops.definition import define_op, require_same_dtype
from tensorbow.ops.diagonals import MatrixDiag, MatrixDiagPart
from tensorbow.ops.elementwise import (
    add,
    multiply,
    reciprocal,
    subtract,
)
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.indexing import gather
from tensorbow.ops.lapack import WHY_CPU, by_matrix, identity_like, require_matrices, symmetric
from tensorbow.ops.linalg import matrix_transpose, square_dims
from tensorbow.ops.linear_equations import Cholesky, MatrixTriangularSolve, cholesky_solve
from tensorbow.ops.matmul import matmul
from tensorbow.ops.matrix_bands import band_of
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import Array, TensorSpec

__all__ = ["matrix_solve_ls", "qr", "self_adjoint_eig", "self_adjoint_eigvals", "svd"]


def _row(x: Tensor) -> Tensor:
    return expand_dims(x, -2)


def _column(x: Tensor) -> Tensor:
    return expand_dims(x, -1)


def _reciprocal_gaps(values: Tensor) -> Tensor:
    """F[i, j] = 1 / (values[j] - values[i]), 0 on the diagonal: infinite for equal values."""
    identity = identity_like(values)
    return subtract(reciprocal(add(subtract(_row(values), _column(values)), identity)), identity)


# QR -----------------------------------------------------------------------------------------------------


def _qr_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    (x,) = inputs
    require_matrices("Qr", x)
    *lead, rows, columns = x.dims
    rank = rows if attrs["full_matrices"] else _smaller(rows, columns)
    return [TensorSpec((*lead, rows, rank), x.dtype), TensorSpec((*lead, rank, columns), x.dtype)]


def _smaller(rows: int | None, columns: int | None) -> int | None:
    return None if rows is None or columns is None else min(rows, columns)


def _qr(attrs: Attrs, x: Array) -> Sequence[Array]:
    return np.linalg.qr(x, "complete" if attrs["full_matrices"] else "reduced")


def _qr_gradient(op: Operation, gq: Tensor | None, gr: Tensor | None) -> list[Tensor | None]:
    """(gQ + Q C) R^-T, where C is the lower triangle of R gR^T - gQ^T Q, mirrored to the upper one.

    For a wide matrix [X, Y] and R = [U, V], Y's gradient is Q gV and gQ grows by Y gV^T.
    """
    q, r = op.outputs
    (x,) = op.inputs
    gq, gr = (zeros_like(t) if g is None else g for t, g in ((q, gq), (r, gr)))
    rows, columns = (None, None) if x.spec.shape is None else x.spec.shape[-2:]
    if op.attrs["full_matrices"] and (rows is None or columns is None or rows > columns):
        raise UnimplementedError(
            f"gradients: tb.qr with full_matrices has none for more rows than columns, got {x.spec}; leave "
            f"it out, or give the static shape (made at {op.source})"
        )
    rest = None
    if rows is None or columns is None or rows < columns:
        height, width = strided_slice(shape(r), -2), strided_slice(shape(r), -1)
        first, later = number_range(height), number_range(height, width)
        gv = gather(gr, later, axis=-1)
        gq = add(gq, matmul(gather(x, later, axis=-1), gv, transpose_b=True))
        r, gr, rest = gather(r, first, axis=-1), gather(gr, first, axis=-1), matmul(q, gv)
    difference = subtract(matmul(r, gr, transpose_b=True), matmul(gq, q, transpose_a=True))
    mirrored = subtract(matmul(gr, r, transpose_b=True), matmul(q, gq, transpose_a=True))
    middle = add(band_of(difference, -1, 0), subtract(band_of(mirrored, 0, -1), band_of(mirrored, 0, 0)))
    inverse = MatrixTriangularSolve(r, identity_like(MatrixDiagPart(r)), lower=False)
    result = matmul(add(gq, matmul(q, middle)), inverse, transpose_b=True)
    return [result if rest is None else concat([result, rest], -1)]


Qr = define_op(
    "Qr",
    spec=_qr_spec,
    gradient=_qr_gradient,
    kernel=Kernel(prepare=by_matrix("Qr", _qr)),
    inputs=("input",),
    attrs={"full_matrices": False},
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype,) * 2,
    why_cpu=WHY_CPU,
)


@checked
def qr(input: Any, full_matrices: Flag = False, name: Name = None) -> tuple[Tensor, Tensor]:
    """Q with orthonormal columns and upper triangular R with Q R = `input` `[..., m, n]`, floating.

    Q is `[..., m, p]` and R `[..., p, n]`, p = min(m, n), or with `full_matrices` p = m. The gradient needs
    full rank, and for m > n no `full_matrices`.
    """
    q, r = Qr(input, full_matrices=full_matrices, name=name)
    return q, r


@checked
def matrix_solve_ls(
    matrix: Any, rhs: Any, l2_regularizer: NonNegative = 0.0, fast: Flag = True, name: Name = None
) -> Tensor:
    """The X `[..., n, k]` that minimises |A X - B|^2 + `l2_regularizer` |X|^2, A = `matrix` `[..., m, n]`.

    rhs: B `[..., m, k]`. With `fast` by the normal equations and Cholesky, whose error grows with the square
    of A's condition; else by the QR decomposition of A. For m < n without a regulariser X is the solution of
    least norm; n and m must then be known. Raises InvalidArgumentError at run time if A has no full rank.
    """
    with graph_of([matrix, rhs]).as_default(), name_scope(name or "matrix_solve_ls"):
        a, b = as_tensor(matrix), as_tensor(rhs)
        require_same_dtype("matrix_solve_ls", [a.spec, b.spec])
        if a.spec.shape is not None:
            require_matrices("matrix_solve_ls", a.spec, "matrix")
        rows, columns = (None, None) if a.spec.shape is None else a.spec.shape[-2:]
        wide = rows is not None and columns is not None and rows < columns
        if l2_regularizer and not fast:  # rows below: sqrt(l2) X = 0
            identity = identity_like(MatrixDiagPart(matmul(a, a, transpose_a=True)))
            a = concat([a, multiply(float(np.sqrt(l2_regularizer)), identity)], -2)
            b, wide = concat([b, zeros_like(matmul(as_tensor(matrix), b, transpose_a=True))], -2), False
        if fast:
            if wide and not l2_regularizer:
                gram = matmul(a, a, transpose_b=True)
                return matmul(a, cholesky_solve(Cholesky(gram), b), transpose_a=True)
            gram = matmul(a, a, transpose_a=True)
            if l2_regularizer:
                gram = add(gram, multiply(l2_regularizer, identity_like(MatrixDiagPart(gram))))
            return cholesky_solve(Cholesky(gram), matmul(a, b, transpose_a=True))
        if wide:
            q, r = Qr(matrix_transpose(a))
            return matmul(q, MatrixTriangularSolve(r, b, lower=False, adjoint=True))
        q, r = Qr(a)
        return MatrixTriangularSolve.tensor(r, matmul(q, b, transpose_a=True), lower=False)


# Singular values ----------------------------------------------------------------------------------------


def _svd_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    (x,) = inputs
    require_matrices("Svd", x)
    *lead, rows, columns = x.dims
    count = _smaller(rows, columns)
    of_values = TensorSpec((*lead, count), x.dtype)
    if not attrs["compute_uv"]:
        return [of_values]
    left, right = (rows, columns) if attrs["full_matrices"] else (count, count)
    return [of_values, TensorSpec((*lead, rows, left), x.dtype), TensorSpec((*lead, columns, right), x.dtype)]


def _svd(attrs: Attrs, x: Array) -> Sequence[Array]:
    if not attrs["compute_uv"]:
        return [np.linalg.svd(x, compute_uv=False)]
    left, values, right = np.linalg.svd(x, attrs["full_matrices"])
    return [values, left, right.T]


def _svd_gradient(op: Operation, gs: Tensor | None, *rest: Tensor | None) -> list[Tensor | None]:
    """The sum of the terms of s, U and V (Townsend, 2016); U and V are those of the reduced form."""
    (x,) = op.inputs
    gu, gv = rest or (None, None)
    if op.attrs["compute_uv"] and not op.attrs["full_matrices"]:
        s, u, v = op.outputs
    elif gu is None and gv is None:
        s, u, v = Svd(x, compute_uv=True, full_matrices=False)
    else:
        raise UnimplementedError(
            f"gradients: u and v of tb.svd have none with full_matrices; leave it out (made at {op.source})"
        )
    middle = MatrixDiag(gs) if gs is not None else None
    gaps = _reciprocal_gaps(multiply(s, s)) if gu is not None or gv is not None else None
    result = None
    for g, basis, values in ((gu, u, _row(s)), (gv, v, _column(s))):
        if g is None:
            continue
        turned = matmul(basis, g, transpose_a=True)
        rotation = subtract(turned, matmul(g, basis, transpose_a=True))
        term = multiply(multiply(gaps, rotation), values)
        middle = term if middle is None else add(middle, term)
        beside = subtract(g, matmul(basis, turned))  # the part outside of the basis
        scaled = multiply(beside, _row(reciprocal(s)))
        outside = matmul(scaled, v, transpose_b=True) if basis is u else matmul(u, scaled, transpose_b=True)
        result = outside if result is None else add(result, outside)
    inside = matmul(u, matmul(middle, v, transpose_b=True))
    return [inside if result is None else add(result, inside)]


Svd = define_op(
    "Svd",
    spec=_svd_spec,
    gradient=_svd_gradient,
    kernel=Kernel(prepare=by_matrix("Svd", _svd)),
    inputs=("input",),
    attrs={"compute_uv": True, "full_matrices": False},
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype,) * (3 if attrs["compute_uv"] else 1),
    why_cpu=WHY_CPU,
)


@checked
def svd(tensor: Any, full_matrices: Flag = False, compute_uv: Flag = True, name: Name = None) -> Any:
    """Singular values s, and U and V with U diag(s) V^T = `tensor` `[..., m, n]`, floating.

    Returns s `[..., p]`, p = min(m, n), in falling order, U `[..., m, p]` and V `[..., n, p]`; with
    `full_matrices` U is `[..., m, m]` and V `[..., n, n]`; without `compute_uv` s alone. The gradient of U
    and V needs distinct singular values above 0, and no `full_matrices`.
    """
    result = Svd(tensor, compute_uv=compute_uv, full_matrices=full_matrices, name=name)
    return result


# Eigenvalues --------------------------------------------------------------------------------------------


def _eig_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    (x,) = inputs
    dims = square_dims("SelfAdjointEigV2", x)
    return [TensorSpec(dims[:-1], x.dtype), TensorSpec(dims, x.dtype)][: 1 + attrs["compute_v"]]


def _eig(attrs: Attrs, x: Array) -> Sequence[Array]:
    if not np.isfinite(x).all():
        raise np.linalg.LinAlgError  # LAPACK may give any numbers, or hang
    return np.linalg.eigh(symmetric(x)) if attrs["compute_v"] else [np.linalg.eigvalsh(symmetric(x))]


def _eig_gradient(op: Operation, ge: Tensor | None, gv: Tensor | None = None) -> list[Tensor | None]:
    """V (diag(ge) + F * (V^T gV), made symmetric) V^T (Giles, 2008)."""
    if op.attrs["compute_v"]:
        e, v = op.outputs
    else:
        e, v = SelfAdjointEigV2(op.inputs[0], compute_v=True)
    middle = MatrixDiag(ge) if ge is not None else None
    if gv is not None:
        rotation = subtract(matmul(v, gv, transpose_a=True), matmul(gv, v, transpose_a=True))
        term = multiply(0.5, multiply(_reciprocal_gaps(e), rotation))
        middle = term if middle is None else add(middle, term)
    return [matmul(v, matmul(middle, v, transpose_b=True))]


SelfAdjointEigV2 = define_op(
    "SelfAdjointEigV2",
    spec=_eig_spec,
    gradient=_eig_gradient,
    kernel=Kernel(prepare=by_matrix("SelfAdjointEigV2", _eig)),
    inputs=("input",),
    attrs={"compute_v": True},
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype,) * (1 + attrs["compute_v"]),
    why_cpu=WHY_CPU,
)


@checked
def self_adjoint_eig(tensor: Any, name: Name = None) -> tuple[Tensor, Tensor]:
    """Eigenvalues `[..., n]` in rising order, and eigenvectors `[..., n, n]` as columns, of symmetric ones.

    tensor: `[..., n, n]`, floating; the mean of it and its transpose is decomposed. The gradient of the
    eigenvectors needs distinct eigenvalues.
    """
    values, vectors = SelfAdjointEigV2(tensor, compute_v=True, name=name)
    return values, vectors


@checked
def self_adjoint_eigvals(tensor: Any, name: Name = None) -> Tensor:
    """The eigenvalues `[..., n]`, in rising order, of symmetric matrices `[..., n, n]`, floating."""
    return SelfAdjointEigV2.tensor(tensor, compute_v=False, name=name)
