"""Writes to rows of a variable selected by indices."""

from __future__ import annotations

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
)
from tensorbow.kinds import Flag, Name, checked, refuse
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.indexing import NO_ROW, POSITIONS, check_positions
from tensorbow.specs import NUMERIC, Array, TensorSpec, compatible, int64, render_dims

__all__ = [
    "scatter_add",
    "scatter_div",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_sub",
    "scatter_update",
]


def scatter_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    """Spec of ops (variable `[n, ...]`, indices, rows `[indices' shape, ...]` or scalar) -> variable."""
    variable, indices, rows = inputs
    require_dtype("scatter", indices, POSITIONS, "indices")
    require_dtype("scatter", variable, NUMERIC, "the variable")
    require_same_dtype("scatter", (variable, rows))
    if variable.rank == 0:
        raise InvalidArgumentError("scatter: the variable is a scalar, which has no rows")
    if rows.shape != () and indices.shape is not None:
        expected = (*indices.shape, *variable.dims[1:])
        if not compatible(expected, rows.shape):
            raise InvalidArgumentError(
                f"scatter: the updates are {rows}, expected {render_dims(expected)} or a scalar: "
                f"indices {indices} for a variable {variable}"
            )
    return TensorSpec(variable.shape, variable.dtype)


def positions_scratch(node: NodeSpec) -> list[TensorSpec]:
    """The indices as int64."""
    return [TensorSpec(node.inputs[1].shape, int64)]


def _scatter(name: str, write: Callable[[Array, Array, Array], None], doc: str, adds: bool = True) -> OpDef:
    def run(call: KernelCall) -> None:
        (variable, indices, rows), (positions,) = call.inputs, call.scratch
        np.copyto(positions, indices)
        allow_unused = call.attrs.get("allow_unused", False)
        check_positions(name, positions, len(variable), allow_unused)
        if allow_unused and positions.size and positions.min() == NO_ROW:
            used = positions != NO_ROW
            positions, rows = positions[used], rows[used] if rows.ndim else rows
        write(variable, positions, rows)

    return define_op(
        name,
        spec=scatter_spec,
        gradient=NOT_DIFFERENTIABLE,
        kernel=Kernel(run=run, scratch=positions_scratch),
        inputs=("ref", "indices", "updates"),
        attrs={"allow_unused": False} if adds else {},
        alias=((0, 0),),
        writes=(0,),
        row_update=(2, 1) if adds else None,
        doc=doc,
    )


def _divide(variable: Array, positions: Array, rows: Array) -> None:
    """Integers are rounded towards zero, as in C and TensorFlow."""
    if variable.dtype.kind not in "iu":
        np.divide.at(variable, positions, rows)
        return
    if not rows.all() and positions.size:
        raise InvalidArgumentError("ScatterDiv: integer division by zero; mask the zeros, or use floats")
    tail = np.broadcast_to(rows, (*positions.shape, *variable.shape[1:]))
    for index in np.ndindex(*positions.shape):
        row = variable[positions[index]]
        quotient = np.abs(row) // np.abs(tail[index])
        row[...] = np.sign(row) * np.sign(tail[index]) * quotient


def _put(variable: Array, positions: Array, rows: Array) -> None:
    variable[positions] = rows  # in order: the last of equal indices wins


ScatterAdd = _scatter(
    "ScatterAdd", np.add.at, "ref[indices] += updates, in order; nothing at a -1 that `allow_unused` allows."
)
ScatterSub = _scatter("ScatterSub", np.subtract.at, "ref[indices] -= updates; see ScatterAdd.")
ScatterMul = _scatter(
    "ScatterMul", np.multiply.at, "ref[indices] *= updates; factors of equal indices multiply.", adds=False
)
ScatterDiv = _scatter("ScatterDiv", _divide, "ref[indices] /= updates, in order.", adds=False)
ScatterMax = _scatter("ScatterMax", np.maximum.at, "ref[indices] = max(ref[indices], updates).", adds=False)
ScatterMin = _scatter("ScatterMin", np.minimum.at, "ref[indices] = min(ref[indices], updates).", adds=False)
ScatterUpdate = _scatter(
    "ScatterUpdate", _put, "ref[indices] = updates; of equal indices the last one stays.", adds=False
)


@checked
def scatter_add(ref: Any, indices: Any, updates: Any, use_locking: Flag = False, name: Name = None) -> Tensor:
    """Adds `updates` `[indices' shape, ...]`, or a scalar, to the rows `indices` of a variable `[n, ...]`.

    Updates of the same row add up. Returns the variable's value right after. `use_locking` is
    ignored (TensorFlow's): no step sees a partial write.

    Raises InvalidArgumentError for shapes that do not fit, and at run time for an index out of [0, n).
    """
    return write_rows(ScatterAdd, ref, indices, updates, name)


@checked
def scatter_sub(ref: Any, indices: Any, updates: Any, use_locking: Flag = False, name: Name = None) -> Tensor:
    """Subtracts `updates` from the rows `indices` of a variable, see `scatter_add`."""
    return write_rows(ScatterSub, ref, indices, updates, name)


def subtract_rows(ref: Any, indices: Any, rows: Any) -> Tensor:
    """`scatter_sub` of the rows of a gradient, of which those with the index -1 stand for none."""
    with ref.graph.as_default():
        result: Tensor = ScatterSub(ref, indices, rows, allow_unused=True)
    return result


@checked
def scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: Flag = True, name: Name = None
) -> Tensor:
    """Sets the rows `indices` of a variable, see `scatter_add`; the last of equal indices wins."""
    return write_rows(ScatterUpdate, ref, indices, updates, name)


@checked
def scatter_mul(ref: Any, indices: Any, updates: Any, use_locking: Flag = False, name: Name = None) -> Tensor:
    """Multiplies the rows `indices` of a variable by `updates`, see `scatter_add`; equal indices in order."""
    return write_rows(ScatterMul, ref, indices, updates, name)


@checked
def scatter_div(ref: Any, indices: Any, updates: Any, use_locking: Flag = False, name: Name = None) -> Tensor:
    """Divides the rows `indices` of a variable by `updates`, see `scatter_mul`; integers towards zero."""
    return write_rows(ScatterDiv, ref, indices, updates, name)


@checked
def scatter_max(ref: Any, indices: Any, updates: Any, use_locking: Flag = False, name: Name = None) -> Tensor:
    """Sets the rows `indices` of a variable to the greater of them and `updates`, see `scatter_add`."""
    return write_rows(ScatterMax, ref, indices, updates, name)


@checked
def scatter_min(ref: Any, indices: Any, updates: Any, use_locking: Flag = False, name: Name = None) -> Tensor:
    """Sets the rows `indices` of a variable to the smaller of them and `updates`, see `scatter_add`."""
    return write_rows(ScatterMin, ref, indices, updates, name)


def write_rows(definition: OpDef, ref: Any, indices: Any, updates: Any, name: str | None) -> Tensor:
    """Makes the op that writes rows of a variable. Raises InvalidArgumentError for what is no variable."""
    if not hasattr(ref, "_as_graph_element"):
        raise refuse(definition.name, "ref", "a variable to write", ref)
    with ref.graph.as_default():
        result: Tensor = definition(ref, indices, as_tensor(updates, ref.dtype), name=name)
    return result
