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
        self.gradients: dict[str, int] = {}  # handles of its gradients, by call of `gradients`

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
            self.elements[index] = value if before is None else np.add(before, value)
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
        return [np.zeros(like.shape, like.dtype) if each is None else each for each in found]

    def read(self, index: int) -> Array:
        """An element; zeros for a gradient that nothing was added to. Raises InvalidArgumentError."""
        element = self.elements[index] if 0 <= index < len(self.elements) else None
        if element is None and self.of is not None:
            like = self.of.read(index)
            return np.zeros(like.shape, like.dtype)
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
    number = array.gradients.get(call.attrs["gradient_call"])
    if number is None:
        number = array.gradients[call.attrs["gradient_call"]] = len(arrays)
        arrays.append(ElementArray(len(array.elements), grows=array.grows, shape=array.shape, of=array))
    return [np.asarray(number), NO_FLOW]


def _written(call: HostCall) -> Array:
    _array(call).write(int(call.inputs[1]), call.inputs[2])
    return NO_FLOW


def _read(call: HostCall) -> Array:
    return _array(call).read(int(call.inputs[1]))


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


def _concatenated(call: HostCall) -> list[Array]:
    array = _array(call)
    count = len(call.inputs[2]) if len(call.inputs) > 2 else len(array.elements)
    elements = [array.read(index) for index in range(count)]
    shape = call.attrs["shape"]
    if not elements:
        if shape is None or None in shape[1:]:
            raise InvalidArgumentError("no elements, of unknown shape; give element_shape")
        elements = [np.empty((0, *shape[1:]), call.attrs["dtype"].as_numpy_dtype)]
    if any(element.ndim == 0 for element in elements):
        raise InvalidArgumentError("the elements are scalars; use stack")
    if len({element.shape[1:] for element in elements}) > 1:
        shapes = sorted({str(list(element.shape)) for element in elements})
        raise InvalidArgumentError(
            f"the elements have the shapes {', '.join(shapes)}, expected one from the second axis on"
        )
    lengths = [len(element) for element in elements[:count]]
    return [np.concatenate(elements), np.array(lengths, np.int64)]


def pieces(lengths: Sequence[int], rows: int) -> list[tuple[int, int]]:
    """First row and end of each piece of a tensor that is split. Raises InvalidArgumentError."""
    if any(length < 0 for length in lengths) or sum(lengths) != rows:
        raise InvalidArgumentError(
            f"lengths are {list(lengths)}, expected at least 0 and a sum of {rows}, the rows of the value"
        )
    ends = np.cumsum(lengths).tolist()
    return [(end - length, end) for length, end in zip(lengths, ends, strict=True)]


def _split(call: HostCall) -> list[Array]:
    array, value = _array(call), call.inputs[1]
    if value.ndim == 0:
        raise InvalidArgumentError("the value is a scalar, expected rows")
    lengths = [int(length) for length in call.inputs[2]]
    require_lengths(len(lengths), len(array.elements), array.grows)
    for index, (first, end) in enumerate(pieces(lengths, len(value))):
        array.write(index, value[first:end])
    return [NO_FLOW]


def require_lengths(given: int, size: int, grows: bool) -> None:
    """Raises InvalidArgumentError unless an array that cannot grow gets one length for each element."""
    if given != size and not grows:
        raise InvalidArgumentError(f"{given} lengths for {size} elements; give one for each")


def _size(call: HostCall) -> list[Array]:
    return [np.asarray(len(_array(call).elements), np.int32)]


def _new_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    return [TensorSpec((), int64), FLOW]


def _rows(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    count = inputs[1].shape[0] if inputs[1].shape else None
    shape = attrs["shape"]
    return TensorSpec(None if shape is None else (count, *shape), attrs["dtype"])


def _all_rows(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    shape = attrs["shape"]
    rows = TensorSpec(None if shape is None else (None, *shape[1:]), attrs["dtype"])
    return [rows, TensorSpec((None,), int64)]


def _gradient_array(op: Operation, flow: Tensor) -> tuple[Tensor, Tensor]:
    """Handle and flow of the array that collects the gradients of the array of an op."""
    gradient: tuple[Tensor, Tensor] = TensorArrayGrad(
        op.inputs[0], flow, gradient_call=get_default_graph().gradient_call
    )
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


def _concat_gradient(op: Operation, gradient: Tensor | None, _: Tensor | None) -> list[Tensor | None]:
    more = [None] * (len(op.inputs) - 2)
    if gradient is None:
        return [None, None, *more]
    handle, flow = _gradient_array(op, op.inputs[1])
    return [None, TensorArraySplit(handle, gradient, op.outputs[1], flow), *more]


def _split_gradient(op: Operation, flow: Tensor) -> list[Tensor | None]:
    handle, flow = _gradient_array(op, flow)
    spec = op.inputs[1].spec
    shape = None if spec.shape is None else (None, *spec.shape[1:])
    rows, _ = TensorArrayConcat(handle, flow, op.inputs[2], dtype=spec.dtype, shape=shape)
    return [None, rows, None, flow]


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
    gradient=lambda op, handle, flow: [None, flow],  # a gradient array has gradients like any other
    inputs=("handle", "flow"),
    attrs={"gradient_call": REQUIRED},
    scoped=("gradient_call",),
    host=_made_gradient,
    doc="The array of gradients of an array, one for each call of `gradients`: its handle and flow.",
)
TensorArrayWrite = define_op(
    "TensorArrayWriteV3",
    spec=lambda inputs, attrs: FLOW,
    gradient=_write_gradient,
    inputs=("handle", "index", "value", "flow"),
    host=_written,
    keeps=True,
    strings=True,
    doc="Writes an element.",
)
TensorArrayRead = define_op(
    "TensorArrayReadV3",
    spec=lambda inputs, attrs: TensorSpec(attrs["shape"], attrs["dtype"]),
    gradient=_read_gradient,
    inputs=("handle", "index", "flow"),
    attrs=_ELEMENTS,
    host=_read,
    keeps=True,
    strings=True,
    doc="An element.",
)
TensorArrayGather = define_op(
    "TensorArrayGatherV3",
    spec=_rows,
    gradient=_gather_gradient,
    inputs=("handle", "indices", "flow"),
    attrs={**_ELEMENTS, "or_zeros": False},
    host=_gathered,
    strings=True,
    doc="The elements of some indices as rows of one tensor; with `or_zeros`, zeros where none was written.",
)
TensorArrayScatter = define_op(
    "TensorArrayScatterV3",
    spec=lambda inputs, attrs: FLOW,
    gradient=_scatter_gradient,
    inputs=("handle", "indices", "value", "flow"),
    host=_scattered,
    strings=True,
    doc="Writes the rows of a tensor as elements.",
)
TensorArrayConcat = define_op(
    "TensorArrayConcatV3",
    spec=_all_rows,
    gradient=_concat_gradient,
    inputs=("handle", "flow", "*lengths"),
    attrs=_ELEMENTS,
    host=_concatenated,
    doc="The elements one after the other along their first axis, and the length of each; all, or as many as "
    "there are lengths.",
)
TensorArraySplit = define_op(
    "TensorArraySplitV3",
    spec=lambda inputs, attrs: FLOW,
    gradient=_split_gradient,
    inputs=("handle", "value", "lengths", "flow"),
    host=_split,
    doc="Writes pieces of a tensor, of so many rows each, as the elements from 0 on.",
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
    TensorArrayConcat,
    TensorArraySplit,
    TensorArraySize,
)
