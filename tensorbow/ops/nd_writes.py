"""Writes of slices at positions along several axes: to variables, and to copies of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Attrs,
    Kernel,
    KernelCall,
    NodeSpec,
    OpDef,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import Flag, Name, checked, refuse
from tensorbow.ops.arrays import concat, reshape, stack
from tensorbow.ops.broadcasting import broadcast_to, ones_like, shape, size
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.elementwise import add, equal, greater_equal, maximum, subtract
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.filling import zeros
from tensorbow.ops.indexing import gather
from tensorbow.ops.nd_indexing import depth_of, flat_positions, parted_extents, scatter_nd
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.scatter import write_rows
from tensorbow.ops.segments import unsorted_segment_max
from tensorbow.ops.selection import cast, select
from tensorbow.specs import NUMERIC, Array, TensorSpec, compatible, int32, int64, render_dims

__all__ = [
    "batch_scatter_update",
    "scatter_nd_add",
    "scatter_nd_sub",
    "scatter_nd_update",
    "tensor_scatter_add",
    "tensor_scatter_sub",
    "tensor_scatter_update",
]


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    variable, indices, updates = inputs
    require_dtype("scatter_nd", variable, NUMERIC, "the variable")
    require_dtype("scatter_nd", indices, (int32, int64), "indices")
    require_same_dtype("scatter_nd", (variable, updates))
    if indices.shape is not None and None not in indices.shape[-1:]:
        depth = indices.shape[-1] if indices.shape else None
        if (
            depth is None
            or depth > variable.rank
            or not compatible((*indices.shape[:-1], *variable.dims[depth:]), updates.shape)
        ):
            raise InvalidArgumentError(
                f"scatter_nd: indices {indices} and updates {updates} for a variable {variable}; expected "
                f"[..., n] with a known n of at most {variable.rank}, and [..., *its extents from n on]"
            )
    return TensorSpec(variable.shape, variable.dtype)


def _scatter(name: str, write: Callable[[Array, Array, Array], None], doc: str) -> OpDef:
    def run(call: KernelCall) -> None:
        (variable, indices, updates), (positions,) = call.inputs, call.scratch
        depth = indices.shape[-1]
        extents, tail = variable.shape[:depth], variable.shape[depth:]
        positions.fill(0)
        flat = indices.reshape(-1, depth)
        for axis, extent in enumerate(extents):
            wrong = np.flatnonzero((flat[:, axis] < 0) | (flat[:, axis] >= extent))
            if len(wrong):
                raise InvalidArgumentError(
                    f"{name}: position {flat[wrong[0]].tolist()} is not in {render_dims(extents)}; correct "
                    "the indices"
                )
            np.multiply(positions, extent, out=positions)
            np.add(positions, flat[:, axis], out=positions)
        # A vector of positions: NumPy writes in its order, so that the last of equal ones stays.
        write(variable.reshape(-1, *tail), positions, updates.reshape(-1, *tail))

    def scratch(node: NodeSpec) -> list[TensorSpec]:
        *lead, _ = node.inputs[1].extents
        return [TensorSpec((math.prod(lead),), int64)]

    return define_op(
        name,
        spec=_spec,
        gradient=NOT_DIFFERENTIABLE,
        kernel=Kernel(run=run, scratch=scratch),
        inputs=("ref", "indices", "updates"),
        alias=((0, 0),),
        writes=(0,),
        why_cpu="NumPy writes at positions along several axes",
        doc=doc,
    )


def _put(variable: Array, positions: Any, updates: Array) -> None:
    variable[positions] = updates


ScatterNdAdd = _scatter("ScatterNdAdd", np.add.at, "ref[indices] += updates; equal positions add up.")
ScatterNdSub = _scatter("ScatterNdSub", np.subtract.at, "ref[indices] -= updates; equal positions add up.")
ScatterNdUpdate = _scatter("ScatterNdUpdate", _put, "ref[indices] = updates; of equal ones the last stays.")


@checked
def scatter_nd_add(
    ref: Any, indices: Any, updates: Any, use_locking: Flag = False, name: Name = None
) -> Tensor:
    """Adds `updates` to a variable [d1, ..., dm] at positions along its first axes; returns its new value.

    indices: int32 or int64 [..., n] with a known n <= m; updates: [..., d(n+1), ..., dm]; those of equal
    positions add up. On CPU devices. Raises InvalidArgumentError for shapes that do not fit, and at run time
    for a position out of range. `use_locking` has no effect.
    """
    return write_rows(ScatterNdAdd, ref, indices, updates, name)


@checked
def scatter_nd_sub(
    ref: Any, indices: Any, updates: Any, use_locking: Flag = False, name: Name = None
) -> Tensor:
    """Subtracts `updates` from a variable at positions, see `scatter_nd_add`."""
    return write_rows(ScatterNdSub, ref, indices, updates, name)


@checked
def scatter_nd_update(
    ref: Any, indices: Any, updates: Any, use_locking: Flag = True, name: Name = None
) -> Tensor:
    """Sets a variable at positions, see `scatter_nd_add`; of equal positions the last one stays."""
    return write_rows(ScatterNdUpdate, ref, indices, updates, name)


@checked
def batch_scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: Flag = True, name: Name = None
) -> Tensor:
    """Sets the rows of each example of a variable; returns its new value. On CPU devices.

    ref: [d1, ..., dn, rows, ...]; indices: int32 or int64 [d1, ..., dn, k], of a known rank of 1 or more;
    updates: [d1, ..., dn, k, ...]. `ref[i1, ..., in, indices[i1, ..., in, j]] = updates[i1, ..., in, j]`; of
    equal rows the last one stays. Raises InvalidArgumentError as `scatter_nd_update` does.
    """
    if not hasattr(ref, "_as_graph_element"):
        raise refuse("batch_scatter_update", "ref", "a variable to write", ref)
    with ref.graph.as_default(), name_scope(name or "batch_scatter_update"):
        rows = as_tensor(indices)
        require_dtype("batch_scatter_update", rows.spec, (int32, int64), "indices")
        if not rows.shape.ndims:
            raise InvalidArgumentError(
                f"batch_scatter_update: indices are {rows.spec}, expected a known rank of 1 or more; use "
                "tb.scatter_nd_update"
            )
        extents = shape(rows)
        columns = [rows]
        for axis in reversed(range(rows.shape.ndims - 1)):
            along = reshape(number_range(extents[axis]), [-1, *[1] * (rows.shape.ndims - 1 - axis)])
            columns.insert(0, broadcast_to(cast(along, rows.dtype), extents))
        return scatter_nd_update(ref, stack(columns, -1), updates)


# Copies of tensors ----------------------------------------------------------------------------------------


@checked
def tensor_scatter_add(tensor: Any, indices: Any, updates: Any, name: Name = None) -> Tensor:
    """`tensor` [d1, ..., dm] with `updates` added at positions: see `scatter_nd`; with gradients."""
    with graph_of([tensor, indices, updates]).as_default(), name_scope(name or "TensorScatterAdd"):
        x = as_tensor(tensor)
        return add(x, scatter_nd(indices, as_tensor(updates, x.dtype), shape(x)))


@checked
def tensor_scatter_sub(tensor: Any, indices: Any, updates: Any, name: Name = None) -> Tensor:
    """`tensor` with `updates` subtracted at positions: see `tensor_scatter_add`."""
    with graph_of([tensor, indices, updates]).as_default(), name_scope(name or "TensorScatterSub"):
        x = as_tensor(tensor)
        return subtract(x, scatter_nd(indices, as_tensor(updates, x.dtype), shape(x)))


@checked
def tensor_scatter_update(tensor: Any, indices: Any, updates: Any, name: Name = None) -> Tensor:
    """`tensor` with `updates` in place of its slices at positions; of equal positions the last one stays.

    indices: int32 or int64 [..., n]; updates: [..., d(n+1), ..., dm]. The gradient reaches
    both. A position out of range raises InvalidArgumentError at run time on CPU devices, and has no effect on
    others.
    """
    with graph_of([tensor, indices, updates]).as_default(), name_scope(name or "TensorScatterUpdate"):
        x, where_to = as_tensor(tensor), as_tensor(indices)
        values = as_tensor(updates, x.dtype)
        depth = depth_of("tensor_scatter_update", where_to, x.shape.ndims)
        extents = shape(x)
        lead, tail = parted_extents(extents, depth)
        count = reduce_prod(lead)
        flat = reshape(x, concat([reshape(count, [1]), tail], 0))
        positions = reshape(flat_positions(where_to, lead), [-1])
        # The gather raises for -1, which is out of range; where it does not, nothing is written there.
        there = gather(cast(number_range(count), int64), positions)
        positions = select(equal(there, positions), positions, -1)
        # Behind the updates a row of zeros, which makes a gather of none of them possible.
        rows = reshape(values, concat([reshape(size(positions), [1]), tail], 0))
        rows = concat([rows, zeros(concat([constant([1]), tail], 0), x.dtype)], 0)
        last = unsorted_segment_max(number_range(size(positions)), positions, count)
        chosen = gather(rows, maximum(last, 0))
        written = reshape(greater_equal(last, 0), concat([reshape(count, [1]), ones_like(tail)], 0))
        result = reshape(select(broadcast_to(written, shape(flat)), chosen, flat), extents)
        result.set_shape(x.shape)
        return result
