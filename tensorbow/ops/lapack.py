"""Functions of single matrices, by LAPACK through NumPy, as kernels of stacks of matrices.

Each matrix is decomposed on its own, so a step allocates the size of one matrix, never of the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import KernelCall, Tensor
from tensorbow.ops.broadcasting import ones_like
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.diagonals import MatrixDiag
from tensorbow.ops.linalg import each_matrix
from tensorbow.specs import FLOATING, Array, TensorSpec

WHY_CPU = "LAPACK decomposes it on the CPU"


def require_matrices(op: str, x: TensorSpec, what: str = "input") -> None:
    """Raises InvalidArgumentError for other dtypes than floating ones, and for less than two axes."""
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


def by_matrix(op: str, function: Callable[..., Any]) -> Callable[[KernelCall], Callable[[], None]]:
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


def symmetric(x: Array) -> Array:
    """The symmetric part of a matrix."""
    result: Array = 0.5 * x + 0.5 * x.T  # the sum first would overflow
    return result


def identity_like(diagonal: Tensor) -> Tensor:
    """Identity matrices with as many rows as a diagonal `[..., n]` has elements."""
    return MatrixDiag.tensor(ones_like(diagonal))
