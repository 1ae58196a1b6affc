"""Tridiagonal matrices: products and linear equations, by their three diagonals.

Equations are solved by Gauss's elimination with exchanges of neighbouring rows, as by LAPACK's gtsv (Golub
and Van Loan, Matrix Computations, section 4.3), for all matrices of a stack at once, on CPU devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    Attrs,
    Graph,
    Kernel,
    KernelCall,
    NodeSpec,
    OpDef,
    Operation,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import Flag, Name, checked, one_of, refuse
from tensorbow.ops.arrays import concat, expand_dims, squeeze, stack
from tensorbow.ops.broadcasting import zeros_like
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.diagonals import MatrixDiagPart
from tensorbow.ops.elementwise import add, multiply, negative
from tensorbow.ops.linalg import matrix_transpose
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import FLOATING, TensorSpec, compatible

__all__ = ["tridiagonal_matmul", "tridiagonal_solve"]

DiagonalsFormat: TypeAlias = Annotated[str, one_of("compact", "matrix", "sequence")]


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    diagonals, rhs = inputs
    require_same_dtype("TridiagonalSolve", inputs)
    require_dtype("TridiagonalSolve", diagonals, FLOATING, "diagonals")
    if (
        diagonals.rank < 2
        or rhs.rank != diagonals.rank
        or not compatible(diagonals.dims[:-1], (*rhs.dims[:-2], 3))
        or not compatible(diagonals.dims[-1:], rhs.dims[-2:-1])
    ):
        raise InvalidArgumentError(
            f"TridiagonalSolve: diagonals {diagonals} and rhs {rhs}, expected [..., 3, n] and [..., n, k]"
        )
    return TensorSpec(rhs.shape, rhs.dtype)


def _scratch(node: NodeSpec) -> list[TensorSpec]:
    """The diagonal, the two above it and the one below it."""
    diagonals = node.inputs[0]
    *lead, _, n = diagonals.extents
    return [TensorSpec((4, *lead, n), diagonals.dtype)]


def _prepare(call: KernelCall) -> Callable[[], None]:
    (diagonals, rhs), (x,), (work,) = call.inputs, call.outputs, call.scratch
    main, above, second, below = work
    n = x.shape[-2]

    def run() -> None:
        np.copyto(above, diagonals[..., 0, :])
        np.copyto(main, diagonals[..., 1, :])
        np.copyto(below, diagonals[..., 2, :])
        second.fill(0)
        np.copyto(x, rhs)
        above[..., n - 1 :] = 0
        for i in range(n - 1):
            swap = np.abs(main[..., i]) < np.abs(below[..., i + 1])
            for first, other in (
                (main[..., i], below[..., i + 1]),
                (above[..., i], main[..., i + 1]),
                (second[..., i], above[..., i + 1]),
                (x[..., i, :], x[..., i + 1, :]),
            ):
                chosen = swap if first.ndim == swap.ndim else swap[..., None]
                kept = first.copy()
                np.copyto(first, other, where=chosen)
                np.copyto(other, kept, where=chosen)
            pivot = main[..., i]
            factor = np.divide(below[..., i + 1], pivot, out=np.zeros_like(pivot), where=pivot != 0)
            main[..., i + 1] -= factor * above[..., i]
            above[..., i + 1] -= factor * second[..., i]
            x[..., i + 1, :] -= factor[..., None] * x[..., i, :]
        if not main.all() and x.size:
            raise InvalidArgumentError(
                "TridiagonalSolve: a matrix is not invertible; add a multiple of the identity"
            )
        for i in reversed(range(n)):
            if i + 1 < n:
                x[..., i, :] -= above[..., i, None] * x[..., i + 1, :]
            if i + 2 < n:
                x[..., i, :] -= second[..., i, None] * x[..., i + 2, :]
            x[..., i, :] /= main[..., i, None]

    return run


def _gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """X = A^-1 B: B's is A^-T g, A's that times -X^T, of which three diagonals are needed."""
    (x,) = op.outputs
    above, main, below = _rows(op.inputs[0])
    transposed = stack([_moved_up(below), main, _moved_down(above)], -2)
    of_rhs = TridiagonalSolve(transposed, g)
    products = (multiply(of_rhs, each) for each in (_moved_up(x, -2), x, _moved_down(x, -2)))
    return [negative(stack([reduce_sum(each, -1) for each in products], -2)), of_rhs]


TridiagonalSolve: OpDef = define_op(
    "TridiagonalSolve",
    spec=_spec,
    gradient=_gradient,
    kernel=Kernel(prepare=_prepare, scratch=_scratch),
    inputs=("diagonals", "rhs"),
    why_cpu="NumPy eliminates row by row",
    doc="The X [..., n, k] with A X = rhs, for A with the diagonals [..., 3, n]: above, main, below.",
)


def _rows(diagonals: Tensor) -> list[Tensor]:
    return [strided_slice(diagonals, (..., k, slice(None))) for k in range(3)]


def _moved_up(x: Tensor, axis: int = -1) -> Tensor:
    """Each element in its predecessor's place along an axis from the end; the last one is 0."""
    rest = (slice(None),) * (-1 - axis)
    first = zeros_like(strided_slice(x, (..., slice(0, 1), *rest)))
    return concat([strided_slice(x, (..., slice(1, None), *rest)), first], axis)


def _moved_down(x: Tensor, axis: int = -1) -> Tensor:
    rest = (slice(None),) * (-1 - axis)
    last = zeros_like(strided_slice(x, (..., slice(-1, None), *rest)))
    return concat([last, strided_slice(x, (..., slice(0, -1), *rest))], axis)


# Functions ------------------------------------------------------------------------------------------------


@checked
def tridiagonal_solve(
    diagonals: Any,
    rhs: Any,
    diagonals_format: DiagonalsFormat = "compact",
    transpose_rhs: Flag = False,
    conjugate_rhs: Flag = False,
    name: Name = None,
) -> Tensor:
    """The X with A X = `rhs`, for tridiagonal matrices A of n rows; float32 or float64, on CPU devices.

    diagonals: [..., 3, n], the diagonal above the main one, whose last element is ignored, the main one, and
        the one below, whose first element is ignored ("compact"); these as a list of tensors, the two others
        of n or n - 1 elements ("sequence"); or A, [..., n, n] ("matrix").
    rhs: [..., n] or [..., n, k], with `transpose_rhs` [..., k, n]. conjugate_rhs: TensorFlow's; numbers are
        real.

    Raises InvalidArgumentError for shapes that do not fit, and at run time for a singular matrix.
    """
    op = "tridiagonal_solve"
    with _graph_of(diagonals, rhs).as_default(), name_scope(name or op):
        compact, right = _compact(op, diagonals, diagonals_format), as_tensor(rhs)
        if right.shape.ndims is not None and right.shape.ndims == (compact.shape.ndims or 0) - 1:
            return squeeze(TridiagonalSolve(compact, expand_dims(right, -1)), [-1])
        return TridiagonalSolve.tensor(compact, matrix_transpose(right) if transpose_rhs else right)


@checked
def tridiagonal_matmul(
    diagonals: Any, rhs: Any, diagonals_format: DiagonalsFormat = "compact", name: Name = None
) -> Tensor:
    """The products of tridiagonal matrices and `rhs` [..., n, k]: see `tridiagonal_solve` for `diagonals`."""
    op = "tridiagonal_matmul"
    with _graph_of(diagonals, rhs).as_default(), name_scope(name or op):
        right = as_tensor(rhs)
        factors = [expand_dims(each, -1) for each in _rows(_compact(op, diagonals, diagonals_format))]
        terms = _moved_up(right, -2), right, _moved_down(right, -2)
        above, main, below = (multiply(factor, term) for factor, term in zip(factors, terms, strict=True))
        return add(add(above, main), below)


def _graph_of(diagonals: Any, rhs: Any) -> Graph:
    return graph_of([*diagonals, rhs] if isinstance(diagonals, (list, tuple)) else [diagonals, rhs])


def _compact(op: str, diagonals: Any, kind: str) -> Tensor:
    """The diagonals as [..., 3, n]."""
    if kind == "compact":
        found = as_tensor(diagonals)
        dims = found.spec.shape
        if dims is None or len(dims) < 2 or dims[-2] not in (3, None):
            raise InvalidArgumentError(f"{op}: diagonals are {found.spec}, expected [..., 3, n]")
        return found
    if kind == "matrix":
        matrix = as_tensor(diagonals)
        main = MatrixDiagPart(matrix)
        above = MatrixDiagPart(_moved_up(matrix))
        return stack([above, main, MatrixDiagPart(_moved_down(matrix))], -2)
    if not isinstance(diagonals, (list, tuple)) or len(diagonals) != 3:
        raise refuse(op, "diagonals", "a list of the three diagonals", diagonals)
    above, main, below = map(as_tensor, diagonals)
    short = [
        None not in (each.shape.ndims, main.shape.ndims)
        and each.shape[-1] is not None
        and main.shape[-1] is not None
        and each.shape[-1] == main.shape[-1] - 1
        for each in (above, below)
    ]
    end = zeros_like(strided_slice(main, (..., slice(0, 1))))
    above = concat([above, end], -1) if short[0] else above
    return stack([above, main, concat([end, below], -1) if short[1] else below], -2)
