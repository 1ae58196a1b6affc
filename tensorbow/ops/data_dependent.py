"""Ops whose result shapes depend on data: coordinates, masks, unique values, partitions.

The host computes the positions, in the dynamic mode; values and gradients are those of `gather`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    HostCall,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import AsDType, Items, Name, checked, optional, whole
from tensorbow.ops.arrays import concat, reshape
from tensorbow.ops.broadcasting import checked_axis, shape
from tensorbow.ops.conditions import Where
from tensorbow.ops.definition import define_op, require_dtype, require_rank, require_same_dtype
from tensorbow.ops.elementwise import not_equal
from tensorbow.ops.indexing import gather
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import Array, TensorSpec, bool_, compatible, int32, int64

__all__ = [
    "boolean_mask",
    "dynamic_partition",
    "dynamic_stitch",
    "nonzero",
    "setdiff1d",
    "unique",
    "unique_with_counts",
]

MOST_PARTITIONS = 65536


def _numpy(attrs: Attrs) -> np.dtype[Any]:
    dtype: np.dtype[Any] = attrs["out_idx"].as_numpy_dtype
    return dtype


# Ops ----------------------------------------------------------------------------------------------------


def _unique_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    (x,) = inputs
    require_rank("Unique", x, 1)
    numbers = attrs["out_idx"]
    return [TensorSpec((None,), x.dtype), TensorSpec(x.shape, numbers), TensorSpec((None,), numbers)]


def _unique(call: HostCall) -> list[Array]:
    """Unique values in the order of first appearance, each NaN one of its own, as in TensorFlow."""
    (x,) = call.inputs
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    numbers = _numpy(call.attrs)
    return [values[order], rank[inverse].astype(numbers), counts[order].astype(numbers)]


Unique = define_op(
    "UniqueWithCounts",
    spec=_unique_spec,
    gradient=NOT_DIFFERENTIABLE,
    host=_unique,
    inputs=("x",),
    attrs={"out_idx": int32},
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype, attrs["out_idx"], attrs["out_idx"]),
    strings=True,
)


def _difference_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    require_same_dtype("ListDiff", inputs)
    for x, what in zip(inputs, "xy", strict=True):
        if x.shape is not None:
            require_rank("ListDiff", x, 1, what)
    return [TensorSpec((None,), inputs[0].dtype), TensorSpec((None,), attrs["out_idx"])]


def _difference(call: HostCall) -> list[Array]:
    x, y = call.inputs
    (kept,) = np.nonzero(~np.isin(x, y))
    return [x[kept], kept.astype(_numpy(call.attrs))]


ListDiff = define_op(
    "ListDiff",
    spec=_difference_spec,
    gradient=NOT_DIFFERENTIABLE,
    host=_difference,
    inputs=("x", "y"),
    attrs={"out_idx": int32},
    strings=True,
)


def _parts_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    require_dtype("DynamicPartition", inputs[0], (int32, int64), "partitions")
    return [TensorSpec((None,), int64)] * int(attrs["num_partitions"])


def _parts(call: HostCall) -> list[Array]:
    numbers, count = call.inputs[0].ravel(), call.attrs["num_partitions"]
    wrong = np.nonzero((numbers < 0) | (numbers >= count))[0]
    if len(wrong):
        raise InvalidArgumentError(
            f"DynamicPartition: partitions {numbers[wrong[0]]} at {wrong[0]}, expected numbers from 0 to "
            f"{count - 1}, one less than num_partitions"
        )
    return [np.nonzero(numbers == number)[0] for number in range(count)]


PartPositions = define_op(
    "DynamicPartition",
    spec=_parts_spec,
    gradient=NOT_DIFFERENTIABLE,
    host=_parts,
    inputs=("partitions",),
    attrs={"num_partitions": REQUIRED},
    doc="For each partition, the positions of its elements.",
)


def _stitched(call: HostCall) -> Array:
    (indices,) = call.inputs
    if (indices < 0).any():
        raise InvalidArgumentError(f"DynamicStitch: index {indices.min()}, expected numbers of at least 0")
    found = np.full(int(indices.max(initial=-1)) + 1, -1, np.int64)
    found[indices] = np.arange(len(indices))  # of equal ones the last
    if (found < 0).any():
        raise InvalidArgumentError(
            f"DynamicStitch: no index {int(np.argmin(found))}, expected all from 0 to {len(found) - 1}"
        )
    return found


StitchPositions = define_op(
    "DynamicStitch",
    spec=lambda inputs, attrs: TensorSpec((None,), int64),
    gradient=NOT_DIFFERENTIABLE,
    host=_stitched,
    inputs=("indices",),
    doc="For each row of the result, the position of its index.",
)


# Functions ----------------------------------------------------------------------------------------------


@checked
def nonzero(x: Any, name: Name = None) -> Tensor:
    """The coordinates of elements that are not 0, in row-major order: int64 `[n, rank]`."""
    tensor = as_tensor(x)
    with tensor.graph.as_default(), name_scope(name or "NonZero"):
        return Where.tensor(tensor if tensor.dtype == bool_ else not_equal(tensor, 0))


@checked
def boolean_mask(
    tensor: Any, mask: Any, name: Name = None, axis: Annotated[int | None, optional(whole())] = None
) -> Tensor:
    """The slices of `tensor` where `mask` is true, along one axis in place of the mask's.

    tensor: [..., *m, ...] with m, the shape of `mask` (bool, of known rank of at least 1), from `axis` on, by
    default 0. Returns [..., n, ...].
    """
    with graph_of([tensor, mask]).as_default(), name_scope(name or "boolean_mask"):
        x, chosen = as_tensor(tensor), as_tensor(mask)
        require_dtype("boolean_mask", chosen.spec, (bool_,), "mask")
        rank, count = x.shape.ndims, chosen.shape.ndims
        if rank is None or not count or count > rank:
            raise InvalidArgumentError(
                f"boolean_mask: expected a tensor and a mask of known rank, from 1 to the tensor's, got "
                f"{x.spec} and {chosen.spec}"
            )
        start = checked_axis("boolean_mask", axis or 0, rank)
        dims = x.spec.dims[start : start + count]
        if not compatible(dims, chosen.spec.shape):
            raise InvalidArgumentError(
                f"boolean_mask: the mask is {chosen.spec}, expected the shape of axes {start} to "
                f"{start + count - 1} of {x.spec}"
            )
        positions = reshape(Where(reshape(chosen, [-1])), [-1])
        flat = x
        if count > 1:
            extents = shape(x)
            joined = reshape(reduce_prod(strided_slice(extents, slice(start, start + count))), [1])
            lead, tail = (
                strided_slice(extents, slice(start)),
                strided_slice(extents, slice(start + count, None)),
            )
            flat = reshape(x, concat([lead, joined, tail], 0))
        result = gather(flat, positions, axis=start)
        result.set_shape([*x.spec.dims[:start], None, *x.spec.dims[start + count :]])
        return result


class DifferentElements(NamedTuple):
    """Result of `unique`."""

    y: Tensor
    idx: Tensor


class CountedElements(NamedTuple):
    """Result of `unique_with_counts`."""

    y: Tensor
    idx: Tensor
    count: Tensor  # type: ignore[assignment]  # TensorFlow's name hides the method of tuples


class RemainingElements(NamedTuple):
    """Result of `setdiff1d`."""

    out: Tensor
    idx: Tensor


@checked
def unique(x: Any, out_idx: AsDType = int32, name: Name = None) -> DifferentElements:
    """The different elements y of a vector `x` in order of appearance, and idx, as long as x: y[idx] = x.

    out_idx: dtype of idx, int32 or int64.
    """
    values, numbers, _ = _unique_of("unique", x, out_idx, name)
    return DifferentElements(values, numbers)


@checked
def unique_with_counts(x: Any, out_idx: AsDType = int32, name: Name = None) -> CountedElements:
    """The results of `unique`, and how often each element of y occurs in x."""
    return _unique_of("unique_with_counts", x, out_idx, name)


def _unique_of(op: str, x: Any, out_idx: Any, name: str | None) -> CountedElements:
    _check_numbers(op, out_idx)
    return CountedElements(*Unique(x, out_idx=out_idx, name=name))


def _check_numbers(op: str, out_idx: Any) -> None:
    if out_idx not in (int32, int64):
        raise InvalidArgumentError(f"{op}: out_idx is {out_idx.name}, expected int32 or int64")


@checked
def setdiff1d(x: Any, y: Any, index_dtype: AsDType = int32, name: Name = None) -> RemainingElements:
    """The elements of a vector `x` that are not in the vector `y`, in order, and their positions in x."""
    _check_numbers("setdiff1d", index_dtype)
    with graph_of([x, y]).as_default():
        return RemainingElements(*ListDiff(x, y, out_idx=index_dtype, name=name))


@checked
def dynamic_partition(
    data: Any, partitions: Any, num_partitions: Annotated[int, whole(1, MOST_PARTITIONS)], name: Name = None
) -> list[Tensor]:
    """The slices of `data` by their numbers: part i has those with `partitions` == i, in order.

    partitions: int32 or int64 of known rank, of the first axes of `data`: [*p]; data: [*p, ...]. Each part is
    [n, ...]. A number that is not in [0, num_partitions) raises InvalidArgumentError at run time.
    """
    with graph_of([data, partitions]).as_default(), name_scope(name or "DynamicPartition"):
        x, numbers = as_tensor(data), as_tensor(partitions)
        rows, tail = _rows("dynamic_partition", x, numbers)
        positions = PartPositions(numbers, num_partitions=num_partitions)
        parts = [gather(rows, each) for each in ([positions] if num_partitions == 1 else positions)]
        for part in parts:
            part.set_shape(None if tail is None else [None, *tail])
        return parts


def _rows(op: str, x: Tensor, numbers: Tensor) -> tuple[Tensor, Sequence[int | None] | None]:
    """`x` with the axes of `numbers` joined, and the static extents of the others."""
    axes = numbers.shape.ndims
    dims = x.spec.shape
    if axes is None or (dims is not None and not compatible(numbers.spec.shape, dims[:axes])):
        raise InvalidArgumentError(
            f"{op}: {numbers.spec} for data {x.spec}; expected the shape of its first axes, of known rank"
        )
    if axes == 1:
        return x, None if dims is None else dims[1:]
    rest = strided_slice(shape(x), slice(axes, None))
    joined = reshape(reduce_prod(shape(numbers)), [1])
    return reshape(x, concat([joined, rest], 0)), None if dims is None else dims[axes:]


@checked
def dynamic_stitch(indices: Items, data: Items, name: Name = None) -> Tensor:
    """Rows from several tensors: result[indices[k][i]] = data[k][i], of equal indices the last one's.

    indices: int32 tensors of known rank, [*p]; data: tensors [*p, ...]. The result has a row for each of 0 to
    the greatest index; one that is missing or negative raises InvalidArgumentError at run time.
    """
    with graph_of([*indices, *data]).as_default(), name_scope(name or "DynamicStitch"):
        numbers, tensors = [as_tensor(each) for each in indices], [as_tensor(each) for each in data]
        if not numbers or len(numbers) != len(tensors):
            raise InvalidArgumentError(
                f"dynamic_stitch: {len(numbers)} indices and {len(tensors)} data, expected as many"
            )
        for each in numbers:
            require_dtype("dynamic_stitch", each.spec, (int32, int64), "indices")
        rows = [_rows("dynamic_stitch", x, each) for x, each in zip(tensors, numbers, strict=True)]
        flat = concat([cast(reshape(each, [-1]), int64) for each in numbers], 0)
        result = gather(concat([x for x, _ in rows], 0), StitchPositions(flat))
        tail = rows[0][1]
        result.set_shape(None if tail is None else [None, *tail])
        return result
