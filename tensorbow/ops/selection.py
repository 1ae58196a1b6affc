"""Cast and Select: element-wise ops whose inputs and outputs differ in dtype."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    HostCall,
    Kernel,
    KernelCall,
    Operation,
    Tensor,
    as_tensor,
    graph_of,
)
from tensorbow.kinds import AsDType, Name, checked
from tensorbow.ops.broadcasting import sum_to
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.specs import Array, DType, TensorSpec, bool_, broadcast_dims, int64

__all__ = ["cast", "where"]


def _cast_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(inputs[0].shape, attrs["dtype"])


def _cast_kernel(call: KernelCall) -> None:
    (x,), (out,) = call.inputs, call.outputs
    if x.dtype.kind == "c" and out.dtype.kind == "b":
        np.not_equal(x, 0, out=out)
    else:
        np.copyto(out, x if out.dtype.kind == "c" else x.real, casting="unsafe")


def _cast_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    source: DType = op.inputs[0].dtype
    return [cast(gradient, source) if source.is_differentiable else None]


Cast = define_op(
    "Cast",
    spec=_cast_spec,
    gradient=_cast_gradient,
    kernel=Kernel(run=_cast_kernel, inplace=((0, 0),)),  # planned only if both dtypes are equal
    inputs=("x",),
    attrs={"dtype": REQUIRED},
)


@checked
def cast(x: Any, dtype: AsDType, name: Name = None) -> Tensor:
    """`x` in another dtype; `x` itself if it has that dtype already.

    Floats are truncated towards zero for integers, and integers wrap around, as NumPy's `astype` does: 300
    becomes 44 as uint8 or int8. A float that the integer dtype cannot hold gives an unspecified integer, so
    clip it before. Nonzero numbers become True. A complex number loses its imaginary part.
    """
    tensor = as_tensor(x)
    if tensor.dtype == dtype:
        return tensor
    result: Tensor = Cast(tensor, dtype=dtype, name=name)
    return result


def _select_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("Select", inputs[0], (bool_,), "condition")
    dtype = require_same_dtype("Select", inputs[1:])
    return TensorSpec(reduce(broadcast_dims, [s.dims for s in inputs]), dtype)


def _select_kernel(call: KernelCall) -> None:
    (condition, x, y), (out,) = call.inputs, call.outputs
    np.copyto(out, y)
    np.copyto(out, x, where=condition)


def _select_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    condition, x, y = op.inputs
    if not gradient.dtype.is_differentiable:
        return [None, None, None]
    return [
        None,
        sum_to(where(condition, gradient, 0), x),
        sum_to(where(condition, 0, gradient), y),
    ]


Select = define_op(
    "Select",
    spec=_select_spec,
    gradient=_select_gradient,
    kernel=Kernel(run=_select_kernel, inplace=((0, 2),)),
    inputs=("condition", "x", "y"),
    unknown_dtypes=lambda inputs, attrs: (inputs[1].dtype,),
    strings=True,
)


def _where_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("Where", inputs[0], (bool_,), "condition")
    return TensorSpec((None, None if inputs[0].shape is None else inputs[0].rank), int64)


def _coordinates(call: HostCall) -> Array:
    return np.argwhere(call.inputs[0])


Where = define_op(
    "Where",
    spec=_where_spec,
    gradient=NOT_DIFFERENTIABLE,
    host=_coordinates,
    inputs=("condition",),
    doc="The coordinates of true elements.",
)


@checked
def where(condition: Any, x: Any = None, y: Any = None, name: Name = None) -> Tensor:
    """`x` where `condition` (bool) is true, else `y`; the three broadcast by NumPy's rule.

    Without `x` and `y` the coordinates of true elements, in row-major order: int64 `[n, rank]`, in the
    dynamic mode. Raises InvalidArgumentError for only one of them.
    """
    if (x is None) != (y is None):
        raise InvalidArgumentError("where: got only one of x and y, expected both, or neither")
    if x is None:
        found: Tensor = Where(condition, name=name)
        return found
    typed = [v for v in (x, y) if isinstance(getattr(v, "dtype", None), DType)]
    dtype = typed[0].dtype if typed else None
    with graph_of([condition, x, y]).as_default():
        first, second = (_branch(v, dtype) for v in (x, y))
        result: Tensor = Select(condition, first, second, name=name)
    return result


def _branch(value: Any, dtype: DType | None) -> Tensor:
    if dtype is None or isinstance(getattr(value, "dtype", None), DType):
        return as_tensor(value)
    return constant(value, dtype)
