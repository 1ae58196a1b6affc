"""Functions of single matrices, by LAPACK through NumPy, as kernels of stacks of matrices.

Each matrix is computed on its own, so a step allocates the size of one matrix, never of the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, KernelCall, Tensor
from tensorbow.ops.broadcasting import ones_like
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.diagonals import MatrixDiag
from tensorbow.ops.linalg import each_matrix
from tensorbow.specs import FLOATING, Array, TensorSpec

WHY_CPU = "it is computed matrix by matrix, by LAPACK, on the CPU"


def require_matrices(op: str, x: TensorSpec, what: str = "input") -> None:
    """Raises InvalidArgumentError for other dtypes than floating ones, and for less than two axes."""
    require_dtype(op, x, FLOATING, what)
    if x.rank < 2:
        raise InvalidArgumentError(f"{op}: {what} is {x}, expected matrices [..., m, n]; use tb.expand_dims")


def _decomposed(op: str, call: KernelCall, index: tuple[int, ...], function: Callable[[], Any]) -> Any:
    """The arrays that LAPACK makes of a matrix, or None for a matrix with NaN or infinity."""
    try:
        return function()
    except np.linalg.LinAlgError as error:
        if not all(np.isfinite(x[index]).all() for x in call.inputs):
            return None
        which = f" {list(index)}" if index else ""
        message = REMEDIES[op].format(which) if op in REMEDIES else f"the input{which} {error}"
        raise InvalidArgumentError(f"{op}: {message}") from None


REMEDIES = {  # for LAPACK's errors; those of other functions say what is wrong with the input
    "Cholesky": "the input{} is not positive definite; add a multiple of the identity",
    "Qr": "the decomposition of the input{} failed; scale it",
    "Svd": "the decomposition of the input{} did not converge; scale it",
    "SelfAdjointEigV2": "the decomposition of the input{} did not converge; scale it",
    "MatrixSolve": "the matrix{} is not invertible; use tb.matrix_solve_ls with l2_regularizer",
}


def by_matrix(op: str, function: Callable[..., Any]) -> Callable[[KernelCall], Callable[[], None]]:
    """A kernel that calls a function of the attributes and one matrix of each input.

    Its results are NaN, and whole numbers 0, where it raises LinAlgError for matrices that are not finite.
    """

    def prepare(call: KernelCall) -> Callable[[], None]:
        indices = each_matrix(call.inputs[0])

        def run() -> None:
            for index in indices:
                parts = [x[index] for x in call.inputs]
                results = _decomposed(op, call, index, partial(function, call.attrs, *parts))
                with np.errstate(over="ignore"):
                    for position, out in enumerate(call.outputs):
                        nothing = 0 if out.dtype.kind == "i" else np.nan
                        out[index] = nothing if results is None else results[position]

        return run

    return prepare


def in_float64(function: Callable[[Array], Any]) -> Callable[..., Any]:
    """A function for `by_matrix` of one finite matrix, computed in float64."""

    def wide(attrs: Attrs, x: Array) -> Any:
        if not np.isfinite(x).all():
            raise np.linalg.LinAlgError
        return function(x.astype(np.float64))

    return wide


def symmetric(x: Array) -> Array:
    """The symmetric part of a matrix."""
    result: Array = 0.5 * x + 0.5 * x.T  # the sum first would overflow
    return result


def identity_like(diagonal: Tensor) -> Tensor:
    """Identity matrices with as many rows as a diagonal `[..., n]` has elements."""
    return MatrixDiag.tensor(ones_like(diagonal))
