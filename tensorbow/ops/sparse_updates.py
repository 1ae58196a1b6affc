"""Sparse updates, of the rows of a variable that have a gradient, for `IndexedSlices`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, Kernel, KernelCall, NodeSpec
from tensorbow.graph.definition import SpecRule
from tensorbow.ops.definition import define_op, require_dtype, require_rank, require_same_dtype
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.ops.indexing import NO_ROW, POSITIONS, check_positions
from tensorbow.specs import FLOATING, NUMERIC, Array, TensorSpec, bool_, compatible, int64

# Rows of equal indices ----------------------------------------------------------------------------


def _sum_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    values, indices = inputs
    require_dtype("SumEqualRows", values, NUMERIC, "values")
    require_dtype("SumEqualRows", indices, POSITIONS, "indices")
    if indices.shape is not None:
        require_rank("SumEqualRows", indices, 1, "indices")
    if values.shape == () or not compatible(
        None if indices.shape is None else indices.shape, None if values.shape is None else values.shape[:1]
    ):
        raise InvalidArgumentError(
            f"SumEqualRows: values are {values}, expected one row for each of {indices}"
        )
    count = None if indices.shape is None else indices.shape[0]
    dims = (
        None
        if values.shape is None
        else (count if values.shape[0] is None else values.shape[0], *values.shape[1:])
    )
    return [TensorSpec(dims, values.dtype), TensorSpec((count,), int64)]


def _sum_scratch(node: NodeSpec) -> list[TensorSpec]:
    """Sorted keys, their positions, the run of each, and the begin of each run."""
    count = node.inputs[1].size
    return [*[TensorSpec((count,), int64)] * 4, TensorSpec((count,), bool_)]


def _prepare_sum(call: KernelCall) -> Callable[[], None]:
    """Sorts index * n + position, so that equal indices are neighbours, and numbers the runs.

    Unused rows get the largest index meanwhile, so that they come last.
    """
    (values, indices), (sums, rows) = call.inputs, call.outputs
    keys, positions, runs, target, begins = call.scratch
    count = len(indices)
    order = np.arange(count)
    last = np.iinfo(np.int64).max // max(count, 1) - 1
    unused = begins.reshape(count, *(1 for _ in sums.shape[1:]))

    def step() -> None:
        sums.fill(0)
        rows.fill(NO_ROW)
        if not count:
            return
        np.copyto(keys, indices)
        np.equal(keys, NO_ROW, out=begins)
        np.copyto(keys, last, where=begins)
        check_positions("SumEqualRows", keys, last + 1)
        np.multiply(keys, count, out=keys)
        np.add(keys, order, out=keys)
        keys.sort()
        np.remainder(keys, count, out=positions)
        np.floor_divide(keys, count, out=keys)
        begins[0] = False
        np.not_equal(keys[1:], keys[:-1], out=begins[1:])
        np.add.accumulate(begins, dtype=np.int64, out=runs)
        rows[runs] = keys
        target[positions] = runs
        np.add.at(sums, target, values)
        np.equal(rows, last, out=begins)
        np.copyto(rows, NO_ROW, where=begins)
        np.copyto(sums, 0, where=unused)

    return step


SumEqualRows = define_op(
    "SumEqualRows",
    spec=_sum_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(prepare=_prepare_sum, scratch=_sum_scratch),
    inputs=("values", "indices"),
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype, int64),
    doc="Sums rows of equal indices, by ascending index; unused rows come last: zeros, with the index -1.",
)


def sum_equal_rows(slices: IndexedSlices) -> IndexedSlices:
    """The same tensor with each row once. Unused rows are zero and have the index -1.

    Sparse updates and the conversion to a dense tensor leave these out.
    """
    values, indices = SumEqualRows(slices.values, slices.indices)
    return IndexedSlices(values, indices, slices.dense_shape)


# Updates of rows ----------------------------------------------------------------------------------


def rows_spec(op: str, slots: int = 1) -> SpecRule:
    """Spec of ops (variable, slots, gradient's rows, learning rate, indices, more scalars) -> variable."""

    def rule(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        variable, *owned = inputs[: slots + 1]
        gradient, rate, indices, *scalars = inputs[slots + 1 :]
        require_dtype(op, variable, FLOATING, "the variable")
        require_same_dtype(op, (variable, *owned, gradient, rate, *scalars))
        require_dtype(op, indices, POSITIONS, "indices")
        for slot in owned:
            if not compatible(variable.shape, slot.shape):
                raise InvalidArgumentError(f"{op}: the variable is {variable}, its slot {slot}")
        expected = (*indices.dims, *variable.dims[1:])
        if variable.rank == 0 or not compatible(expected, gradient.shape) or indices.rank != 1:
            raise InvalidArgumentError(
                f"{op}: the variable is {variable}, the gradient {gradient} at {indices}; "
                "expected one row for each index"
            )
        for scalar in (rate, *scalars):
            if scalar.shape not in ((), None):
                raise InvalidArgumentError(f"{op}: expected a scalar of the step, got {scalar}")
        return TensorSpec(variable.shape, variable.dtype)

    return rule


def _rows_scratch(node: NodeSpec) -> list[TensorSpec]:
    """The rows of the variable, of its slot, a step, and the positions."""
    gradient = node.inputs[2]
    return [*[TensorSpec(gradient.shape, gradient.dtype)] * 3, TensorSpec(node.inputs[4].shape, int64)]


def take_rows(source: Array, positions: Array, rows: Array) -> Array:
    """Copies the rows of `source` at the positions to `rows`."""
    np.take(source, positions, axis=0, out=rows, mode="clip")
    return rows


def _prepare_momentum(call: KernelCall) -> Callable[[], None]:
    variable, velocity, gradient, rate, indices, momentum = call.inputs
    weights, speeds, delta, positions = call.scratch
    nesterov = bool(call.attrs["use_nesterov"])

    def step() -> None:
        np.copyto(positions, indices)
        count = int(np.count_nonzero(indices >= 0))
        if not count:
            return
        chosen = positions[:count]
        check_positions("SparseApplyMomentum", chosen, len(variable))
        w, v, d = (
            take_rows(variable, chosen, weights[:count]),
            take_rows(velocity, chosen, speeds[:count]),
            delta[:count],
        )
        np.multiply(v, momentum, out=v)
        np.add(v, gradient[:count], out=v)
        velocity[chosen] = v
        if nesterov:
            np.multiply(v, momentum, out=d)
            np.add(d, gradient[:count], out=d)
            np.multiply(d, rate, out=d)
        else:
            np.multiply(v, rate, out=d)
        np.subtract(w, d, out=w)
        variable[chosen] = w

    return step


SparseApplyMomentum = define_op(
    "SparseApplyMomentum",
    spec=rows_spec("SparseApplyMomentum"),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("var", "velocity", "gradient", "learning_rate", "indices", "momentum"),
    attrs={"use_nesterov": False},
    kernel=Kernel(prepare=_prepare_momentum, scratch=_rows_scratch),
    alias=((0, 0),),
    writes=(0, 1),
    row_update=(2, 4),
    doc="Momentum's update of the rows at `indices`, which are distinct, followed by -1 for unused rows.",
)
