"""Computations with positions: rolling along axes, coordinates of flat positions, places in sorted rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Attrs,
    Kernel,
    KernelCall,
    Tensor,
    as_numbers,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import AsDType, AxisNumbers, Name, checked, one_of
from tensorbow.ops.arrays import stack
from tensorbow.ops.broadcasting import checked_axis, shape
from tensorbow.ops.definition import define_op, require_dtype, require_rank, require_same_dtype
from tensorbow.ops.elementwise import floordiv, maximum, mod, subtract
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.indexing import gather
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import NUMERIC, TensorSpec, compatible, int32, int64

__all__ = ["roll", "searchsorted", "unravel_index"]


@checked
def roll(input: Any, shift: Any, axis: AxisNumbers, name: Name = None) -> Tensor:
    """`input` with its elements moved by `shift` places along `axis`; those that leave come in at the start.

    shift, axis: a whole number each, or lists of as many; a shift may also be an integer tensor, a scalar or
    a vector. Negative shifts move towards the start. The rank must be known.
    """
    with graph_of([input, shift]).as_default(), name_scope(name or "Roll"):
        x, shifts = as_tensor(input), as_tensor(shift)
        require_dtype("roll", shifts.spec, (int32, int64), "shift")
        axes = [checked_axis("roll", each, x.spec.rank) for each in axis or ()]
        if not axes:
            raise InvalidArgumentError("roll: axis is empty; give a whole number or a list of them")
        if shifts.shape.ndims not in (0, 1) or (shifts.shape.ndims == 1 and shifts.shape[0] != len(axes)):
            raise InvalidArgumentError(
                f"roll: shift is {shifts.spec}, expected one number for each of the axes {axes}"
            )
        dims = x.spec.dims
        for number, each in enumerate(axes):
            by = shifts if shifts.shape.ndims == 0 else strided_slice(shifts, number)
            extent = strided_slice(shape(x, out_type=shifts.dtype), each)
            x = gather(x, mod(subtract(number_range(extent), by), maximum(extent, 1)), axis=each)
        x.set_shape(dims)
        return x


@checked
def unravel_index(indices: Any, dims: Any, name: Name = None) -> Tensor:
    """The coordinates of flat positions in an array of extents `dims`, in row-major order.

    indices, dims: int32 or int64, a scalar or a vector [n], and a vector [rank] of known extent. Returns
    [rank], or [rank, n].
    """
    with graph_of([indices, dims]).as_default(), name_scope(name or "UnravelIndex"):
        extents = as_numbers(dims)
        rest = as_tensor(indices, extents.dtype)
        require_dtype("unravel_index", extents.spec, (int32, int64), "dims")
        require_same_dtype("unravel_index", [rest.spec, extents.spec])
        require_rank("unravel_index", extents.spec, 1, "dims")
        rank = extents.spec.dims[0]
        if rank is None:
            raise InvalidArgumentError(f"unravel_index: dims is {extents.spec}, expected a known extent")
        found = []
        for axis in reversed(range(rank)):
            extent = strided_slice(extents, axis)
            found.append(mod(rest, extent) if axis else rest)
            rest = floordiv(rest, extent)
        return stack(found[::-1])


# Places in sorted rows ----------------------------------------------------------------------------------


def _places_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    rows, values = inputs
    require_same_dtype("SearchSorted", inputs)
    require_dtype("SearchSorted", rows, NUMERIC, "sorted_sequence")
    require_dtype("SearchSorted", TensorSpec((), attrs["out_type"]), (int32, int64), "out_type")
    if rows.shape is not None and values.shape is not None:
        fits = rows.rank == values.rank >= 1 and compatible(rows.dims[:-1], values.dims[:-1])
        if not fits:
            raise InvalidArgumentError(
                f"SearchSorted: sorted_sequence is {rows}, values is {values}; expected one rank above 0 "
                "and equal extents before the last axis; use tb.reshape"
            )
    return TensorSpec(values.shape, attrs["out_type"])


def _prepare_places(call: KernelCall) -> Callable[[], None]:
    (rows, values), (out,) = call.inputs, call.outputs
    side = call.attrs["side"]
    indices = list(np.ndindex(*values.shape[:-1])) if out.size else []

    def run() -> None:
        for index in indices:
            out[index] = np.searchsorted(rows[index], values[index], side)

    return run


SearchSorted = define_op(
    "SearchSorted",
    spec=_places_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(prepare=_prepare_places),
    inputs=("sorted_sequence", "values"),
    attrs={"side": "left", "out_type": int32},
    unknown_dtypes=lambda inputs, attrs: (attrs["out_type"],),
    why_cpu="NumPy searches the sorted rows",
)


@checked
def searchsorted(
    sorted_sequence: Any,
    values: Any,
    side: Annotated[str, one_of("left", "right")] = "left",
    out_type: AsDType = int32,
    name: Name = None,
) -> Tensor:
    """The places in sorted rows [..., n] at which values [..., m] keep them sorted: integers [..., m].

    side: "left" is before equal elements, "right" behind them. out_type: int32 or int64.
    """
    with graph_of([sorted_sequence, values]).as_default():
        rows = as_numbers(sorted_sequence)
        result: Tensor = SearchSorted(
            rows, as_tensor(values, rows.dtype), side=side, out_type=out_type, name=name
        )
    return result
