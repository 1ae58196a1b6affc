"""Extents of tensors: whole numbers where the graph knows them, scalars of the step where it does not."""

from __future__ import annotations

import math

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.elementwise import floordiv, multiply
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import compatible

Extent = int | Tensor  # -1 for a batch that `reshape` infers


def known_extents(op: str, x: Tensor, rank: int | None = None) -> tuple[int, ...]:
    """All extents but the batch's. Raises InvalidArgumentError for another rank and for unknown extents."""
    dims = x.spec.shape
    if dims is None or not dims or (rank is not None and len(dims) != rank) or None in dims[1:]:
        wanted = f"rank {rank} and" if rank else "a batch and"
        raise InvalidArgumentError(
            f"{op}: expected {wanted} known extents after the batch, got {x.spec}; give the placeholder a "
            "shape, or call set_shape"
        )
    return tuple(int(extent or 0) for extent in dims[1:])


def batch_of(x: Tensor) -> int:
    """The extent of the batch for reshape: -1 if it is not known."""
    extent = x.spec.dims[0]
    return -1 if extent is None else extent


def extents_of(op: str, x: Tensor, rank: int) -> list[Extent]:
    """All extents, the batch's too: numbers where they are known, else scalars (int32) of the step.

    Raises InvalidArgumentError for another rank.
    """
    if not compatible((None,) * rank, x.spec.shape):
        raise InvalidArgumentError(f"{op}: expected rank {rank}, got {x.spec}")
    dims = x.spec.shape or (None,) * rank
    if None not in dims:
        return [int(extent or 0) for extent in dims]
    computed = shape(x)
    return [strided_slice(computed, axis) if extent is None else extent for axis, extent in enumerate(dims)]


def extents_for_reshape(op: str, x: Tensor, rank: int) -> list[Extent]:
    """`extents_of`, but -1 for the batch where only this extent is unknown."""
    dims = x.spec.shape
    if dims and None not in dims[1:]:
        return [batch_of(x), *known_extents(op, x, rank)]
    return extents_of(op, x, rank)


def times(*factors: Extent) -> Extent:
    """The product of extents; -1 if the batch is one of them and is inferred."""
    found: Extent = math.prod(each for each in factors if isinstance(each, int))
    if isinstance(found, int) and found < 0:
        return -1
    for each in factors:
        if isinstance(each, Tensor):
            found = each if isinstance(found, int) and found == 1 else multiply(found, each)
    return found


def parts_of(op: str, extent: Extent, block: int, what: str) -> Extent:
    """The number of blocks in an extent. Raises InvalidArgumentError for a rest, if the extent is known."""
    if isinstance(extent, Tensor):
        return extent if block == 1 else floordiv(extent, block)  # the reshape refuses a rest
    if extent < 0:
        return extent
    if extent % block:
        raise InvalidArgumentError(f"{op}: {what} of {extent} is not a multiple of {block}")
    return extent // block
