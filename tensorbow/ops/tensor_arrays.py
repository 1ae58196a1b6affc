"""Ops of `tb.TensorArray`: a list of tensors, kept while one step runs.

A handle is the array's number in its step. A flow, a float32 scalar, orders the ops of one array: a write
gives the flow that later reads take. A plan has none of these ops: the compiler hands the elements on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    HostCall,
    Operation,
    Tensor,
    get_default_graph,
)
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, Dims, DType, TensorSpec, compatible, float32, int32, int64, render_dims

FLOW = TensorSpec((), float32)
NO_FLOW = np.zeros((), np.float32)


class ElementArray:
    """The elements of a TensorArray in a step: written once each, or summed in an array of gradients."""

    def __init__(self, size: int, *, grows: bool, shape: Dims | None, of: ElementArray | None = None):
        """of: the array whose gradient it is."""
        self.elements: list[Array | None] = [None] * size
        self.grows = grows
        self.shape = shape
        self.of = of
        self.gradients: dict[str, int] = {}  # handles of its gradients, by source

    def write(self, index: int, value: Array) -> None:
        """Sets an element. Raises InvalidArgumentError."""
        count = len(self.elements)
        if index < 0 or (index >= count and not self.grows):
            raise InvalidArgumentError(
                f"index {index} is not in [0, {count}); give a larger size, or dynamic_size=True"
            )
        self.elements.extend([None] * (index + 1 - count))
        before = self.elements[index]
        if self.of is not None:
            self.elements[index] = value if before is None else before + value
            return
        if before is not None:
            raise InvalidArgumentError(f"element {index} is written twice; write each element once")
        if self.shape is not None and not compatible(self.shape, value.shape):
            raise InvalidArgumentError(
                f"element {index} has shape {list(value.shape)}, expected {render_dims(self.shape)}; give "
                "element_shape=None, infer_shape=False for elements of several shapes"
            )
        self.elements[index] = value

    def read_or_zeros(self, indices: Array, dtype: DType) -> list[Array]:
        """Elements, with zeros for those that were not written. Raises InvalidArgumentError."""
        found = [self.elements[int(index)] for index in indices]
        like = next((each for each in found if each is not None), None)
        if like is None and self.shape is not None and None not in self.shape:
            like = np.zeros(self.shape, dtype.as_numpy_dtype)
        if like is None:
            return [self.read(int(index)) for index in indices]
        return [np.zeros_like(like) if each is None else each for each in found]

    def read(self, index: int) -> Array:
        """An element; zeros for a gradient that nothing was added to. Raises InvalidArgumentError."""
        element = self.elements[index] if 0 <= index < len(self.elements) else None
        if element is None and self.of is not None:
            return np.zeros_like(self.of.read(index))
        if element is None:
            raise InvalidArgumentError(
                f"element {index} of {len(self.elements)} is read before it is written; write it first"
            )
        return element


def _arrays(call: HostCall) -> list[ElementArray]:
    arrays: list[ElementArray] = call.step.get("tensor arrays", list)
    return arrays


def _array(call: HostCall) -> ElementArray:
    return _arrays(call)[int(call.inputs[0])]


def _made(call: HostCall) -> list[Array]:
    size = int(call.inputs[0])
    if size < 0:
        raise InvalidArgumentError(f"size is {size}, expected at least 0")
    arrays = _arrays(call)
    arrays.append(ElementArray(size, grows=call.attrs["dynamic_size"], shape=call.attrs["shape"]))
    return [np.asarray(len(arrays) - 1), NO_FLOW]


def _made_gradient(call: HostCall) -> list[Array]:
    array, arrays = _array(call), _arrays(call)
    number = array.gradients.get(call.attrs["source"])
    if number is None:
        number = array.gradients[call.attrs["source"]] = len(arrays)
        arrays.append(ElementArray(len(array.elements), grows=array.grows, shape=array.shape, of=array))
    return [np.asarray(number), NO_FLOW]


def _written(call: HostCall) -> list[Array]:
    _array(call).write(int(call.inputs[1]), call.inputs[2])
    return [NO_FLOW]


def _read(call: HostCall) -> list[Array]:
    return [_array(call).read(int(call.inputs[1]))]


def _gathered(call: HostCall) -> list[Array]:
    array = _array(call)
    if call.attrs["or_zeros"]:
        elements = array.read_or_zeros(call.inputs[1], call.attrs["dtype"])
    else:
        elements = [array.read(int(index)) for index in call.inputs[1]]
    if not elements:
        shape = call.attrs["shape"]
        if shape is None or None in shape:
            raise InvalidArgumentError("no elements, of unknown shape; give element_shape")
        return [np.empty((0, *shape), call.attrs["dtype"].as_numpy_dtype)]
    if len({element.shape for element in elements}) > 1:
        shapes = sorted({str(list(element.shape)) for element in elements})
        raise InvalidArgumentError(f"the elements have the shapes {', '.join(shapes)}, expected one")
    return [np.stack(elements)]


def _scattered(call: HostCall) -> list[Array]:
    array, indices, values = _array(call), call.inputs[1], call.inputs[2]
    if len(indices) != len(values):
        raise InvalidArgumentError(f"{len(indices)} indices for {len(values)} values; give one for each")
    for index, value in zip(indices, values, strict=True):
        array.write(int(index), value)
    return [NO_FLOW]


def _size(call: HostCall) -> list[Array]:
    return [np.asarray(len(_array(call).elements), np.int32)]


def _new_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    return [TensorSpec((), int64), FLOW]


def _rows(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    count = inputs[1].shape[0] if inputs[1].shape else None
    shape = attrs["shape"]
    return TensorSpec(None if shape is None else (count, *shape), attrs["dtype"])


def _source() -> str:
    """The call of `gradients` that is being made: gradients of several calls are added up apart."""
    parts = get_default_graph().unique_name("source", mark_as_used=False).split("/")
    return next((part for part in reversed(parts) if part.startswith("gradients")), "gradients")


def _gradient_array(op: Operation, flow: Tensor) -> tuple[Tensor, Tensor]:
    """Handle and flow of the array that collects the gradients of the array of an op."""
    gradient: tuple[Tensor, Tensor] = TensorArrayGrad(op.inputs[0], flow, source=_source())
    return gradient


def _write_gradient(op: Operation, flow: Tensor) -> list[Tensor | None]:
    handle, flow = _gradient_array(op, flow)
    spec = op.inputs[2].spec
    return [
        None,
        None,
        TensorArrayRead(handle, op.inputs[1], flow, dtype=spec.dtype, shape=spec.shape),
        flow,
    ]


def _read_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    handle, flow = _gradient_array(op, op.inputs[2])
    return [None, None, TensorArrayWrite(handle, op.inputs[1], gradient, flow)]


def _scatter_gradient(op: Operation, flow: Tensor) -> list[Tensor | None]:
    handle, flow = _gradient_array(op, flow)
    spec = op.inputs[2].spec
    shape = None if spec.shape is None else spec.shape[1:]
    return [None, None, TensorArrayGather(handle, op.inputs[1], flow, dtype=spec.dtype, shape=shape), flow]


def _gather_gradient(op: Operation, gradient: Tensor) -> list[Tensor | None]:
    handle, flow = _gradient_array(op, op.inputs[2])
    return [None, None, TensorArrayScatter(handle, op.inputs[1], gradient, flow)]


_ELEMENTS = {"dtype": REQUIRED, "shape": None}
TensorArrayNew = define_op(
    "TensorArrayV3",
    spec=_new_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("size",),
    attrs={"dtype": REQUIRED, "shape": None, "dynamic_size": False},
    host=_made,
    doc="A new array: its handle and flow.",
)
TensorArrayGrad = define_op(
    "TensorArrayGradV3",
    spec=_new_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("handle", "flow"),
    attrs={"source": REQUIRED},
    host=_made_gradient,
    doc="The array of gradients of an array, one for each `source`: its handle and flow.",
)
TensorArrayWrite = define_op(
    "TensorArrayWriteV3",
    spec=lambda inputs, attrs: FLOW,
    gradient=_write_gradient,
    inputs=("handle", "index", "value", "flow"),
    host=_written,
    doc="Writes an element.",
)
TensorArrayRead = define_op(
    "TensorArrayReadV3",
    spec=lambda inputs, attrs: TensorSpec(attrs["shape"], attrs["dtype"]),
    gradient=_read_gradient,
    inputs=("handle", "index", "flow"),
    attrs=_ELEMENTS,
    host=_read,
    doc="An element.",
)
TensorArrayGather = define_op(
    "TensorArrayGatherV3",
    spec=_rows,
    gradient=_gather_gradient,
    inputs=("handle", "indices", "flow"),
    attrs={**_ELEMENTS, "or_zeros": False},
    host=_gathered,
    doc="The elements of some indices as rows of one tensor; with `or_zeros`, zeros where none was written.",
)
TensorArrayScatter = define_op(
    "TensorArrayScatterV3",
    spec=lambda inputs, attrs: FLOW,
    gradient=_scatter_gradient,
    inputs=("handle", "indices", "value", "flow"),
    host=_scattered,
    doc="Writes the rows of a tensor as elements.",
)
TensorArraySize = define_op(
    "TensorArraySizeV3",
    spec=lambda inputs, attrs: TensorSpec((), int32),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("handle", "flow"),
    host=_size,
    doc="The number of elements.",
)
TENSOR_ARRAY_OPS = (
    TensorArrayNew,
    TensorArrayGrad,
    TensorArrayWrite,
    TensorArrayRead,
    TensorArrayGather,
    TensorArrayScatter,
    TensorArraySize,
)
