"""Products of matrices, and of stacks of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Kernel, KernelCall, NodeSpec, Operation, Tensor, name_scope
from tensorbow.kinds import Flag, Name, checked
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import sum_to
from tensorbow.ops.definition import define_op, require_dtype, require_rank, require_same_dtype
from tensorbow.ops.elementwise import pair
from tensorbow.ops.elementwise_table import conjugate
from tensorbow.specs import HALVES, NUMBERS, Array, TensorSpec, as_dtype, broadcast_dims

__all__ = ["matmul"]


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dtype = require_same_dtype("MatMul", inputs)
    require_dtype("MatMul", inputs[0], NUMBERS)
    a, b = inputs
    for what, matrix in (("a", a), ("b", b)):
        if matrix.shape is not None:
            require_rank("MatMul", matrix, 2, what)
    rows, inner = (None, None) if a.shape is None else a.shape
    inner_b, columns = (None, None) if b.shape is None else b.shape
    if attrs["transpose_a"]:
        rows, inner = inner, rows
    if attrs["transpose_b"]:
        inner_b, columns = columns, inner_b
    if inner is not None and inner_b is not None and inner != inner_b:
        marks = ["^T" if attrs[key] else "" for key in ("transpose_a", "transpose_b")]
        raise InvalidArgumentError(
            f"MatMul: a{marks[0]} has {inner} columns and b{marks[1]} {inner_b} rows, of a {a} and b {b}; "
            "they must be equal, see transpose_a and transpose_b"
        )
    return TensorSpec((rows, columns), dtype)


def _kernel(call: KernelCall) -> None:
    a, b = call.inputs
    _multiply(
        a.T if call.attrs["transpose_a"] else a,
        b.T if call.attrs["transpose_b"] else b,
        call.outputs[0],
    )


def _multiply(a: Array, b: Array, out: Array) -> None:
    if as_dtype(out.dtype) in HALVES:  # summed in float32, rounded once
        out[...] = np.matmul(a.astype(np.float32), b.astype(np.float32))
    else:
        np.matmul(a, b, out=out)


def _gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    a, b = map(conjugate, op.inputs)
    if not g.dtype.is_differentiable:
        return [None, None]
    if not op.attrs["transpose_a"]:
        grad_a = matmul(g, b, transpose_b=not op.attrs["transpose_b"])
    else:
        grad_a = matmul(b, g, transpose_a=op.attrs["transpose_b"], transpose_b=True)
    if not op.attrs["transpose_b"]:
        grad_b = matmul(a, g, transpose_a=not op.attrs["transpose_a"])
    else:
        grad_b = matmul(g, a, transpose_a=True, transpose_b=op.attrs["transpose_a"])
    return [grad_a, grad_b]


MatMul = define_op(
    "MatMul",
    spec=_spec,
    gradient=_gradient,
    kernel=_kernel,
    inputs=("a", "b"),
    attrs={"transpose_a": False, "transpose_b": False},
    uniform_dtype=True,
)


def _batch_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    op = "BatchMatMulV2"
    dtype = require_same_dtype(op, inputs)
    require_dtype(op, inputs[0], NUMBERS)
    for what, stack in zip(("x", "y"), inputs, strict=True):
        if stack.shape is not None and len(stack.shape) < 2:
            raise InvalidArgumentError(
                f"{op}: {what} is {stack}, expected rank 2 or more: [..., rows, columns]"
            )
    (*lead_x, rows, inner), (*lead_y, inner_y, columns) = inputs[0].dims, inputs[1].dims
    if attrs["adj_x"]:
        rows, inner = inner, rows
    if attrs["adj_y"]:
        inner_y, columns = columns, inner_y
    if None not in (inner, inner_y) and inner != inner_y:
        raise InvalidArgumentError(
            f"{op}: matrices of x {inputs[0]} have {inner} columns, those of y {inputs[1]} {inner_y} rows; "
            "they must be equal, see transpose_a and transpose_b"
        )
    return TensorSpec((*broadcast_dims(tuple(lead_x), tuple(lead_y)), rows, columns), dtype)


def _batch_scratch(node: NodeSpec) -> list[TensorSpec]:
    """The conjugates of complex inputs of which the adjoints are multiplied."""
    adjoint = zip(node.inputs, (node.attrs["adj_x"], node.attrs["adj_y"]), strict=True)
    return [TensorSpec(x.shape, x.dtype) for x, is_adjoint in adjoint if is_adjoint and x.dtype.is_complex]


def _prepare_batch(call: KernelCall) -> Callable[[], None]:
    spare = iter(call.scratch)
    factors, conjugates = [], []
    for x, is_adjoint in zip(call.inputs, (call.attrs["adj_x"], call.attrs["adj_y"]), strict=True):
        if is_adjoint and x.dtype.kind == "c":
            conjugates.append((x, next(spare)))
            x = conjugates[-1][1]
        factors.append(np.swapaxes(x, -1, -2) if is_adjoint else x)
    (left, right), (out,) = factors, call.outputs

    def run() -> None:
        for x, conjugate_of_x in conjugates:
            np.conjugate(x, out=conjugate_of_x)
        _multiply(left, right, out)

    return run


def _batch_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    x, y = op.inputs
    if not g.dtype.is_differentiable:
        return [None, None]
    adj_x, adj_y = op.attrs["adj_x"], op.attrs["adj_y"]
    if adj_x:
        grad_x = BatchMatMulV2(y, g, adj_x=adj_y, adj_y=True)
    else:
        grad_x = BatchMatMulV2(g, y, adj_y=not adj_y)
    if adj_y:
        grad_y = BatchMatMulV2(g, x, adj_x=True, adj_y=adj_x)
    else:
        grad_y = BatchMatMulV2(x, g, adj_x=not adj_x)
    return [sum_to(grad_x, x), sum_to(grad_y, y)]


BatchMatMulV2 = define_op(
    "BatchMatMulV2",
    spec=_batch_spec,
    gradient=_batch_gradient,
    kernel=Kernel(prepare=_prepare_batch, scratch=_batch_scratch),
    inputs=("x", "y"),
    attrs={"adj_x": False, "adj_y": False},
    uniform_dtype=True,
    doc="Products of the matrices (or of their adjoints) of two stacks, whose leading axes broadcast.",
)


@checked
def matmul(
    a: Any,
    b: Any,
    transpose_a: Flag = False,
    transpose_b: Flag = False,
    adjoint_a: Flag = False,
    adjoint_b: Flag = False,
    *,
    name: Name = None,
) -> Tensor:
    """The matrix product of `a` `[..., rows, inner]` and `b` `[..., inner, columns]`: `[..., rows, columns]`.

    The leading axes broadcast. `transpose_a` (`transpose_b`) transposes the matrices of that input
    first; `adjoint_a` (`adjoint_b`) conjugates them, too. Both have one dtype: any of numbers. Products of
    float16 and bfloat16 are summed in float32; those of integers wrap around.

    Raises InvalidArgumentError for vectors and scalars, leading axes that do not broadcast, inner
    extents that differ, or an input to be both transposed and adjoint.
    """
    x, y = pair(a, b)
    if (transpose_a and adjoint_a) or (transpose_b and adjoint_b):
        which = "a" if transpose_a and adjoint_a else "b"
        raise InvalidArgumentError(
            f"matmul: transpose_{which} and adjoint_{which} are both true; give one of them"
        )
    ranks = x.shape.ndims, y.shape.ndims
    turn_x, turn_y = transpose_a or adjoint_a, transpose_b or adjoint_b
    if None not in ranks and max(r for r in ranks if r is not None) <= 2:
        x, y = conjugate(x) if adjoint_a else x, conjugate(y) if adjoint_b else y
        return MatMul.tensor(x, y, transpose_a=turn_x, transpose_b=turn_y, name=name)
    if ranks[1] == 2 and ranks[0] is not None and not turn_x and _unites(x.spec, y.spec):
        return _united(x, conjugate(y) if adjoint_b else y, turn_y, name)
    x, y = conjugate(x) if transpose_a else x, conjugate(y) if transpose_b else y
    return BatchMatMulV2.tensor(x, y, adj_x=turn_x, adj_y=turn_y, name=name)


def _unites(x: TensorSpec, y: TensorSpec) -> bool:
    """True if static reshapes can join the matrices of x into one tall matrix, and split the result."""
    *lead, inner = x.dims
    unknown = sum(d is None for d in lead)
    return unknown <= 1 and inner not in (None, 0) and None not in y.dims and 0 not in (*lead, *y.dims)


def _united(x: Tensor, y: Tensor, transpose_y: bool, name: str | None) -> Tensor:
    """One product of the joined matrices instead of many with the same right side; so is its gradient."""
    *lead, inner = x.spec.dims
    columns = y.spec.dims[0 if transpose_y else 1]
    with x.graph.as_default(), name_scope(name or "MatMul"):
        product = matmul(reshape(x, [-1, inner]), y, transpose_b=transpose_y)
        return reshape(product, [*(-1 if d is None else d for d in lead), columns])
