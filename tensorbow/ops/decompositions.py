"""Decompositions of matrices and stacks of them, and linear equations, by LAPACK through NumPy.

Each matrix is decomposed on its own, so a step allocates the size of one matrix, never of the stack.
Gradients are compositions of other ops: Cholesky's after Murray (2016), those of QR, SVD and eigenvectors
after Townsend (2016) and Giles (2008). There are no GPU kernels: without a device request, they run on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Annotated, Any

import numpy as np

from tensorbow.errors import InvalidArgumentError, UnimplementedError
from tensorbow.graph import Attrs, Kernel, KernelCall, Operation, Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Flag, Name, NonNegative, checked, or_tensor, whole
from tensorbow.ops.argument_kinds import numbers_of
from tensorbow.ops.arrays import concat, expand_dims
from tensorbow.ops.broadcasting import ones_like, shape, zeros_like
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.diagonals import MatrixDiag, MatrixDiagPart
from tensorbow.ops.elementwise import (
    add,
    less,
    less_equal,
    log,
    logical_and,
    logical_or,
    multiply,
    negative,
    reciprocal,
    subtract,
)
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.linalg import each_matrix, matrix_transpose, square_dims
from tensorbow.ops.matmul import matmul
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import FLOATING, Array, TensorSpec, compatible, int64

__all__ = [
    "cholesky",
    "cholesky_solve",
    "logdet",
    "matrix_band_part",
    "matrix_solve",
    "matrix_solve_ls",
    "matrix_triangular_solve",
    "qr",
    "self_adjoint_eig",
    "self_adjoint_eigvals",
    "svd",
]

BLOCK = 32  # rows that a triangular solve eliminates at once
WHY_CPU = "LAPACK decomposes it on the CPU"


def _matrices(op: str, x: TensorSpec, what: str = "input") -> None:
    require_dtype(op, x, FLOATING, what)
    if x.rank < 2:
        raise InvalidArgumentError(f"{op}: {what} is {x}, expected matrices [..., m, n]; use tb.expand_dims")


def _decomposed(op: str, call: KernelCall, index: tuple[int, ...], function: Callable[[], Any]) -> Any:
    """The arrays that LAPACK makes of a matrix, or None for a matrix with NaN or infinity."""
    try:
        return function()
    except np.linalg.LinAlgError:
        if not all(np.isfinite(x[index]).all() for x in call.inputs):
            return None
        which = f" {list(index)}" if index else ""
        raise InvalidArgumentError(f"{op}: {REMEDIES[op].format(which)}") from None


REMEDIES = {
    "Cholesky": "the input{} is not positive definite; add a multiple of the identity",
    "Qr": "the decomposition of the input{} failed; scale it",
    "Svd": "the decomposition of the input{} did not converge; scale it",
    "SelfAdjointEigV2": "the decomposition of the input{} did not converge; scale it",
    "MatrixSolve": "the matrix{} is not invertible; use tb.matrix_solve_ls with l2_regularizer",
}


def _prepare(op: str, function: Callable[..., Any]) -> Callable[[KernelCall], Callable[[], None]]:
    """A kernel that calls a function of one matrix of each input; NaN where one is not finite."""

    def prepare(call: KernelCall) -> Callable[[], None]:
        indices = each_matrix(call.inputs[0])

        def run() -> None:
            for index in indices:
                parts = [x[index] for x in call.inputs]
                results = _decomposed(op, call, index, partial(function, call.attrs, *parts))
                for position, out in enumerate(call.outputs):
                    out[index] = np.nan if results is None else results[position]

        return run

    return prepare


def _symmetric(x: Array) -> Array:
    result: Array = 0.5 * x + 0.5 * x.T  # the sum first would overflow
    return result


def _band(x: Tensor, lower: int | Tensor, upper: int | Tensor) -> Tensor:
    """The elements at most so many places below and above the diagonal; a negative number: all of them."""
    extents = shape(x)
    rows = expand_dims(number_range(strided_slice(extents, -2)), 1)
    columns = number_range(strided_slice(extents, -1))
    conditions = []
    for places, most in ((subtract(rows, columns), lower), (subtract(columns, rows), upper)):
        if isinstance(most, Tensor):
            kept = cast(most, int64)
            conditions.append(logical_or(less(kept, 0), less_equal(cast(places, int64), kept)))
        elif most >= 0:
            conditions.append(less_equal(places, most))
    if not conditions:
        return x
    return select(reduce(logical_and, conditions), x, 0)


@checked
def matrix_band_part(
    input: Any,
    num_lower: Annotated[Any, or_tensor(whole())],
    num_upper: Annotated[Any, or_tensor(whole())],
    name: Name = None,
) -> Tensor:
    """Matrices `[..., m, n]` with zeros outside of a band around the diagonal.

    num_lower, num_upper: diagonals to keep below and above the main one; a negative number keeps all:
    (-1, 0) is the lower triangle, (0, 0) the diagonal.
    """
    x = as_tensor(input)
    if x.shape.ndims is not None and x.shape.ndims < 2:
        raise InvalidArgumentError(f"matrix_band_part: expected matrices [..., m, n], got {x.spec}")
    with x.graph.as_default(), name_scope(name or "MatrixBandPart"):
        result = _band(x, *numbers_of(num_lower, num_upper))
        if x.spec.shape is not None:
            result.set_shape(x.shape)
        return result


def _identity_like(diagonal: Tensor) -> Tensor:
    return MatrixDiag.tensor(ones_like(diagonal))


def _row(x: Tensor) -> Tensor:
    return expand_dims(x, -2)


def _column(x: Tensor) -> Tensor:
    return expand_dims(x, -1)


def _reciprocal_gaps(values: Tensor) -> Tensor:
    """F[i, j] = 1 / (values[j] - values[i]), 0 on the diagonal: infinite for equal values."""
    identity = _identity_like(values)
    return subtract(reciprocal(add(subtract(_row(values), _column(values)), identity)), identity)


# Cholesky -----------------------------------------------------------------------------------------------


def _cholesky_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """L^-T (P + P^T) L^-1 / 2, where P is the lower triangle of L^T g, its diagonal halved (Murray, 2016)."""
    (factor,) = op.outputs
    halved = multiply(0.5, MatrixDiag(MatrixDiagPart(matmul(factor, g, transpose_a=True))))
    lower = subtract(_band(matmul(factor, g, transpose_a=True), -1, 0), halved)
    upper = subtract(_band(matmul(g, factor, transpose_a=True), 0, -1), halved)
    inverse = MatrixTriangularSolve(factor, _identity_like(MatrixDiagPart(factor)), lower=True)
    middle = multiply(0.5, add(lower, upper))
    return [matmul(inverse, matmul(middle, inverse), transpose_a=True)]


Cholesky = define_op(
    "Cholesky",
    spec=lambda inputs, attrs: TensorSpec(square_dims("Cholesky", inputs[0]), inputs[0].dtype),
    gradient=_cholesky_gradient,
    kernel=Kernel(prepare=_prepare("Cholesky", lambda attrs, x: [np.linalg.cholesky(_symmetric(x))])),
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
        _matrices(op, rhs, "rhs")
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
    kernel=Kernel(prepare=_prepare("MatrixSolve", _solve)),
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
        result[block] = np.linalg.solve(triangle[block, block], left)
    return [result]


def _triangular_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    (x,) = op.outputs
    lower, adjoint = op.attrs["lower"], op.attrs["adjoint"]
    of_rhs = MatrixTriangularSolve(op.inputs[0], g, lower=lower, adjoint=not adjoint)
    first, second = (x, of_rhs) if adjoint else (of_rhs, x)
    of_matrix = negative(matmul(first, second, transpose_b=True))
    return [_band(of_matrix, -1, 0) if lower else _band(of_matrix, 0, -1), of_rhs]


MatrixTriangularSolve = define_op(
    "MatrixTriangularSolve",
    spec=_solve_spec("MatrixTriangularSolve"),
    gradient=_triangular_gradient,
    kernel=Kernel(prepare=_prepare("MatrixTriangularSolve", _triangular_solve)),
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
        if a.spec.shape is not None:
            _matrices("matrix_solve_ls", a.spec, "matrix")
        rows, columns = (None, None) if a.spec.shape is None else a.spec.shape[-2:]
        wide = rows is not None and columns is not None and rows < columns
        if l2_regularizer and not fast:  # rows below: sqrt(l2) X = 0
            identity = _identity_like(MatrixDiagPart(matmul(a, a, transpose_a=True)))
            a = concat([a, multiply(float(np.sqrt(l2_regularizer)), identity)], -2)
            b, wide = concat([b, zeros_like(matmul(as_tensor(matrix), b, transpose_a=True))], -2), False
        if fast:
            if wide and not l2_regularizer:
                gram = matmul(a, a, transpose_b=True)
                return matmul(a, cholesky_solve(Cholesky(gram), b), transpose_a=True)
            gram = matmul(a, a, transpose_a=True)
            if l2_regularizer:
                gram = add(gram, multiply(l2_regularizer, _identity_like(MatrixDiagPart(gram))))
            return cholesky_solve(Cholesky(gram), matmul(a, b, transpose_a=True))
        if wide:
            q, r = Qr(matrix_transpose(a))
            return matmul(q, MatrixTriangularSolve(r, b, lower=False, adjoint=True))
        q, r = Qr(a)
        return MatrixTriangularSolve.tensor(r, matmul(q, b, transpose_a=True), lower=False)


# QR -----------------------------------------------------------------------------------------------------


def _qr_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    (x,) = inputs
    _matrices("Qr", x)
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
    if rows is not None and columns is not None and rows < columns:
        first, later = slice(None, rows), slice(rows, None)
        gv = strided_slice(gr, (..., later))
        gq = add(gq, matmul(strided_slice(x, (..., later)), gv, transpose_b=True))
        r, gr, rest = strided_slice(r, (..., first)), strided_slice(gr, (..., first)), matmul(q, gv)
    difference = subtract(matmul(r, gr, transpose_b=True), matmul(gq, q, transpose_a=True))
    mirrored = subtract(matmul(gr, r, transpose_b=True), matmul(q, gq, transpose_a=True))
    middle = add(_band(difference, -1, 0), subtract(_band(mirrored, 0, -1), _band(mirrored, 0, 0)))
    inverse = MatrixTriangularSolve(r, _identity_like(MatrixDiagPart(r)), lower=False)
    result = matmul(add(gq, matmul(q, middle)), inverse, transpose_b=True)
    return [result if rest is None else concat([result, rest], -1)]


Qr = define_op(
    "Qr",
    spec=_qr_spec,
    gradient=_qr_gradient,
    kernel=Kernel(prepare=_prepare("Qr", _qr)),
    inputs=("input",),
    attrs={"full_matrices": False},
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype,) * 2,
    why_cpu=WHY_CPU,
)


@checked
def qr(input: Any, full_matrices: Flag = False, name: Name = None) -> tuple[Tensor, Tensor]:
    """Q with orthonormal columns and upper triangular R with Q R = `input` `[..., m, n]`, floating.

    Q is `[..., m, p]` and R `[..., p, n]`, p = min(m, n), or with `full_matrices` p = m. The gradient needs
    full rank, for m < n known extents, and for m > n no `full_matrices`.
    """
    q, r = Qr(input, full_matrices=full_matrices, name=name)
    return q, r


# Singular values ----------------------------------------------------------------------------------------


def _svd_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    (x,) = inputs
    _matrices("Svd", x)
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
    kernel=Kernel(prepare=_prepare("Svd", _svd)),
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
    return np.linalg.eigh(_symmetric(x)) if attrs["compute_v"] else [np.linalg.eigvalsh(_symmetric(x))]


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
    kernel=Kernel(prepare=_prepare("SelfAdjointEigV2", _eig)),
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
