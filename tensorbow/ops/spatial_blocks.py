"""Rearrangements of images: blocks of pixels to channels or to the batch, and back.

Made of reshapes, transposes and slices. Extents that are not known are computed from the shape of the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, as_tensor, control_dependencies, name_scope
from tensorbow.kinds import Name, Positive, checked
from tensorbow.ops.argument_kinds import BlockShape, DataFormat, PairList
from tensorbow.ops.arrays import concat, reshape, stack, transpose
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.checks import asserted
from tensorbow.ops.control import identity
from tensorbow.ops.data_format import with_channels_last
from tensorbow.ops.elementwise import less_equal
from tensorbow.ops.extents import Extent, extents_for_reshape, parts_of, times
from tensorbow.ops.padding import pad
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.slicing import strided_slice

__all__ = [
    "batch_to_space",
    "batch_to_space_nd",
    "depth_to_space",
    "space_to_batch",
    "space_to_batch_nd",
    "space_to_depth",
]

# Channels -------------------------------------------------------------------------------------------------


@checked
def space_to_depth(
    input: Any, block_size: Positive, name: Name = None, data_format: DataFormat = "NHWC"
) -> Tensor:
    """Blocks of `block_size` x `block_size` pixels become the channels of one pixel.

    [batch, height, width, channels] -> [batch, height / block, width / block, block * block * channels].
    Raises InvalidArgumentError for extents that are not multiples of the block.
    """
    n = block_size

    def arrange(x: Tensor) -> Tensor:
        batch, height, width, channels = extents_for_reshape("space_to_depth", x, 4)
        rows, columns = (parts_of("space_to_depth", extent, n, "an extent") for extent in (height, width))
        blocks = reshape(x, [batch, rows, n, columns, n, channels])
        return reshape(transpose(blocks, [0, 1, 3, 2, 4, 5]), [batch, rows, columns, times(n * n, channels)])

    with as_tensor(input).graph.as_default(), name_scope(name or "SpaceToDepth"):
        return with_channels_last("space_to_depth", arrange, input, data_format)


@checked
def depth_to_space(
    input: Any, block_size: Positive, name: Name = None, data_format: DataFormat = "NHWC"
) -> Tensor:
    """The channels of each pixel become a block of pixels: the inverse of `space_to_depth`."""
    n = block_size

    def arrange(x: Tensor) -> Tensor:
        batch, height, width, channels = extents_for_reshape("depth_to_space", x, 4)
        rest = parts_of("depth_to_space", channels, n * n, "channels")
        blocks = reshape(x, [batch, height, width, n, n, rest])
        larger = [batch, times(height, n), times(width, n), rest]
        return reshape(transpose(blocks, [0, 1, 3, 2, 4, 5]), larger)

    with as_tensor(input).graph.as_default(), name_scope(name or "DepthToSpace"):
        return with_channels_last("depth_to_space", arrange, input, data_format)


# Batch ----------------------------------------------------------------------------------------------------


@checked
def space_to_batch_nd(input: Any, block_shape: BlockShape, paddings: PairList, name: Name = None) -> Tensor:
    """Pads the axes after the batch, and moves the positions within each block to the batch.

    input: [batch, *extents, ...]; block_shape: one number per axis; paddings: [before, after] for each.
    Returns [batch * product of block_shape, *(padded extents / block_shape), ...]. Raises
    InvalidArgumentError for padded extents that are not multiples of the block.
    """
    op, x, blocks, count = "space_to_batch", as_tensor(input), block_shape, len(block_shape)
    with x.graph.as_default(), name_scope(name or "SpaceToBatchND"):
        x, _, tail = _flattened(op, x, paddings, count)
        if any(map(any, paddings)):
            x = pad(x, [[0, 0], *map(list, paddings), [0, 0]])
        batch, *extents, rest = extents_for_reshape(op, x, count + 2)
        smaller = [
            parts_of(op, extent, block, "a padded extent")
            for extent, block in zip(extents, blocks, strict=True)
        ]
        split = [number for both in zip(smaller, blocks, strict=True) for number in both]
        order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), 2 * count + 1]
        parts = transpose(reshape(x, [batch, *split, rest]), order)
        return _in_shape(parts, [times(batch, *blocks), *smaller], tail)


@checked
def batch_to_space_nd(input: Any, block_shape: BlockShape, crops: PairList, name: Name = None) -> Tensor:
    """The inverse of `space_to_batch_nd`: `crops` [before, after] are cut off at last.

    Raises InvalidArgumentError for a batch that is not a multiple of the block, and crops beyond the extents.
    """
    op, x, blocks, count = "batch_to_space", as_tensor(input), block_shape, len(block_shape)
    with x.graph.as_default(), name_scope(name or "BatchToSpaceND"):
        x, (batch, *extents), tail = _flattened(op, x, crops, count)
        rest = extents_for_reshape(op, x, count + 2)[-1]
        examples = parts_of(op, batch, math.prod(blocks), "a batch")
        larger = [times(extent, block) for extent, block in zip(extents, blocks, strict=True)]
        fits = [_fits(extent, sum(pair)) for extent, pair in zip(larger, crops, strict=True)]
        pairs = [axis for i in range(count) for axis in (count + 1 + i, i)]
        parts = transpose(reshape(x, [*blocks, examples, *extents, rest]), [count, *pairs, 2 * count + 1])
        whole = reshape(parts, [examples, *larger, rest])
        if checks := [each for each in fits if each is not None]:
            with control_dependencies(checks):
                whole = identity(whole)
        if any(map(any, crops)):
            kept = (slice(before, -after if after else None) for before, after in crops)
            whole = strided_slice(whole, (slice(None), *kept))
        if isinstance(tail, list) and len(tail) == 1:
            return whole
        return _in_shape(whole, extents_for_reshape(op, whole, count + 2)[:-1], tail)


def _flattened(op: str, x: Tensor, pairs: Sequence[Any], count: int) -> tuple[Tensor, list[Extent], Any]:
    """x with the axes after the block's as one, the extents of the others, and those of these: a list, or a
    vector where the rank is not known."""
    rank = x.shape.ndims
    if len(pairs) != count or (rank is not None and count >= rank):
        raise InvalidArgumentError(
            f"{op}: a block of {count} axes and {len(pairs)} pairs for {x.spec}; expected a batch, the axes "
            "of the block, and one pair for each of these"
        )
    if rank is not None:
        extents = extents_for_reshape(op, x, rank)
        lead, tail = extents[: count + 1], extents[count + 1 :]
        return (x if len(tail) == 1 else reshape(x, [*lead, times(*tail)])), lead, tail
    computed = shape(x)
    lead = [strided_slice(computed, axis) for axis in range(count + 1)]
    vector = strided_slice(computed, slice(count + 1, None))
    return reshape(x, [*lead, reduce_prod(vector)]), lead, vector


def _in_shape(x: Tensor, lead: list[Extent], tail: Any) -> Tensor:
    if isinstance(tail, list):
        return reshape(x, [*lead, *tail])
    return reshape(x, concat([stack(lead), tail], 0))


def _fits(extent: Extent, crops: int) -> Operation | None:
    """Checks that so many elements can be cut off an extent: at once, or by an op where a step knows it."""
    message = f"batch_to_space: crops of {crops} are larger than an extent"
    if isinstance(extent, Tensor):
        return asserted(less_equal(crops, extent), [extent], message) if crops else None
    if crops > extent:
        raise InvalidArgumentError(f"{message} of {extent}")
    return None


@checked
def space_to_batch(input: Any, paddings: PairList, block_size: Positive, name: Name = None) -> Tensor:
    """`space_to_batch_nd` of images [batch, height, width, channels] with square blocks."""
    return space_to_batch_nd(input, (block_size, block_size), paddings, name)


@checked
def batch_to_space(input: Any, crops: PairList, block_size: Positive, name: Name = None) -> Tensor:
    """`batch_to_space_nd` of images [batch, height, width, channels] with square blocks."""
    return batch_to_space_nd(input, (block_size, block_size), crops, name)
