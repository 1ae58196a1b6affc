"""Sets along the last axis of dense or sparse tensors, and edit distances: functions of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall, Tensor, as_tensor, name_scope
from tensorbow.kinds import Flag, Name, checked
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import ones_like, shape
from tensorbow.ops.conditions import where
from tensorbow.ops.definition import define_op, require_same_dtype
from tensorbow.ops.sparse_tensors import Sparse, SparseTensor, SparseTensorValue, as_sparse
from tensorbow.specs import Array, TensorSpec, bool_, float32, int32, int64

__all__ = ["edit_distance", "set_difference", "set_intersection", "set_size", "set_union"]

Groups = "dict[tuple[int, ...], Array]"


def _groups(indices: Array, values: Array) -> dict[tuple[int, ...], Array]:
    """Values by the coordinates of their row, in the order of the last coordinate."""
    order = np.lexsort(indices.T[::-1])
    found: dict[tuple[int, ...], list[Any]] = {}
    for coordinates, value in zip(indices[order].tolist(), values[order].tolist(), strict=True):
        found.setdefault(tuple(coordinates[:-1]), []).append(value)
    return {key: np.array(row, values.dtype) for key, row in found.items()}


# Sets -----------------------------------------------------------------------------------------------------

_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "a-b": np.setdiff1d,
    "b-a": lambda a, b: np.setdiff1d(b, a),
    "intersection": np.intersect1d,
    "union": np.union1d,
}


def _operate(call: HostCall) -> list[Array]:
    a_indices, a_values, a_shape, b_indices, b_values, b_shape = call.inputs
    if len(a_shape) != len(b_shape) or (a_shape[:-1] != b_shape[:-1]).any():
        raise InvalidArgumentError(
            f"set operation: shapes are {a_shape.tolist()} and {b_shape.tolist()}, expected equal "
            "extents but for the last axis"
        )
    function = _OPERATIONS[call.attrs["set_operation"]]
    first, second = _groups(a_indices, a_values), _groups(b_indices, b_values)
    nothing = np.empty(0, a_values.dtype)
    indices: list[tuple[int, ...]] = []
    values: list[Array] = []
    widest = 0
    for key in sorted({*first, *second}):
        members = function(first.get(key, nothing), second.get(key, nothing))
        indices.extend((*key, position) for position in range(len(members)))
        values.append(members)
        widest = max(widest, len(members))
    rank = len(a_shape)
    return [
        np.array(indices, np.int64).reshape(-1, rank),
        np.concatenate([nothing, *values]),
        np.array([*a_shape[:-1], widest], np.int64),
    ]


def _operation_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    dtype = require_same_dtype("set operation", [inputs[1], inputs[4]])
    rank = (inputs[2].shape or (None,))[0]
    return [TensorSpec((None, rank), int64), TensorSpec((None,), dtype), TensorSpec((rank,), int64)]


SetOperation = define_op(
    "SparseToSparseSetOperation",
    spec=_operation_spec,
    gradient=NOT_DIFFERENTIABLE,
    host=_operate,
    inputs=("a_indices", "a_values", "a_shape", "b_indices", "b_values", "b_shape"),
    attrs={"set_operation": REQUIRED},
)


def _sizes(call: HostCall) -> Array:
    indices, values, extents = call.inputs
    result = np.zeros([int(extent) for extent in extents[:-1]], np.int32)
    for key, members in _groups(indices, values).items():
        result[key] = len(np.unique(members))
    return result


def _sizes_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    rank = (inputs[2].shape or (None,))[0]
    return TensorSpec(None if rank is None else (None,) * (rank - 1), int32)


SetSize = define_op(
    "SetSize",
    spec=_sizes_spec,
    gradient=NOT_DIFFERENTIABLE,
    host=_sizes,
    inputs=("set_indices", "set_values", "set_shape"),
)


def _sparse(op: str, value: Any) -> SparseTensor:
    """A sparse tensor, or all elements of a dense one."""
    if isinstance(value, (SparseTensor, SparseTensorValue)):
        return as_sparse(value)
    dense = as_tensor(value)
    if dense.shape.ndims in (None, 0):
        raise InvalidArgumentError(f"{op}: expected sets [..., n] of known rank, got {dense.spec}")
    with dense.graph.as_default():
        extents = shape(dense, out_type=int64)
        return SparseTensor(where(ones_like(dense, bool_)), reshape(dense, [-1]), extents)


def _set_operation(op: str, kind: str, a: Any, b: Any) -> SparseTensor:
    first, second = _sparse(op, a), _sparse(op, b)
    with first.graph.as_default(), name_scope(op):
        parts = [part for each in (first, second) for part in (each.indices, each.values, each.dense_shape)]
        return SparseTensor(*SetOperation(*parts, set_operation=kind))


@checked
def set_intersection(a: Any, b: Any, validate_indices: Flag = True) -> SparseTensor:
    """The elements, without repetitions and ascending, that are in both of two sets along the last axis.

    a, b: dense or sparse tensors [..., n] and [..., m]. `validate_indices` has no effect: entries may come in
    any order. In the dynamic mode.
    """
    return _set_operation("set_intersection", "intersection", a, b)


@checked
def set_union(a: Any, b: Any, validate_indices: Flag = True) -> SparseTensor:
    """The elements that are in either of two sets along the last axis, see `set_intersection`."""
    return _set_operation("set_union", "union", a, b)


@checked
def set_difference(a: Any, b: Any, aminusb: Flag = True, validate_indices: Flag = True) -> SparseTensor:
    """The elements of `a` that are not in `b`, or without `aminusb` those of `b` that are not in `a`.

    See `set_intersection`.
    """
    return _set_operation("set_difference", "a-b" if aminusb else "b-a", a, b)


@checked
def set_size(a: Any, validate_indices: Flag = True) -> Tensor:
    """The number of different elements along the last axis of a tensor [..., n], dense or sparse: int32."""
    sparse = _sparse("set_size", a)
    with sparse.graph.as_default(), name_scope("set_size"):
        return SetSize.tensor(sparse.indices, sparse.values, sparse.dense_shape)


# Edit distance --------------------------------------------------------------------------------------------


def _distance(a: Array, b: Array) -> int:
    """Levenshtein's: the least number of insertions, deletions and replacements."""
    row = np.arange(len(b) + 1)
    for i, each in enumerate(a.tolist(), start=1):
        before = np.minimum(row[1:] + 1, row[:-1] + (b != each))
        row = np.concatenate([[i], before])
        row = np.minimum.accumulate(row - np.arange(len(row))) + np.arange(len(row))
    return int(row[-1])


def _distances(call: HostCall) -> Array:
    a_indices, a_values, a_shape, b_indices, b_values, b_shape = call.inputs
    if len(a_shape) != len(b_shape):
        raise InvalidArgumentError(
            f"edit_distance: shapes are {a_shape.tolist()} and {b_shape.tolist()}, expected one rank"
        )
    result = np.zeros([int(extent) for extent in np.maximum(a_shape, b_shape)[:-1]], np.float32)
    first, second = _groups(a_indices, a_values), _groups(b_indices, b_values)
    nothing = np.empty(0, a_values.dtype)
    for key in {*first, *second}:
        hypothesis, truth = first.get(key, nothing), second.get(key, nothing)
        distance = float(_distance(hypothesis, truth))
        if call.attrs["normalize"]:
            distance = distance / len(truth) if len(truth) else np.inf
        result[key] = distance
    return result


EditDistance = define_op(
    "EditDistance",
    spec=lambda inputs, attrs: TensorSpec(_sizes_spec(inputs, attrs).shape, float32),
    gradient=NOT_DIFFERENTIABLE,
    host=_distances,
    inputs=(
        *("hypothesis_indices", "hypothesis_values", "hypothesis_shape"),
        *("truth_indices", "truth_values", "truth_shape"),
    ),
    attrs={"normalize": True},
)


@checked
def edit_distance(hypothesis: Sparse, truth: Sparse, normalize: Flag = True, name: Name = None) -> Tensor:
    """Levenshtein's distance of the sequences along the last axis of two sparse tensors: float32 [...].

    normalize: divides by the length of the true sequence; infinity if only that one is empty. In the dynamic
    mode.
    """
    first, second = as_sparse(hypothesis), as_sparse(truth)
    with first.graph.as_default(), name_scope(name or "edit_distance"):
        require_same_dtype("edit_distance", [first.values.spec, second.values.spec])
        parts = [part for each in (first, second) for part in (each.indices, each.values, each.dense_shape)]
        return EditDistance.tensor(*parts, normalize=normalize)
