"""Inverse and determinant of square matrices, and of stacks of them.

LAPACK, through NumPy, allocates the result of one matrix: a step allocates the size of
one matrix, never of the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Kernel, KernelCall, Operation, Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import AsDType, Flag, Name, checked, is_tensor
from tensorbow.ops.argument_kinds import CountOrTensor, Counts, numbers_of
from tensorbow.ops.arrays import concat, expand_dims, reshape, squeeze, stack, transpose
from tensorbow.ops.broadcasting import broadcast_to, ones_like, shape, zeros_like
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.diagonals import MatrixDiag, MatrixDiagPart
from tensorbow.ops.elementwise import equal, minimum, multiply, negative, pair, subtract
from tensorbow.ops.elementwise_table import conjugate as conjugate_of
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.filling import zeros
from tensorbow.ops.indexing import gather
from tensorbow.ops.matmul import matmul
from tensorbow.ops.reductions import reduce_min, reduce_prod, reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import slice as box
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import FLOATING, Array, Dims, DType, TensorSpec, bool_, compatible, float32, int32

__all__ = [
    "adjoint",
    "cross",
    "diag",
    "diag_part",
    "eye",
    "matrix_determinant",
    "matrix_diag",
    "matrix_diag_part",
    "matrix_inverse",
    "matrix_set_diag",
    "matrix_transpose",
    "matvec",
    "trace",
]


def square_dims(op: str, x: TensorSpec) -> Dims:
    """The shape; an unknown extent of the matrices is taken from the other."""
    require_dtype(op, x, FLOATING)
    if x.rank < 2:
        raise InvalidArgumentError(f"{op}: the input is {x}, expected square matrices [..., n, n]")
    *lead, rows, columns = x.dims
    if None not in (rows, columns) and rows != columns:
        raise InvalidArgumentError(f"{op}: the input is {x}, expected square matrices [..., n, n]")
    extent = columns if rows is None else rows
    return (*lead, extent, extent)


def each_matrix(stack: Array) -> list[tuple[int, ...]]:
    """The index of each matrix of a stack [..., m, n]."""
    return list(np.ndindex(*stack.shape[:-2]))


# Inverse ----------------------------------------------------------------------------------------------


def _inverse_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(square_dims("MatrixInverse", inputs[0]), inputs[0].dtype)


def _prepare_inverse(call: KernelCall) -> Callable[[], None]:
    (x,), (out,) = call.inputs, call.outputs
    source = np.swapaxes(x, -1, -2) if call.attrs["adjoint"] else x
    indices = each_matrix(x)

    def run() -> None:
        for index in indices:
            try:
                out[index] = np.linalg.inv(source[index])
            except np.linalg.LinAlgError:
                which = f" {list(index)}" if index else ""
                raise InvalidArgumentError(
                    f"MatrixInverse: the input{which} is not invertible; add a multiple of the identity"
                ) from None

    return run


def _inverse_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """-inv^T g inv^T; with `adjoint`, its transpose."""
    inverse = op.outputs[0]
    if op.attrs["adjoint"]:
        return [negative(matmul(inverse, matmul(g, inverse, transpose_a=True)))]
    return [negative(matmul(inverse, matmul(g, inverse, transpose_b=True), transpose_a=True))]


MatrixInverse = define_op(
    "MatrixInverse",
    spec=_inverse_spec,
    gradient=_inverse_gradient,
    kernel=Kernel(prepare=_prepare_inverse),
    inputs=("input",),
    attrs={"adjoint": False},
)


@checked
def matrix_inverse(input: Any, adjoint: Flag = False, name: Name = None) -> Tensor:
    """The inverse of each matrix of `input` `[..., n, n]`, floating; with `adjoint`, of its transpose.

    A singular matrix raises InvalidArgumentError at run time on CPU devices; on GPUs its inverse is NaN.
    """
    return MatrixInverse.tensor(input, adjoint=adjoint, name=name)


# Determinant ------------------------------------------------------------------------------------------


def _determinant_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(square_dims("MatrixDeterminant", inputs[0])[:-2], inputs[0].dtype)


def _prepare_determinant(call: KernelCall) -> Callable[[], None]:
    (x,), (out,) = call.inputs, call.outputs
    indices = each_matrix(x)

    def run() -> None:
        for index in indices:
            out[index] = np.linalg.det(x[index])

    return run


def _determinant_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    scale = multiply(g, op.outputs[0])
    return [multiply(expand_dims(expand_dims(scale, -1), -1), matrix_inverse(op.inputs[0], adjoint=True))]


MatrixDeterminant = define_op(
    "MatrixDeterminant",
    spec=_determinant_spec,
    gradient=_determinant_gradient,
    kernel=Kernel(prepare=_prepare_determinant),
    inputs=("input",),
)


@checked
def matrix_determinant(input: Any, name: Name = None) -> Tensor:
    """The determinant of each matrix of `input` `[..., n, n]`, floating: `[...]`.

    The gradient computes the inverse: see `matrix_inverse` for singular matrices.
    """
    return MatrixDeterminant.tensor(input, name=name)


# Compositions ---------------------------------------------------------------------------------------------


@checked
def eye(
    num_rows: CountOrTensor,
    num_columns: CountOrTensor | None = None,
    batch_shape: Counts = (),
    dtype: AsDType = float32,
    name: Name = None,
) -> Tensor:
    """The identity matrix `[num_rows, num_columns]`, or a stack of them `[*batch_shape, rows, columns]`.

    With sizes that are no constants the step runs in the dynamic mode.
    """
    num_rows, columns = numbers_of(num_rows, num_rows if num_columns is None else num_columns)
    if is_tensor(num_rows) or is_tensor(columns):
        return _eye_of_data(num_rows, columns, batch_shape, dtype, name or "eye")
    one = np.eye(num_rows, columns, dtype=dtype.as_numpy_dtype)
    return constant(np.broadcast_to(one, (*batch_shape, num_rows, columns)), dtype, name=name or "eye")


def _eye_of_data(rows: Any, columns: Any, batch_shape: Dims, dtype: DType, name: str) -> Tensor:
    with graph_of([rows, columns]).as_default(), name_scope(name):
        down, across = (number_range(cast(as_tensor(each), int32)) for each in (rows, columns))
        one = cast(equal(expand_dims(down, 1), across), dtype)
        return broadcast_to(one, concat([constant(np.array(batch_shape, np.int32)), shape(one)], 0))


@checked
def matrix_diag(diagonal: Any, name: Name = None) -> Tensor:
    """Matrices `[..., n, n]` with the diagonals `[..., n]`, zero elsewhere."""
    return MatrixDiag.tensor(diagonal, name=name)


@checked
def matrix_diag_part(input: Any, name: Name = None) -> Tensor:
    """The diagonals `[..., min(m, n)]` of matrices `[..., m, n]`."""
    x = as_tensor(input)
    rows, columns = (None, None) if x.shape.ndims is None else (None, None, *x.spec.dims)[-2:]
    if rows is not None and rows == columns:
        return MatrixDiagPart.tensor(x, name=name)
    with x.graph.as_default(), name_scope(name or "MatrixDiagPart"):
        if rows is not None and columns is not None:
            part = slice(min(rows, columns))
            return MatrixDiagPart.tensor(strided_slice(x, (..., part, part)))
        extents = shape(x)
        shorter = reshape(reduce_min(strided_slice(extents, slice(-2, None))), [1])
        square = concat([strided_slice(extents, slice(-2)), shorter, shorter], 0)
        return MatrixDiagPart.tensor(box(x, zeros_like(extents), square))


@checked
def matrix_set_diag(input: Any, diagonal: Any, name: Name = None) -> Tensor:
    """Matrices `[..., m, n]` with the diagonals `[..., min(m, n)]` in place of their own."""
    with graph_of([input, diagonal]).as_default(), name_scope(name or "MatrixSetDiag"):
        x, new = as_tensor(input), as_tensor(diagonal)
        rows, columns = (None, None) if x.shape.ndims is None else (None, None, *x.spec.dims)[-2:]
        if rows is not None and rows == columns:
            return select(MatrixDiag(ones_like(new, bool_)), MatrixDiag(new), x)
        extents = shape(x)
        height, width = strided_slice(extents, -2), strided_slice(extents, -1)
        down, across = number_range(height), number_range(width)
        shorter = minimum(height, width)
        lead = strided_slice(extents, slice(-2))
        new = reshape(new, concat([lead, reshape(shorter, [1])], 0))
        beyond = zeros(concat([lead, [1]], 0), new.dtype)  # for rows without an element on the diagonal
        of_rows = gather(concat([new, beyond], -1), minimum(down, shorter), axis=-1)
        result = select(equal(expand_dims(down, 1), across), expand_dims(of_rows, -1), x)
        result.set_shape(x.shape)
        return result


@checked
def diag(diagonal: Any, name: Name = None) -> Tensor:
    """A tensor of shape [*d, *d] with `diagonal` `[*d]` at [*i, *i], zero elsewhere; of known rank."""
    x = as_tensor(diagonal)
    if not x.shape.ndims:
        raise InvalidArgumentError(f"diag: expected a tensor of known rank of at least 1, got {x.spec}")
    with x.graph.as_default(), name_scope(name or "Diag"):
        extents = shape(x)
        return reshape(MatrixDiag(reshape(x, [-1])), concat([extents, extents], 0))


@checked
def diag_part(input: Any, name: Name = None) -> Tensor:
    """The diagonal `[*d]` of a tensor of shape [*d, *d]: its elements at [*i, *i]."""
    x = as_tensor(input)
    rank = x.shape.ndims
    if not rank or rank % 2:
        raise InvalidArgumentError(f"diag_part: expected a tensor of known even rank, got {x.spec}")
    first, second = x.spec.dims[: rank // 2], x.spec.dims[rank // 2 :]
    if not compatible(first, second):
        raise InvalidArgumentError(f"diag_part: expected a tensor of shape [*d, *d], got {x.spec}")
    with x.graph.as_default(), name_scope(name or "DiagPart"):
        extents = strided_slice(shape(x), slice(rank // 2))
        extent = reduce_prod(extents)
        return reshape(MatrixDiagPart(reshape(x, stack([extent, extent]))), extents)


@checked
def trace(x: Any, name: Name = None) -> Tensor:
    """The sums of the diagonals of matrices `[..., m, n]`: `[...]`."""
    return reduce_sum(matrix_diag_part(x), -1, name=name)


@checked
def matrix_transpose(a: Any, name: Name = None, conjugate: Flag = False) -> Tensor:
    """The matrices `[..., m, n]` with their axes swapped: `[..., n, m]`. The rank must be known.

    conjugate: of the conjugates of complex numbers.
    """
    tensor = conjugate_of(as_tensor(a)) if conjugate else as_tensor(a)
    rank = tensor.shape.ndims
    if rank is None or rank < 2:
        raise InvalidArgumentError(f"matrix_transpose: expected matrices [..., m, n], got {tensor.spec}")
    return transpose(tensor, [*range(rank - 2), rank - 1, rank - 2], name)


@checked
def adjoint(matrix: Any, name: Name = None) -> Tensor:
    """The conjugates of the matrices `[..., m, n]` with their axes swapped: `[..., n, m]`."""
    return matrix_transpose(matrix, name, conjugate=True)


@checked
def matvec(
    a: Any,
    b: Any,
    transpose_a: Flag = False,
    adjoint_a: Flag = False,
    a_is_sparse: Flag = False,
    b_is_sparse: Flag = False,
    name: Name = None,
) -> Tensor:
    """The products of matrices `[..., m, n]` and vectors `[..., n]`: `[..., m]`; see `matmul`.

    `a_is_sparse`, `b_is_sparse` have no effect.
    """
    with graph_of([a, b]).as_default(), name_scope(name or "MatVec"):
        product = matmul(a, expand_dims(b, -1), transpose_a, adjoint_a=adjoint_a)
        return squeeze(product, [-1])


@checked
def cross(a: Any, b: Any, name: Name = None) -> Tensor:
    """The cross products of vectors `[..., 3]` of one shape."""
    x, y = pair(a, b)
    for tensor in (x, y):
        if tensor.shape.ndims is not None and (not tensor.shape.ndims or tensor.shape[-1] not in (3, None)):
            raise InvalidArgumentError(f"cross: expected vectors [..., 3], got {tensor.spec}")
    if not compatible(x.spec.shape, y.spec.shape):
        raise InvalidArgumentError(f"cross: expected one shape, got {x.spec} and {y.spec}")
    with x.graph.as_default(), name_scope(name or "Cross"):
        next_x, next_y = (gather(each, [1, 2, 0], axis=-1) for each in (x, y))
        last_x, last_y = (gather(each, [2, 0, 1], axis=-1) for each in (x, y))
        return subtract(multiply(next_x, last_y), multiply(last_x, next_y))
