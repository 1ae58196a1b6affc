"""Writes to slices of variables: `v[1:3].assign(value)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, Kernel, KernelCall, Tensor, as_tensor
from tensorbow.kinds import Name, checked
from tensorbow.ops.definition import define_op, require_same_dtype
from tensorbow.ops.slicing import StridedSlice, numpy_index, sliced_spec
from tensorbow.ops.state import ReadVariable
from tensorbow.specs import TensorSpec, compatible


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    variable, value = inputs
    require_same_dtype("StridedSliceAssign", inputs)
    part = sliced_spec("StridedSliceAssign", variable, attrs["index"])
    if value.shape != () and not compatible(part.shape, value.shape):
        raise InvalidArgumentError(
            f"StridedSliceAssign: the value is {value}, expected {part}, the slice of a variable {variable}, "
            "or a scalar"
        )
    return TensorSpec(variable.shape, variable.dtype)


def _prepare(call: KernelCall) -> Callable[[], None]:
    variable, value = call.inputs
    target = variable[numpy_index(call.attrs["index"])]
    return lambda: np.copyto(target, value)


StridedSliceAssign = define_op(
    "StridedSliceAssign",
    spec=_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(prepare=_prepare),
    inputs=("ref", "value"),
    attrs={"index": REQUIRED},
    alias=((0, 0),),
    writes=(0,),
    why_cpu="NumPy writes to slices of variables",
    doc="ref[index] = value.",
)


@checked
def assign_to_slice(part: Any, value: Any, name: Name = None) -> Tensor:
    """Assigns `value` to a slice of a variable, as in `v[1:3].assign(value)`; gives the variable's new value.

    value: of the slice's shape, or a scalar. The slice has numbers for positions and bounds. On CPU devices.
    Raises InvalidArgumentError for any other tensor than a slice of a variable, and for another shape.
    """
    read = part.op.inputs[0].op if part.op.definition is StridedSlice else None
    if read is None or read.definition is not ReadVariable:
        raise InvalidArgumentError(
            f"assign: expected a slice of a variable with numbers for bounds, as v[1:3], got {part!r}; "
            "tb.scatter_update and tb.scatter_nd_update write at positions that are tensors"
        )
    with part.graph.as_default():
        new = as_tensor(value, part.dtype)
        result: Tensor = StridedSliceAssign(read.inputs[0], new, index=part.op.attrs["index"], name=name)
    return result


Tensor.install_method("assign", assign_to_slice)
