"""Ops that read or write a box of elements of a tensor: slice, padding, `x[...]`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import REQUIRED, Attrs, Kernel, KernelCall, OpDef, Operation, Tensor
from tensorbow.kinds import Name, RefusedError, checked, optional, refuse, whole
from tensorbow.ops.argument_kinds import Extents
from tensorbow.ops.broadcasting import INDEX, as_shape_vector, dims_of_vector, shape
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.specs import Array, TensorSpec, compatible, render_dims

__all__ = ["slice"]

Index: TypeAlias = "tuple[int | str | tuple[int | None, int | None, int | None], ...]"


def _box(begin: Array, extents: Sequence[int]) -> tuple[builtins.slice, ...]:
    return tuple(builtins.slice(int(b), int(b) + e) for b, e in zip(begin, extents, strict=True))


# Slice ----------------------------------------------------------------------------------------------


def _slice_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    x, begin, size = inputs
    require_dtype("Slice", begin, INDEX, "begin")
    wanted = dims_of_vector("Slice", size, "size", open_extents="the rest of the axis")
    if x.shape is None or wanted is None or size.value is None:
        return TensorSpec(wanted if x.shape is None else (None,) * len(x.shape), x.dtype)
    if len(wanted) != len(x.shape):
        raise InvalidArgumentError(
            f"Slice: size has {len(wanted)} entries, the input is {x}: give one per axis"
        )
    if begin.value is None:
        return TensorSpec(wanted, x.dtype)
    if begin.value.shape != (len(wanted),):
        raise InvalidArgumentError(f"Slice: begin is {begin}, the input is {x}: give one entry per axis")
    result: list[int | None] = []
    for axis, (start, extent, full) in enumerate(zip(begin.value.tolist(), wanted, x.shape, strict=True)):
        rest = None if full is None else full - start
        if start < 0 or (rest is not None and not 0 <= (extent or 0) <= rest):
            raise InvalidArgumentError(
                f"Slice: axis {axis} of {x} has no elements {start} to {start + (extent or 0)}; "
                "begin and begin + size must lie in the axis"
            )
        result.append(rest if extent is None else extent)
    return TensorSpec(tuple(result), x.dtype)


def _slice_kernel(call: KernelCall) -> None:
    (x, begin, _), (out,) = call.inputs, call.outputs
    np.copyto(out, x[_box(begin, out.shape)])


def _slice_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    x, begin, _ = op.inputs
    return [SliceGrad(g, begin, shape(x)), None, None]


def _slice_grad_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    gradients, begin, target = inputs
    require_dtype("SliceGrad", begin, INDEX, "begin")
    whole = TensorSpec(dims_of_vector("SliceGrad", target), gradients.dtype)
    if begin.value is None or gradients.shape is None or whole.shape is None:
        return whole
    if not begin.value.shape == (len(whole.shape),) == (len(gradients.shape),):
        raise InvalidArgumentError(
            f"SliceGrad: begin is {begin}, the gradients are {gradients}, the shape is {whole}: "
            "give one entry per axis of the shape"
        )
    for axis, start in enumerate(begin.value.tolist()):
        extent, most = gradients.shape[axis] or 0, whole.shape[axis]
        if start < 0 or (most is not None and start + extent > most):
            raise InvalidArgumentError(
                f"SliceGrad: axis {axis} of {whole} has no elements {start} to {start + extent}, where the "
                "gradients belong; begin and begin + their shape must lie in the axis"
            )
    return whole


def _slice_grad_kernel(call: KernelCall) -> None:
    (g, begin, _), (out,) = call.inputs, call.outputs
    out.fill(0)
    out[_box(begin, g.shape)] = g


def _slice_grad_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [slice(g, op.inputs[1], shape(op.inputs[0])), None, None]


Slice = define_op(
    "Slice",
    spec=_slice_spec,
    gradient=_slice_gradient,
    kernel=_slice_kernel,
    inputs=("input", "begin", "size"),
    shape_inputs=(1, 2),
    strings=True,
)
SliceGrad = define_op(
    "SliceGrad",
    spec=_slice_grad_spec,
    gradient=_slice_grad_gradient,
    kernel=_slice_grad_kernel,
    inputs=("gradients", "begin", "shape"),
    shape_inputs=(1, 2),
    doc="Zeros of `shape`, with the gradients where the slice was taken from.",
)


@checked
def slice(input: Any, begin: Extents, size: Extents, name: Name = None) -> Tensor:
    """The box of `size` that starts at `begin`; both have one entry per axis, size -1 extends to the end.

    Raises InvalidArgumentError if the box exceeds `input`.
    """
    return Slice.tensor(input, as_shape_vector(begin), as_shape_vector(size), name=name)


# Pad ------------------------------------------------------------------------------------------------


def _pad_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    x, paddings = inputs
    require_dtype("Pad", paddings, INDEX, "paddings")
    widths = paddings.value
    if paddings.shape is not None and (len(paddings.shape) != 2 or paddings.shape[1] not in (2, None)):
        raise InvalidArgumentError(
            f"Pad: paddings are {paddings}, expected [rank, 2]: before and after each axis"
        )
    if widths is None:
        return TensorSpec((None,) * len(x.dims), x.dtype)
    if x.shape is None:
        return TensorSpec((None,) * len(widths), x.dtype)
    if len(widths) != len(x.shape):
        raise InvalidArgumentError(
            f"Pad: paddings have {len(widths)} rows, the input is {x}: give one per axis"
        )
    if (widths < 0).any():
        raise InvalidArgumentError(f"Pad: paddings {widths.tolist()} must not be negative; use slice to crop")
    totals = widths.sum(axis=1).tolist()
    return TensorSpec(
        tuple(None if d is None else d + n for d, n in zip(x.shape, totals, strict=True)), x.dtype
    )


def _pad_kernel(call: KernelCall) -> None:
    (x, paddings), (out,) = call.inputs, call.outputs
    out.fill(call.attrs["constant_values"])
    out[_box(paddings[:, 0], x.shape)] = x


def _pad_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    x, paddings = op.inputs
    return [slice(g, strided_slice(paddings, np.s_[:, 0]), shape(x)), None]


Pad = define_op(
    "Pad",
    spec=_pad_spec,
    gradient=_pad_gradient,
    kernel=_pad_kernel,
    inputs=("input", "paddings"),
    attrs={"constant_values": 0},
    shape_inputs=(1,),
    doc="The input with `constant_values` around its axes.",
)


# x[...] -----------------------------------------------------------------------------------------------


_POSITION = optional(whole())


def _to_index(items: Any) -> Index:
    """An index as an attribute: numbers, (start, stop, step), "..." and "new"."""
    index: list[int | str | tuple[int | None, int | None, int | None]] = []
    for item in items if isinstance(items, tuple) else (items,):
        if item is Ellipsis:
            index.append("...")
        elif item is None:
            index.append("new")
        elif isinstance(item, builtins.slice):
            index.append((_number(item.start), _number(item.stop), _number(item.step)))
        else:
            index.append(_number(item) or 0)
    if index.count("...") > 1:
        raise InvalidArgumentError("strided_slice: index can have one ... only")
    return tuple(index)


def _number(item: Any) -> Any:
    try:
        return _POSITION.read(item)
    except RefusedError:
        remedy = "use tb.gather for tensors and lists of positions, tb.slice for tensors as bounds"
        if isinstance(item, str):
            remedy = "this is one tensor, no dictionary of tensors by name"
        raise refuse(
            "strided_slice", "index", "made of integers, slices, ... and None", item, remedy
        ) from None


def numpy_index(index: Index) -> tuple[Any, ...]:
    """The attribute `index` as an index for NumPy arrays that gives a view."""
    special = {"...": Ellipsis, "new": None}
    complete = index if "..." in index else (*index, "...")  # with an ellipsis even scalars give a view
    return tuple(
        special[i] if isinstance(i, str) else builtins.slice(*i) if isinstance(i, tuple) else i
        for i in complete
    )


def _strided_slice_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return sliced_spec("StridedSlice", inputs[0], attrs["index"])


def _strided_slice_grad_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    gradients, target = inputs
    whole = TensorSpec(dims_of_vector("StridedSliceGrad", target), gradients.dtype)
    if whole.shape is not None:
        part = sliced_spec("StridedSliceGrad", whole, attrs["index"])
        if not compatible(part.shape, gradients.shape):
            raise InvalidArgumentError(
                f"StridedSliceGrad: the gradients are {gradients}, the slice of {whole} is {part}; "
                "give the gradients of that slice"
            )
    return whole


def sliced_spec(op: str, x: TensorSpec, index: Index) -> TensorSpec:
    """The spec of `x[index]`. Raises InvalidArgumentError if the index does not fit the shape."""
    dims = x.dims
    used = sum(i not in ("...", "new") for i in index)
    if used > len(dims):
        raise InvalidArgumentError(f"{op}: an index of {used} axes for {x}")
    items = list(index) if "..." in index else [*index, "..."]
    ellipsis = items.index("...")
    items[ellipsis : ellipsis + 1] = [(None, None, None)] * (len(dims) - used)
    result: list[int | None] = []
    rest = list(dims)
    for item in items:
        if isinstance(item, str):  # "new"; "..." has been expanded
            result.append(1)
            continue
        extent = rest.pop(0)
        if isinstance(item, tuple):
            step = builtins.slice(*item)
            if step.step == 0:
                raise InvalidArgumentError(f"{op}: the step of a slice must not be 0")
            result.append(None if extent is None else len(range(*step.indices(extent))))
        elif extent is not None and not -extent <= item < extent:
            raise InvalidArgumentError(f"{op}: index {item} is out of range for {render_dims(dims)}")
    return TensorSpec(tuple(result), x.dtype)


def _strided_slice_kernel(call: KernelCall) -> Callable[[], None]:
    out, source = call.outputs[0], call.inputs[0][numpy_index(call.attrs["index"])]
    return lambda: np.copyto(out, source)


def _strided_slice_grad_kernel(call: KernelCall) -> Callable[[], None]:
    (g, _), (out,) = call.inputs, call.outputs
    target = out[numpy_index(call.attrs["index"])]

    def run() -> None:
        out.fill(0)
        np.copyto(target, g)

    return run


StridedSlice = define_op(
    "StridedSlice",
    spec=_strided_slice_spec,
    gradient=lambda op, g: [StridedSliceGrad(g, shape(op.inputs[0]), index=op.attrs["index"])],
    kernel=Kernel(prepare=_strided_slice_kernel),
    inputs=("input",),
    attrs={"index": REQUIRED},
    strings=True,
)
StridedSliceGrad: OpDef = define_op(
    "StridedSliceGrad",
    spec=_strided_slice_grad_spec,
    gradient=lambda op, g: [StridedSlice(g, index=op.attrs["index"]), None],
    kernel=Kernel(prepare=_strided_slice_grad_kernel),
    inputs=("gradients", "shape"),
    attrs={"index": REQUIRED},
    shape_inputs=(1,),
    doc="Zeros of `shape`, with the gradients where the slice was taken from.",
)


@checked
def strided_slice(input: Any, index: Any, name: Name = None) -> Tensor:
    """`input[index]`: integers, slices with steps, `...` and None, as in NumPy.

    Raises InvalidArgumentError for a position out of range and for tensors as positions.
    """
    return StridedSlice.tensor(input, index=_to_index(index), name=name)
