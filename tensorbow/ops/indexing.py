"""Ops with indices as data: gather, its gradient, and one_hot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    NodeSpec,
    Operation,
    Tensor,
    as_tensor,
    name_scope,
    register_tensor_conversion,
)
from tensorbow.kinds import AsDType, AxisNumber, Flag, Name, checked, is_tensor
from tensorbow.ops.argument_kinds import AnyNumber, AxisOrTensor, CountOrTensor, numbers_of
from tensorbow.ops.arrays import concat, reshape, transpose
from tensorbow.ops.axis_order import MovedAxes
from tensorbow.ops.broadcasting import checked_axis, dims_of_vector, shape, size
from tensorbow.ops.constant import constant, require_scalar
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import add, greater_equal, less, logical_and, multiply
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.state import ReadVariable
from tensorbow.specs import (
    Array,
    DType,
    TensorSpec,
    bool_,
    compatible,
    float32,
    int32,
    int64,
    render_dims,
    uint8,
)

__all__ = ["batch_gather", "gather", "one_hot"]

POSITIONS = (int32, int64, uint8)
NO_ROW = -1  # index that stands for no row, where `allow_unused` allows it


# Gather -----------------------------------------------------------------------------------------------


def _gather_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    params, indices = inputs
    require_dtype("GatherV2", indices, POSITIONS, "indices")
    axis = checked_axis("GatherV2", attrs["axis"], params.rank)
    return TensorSpec((*params.dims[:axis], *indices.dims, *params.dims[axis + 1 :]), params.dtype)


def _gather_scratch(node: NodeSpec) -> list[TensorSpec]:
    indices = node.inputs[1]
    return [] if indices.dtype == int64 else [TensorSpec(indices.shape, int64)]  # NumPy's take needs them so


def _positions(call: KernelCall) -> Array:
    """The indices as int64."""
    if not call.scratch:
        return call.inputs[1]
    np.copyto(call.scratch[0], call.inputs[1])
    return call.scratch[0]


def check_positions(op: str, positions: Array, extent: int, allow_unused: bool = False) -> None:
    """Raises InvalidArgumentError naming the first position that is not in [0, extent), nor an allowed -1."""
    least = NO_ROW if allow_unused else 0
    if positions.size and (positions.min() < least or positions.max() >= extent):
        first = int(np.flatnonzero((positions < least) | (positions >= extent))[0])
        index = [int(i) for i in np.unravel_index(first, positions.shape)]
        raise InvalidArgumentError(
            f"{op}: indices{index} = {positions.flat[first]} is not in [0, {extent}); the axis has {extent} "
            "elements, counted from 0: correct the indices, or clip them by tb.clip_by_value"
        )


def _gather_kernel(call: KernelCall) -> None:
    params, positions, (out,) = call.inputs[0], _positions(call), call.outputs
    axis, allow_unused = call.attrs["axis"] % params.ndim, call.attrs["allow_unused"]
    check_positions("GatherV2", positions, params.shape[axis], allow_unused)
    if not out.size:
        return
    if params.shape[axis]:
        np.take(params, positions, axis=axis, out=out, mode="clip")  # "raise" would buffer
    if allow_unused:
        out[(np.s_[:],) * axis + (positions == NO_ROW,)] = 0


def _gather_gradient(op: Operation, g: Tensor) -> list[Any]:
    """Sparse gradient (`IndexedSlices`) for rows of a variable; a dense one for other tensors."""
    params, indices = op.inputs
    if not g.dtype.is_differentiable:
        return [None, None]
    allow_unused = op.attrs["allow_unused"]
    if params.op.definition is ReadVariable and op.attrs["axis"] in (0, -(params.shape.ndims or 0)):
        if indices.shape.ndims != 1:
            count = indices.shape.num_elements()
            g = reshape(g, concat([reshape(size(indices), [1]), strided_slice(shape(params), np.s_[1:])], 0))
            g.set_shape([count, *params.spec.dims[1:]])
            indices = reshape(indices, [-1])
        return [IndexedSlices(g, indices, shape(params)), None]
    whole = GatherGrad(g, indices, shape(params), axis=op.attrs["axis"], allow_unused=allow_unused)
    return [whole, None]


GatherV2 = define_op(
    "GatherV2",
    spec=_gather_spec,
    gradient=_gather_gradient,
    kernel=Kernel(run=_gather_kernel, scratch=_gather_scratch),
    inputs=("params", "indices"),
    attrs={"axis": 0, "allow_unused": False},
    strings=True,
    doc="The slices at the indices along `axis`; with `allow_unused` zeros at an index -1.",
)


@checked
def gather(
    params: Any,
    indices: Any,
    validate_indices: Flag | None = None,
    name: Name = None,
    axis: AxisOrTensor | None = None,
    batch_dims: AxisNumber = 0,
) -> Tensor:
    """The slices of `params` `[..., n, ...]` at `indices` along `axis`, which the axes of `indices` replace.

    `axis` is `batch_dims` by default; `validate_indices` is ignored (TensorFlow's).
    indices: int32, int64 or uint8, of any rank. An index out of [0, n) raises
    InvalidArgumentError at run time on CPU devices.
    batch_dims: number of axes that both begin with; each example has its own indices. A negative one counts
    from the rank of `indices`. The ranks must be known then, and `axis` not be before the others: else
    InvalidArgumentError is raised.
    """
    if isinstance(axis, Tensor):
        return _gather_along(as_tensor(params), as_tensor(indices), axis, batch_dims, name)
    if batch_dims:
        return _gather_by_example(as_tensor(params), as_tensor(indices), axis, batch_dims, name)
    return GatherV2.tensor(params, indices, axis=axis or 0, name=name)


def _gather_along(params: Tensor, indices: Tensor, axis: Tensor, batch_dims: int, name: str | None) -> Tensor:
    """Slices along an axis that depends on data: along the last one, whose place the new axes then leave."""
    depth = indices.shape.ndims
    if batch_dims or depth is None:
        raise InvalidArgumentError(
            f"gather: axis {axis.name} is no constant: expected batch_dims=0 and indices of a known rank, "
            f"got batch_dims={batch_dims} and {indices.spec}; give the axis as a number, or set_shape"
        )
    moved = MovedAxes(params, axis)
    with params.graph.as_default(), name_scope(name or "gather"):
        found: Tensor = GatherV2.tensor(moved.last, indices, axis=-1)
        first = strided_slice(moved.order, slice(-1, None))
        return MovedAxes(found, add(first, constant(list(range(depth)), int32))).back(found)


def _gather_by_example(
    params: Tensor, indices: Tensor, axis: int | None, batch_dims: int, name: str | None
) -> Tensor:
    """Slices at positions in an array whose axes of examples and `axis` are joined."""
    require_dtype("gather", indices.spec, POSITIONS, "indices")
    if params.spec.shape is None or indices.spec.shape is None:
        raise InvalidArgumentError(
            f"gather: expected params and indices of known ranks for batch_dims, got {params.spec} and "
            f"{indices.spec}; give the placeholders shapes"
        )
    x, depth = params.spec.shape, len(indices.spec.shape)
    batch = batch_dims + depth if batch_dims < 0 else batch_dims
    if not 0 <= batch <= depth or batch >= len(x) or not compatible(x[:batch], indices.spec.shape[:batch]):
        raise InvalidArgumentError(
            f"gather: batch_dims={batch_dims} of params {params.spec} and indices {indices.spec}; expected "
            "at most the rank of the indices, below that of params, and equal first extents"
        )
    axis = batch if axis is None else checked_axis("gather", axis, len(x))
    if axis < batch:
        raise InvalidArgumentError(f"gather: axis {axis} is before batch_dims={batch}; expected a later axis")
    others = [k for k in range(batch, len(x)) if k != axis]
    with params.graph.as_default(), name_scope(name or "GatherV2"):
        moved = params if axis == batch else transpose(params, [*range(batch), axis, *others])
        extents = shape(moved)
        lead, extent = strided_slice(extents, slice(0, batch)), strided_slice(extents, batch)
        count = reduce_prod(lead)
        examples = _examples(lead, shape(indices), batch, depth)
        places = cast(indices, int32) if indices.dtype == uint8 else indices
        extent, examples = cast(extent, places.dtype), cast(examples, places.dtype)
        inside = logical_and(greater_equal(places, 0), less(places, extent))
        flat = select(inside, add(places, multiply(examples, extent)), NO_ROW)
        joined = reshape(multiply(count, strided_slice(extents, batch)), [1])
        rows = reshape(moved, concat([joined, strided_slice(extents, slice(batch + 1, None))], 0))
        found: Tensor = GatherV2(rows, flat, axis=0)
        if axis != batch:  # the axes between them go before those of the indices
            between = range(depth, depth + axis - batch)
            rest = range(depth + axis - batch, depth + len(others))
            found = transpose(found, [*range(batch), *between, *range(batch, depth), *rest])
        found.set_shape([*x[:axis], *indices.spec.shape[batch:], *x[axis + 1 :]])
        return found


def _examples(lead: Tensor, extents: Tensor, batch: int, depth: int) -> Tensor:
    """The number of each example in the order of params: [*lead, 1, ...], of rank `depth`.

    lead: the first extents of params. Those of the indices, `extents`, have to be the same: a reshape fails,
    at run time where they are not known before.
    """
    numbers: Tensor | None = None
    for axis in range(batch):
        number, own = strided_slice(lead, axis), strided_slice(extents, slice(axis, axis + 1))
        extent = concat([[1] * axis, own, [1] * (depth - axis - 1)], 0)
        along = reshape(number_range(number), extent, name="params_and_indices_begin_alike")
        numbers = along if numbers is None else add(multiply(numbers, number), along)
    return constant(0) if numbers is None else numbers


@checked
def batch_gather(params: Any, indices: Any, name: Name = None) -> Tensor:
    """The slices of each example of `params` at its row of `indices`: `gather` along the last axis of
    `indices`, of rank 1 or more, with the axes before as `batch_dims`.
    """
    where_to = as_tensor(indices)
    if not where_to.shape.ndims:
        raise InvalidArgumentError(
            f"batch_gather: expected indices of a known rank of 1 or more, got {where_to.spec}; use tb.gather"
        )
    batch = where_to.shape.ndims - 1
    return gather(params, where_to, axis=batch, batch_dims=batch, name=name)


def _gather_grad_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    gradients, indices, target = inputs
    require_dtype("GatherGrad", indices, POSITIONS, "indices")
    whole = TensorSpec(dims_of_vector("GatherGrad", target), gradients.dtype)
    if whole.shape is None:
        return whole
    axis = checked_axis("GatherGrad", attrs["axis"], len(whole.shape))
    if indices.shape is not None:
        expected = (*whole.shape[:axis], *indices.shape, *whole.shape[axis + 1 :])
        if not compatible(expected, gradients.shape):
            raise InvalidArgumentError(
                f"GatherGrad: the gradients are {gradients}, expected {render_dims(expected)}: one slice of "
                f"{whole} for each of indices {indices} along axis {axis}"
            )
    return whole


def _gather_grad_kernel(call: KernelCall) -> None:
    (g, indices, _), (out,), positions = call.inputs, call.outputs, _positions(call)
    axis, allow_unused = call.attrs["axis"] % out.ndim, call.attrs["allow_unused"]
    check_positions("GatherGrad", positions, out.shape[axis], allow_unused)
    out.fill(0)
    rows = np.moveaxis(out, axis, 0)
    moved = np.moveaxis(g, range(axis, axis + indices.ndim), range(indices.ndim))
    if allow_unused and positions.size and positions.min() == NO_ROW:
        used = positions != NO_ROW
        positions, moved = positions[used], moved[used]
    np.add.at(rows, positions, moved)  # adds in order, also for equal indices


GatherGrad = define_op(
    "GatherGrad",
    spec=_gather_grad_spec,
    gradient=lambda op, g: [GatherV2(g, op.inputs[1], **op.attrs), None, None],
    kernel=Kernel(run=_gather_grad_kernel, scratch=_gather_scratch),
    inputs=("gradients", "indices", "shape"),
    attrs={"axis": 0, "allow_unused": False},
    shape_inputs=(2,),
    doc="Zeros of `shape`, to which each slice of the gradients is added at its index, but at no allowed -1.",
)


def _to_dense(slices: IndexedSlices, dtype: DType | None, name: str | None) -> Tensor:
    if slices.dense_shape is None:
        raise InvalidArgumentError(
            f"{slices!r} has no dense_shape, so that it cannot become a tensor; give one"
        )
    return GatherGrad.tensor(
        slices.values, slices.indices, slices.dense_shape, axis=0, allow_unused=True, name=name
    )


register_tensor_conversion(IndexedSlices, _to_dense)


# OneHot -----------------------------------------------------------------------------------------------


def _one_hot_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    """Spec of both ops, whose depth is an attribute or the second input."""
    indices, *by_data = inputs
    require_dtype("one_hot", indices, POSITIONS, "indices")
    for depth in by_data:
        require_dtype("one_hot", depth, (int32, int64), "depth")
    if not by_data and attrs["depth"] < 0:
        raise InvalidArgumentError(f"one_hot: depth is {attrs['depth']}, expected the number of classes")
    if indices.shape is None:
        return TensorSpec(None, attrs["dtype"])
    axis = checked_axis("one_hot", attrs["axis"], len(indices.shape) + 1)
    dims = (*indices.shape[:axis], None if by_data else attrs["depth"], *indices.shape[axis:])
    return TensorSpec(dims, attrs["dtype"])


def _one_hot_kernel(call: KernelCall) -> Callable[[], None]:
    (indices,), (out,), (mask,), attrs = call.inputs, call.outputs, call.scratch, call.attrs
    axis = attrs["axis"] % out.ndim
    expanded = np.expand_dims(indices, axis)
    classes = np.arange(attrs["depth"]).reshape((-1,) + (1,) * (out.ndim - axis - 1))

    def run() -> None:
        np.equal(expanded, classes, out=mask)
        np.copyto(out, attrs["off_value"])
        np.copyto(out, attrs["on_value"], where=mask)

    return run


OneHot = define_op(
    "OneHot",
    spec=_one_hot_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(prepare=_one_hot_kernel, scratch=lambda node: [TensorSpec(node.outputs[0].shape, bool_)]),
    inputs=("indices",),
    attrs={"depth": REQUIRED, "axis": -1, "on_value": 1, "off_value": 0, "dtype": float32},
)


def _one_hot_of_data(call: HostCall) -> Array:
    indices, depth = call.inputs
    attrs = call.attrs
    if depth < 0:
        raise InvalidArgumentError(f"one_hot: depth is {depth}, expected the number of classes")
    axis = checked_axis("one_hot", attrs["axis"], indices.ndim + 1)
    classes = np.arange(int(depth)).reshape((-1,) + (1,) * (indices.ndim - axis))
    dtype = attrs["dtype"].as_numpy_dtype
    on, off = (np.array(attrs[key]).astype(dtype) for key in ("on_value", "off_value"))
    return np.where(np.expand_dims(indices, axis) == classes, on, off)


OneHotOfData = define_op(
    "OneHotOfData",
    spec=_one_hot_spec,
    gradient=NOT_DIFFERENTIABLE,
    host=_one_hot_of_data,
    inputs=("indices", "depth"),
    attrs={"axis": -1, "on_value": 1, "off_value": 0, "dtype": float32},
    doc="OneHot of a depth that only a step knows.",
)


@checked
def one_hot(
    indices: Any,
    depth: CountOrTensor,
    on_value: AnyNumber | None = None,
    off_value: AnyNumber | None = None,
    axis: AxisOrTensor | None = None,
    dtype: AsDType | None = None,
    name: Name = None,
) -> Tensor:
    """`on_value` at each index along a new axis of extent `depth`, `off_value` elsewhere.

    indices `[...]`: int32, int64 or uint8; an index out of range gives only `off_value`. By default the new
    axis is the last, the values are 1 and 0, the dtype is float32. A depth that is no constant makes the step
    run in the dynamic mode.

    Raises InvalidArgumentError for values that the dtype cannot hold.
    """
    if isinstance(axis, Tensor):
        moved = MovedAxes(indices, axis, more=1)
        return moved.back(one_hot(moved.source, depth, on_value, off_value, -1, dtype), name)
    dtype = float32 if dtype is None else dtype
    on, off = 1 if on_value is None else on_value, 0 if off_value is None else off_value
    require_scalar("one_hot", "on_value", on, dtype)
    require_scalar("one_hot", "off_value", off, dtype)
    if dtype == bool_:
        on, off = bool(on), bool(off)
    attrs = {"axis": -1 if axis is None else axis, "on_value": on, "off_value": off, "dtype": dtype}
    (number,) = numbers_of(depth)
    if is_tensor(number):
        return OneHotOfData.tensor(indices, number, **attrs, name=name)
    return OneHot.tensor(indices, depth=number, **attrs, name=name)
