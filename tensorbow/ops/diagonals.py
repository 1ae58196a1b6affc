"""Diagonals of square matrices, and diagonal matrices: each is the other's gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Kernel, KernelCall, OpDef, Operation, Tensor
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec


def _part_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,) = inputs
    if x.rank < 2:
        raise InvalidArgumentError(f"MatrixDiagPart: the input is {x}, expected matrices [..., n, n]")
    *lead, rows, columns = x.dims
    if None not in (rows, columns) and rows != columns:
        raise InvalidArgumentError(f"MatrixDiagPart: {x} holds no square matrices; expected [..., n, n]")
    return TensorSpec((*lead, columns if rows is None else rows), x.dtype)


def _diag_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (diagonal,) = inputs
    if diagonal.rank < 1:
        raise InvalidArgumentError("MatrixDiag: the diagonal is a scalar, expected [..., n]")
    return TensorSpec((*diagonal.dims, diagonal.dims[-1]), diagonal.dtype)


def _view(matrices: Array) -> Array:
    """The diagonals as a view, writable if the matrices are."""
    view: Array = np.einsum("...ii->...i", matrices)
    return view


def _prepare_part(call: KernelCall) -> Callable[[], None]:
    out, source = call.outputs[0], _view(call.inputs[0])
    return lambda: np.copyto(out, source)


def _prepare_diag(call: KernelCall) -> Callable[[], None]:
    (diagonal,), (out,) = call.inputs, call.outputs
    target = _view(out)

    def step() -> None:
        out.fill(0)
        np.copyto(target, diagonal)

    return step


def _part_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [MatrixDiag(g) if g.dtype.is_differentiable else None]


def _diag_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [MatrixDiagPart(g) if g.dtype.is_differentiable else None]


MatrixDiagPart: OpDef = define_op(
    "MatrixDiagPart",
    spec=_part_spec,
    gradient=_part_gradient,
    kernel=Kernel(prepare=_prepare_part),
    inputs=("input",),
    doc="The diagonals [..., n] of matrices [..., n, n].",
)
MatrixDiag: OpDef = define_op(
    "MatrixDiag",
    spec=_diag_spec,
    gradient=_diag_gradient,
    kernel=Kernel(prepare=_prepare_diag),
    inputs=("diagonal",),
    doc="Matrices [..., n, n] with the diagonals [..., n], zero elsewhere.",
)
