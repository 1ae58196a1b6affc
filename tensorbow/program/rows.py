"""Ops on the elements of a TensorArray in one piece of memory, `[size, *element]`, for compiled loops.

`written` says which elements were written, bool `[size]`. Writes work in place: the compiler lets nothing
read the rows as they were before. Only the compiler makes these ops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, Kernel, KernelCall, OpDef
from tensorbow.graph.definition import SpecRule
from tensorbow.specs import Array, TensorSpec


def _place(rows: Array, index: Array) -> int:
    number = int(index)
    if not 0 <= number < len(rows):
        raise InvalidArgumentError(
            f"index {number} is not in [0, {len(rows)}); give a larger size, or dynamic_size=True"
        )
    return number


def _new(call: KernelCall) -> None:
    call.outputs[0][...] = 0


def _read(call: KernelCall) -> None:
    rows, index, *written = call.inputs
    number = int(index)
    if not 0 <= number < len(rows) or (written and not written[0][number]):
        raise InvalidArgumentError(
            f"element {number} of {len(rows)} is read before it is written; write it first"
        )
    np.copyto(call.outputs[0], rows[number])


def _write(call: KernelCall) -> None:
    number = _place(call.outputs[0], call.inputs[2])
    if call.outputs[1][number]:
        raise InvalidArgumentError(f"element {number} is written twice; write each element once")
    call.outputs[0][number] = call.inputs[3]
    call.outputs[1][number] = True


def _add(call: KernelCall) -> None:
    number = _place(call.outputs[0], call.inputs[1])
    call.outputs[0][number] += call.inputs[2]


def _check(call: KernelCall) -> None:
    missing = np.flatnonzero(~call.inputs[1])
    if len(missing):
        raise InvalidArgumentError(
            f"element {missing[0]} of {len(call.inputs[1])} is read before it is written; write it first"
        )


def _same(count: int) -> SpecRule:
    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
        return [TensorSpec(each.shape, each.dtype) for each in inputs[:count]]

    return spec


NewRows = OpDef(
    "NewRows",
    spec=lambda inputs, attrs: TensorSpec(attrs["shape"], attrs["dtype"]),
    gradient=NOT_DIFFERENTIABLE,
    kernels={"cpu": Kernel(run=_new)},
    attrs={"shape": REQUIRED, "dtype": REQUIRED, "number": REQUIRED},
    doc="Zeros. number: of the array, so that no two arrays share memory.",
)
RowRead = OpDef(
    "RowRead",
    spec=lambda inputs, attrs: TensorSpec(inputs[0].extents[1:], inputs[0].dtype),
    gradient=NOT_DIFFERENTIABLE,
    kernels={"cpu": Kernel(run=_read)},
    input_names=("rows", "index", "*written"),
    doc="An element; refuses one that was not written.",
)
RowWrite = OpDef(
    "RowWrite",
    spec=_same(2),
    gradient=NOT_DIFFERENTIABLE,
    kernels={"cpu": Kernel(run=_write)},
    input_names=("rows", "written", "index", "value"),
    alias=((0, 0), (1, 1)),
    doc="Writes an element, once.",
)
RowAdd = OpDef(
    "RowAdd",
    spec=_same(1),
    gradient=NOT_DIFFERENTIABLE,
    kernels={"cpu": Kernel(run=_add)},
    input_names=("rows", "index", "value"),
    alias=((0, 0),),
    doc="Adds to an element.",
)
RowsWritten = OpDef(
    "RowsWritten",
    spec=_same(1),
    gradient=NOT_DIFFERENTIABLE,
    kernels={"cpu": Kernel(run=_check)},
    input_names=("rows", "written"),
    alias=((0, 0),),
    doc="The rows; refuses if one was not written.",
)
