"""Ops that rearrange elements: reshape and similar ops are views, transpose and concat copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    Attrs,
    Kernel,
    KernelCall,
    Operation,
    Tensor,
    as_tensor,
    graph_of,
    register_tensor_conversion,
)
from tensorbow.graph.build import DEEPEST
from tensorbow.kinds import ITEMS, Items, Kind, Name, RefusedError, checked, is_tensor
from tensorbow.ops.argument_kinds import AxesOrTensor, AxisOrTensor, Extents
from tensorbow.ops.axis_order import MovedAxes, TransposeBy
from tensorbow.ops.broadcasting import (
    as_shape_vector,
    checked_axis,
    dims_of_vector,
    shape,
)
from tensorbow.ops.constant import make_constant
from tensorbow.ops.definition import define_op, require_same_dtype
from tensorbow.ops.elementwise import subtract
from tensorbow.ops.partial_extents import with_known_extents
from tensorbow.ops.slicing import slice
from tensorbow.specs import DType, TensorSpec, UnknownRankError, compatible, render_dims

__all__ = [
    "concat",
    "expand_dims",
    "parallel_stack",
    "reshape",
    "squeeze",
    "stack",
    "transpose",
]


# Views ----------------------------------------------------------------------------------------------


def _reshape_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    x, target = inputs
    wanted = dims_of_vector("Reshape", target, open_extents="what the others leave")
    if wanted is None or target.value is None:
        return TensorSpec(wanted, x.dtype)
    known = math.prod(d for d in wanted if d is not None)
    free = wanted.count(None)
    if free > 1:
        raise InvalidArgumentError(
            f"Reshape: shape {target.value.tolist()} has more than one -1; give all extents but one"
        )
    if not x.is_static:
        return TensorSpec(wanted, x.dtype)
    if free and known == 0:
        raise InvalidArgumentError(
            f"Reshape: shape is {target.value.tolist()}, expected no 0 beside a -1, which it leaves "
            "undetermined; give the extent"
        )
    if x.size != known if not free else x.size % known:
        expected = f"a multiple of {known}" if free else f"{known}"
        raise InvalidArgumentError(
            f"Reshape: {x} has {x.size} elements, expected {expected} for shape {render_dims(wanted)}; "
            f"give a shape of {x.size} elements"
        )
    return TensorSpec(tuple(x.size // known if d is None else d for d in wanted), x.dtype)


def _in_shape_of_input(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [reshape(g, shape(op.inputs[0]))]


Reshape = define_op(
    "Reshape",
    spec=_reshape_spec,
    gradient=lambda op, g: [*_in_shape_of_input(op, g), None],
    inputs=("tensor", "shape"),
    shape_inputs=(1,),
    alias=((0, 0),),
    strings=True,
)


@checked
def reshape(tensor: Any, shape: Extents, name: Name = None) -> Tensor:
    """The same elements, in row-major order, under another shape; copies nothing.

    One extent of `shape` may be -1 and is inferred. Raises InvalidArgumentError if the sizes differ.
    """
    result: Tensor = Reshape(tensor, as_shape_vector(shape), name=name)
    return with_known_extents(result, shape)


def _expand_dims_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dims = inputs[0].dims
    axis = checked_axis("ExpandDims", attrs["axis"], len(dims) + 1)
    return TensorSpec((*dims[:axis], 1, *dims[axis:]), inputs[0].dtype)


ExpandDims = define_op(
    "ExpandDims",
    spec=_expand_dims_spec,
    gradient=_in_shape_of_input,
    inputs=("input",),
    attrs={"axis": -1},
    alias=((0, 0),),
    strings=True,
)


@checked
def expand_dims(input: Any, axis: AxisOrTensor, name: Name = None) -> Tensor:
    """`input` with an axis of extent 1 inserted as axis `axis` of the result."""
    if is_tensor(axis):
        moved = MovedAxes(input, axis, more=1)
        return moved.back(ExpandDims.tensor(moved.source, axis=-1), name)
    return ExpandDims.tensor(input, axis=axis, name=name)


def _squeeze_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,) = inputs
    dims = x.dims
    if not attrs["axis"]:
        if None in dims:  # it may be 1, so even the rank is unknown
            return TensorSpec(None, x.dtype)
        return TensorSpec(tuple(d for d in dims if d != 1), x.dtype)
    axes = {checked_axis("Squeeze", axis, len(dims)) for axis in attrs["axis"]}
    for axis in sorted(axes):
        if dims[axis] not in (1, None):
            raise InvalidArgumentError(f"Squeeze: axis {axis} of {x} has extent {dims[axis]}, expected 1")
    return TensorSpec(tuple(d for i, d in enumerate(dims) if i not in axes), x.dtype)


Squeeze = define_op(
    "Squeeze",
    spec=_squeeze_spec,
    gradient=_in_shape_of_input,
    inputs=("input",),
    attrs={"axis": ()},
    alias=((0, 0),),
    strings=True,
)


@checked
def squeeze(input: Any, axis: AxesOrTensor = None, name: Name = None) -> Tensor:
    """`input` without the given axes of extent 1, or without all of them.

    Raises InvalidArgumentError when an axis given has another extent.
    """
    if is_tensor(axis):
        moved = MovedAxes(input, axis)
        if moved.numbers is None:
            return Reshape.tensor(moved.last, moved.extents("none"), name=name)
        return Squeeze.tensor(moved.last, axis=moved.numbers, name=name) if moved.numbers else moved.last
    return Squeeze.tensor(input, axis=axis or (), name=name)


# Transpose ------------------------------------------------------------------------------------------


def _transpose_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,) = inputs
    perm = attrs["perm"]
    if perm is None:
        return TensorSpec(x.dims[::-1], x.dtype)
    if sorted(perm) != list(range(len(perm))):
        raise InvalidArgumentError(
            f"Transpose: perm {list(perm)} is no permutation of the axes 0 to rank - 1"
        )
    if x.shape is None:
        return TensorSpec((None,) * len(perm), x.dtype)
    if len(perm) != len(x.shape):
        raise InvalidArgumentError(f"Transpose: perm {list(perm)} has {len(perm)} axes, the input is {x}")
    return TensorSpec(tuple(x.shape[axis] for axis in perm), x.dtype)


def _transpose_kernel(call: KernelCall) -> Callable[[], None]:
    out, source = call.outputs[0], call.inputs[0].transpose(call.attrs["perm"])
    return lambda: np.copyto(out, source)


def _transpose_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    perm = op.attrs["perm"]
    return [transpose(g, None if perm is None else np.argsort(perm).tolist())]


Transpose = define_op(
    "Transpose",
    spec=_transpose_spec,
    gradient=_transpose_gradient,
    kernel=Kernel(prepare=_transpose_kernel),
    inputs=("x",),
    attrs={"perm": None},
    strings=True,
)


@checked
def transpose(a: Any, perm: AxesOrTensor = None, name: Name = None) -> Tensor:
    """`a` with its axis `perm[i]` as axis i; by default the axes are reversed.

    Raises InvalidArgumentError if `perm` is no permutation of the axes.
    """
    if is_tensor(perm):
        return TransposeBy.tensor(a, perm, name=name)
    return Transpose.tensor(a, perm=perm, name=name)


# Concatenation --------------------------------------------------------------------------------------


def _concat_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    if not inputs:
        raise InvalidArgumentError("ConcatV2: expected at least one tensor, got none")
    dtype = require_same_dtype("ConcatV2", inputs)
    shapes = [s.shape for s in inputs if s.shape is not None]
    if not shapes:
        raise UnknownRankError
    rank = len(shapes[0])
    if rank == 0:
        raise InvalidArgumentError("ConcatV2: scalars have no axis to join; use stack")
    axis = checked_axis("ConcatV2", attrs["axis"], rank)
    merged = list(shapes[0])
    for dims in shapes[1:]:
        if not compatible((*merged[:axis], None, *merged[axis + 1 :]), dims):
            raise InvalidArgumentError(
                f"ConcatV2: shapes {' and '.join(render_dims(s) for s in shapes)} must be equal "
                f"in all axes but axis {axis}"
            )
        merged = [d if m is None else m for m, d in zip(merged, dims, strict=True)]
    extents = [None if s.shape is None else s.shape[axis] for s in inputs]
    merged[axis] = None if None in extents else sum(e for e in extents if e is not None)
    return TensorSpec(tuple(merged), dtype)


def _concat_kernel(call: KernelCall) -> Callable[[], None]:
    (out,), axis = call.outputs, call.attrs["axis"] % call.outputs[0].ndim
    pairs, start = [], 0
    for x in call.inputs:
        end = start + x.shape[axis]
        pairs.append((out[(np.s_[:],) * axis + (np.s_[start:end],)], x))
        start = end

    def run() -> None:
        for part, x in pairs:
            np.copyto(part, x)

    return run


def _concat_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """Gradient by slicing: each input's part begins at the joined extent of the inputs before it.

    The extents come from shapes, which are known when a step is compiled; no tensors are joined.
    """
    joined = op.inputs[0]
    parts: list[Tensor | None] = []
    for index, x in enumerate(op.inputs):
        if index:
            joined = ConcatV2(joined, x, axis=op.attrs["axis"])
        parts.append(slice(g, subtract(shape(joined), shape(x)), shape(x)))
    return parts


ConcatV2 = define_op(
    "ConcatV2",
    spec=_concat_spec,
    gradient=_concat_gradient,
    kernel=Kernel(prepare=_concat_kernel),
    inputs=("*values",),
    attrs={"axis": 0},
    uniform_dtype=True,
    strings=True,
)


def _read_joined(value: Any) -> Any:
    if isinstance(value, int):
        raise RefusedError("the arguments are swapped: write tb.concat(values, axis)")
    return ITEMS.read(value)


Joined: TypeAlias = Annotated[Any, Kind(ITEMS.expected, _read_joined)]


@checked
def concat(values: Joined, axis: AxisOrTensor, name: Name = None) -> Tensor:
    """Joins the tensors along `axis`; all other extents and the dtypes must be equal.

    Raises InvalidArgumentError if they are not, or if the list is empty.
    """
    if is_tensor(axis):
        with graph_of([*values, axis]).as_default():
            dtypes = [each.dtype for each in values if is_tensor(each)]
            moved = [MovedAxes(as_tensor(each, *dtypes[:1]), axis) for each in values]
            joined = ConcatV2.tensor(*(each.last for each in moved), axis=-1)
            return moved[0].back(joined, name)
    return ConcatV2.tensor(*values, axis=axis, name=name)


@checked
def stack(values: Items, axis: AxisOrTensor = 0, name: Name = None) -> Tensor:
    """Stacks tensors of one shape and dtype along a new axis `axis`.

    Raises InvalidArgumentError if shapes or dtypes differ, or if the list is empty.
    """
    with graph_of(values).as_default():
        return concat([expand_dims(as_tensor(v), axis) for v in values], axis, name)


@checked
def parallel_stack(values: Items, name: Name = "parallel_stack") -> Tensor:
    """`stack` along axis 0, whose shapes have to be known: each tensor is copied as soon as it is there.

    Raises what `stack` raises, and InvalidArgumentError for a tensor of unknown shape.
    """
    with graph_of(values).as_default():
        tensors = [as_tensor(value) for value in values]
    for number, tensor in enumerate(tensors):
        if not tensor.spec.is_static:
            raise InvalidArgumentError(
                f"parallel_stack: value {number} is {tensor.spec}, expected a shape that is known; use "
                f"tb.stack (made at {tensor.op.source})"
            )
    return stack(tensors, name=name)


# Lists that contain tensors ---------------------------------------------------------------------------


def _convert_sequence(value: Any, dtype: DType | None, name: str | None) -> Tensor:
    """A constant for a list of numbers; a list that contains tensors is stacked in their dtype."""
    tensors = _tensors_in(value)
    if not tensors:
        return make_constant(value, dtype, name=name)
    wanted = tensors[0].dtype if dtype is None else dtype
    with graph_of(tensors).as_default():
        return stack([as_tensor(item, wanted) for item in value], name=name or "packed")


def _tensors_in(value: Any, depth: int = 0) -> list[Any]:
    if isinstance(value, (list, tuple)):
        inner = value if depth < DEEPEST else ()
        return [tensor for item in inner for tensor in _tensors_in(item, depth + 1)]
    return [value] if hasattr(value, "graph") and hasattr(value, "dtype") else []


register_tensor_conversion((list, tuple), _convert_sequence)
