"""Exponential, logarithm and square root of square matrices, and of stacks of them.

The methods are those of Higham, Functions of Matrices (SIAM, 2008): scaling and squaring with a Padé
approximant (10.3), inverse scaling and squaring (11.5), and the product form of Denman and Beavers' iteration
(6.29); logarithm and root of a symmetric matrix come from its eigenvalues. Each is computed in float64,
matrix by matrix. The gradient is the function of a block matrix (3.16), so that all orders exist. There are
no GPU kernels: without a device request, they run on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.graph import Attrs, Kernel, OpDef, Operation, Tensor
from tensorbow.kinds import Name, checked
from tensorbow.ops.arrays import concat, reshape
from tensorbow.ops.broadcasting import shape, zeros_like
from tensorbow.ops.control import stop_gradient
from tensorbow.ops.definition import define_op
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import divide, equal, multiply
from tensorbow.ops.lapack import WHY_CPU, by_matrix, in_float64
from tensorbow.ops.linalg import matrix_transpose, square_dims
from tensorbow.ops.reductions import reduce_max, reduce_prod
from tensorbow.ops.selection import select
from tensorbow.ops.shaping import split
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import Array, TensorSpec

__all__ = ["matrix_exponential", "matrix_logarithm", "matrix_square_root"]

MOST_STEPS = 60  # of an iteration, or square roots, before a matrix counts as one without a result
PADE = (
    *(64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0),
    *(
        10559470521600.0,
        670442572800.0,
        33522128640.0,
        1323241920.0,
        40840800.0,
        960960.0,
        16380.0,
        182.0,
        1.0,
    ),
)  # coefficients of degree 13 (Higham, 2005)
PADE_NORM = 5.371920351148152  # 1-norm up to which they are exact in float64
LOG_NORM = 0.25  # distance from the identity up to which 8 nodes give a logarithm in float64

NOT_POSITIVE = "has an eigenvalue that is real and not positive: there is no real result"


class _NoResultError(np.linalg.LinAlgError):
    """Raised for a matrix without a result; the message says why."""


# One matrix -------------------------------------------------------------------------------------------


def _exponential(a: Array) -> Array:
    if not a.size:
        return a
    largest = float(np.abs(a).sum(0).max())
    squarings = max(0, int(np.ceil(np.log2(largest / PADE_NORM)))) if largest > PADE_NORM else 0
    a = a / 2.0**squarings
    one = np.eye(len(a))
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    b = PADE
    odd = a @ (a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2) + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * one)
    even = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2) + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * one
    result = np.linalg.solve(even - odd, even + odd)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(squarings):
            result = result @ result
    return result


def _of_eigenvalues(a: Array, function: Callable[[Array], Array], least: str) -> Array | None:
    """The function of a symmetric matrix; None for another one."""
    if not a.size:
        return a
    if not (a == a.T).all():
        return None
    values, vectors = np.linalg.eigh(a)
    rounding = len(a) * np.finfo(np.float64).eps * np.abs(values).max()
    if least == "at least 0":
        given = len(a) * np.finfo(np.float32).eps * np.abs(values).max()  # a may have been rounded to float32
        values = np.where((values < 0) & (values >= -given) | (np.abs(values) <= rounding), 0, values)
    if values[0] < 0 or (least != "at least 0" and values[0] <= rounding):
        raise _NoResultError(f"has an eigenvalue of {values[0]:.3g}, expected {least}")
    result: Array = (vectors * function(values)) @ vectors.T
    return result


def _iterated_root(a: Array) -> Array:
    """The principal square root by the product form of Denman and Beavers' iteration."""
    one = np.eye(len(a))
    root, product = a, a
    distance = np.inf
    for step in range(MOST_STEPS):
        try:
            inverse = np.linalg.inv(product)
        except np.linalg.LinAlgError:
            raise _NoResultError(NOT_POSITIVE) from None
        scale = 1.0
        if distance > 1e-2:  # scaled while it is far away
            _, logarithm = np.linalg.slogdet(product)
            scale = float(np.exp(-logarithm / (2 * len(a))))
        root = 0.5 * scale * root @ (one + inverse / scale**2)
        product = 0.5 * (one + 0.5 * (scale**2 * product + inverse / scale**2))
        before, distance = distance, float(np.abs(product - one).max())
        if not np.isfinite(distance):
            break
        if distance < 1e-15 * len(a) or (step > 3 and distance < 1e-8 and distance >= before):
            break
    if not _is_root(root, a):
        raise _NoResultError(NOT_POSITIVE)
    return root


def _is_root(root: Array, a: Array) -> bool:
    with np.errstate(all="ignore"):
        distance = np.abs(root @ root - a).max()
        return bool(distance <= 1e-6 * max(np.abs(root).max() ** 2, np.abs(a).max()))


def _square_root(a: Array) -> Array:
    found = _of_eigenvalues(a, np.sqrt, "at least 0")
    if found is not None:
        return found
    try:
        return _iterated_root(a)
    except _NoResultError:  # not invertible; there may be a root of its eigenvalues
        values, vectors = np.linalg.eig(a)
        root: Array
        try:
            root = np.linalg.solve(vectors.T, (vectors * np.sqrt(values.astype(complex))).T).T.real
        except np.linalg.LinAlgError:
            root = np.full(a.shape, np.nan)
        if _is_root(root, a):
            return root
        raise _NoResultError(
            "has no real square root that is found: an eigenvalue is real and negative, or close to 0"
        ) from None


NODES, WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(8))


def _logarithm(a: Array) -> Array:
    found = _of_eigenvalues(a, np.log, "more than 0")
    if found is not None:
        return found
    one, roots = np.eye(len(a)), 0
    while np.abs(a - one).sum(0).max() > LOG_NORM:
        if roots == MOST_STEPS:
            raise _NoResultError("has no logarithm: its square roots do not tend to the identity")
        a, roots = _iterated_root(a), roots + 1
    rest = a - one
    total = sum(
        weight * np.linalg.solve(one + (0.5 + node) * rest, rest)
        for node, weight in zip(NODES, WEIGHTS, strict=True)
    )
    result: Array = 2.0**roots * total
    return result


# Ops --------------------------------------------------------------------------------------------------


def _block_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """The upper right block of f([[A^T, g], [0, A^T]]), for g of largest element 1, by which f is scaled."""
    matrices = op.inputs[0]
    if matrices.shape.ndims is None:  # one axis of matrices
        extents = shape(matrices)
        count = reshape(reduce_prod(strided_slice(extents, slice(-2))), [1])
        one_axis = concat([count, strided_slice(extents, slice(-2, None))], 0)
        flat = [reshape(each, one_axis) for each in (matrices, g)]
        for each in flat:
            each.set_shape([None, None, None])
        return [reshape(_upper_right(op.definition, *flat), extents)]
    return [_upper_right(op.definition, matrices, g)]


def _upper_right(function: OpDef, matrices: Tensor, g: Tensor) -> Tensor:
    turned = matrix_transpose(matrices)
    largest = stop_gradient(reduce_max(absolute(g)))
    scale = select(equal(largest, 0), 1, largest)
    upper = concat([turned, divide(g, scale)], -1)
    lower = concat([zeros_like(turned), turned], -1)
    whole: Tensor = function(concat([upper, lower], -2))
    return multiply(scale, split(split(whole, 2, -2)[0], 2, -1)[1])


def _function(name: str, function: Callable[[Array], Array], doc: str) -> OpDef:
    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        return TensorSpec(square_dims(name, inputs[0]), inputs[0].dtype)

    return define_op(
        name,
        spec=spec,
        gradient=_block_gradient,
        kernel=Kernel(prepare=by_matrix(name, in_float64(lambda a: [function(a)]))),
        inputs=("input",),
        why_cpu=WHY_CPU,
        doc=doc,
    )


MatrixExponential = _function("MatrixExponential", _exponential, "The exponential of square matrices.")
MatrixLogarithm = _function("MatrixLogarithm", _logarithm, "The principal logarithm of square matrices.")
MatrixSquareRoot = _function("MatrixSquareRoot", _square_root, "The principal root of square matrices.")


@checked
def matrix_exponential(input: Any, name: Name = None) -> Tensor:
    """The exponential of each matrix of `input` `[..., n, n]`, floating: the sum of A^k / k!."""
    return MatrixExponential.tensor(input, name=name)


@checked
def matrix_logarithm(input: Any, name: Name = None) -> Tensor:
    """The principal logarithm of each matrix of `input` `[..., n, n]`, floating: the inverse of exp.

    Raises InvalidArgumentError at run time for a matrix with an eigenvalue that is real and not positive.
    """
    return MatrixLogarithm.tensor(input, name=name)


@checked
def matrix_square_root(input: Any, name: Name = None) -> Tensor:
    """The principal square root of each matrix of `input` `[..., n, n]`, floating: its square is the matrix.

    Raises InvalidArgumentError at run time for a matrix without a real one, as with a negative eigenvalue.
    The gradient needs an invertible matrix.
    """
    return MatrixSquareRoot.tensor(input, name=name)
