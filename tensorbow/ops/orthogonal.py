"""Orthonormal columns by QR decomposition, for orthogonal initial values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, Kernel, KernelCall
from tensorbow.ops.definition import define_op, require_dtype, require_rank
from tensorbow.specs import FLOATING, TensorSpec


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,) = inputs
    require_dtype("Orthonormal", x, FLOATING)
    require_rank("Orthonormal", x, 2)
    rows, columns = x.dims
    if rows is not None and columns is not None and rows < columns:
        raise InvalidArgumentError(
            f"Orthonormal: the input is {x}, expected at least as many rows as columns"
        )
    return TensorSpec(x.shape, x.dtype)


def _run(call: KernelCall) -> None:
    """Runs LAPACK's QR, which allocates both factors."""
    (x,), (out,) = call.inputs, call.outputs
    factor, triangle = np.linalg.qr(x)
    np.multiply(factor, np.where(np.diagonal(triangle) < 0, -1, 1), out=out)


Orthonormal = define_op(
    "Orthonormal",
    spec=_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(run=_run),
    inputs=("input",),
    doc="Q of input = Q R, R with a non-negative diagonal: uniformly distributed for normal numbers.",
)
