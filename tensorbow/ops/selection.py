"""Cast and Select: element-wise ops whose inputs and outputs differ in dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tensorbow.graph import (
    REQUIRED,
    Attrs,
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
from tensorbow.ops.mapped_values import maps_values
from tensorbow.specs import HALVES, DType, TensorSpec, bool_, broadcast_dims, float32

__all__ = ["cast"]


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
@maps_values
def cast(x: Any, dtype: AsDType, name: Name = None) -> Tensor:
    """`x` in another dtype; `x` itself if it has that dtype already.

    Floats are truncated towards zero for integers, and integers wrap around, as NumPy's `astype` does: 300
    becomes 44 as uint8 or int8. A float that the integer dtype cannot hold gives an unspecified integer, so
    clip it before. Nonzero numbers become True. A complex number loses its imaginary part. A
    `tb.SparseTensor` stays one, with its values in the other dtype.
    """
    tensor = as_tensor(x)
    if tensor.dtype == dtype:
        return tensor
    return Cast.tensor(tensor, dtype=dtype, name=name)


def through_float32(function: Callable[[Tensor, str | None], Tensor], x: Any, name: str | None) -> Tensor:
    """`function(x, name)`; of halves its result for float32, rounded once."""
    tensor = as_tensor(x)
    if tensor.dtype not in HALVES:
        return function(tensor, name)
    with tensor.graph.as_default():
        return cast(function(cast(tensor, float32), None), tensor.dtype, name)


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
        sum_to(select(condition, gradient, 0), x),
        sum_to(select(condition, 0, gradient), y),
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


def select(condition: Any, x: Any, y: Any) -> Tensor:
    """`x` where `condition` is true, else `y`; the three broadcast by NumPy's rule, vectors too."""
    with graph_of([condition, x, y]).as_default():
        result: Tensor = Select(condition, *branches_of(x, y))
    return result


def branches_of(x: Any, y: Any) -> list[Tensor]:
    """Both as tensors; a number takes the dtype of the other."""
    typed = [v for v in (x, y) if isinstance(getattr(v, "dtype", None), DType)]
    dtype = typed[0].dtype if typed else None
    return [_branch(v, dtype) for v in (x, y)]


def _branch(value: Any, dtype: DType | None) -> Tensor:
    if dtype is None or isinstance(getattr(value, "dtype", None), DType):
        return as_tensor(value)
    return constant(value, dtype)
