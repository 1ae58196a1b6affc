"""Ops on the elements of a TensorArray in one piece of memory, `[size, *element]`, for compiled loops.

`written` says which elements were written, bool `[size]`. Writes work in place: the compiler lets nothing
read the rows as they were before. Only the compiler makes these ops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, Kernel, KernelCall, OpDef
from tensorbow.specs import Array, TensorSpec


def _place(call: KernelCall, rows: Array, index: Array) -> int:
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
    number = _place(call, call.outputs[0], call.inputs[2])
    if call.outputs[1][number]:
        raise InvalidArgumentError(f"element {number} is written twice; write each element once")
    call.outputs[0][number] = call.inputs[3]
    call.outputs[1][number] = True


def _add(call: KernelCall) -> None:
    number = _place(call, call.outputs[0], call.inputs[1])
    call.outputs[0][number] += call.inputs[2]


def _check(call: KernelCall) -> None:
    missing = np.flatnonzero(~call.inputs[1])
    if len(missing):
        raise InvalidArgumentError(
            f"element {missing[0]} of {len(call.inputs[1])} is read before it is written; write it first"
        )


def _same(count: int) -> object:
    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
        return [TensorSpec(each.shape, each.dtype) for each in inputs[:count]]

    return spec


def _defined(name: str, spec: object, run: object, inputs: tuple[str, ...], doc: str, **more: object) -> OpDef:
    return OpDef(name, spec, NOT_DIFFERENTIABLE, {"cpu": Kernel(run=run)}, inputs, doc=doc, **more)  # type: ignore[arg-type]


NewRows = _defined(
    "NewRows",
    lambda inputs, attrs: TensorSpec(attrs["shape"], attrs["dtype"]),
    _new,
    (),
    "Zeros. number: of the array, so that no two arrays share memory.",
    attrs={"shape": REQUIRED, "dtype": REQUIRED, "number": REQUIRED},
)
RowRead = _defined(
    "RowRead",
    lambda inputs, attrs: TensorSpec(inputs[0].extents[1:], inputs[0].dtype),
    _read,
    ("rows", "index", "*written"),
    "An element; refuses one that was not written.",
)
RowWrite = _defined(
    "RowWrite",
    _same(2),
    _write,
    ("rows", "written", "index", "value"),
    "Writes an element, once.",
    alias=((0, 0), (1, 1)),
)
RowAdd = _defined(
    "RowAdd",
    _same(1),
    _add,
    ("rows", "index", "value"),
    "Adds to an element.",
    alias=((0, 0),),
)
RowsWritten = _defined(
    "RowsWritten",
    _same(1),
    _check,
    ("rows", "written"),
    "The rows; refuses if one was not written.",
    alias=((0, 0),),
)
