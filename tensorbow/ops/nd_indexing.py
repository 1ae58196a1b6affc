"""Slices at positions along several axes, and what is made of positions: sequences, grids, masks.

Positions along several axes become positions in a flat array: values and gradients are those of `gather`.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import AsDType, AxisNumber, Name, checked, is_tensor, one_of
from tensorbow.ops.argument_kinds import CountOrTensor, Extents, numbers_of
from tensorbow.ops.arrays import concat, expand_dims, reshape, transpose
from tensorbow.ops.broadcasting import as_shape_vector, broadcast_to, checked_axis, shape
from tensorbow.ops.constant import constant
from tensorbow.ops.cumulative import cumprod
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import add, greater_equal, less, logical_and, multiply, subtract
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.indexing import GatherGrad, gather
from tensorbow.ops.reductions import reduce_all, reduce_max, reduce_prod, reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.tensor_indices import item
from tensorbow.specs import bool_, int32, int64

__all__ = [
    "gather_nd",
    "invert_permutation",
    "meshgrid",
    "reverse_sequence",
    "scatter_nd",
    "sequence_mask",
]

Indexing: TypeAlias = Annotated[str, one_of("xy", "ij")]


def depth_of(op: str, indices: Tensor, rank: int | None) -> int | Tensor:
    """Number of axes that each position has, a scalar tensor where only a step knows it.

    Raises InvalidArgumentError if it is too large.
    """
    require_dtype(op, indices.spec, (int32, int64), "indices")
    dims = indices.spec.shape
    if dims == () or (dims and rank is not None and dims[-1] is not None and dims[-1] > rank):
        raise InvalidArgumentError(
            f"{op}: indices are {indices.spec}, expected [..., n] with an n of at most the rank"
            + ("" if rank is None else f", {rank}")
        )
    known = dims[-1] if dims else None
    return strided_slice(shape(indices), -1) if known is None else known


def parted_extents(extents: Tensor, depth: int | Tensor) -> tuple[Tensor, Tensor]:
    """The first `depth` extents, and the others."""
    return item(extents, slice(0, depth)), item(extents, slice(depth, None))


def flat_positions(indices: Tensor, lead: Tensor) -> Tensor:
    """Positions [...] in an array whose first axes, of extents `lead`, are joined; -1: out of range."""
    sizes, wide = cast(lead, int64), cast(indices, int64)
    strides = cumprod(sizes, exclusive=True, reverse=True)
    inside = reduce_all(logical_and(greater_equal(wide, 0), less(wide, sizes)), -1)
    return select(inside, reduce_sum(multiply(wide, strides), -1), -1)


@checked
def gather_nd(params: Any, indices: Any, name: Name = None) -> Tensor:
    """The slices of `params` at positions along its first axes.

    params: [d1, ..., dm]; indices: int32 or int64 [..., n] with n <= m. Returns [..., d(n+1), ..., dm], of
    unknown rank if n is unknown before the step. A position out of range raises InvalidArgumentError at run
    time on CPU devices.
    """
    x, where_to = as_tensor(params), as_tensor(indices)
    with x.graph.as_default(), name_scope(name or "GatherNd"):
        depth = depth_of("gather_nd", where_to, x.shape.ndims)
        lead, tail = parted_extents(shape(x), depth)
        flat = reshape(x, concat([reshape(reduce_prod(lead), [1]), tail], 0))
        result = gather(flat, flat_positions(where_to, lead))
        if isinstance(depth, int) and x.spec.shape is not None and where_to.spec.shape is not None:
            result.set_shape([*where_to.spec.shape[:-1], *x.spec.shape[depth:]])
        return result


@checked
def scatter_nd(indices: Any, updates: Any, shape: Extents, name: Name = None) -> Tensor:
    """Zeros of `shape`, to which `updates` are added at positions along the first axes.

    indices: int32 or int64 [..., n]; updates: [..., *shape[n:]]; those of equal positions add
    up. A position out of range raises InvalidArgumentError at run time on CPU devices.
    """
    where_to, values = as_tensor(indices), as_tensor(updates)
    with graph_of([where_to, values]).as_default(), name_scope(name or "ScatterNd"):
        extents = as_tensor(as_shape_vector(shape))
        depth = depth_of("scatter_nd", where_to, extents.spec.dims[0])
        lead, tail = parted_extents(extents, depth)
        flat = concat([reshape(reduce_prod(lead), [1]), tail], 0)
        positions = reshape(flat_positions(where_to, lead), [-1])
        rows = reshape(values, concat([constant([-1], extents.dtype), tail], 0))
        result = reshape(GatherGrad(rows, positions, flat, axis=0), extents)
        return result


@checked
def invert_permutation(x: Any, name: Name = None) -> Tensor:
    """The inverse y of a permutation `x` [n] (int32 or int64) of 0 .. n - 1: y[x[i]] = i.

    Values that are no permutation give sums of positions; one out of range raises InvalidArgumentError at run
    time on CPU devices.
    """
    values = as_tensor(x)
    require_dtype("invert_permutation", values.spec, (int32, int64))
    with values.graph.as_default(), name_scope(name or "InvertPermutation"):
        extent = shape(values)
        numbers = cast(number_range(strided_slice(extent, 0)), values.dtype)
        return GatherGrad.tensor(numbers, values, extent, axis=0)


@checked
def sequence_mask(
    lengths: Any, maxlen: CountOrTensor | None = None, dtype: AsDType = bool_, name: Name = None
) -> Tensor:
    """True for the first lengths[...] of `maxlen` positions: [..., maxlen].

    By default `maxlen` is the greatest of `lengths` (integers). If it is no constant, the step runs in the
    dynamic mode.
    """
    counts = as_tensor(lengths)
    require_dtype("sequence_mask", counts.spec, (int32, int64), "lengths")
    with counts.graph.as_default(), name_scope(name or "SequenceMask"):
        value = counts.spec.value
        if maxlen is None and value is None:
            none = constant([0], counts.dtype)
            maxlen = reduce_max(concat([none, reshape(counts, [-1])], 0))
        elif value is not None and maxlen is None:
            maxlen = max(0, int(value.max(initial=0)))
        (most,) = numbers_of(maxlen)
        if is_tensor(most):
            positions = cast(number_range(most), counts.dtype)
        else:
            positions = constant(np.arange(most), counts.dtype)
        return cast(less(positions, expand_dims(counts, -1)), dtype)


@checked
def reverse_sequence(
    input: Any,
    seq_lengths: Any,
    seq_axis: AxisNumber = 1,
    batch_axis: AxisNumber = 0,
    name: Name = None,
) -> Tensor:
    """Reverses the first seq_lengths[i] elements along `seq_axis` of each example i along `batch_axis`.

    seq_lengths: int32 or int64 [batch], from 0 to the extent of `seq_axis`; others raise InvalidArgumentError
    at run time on CPU devices. The rank must be known.
    """
    x, lengths = as_tensor(input), as_tensor(seq_lengths)
    require_dtype("reverse_sequence", lengths.spec, (int32, int64), "seq_lengths")
    rank = x.shape.ndims
    if rank is None or lengths.shape.ndims not in (1, None):
        raise InvalidArgumentError(
            f"reverse_sequence: expected an input of known rank and lengths [batch], got {x.spec} "
            f"and {lengths.spec}"
        )
    steps = checked_axis("reverse_sequence", seq_axis, rank)
    batch = checked_axis("reverse_sequence", batch_axis, rank)
    if steps == batch:
        raise InvalidArgumentError(f"reverse_sequence: seq_axis and batch_axis are both {steps}")
    order = [batch, steps, *(axis for axis in range(rank) if axis not in (batch, steps))]
    with x.graph.as_default(), name_scope(name or "ReverseSequence"):
        rows = x if order == list(range(rank)) else transpose(x, order)
        extents = shape(rows)
        numbers, most = number_range(strided_slice(extents, 1)), strided_slice(extents, 1)
        ends = reshape(cast(lengths, int32), concat([strided_slice(extents, slice(0, 1)), [1]], 0))
        turned = select(less(numbers, ends), subtract(subtract(ends, 1), numbers), numbers)
        examples = expand_dims(number_range(strided_slice(extents, 0)), 1)
        flat = reshape(rows, concat([constant([-1]), strided_slice(extents, slice(2, None))], 0))
        fits = logical_and(greater_equal(ends, 0), less(turned, most))
        result = gather(flat, select(fits, add(turned, multiply(examples, most)), -1))
        result.set_shape(rows.shape)
        return result if rows is x else transpose(result, [order.index(axis) for axis in range(rank)])


@checked
def meshgrid(*args: Any, indexing: Indexing = "xy", name: Name = None) -> list[Tensor]:
    """Coordinates of a grid, from the coordinates along each axis: one tensor per vector.

    args: vectors [n0], [n1], ...; the shape is [n0, n1, ...] for "ij", [n1, n0, ...] for "xy".
    """
    with graph_of(args).as_default(), name_scope(name or "meshgrid"):
        vectors = [reshape(as_tensor(arg), [-1]) for arg in args]
        count = len(vectors)
        order = [1, 0, *range(2, count)] if indexing == "xy" and count > 1 else list(range(count))
        extents = concat([shape(vectors[axis]) for axis in order], 0) if vectors else None
        return [
            broadcast_to(reshape(v, [-1 if order[k] == axis else 1 for k in range(count)]), extents)
            for axis, v in enumerate(vectors)
        ]
