"""Rearrangements of images: blocks of pixels to channels or to the batch and back, and patches.

Made of reshapes, transposes and slices. The extents of the images must be known, the batch need not be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Name, Positive, checked
from tensorbow.ops.argument_kinds import BlockShape, DataFormat, Padding, PairList, WindowSize
from tensorbow.ops.arrays import concat, reshape, transpose
from tensorbow.ops.data_format import with_channels_last
from tensorbow.ops.slicing import pad, strided_slice
from tensorbow.ops.sliding_windows import Axis, make_axis, spatial_pair

__all__ = [
    "batch_to_space",
    "batch_to_space_nd",
    "depth_to_space",
    "extract_image_patches",
    "space_to_batch",
    "space_to_batch_nd",
    "space_to_depth",
]


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


def _divided(op: str, extent: int, block: int, what: str) -> int:
    if extent % block:
        raise InvalidArgumentError(f"{op}: {what} of {extent} is not a multiple of {block}")
    return extent // block


def _times(batch: int, factor: int) -> int:
    return batch if batch < 0 else batch * factor


# Channels -------------------------------------------------------------------------------------------------


@checked
def space_to_depth(
    input: Any, block_size: Positive, name: Name = None, data_format: DataFormat = "NHWC"
) -> Tensor:
    """Blocks of `block_size` x `block_size` pixels become the channels of one pixel.

    [batch, height, width, channels] -> [batch, height / block, width / block, block * block * channels].
    Raises InvalidArgumentError for extents that are unknown or not multiples of the block.
    """
    n = block_size

    def arrange(x: Tensor) -> Tensor:
        height, width, channels = known_extents("space_to_depth", x, 4)
        rows, columns = (_divided("space_to_depth", extent, n, "an extent") for extent in (height, width))
        blocks = reshape(x, [batch_of(x), rows, n, columns, n, channels])
        return reshape(transpose(blocks, [0, 1, 3, 2, 4, 5]), [batch_of(x), rows, columns, n * n * channels])

    with as_tensor(input).graph.as_default(), name_scope(name or "SpaceToDepth"):
        return with_channels_last("space_to_depth", arrange, input, data_format)


@checked
def depth_to_space(
    input: Any, block_size: Positive, name: Name = None, data_format: DataFormat = "NHWC"
) -> Tensor:
    """The channels of each pixel become a block of pixels: the inverse of `space_to_depth`."""
    n = block_size

    def arrange(x: Tensor) -> Tensor:
        height, width, channels = known_extents("depth_to_space", x, 4)
        rest = _divided("depth_to_space", channels, n * n, "channels")
        blocks = reshape(x, [batch_of(x), height, width, n, n, rest])
        return reshape(transpose(blocks, [0, 1, 3, 2, 4, 5]), [batch_of(x), height * n, width * n, rest])

    with as_tensor(input).graph.as_default(), name_scope(name or "DepthToSpace"):
        return with_channels_last("depth_to_space", arrange, input, data_format)


# Batch ----------------------------------------------------------------------------------------------------


def _padded_pairs(op: str, blocks: Sequence[int], pairs: Sequence[Any], extents: Sequence[int]) -> None:
    if len(blocks) != len(pairs) or len(blocks) > len(extents):
        raise InvalidArgumentError(
            f"{op}: a block of {len(blocks)} axes and {len(pairs)} pairs for {len(extents)} axes after the "
            "batch; expected one pair for each axis of the block"
        )


@checked
def space_to_batch_nd(input: Any, block_shape: BlockShape, paddings: PairList, name: Name = None) -> Tensor:
    """Pads the axes after the batch, and moves the positions within each block to the batch.

    input: [batch, *extents, ...]; block_shape: one number per axis; paddings: [before, after] for each.
    Returns [batch * product of block_shape, *(padded extents / block_shape), ...]. Raises
    InvalidArgumentError for padded extents that are not multiples of the block.
    """
    x, count, blocks = as_tensor(input), len(block_shape), list(block_shape)
    extents = known_extents("space_to_batch", x)
    _padded_pairs("space_to_batch", blocks, paddings, extents)
    tail = list(extents[count:])
    with x.graph.as_default(), name_scope(name or "SpaceToBatchND"):
        if any(map(any, paddings)):
            x = pad(x, [[0, 0], *map(list, paddings), *[[0, 0]] * len(tail)])
        padded = known_extents("space_to_batch", x)[:count]
        smaller = [
            _divided("space_to_batch", extent, block, "a padded extent")
            for extent, block in zip(padded, blocks, strict=True)
        ]
        split = [number for both in zip(smaller, blocks, strict=True) for number in both]
        inner = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
        parts = transpose(
            reshape(x, [batch_of(x), *split, *tail]),
            [*inner, *range(2 * count + 1, 2 * count + 1 + len(tail))],
        )
        return reshape(parts, [_times(batch_of(x), math.prod(blocks)), *smaller, *tail])


@checked
def batch_to_space_nd(input: Any, block_shape: BlockShape, crops: PairList, name: Name = None) -> Tensor:
    """The inverse of `space_to_batch_nd`: `crops` [before, after] are cut off at last.

    Raises InvalidArgumentError for a batch that is not a multiple of the block, and crops beyond the extents.
    """
    x, count, blocks = as_tensor(input), len(block_shape), list(block_shape)
    extents = known_extents("batch_to_space", x)
    _padded_pairs("batch_to_space", blocks, crops, extents)
    product = math.prod(blocks)
    batch = batch_of(x)
    batch = batch if batch < 0 else _divided("batch_to_space", batch, product, "a batch")
    tail = list(extents[count:])
    larger = [extent * block for extent, block in zip(extents, blocks, strict=False)]
    if any(before + after > extent for (before, after), extent in zip(crops, larger, strict=True)):
        raise InvalidArgumentError(f"batch_to_space: crops {list(crops)} are larger than {larger}")
    with x.graph.as_default(), name_scope(name or "BatchToSpaceND"):
        parts = reshape(x, [*blocks, batch, *extents])
        pairs = [axis for i in range(count) for axis in (count + 1 + i, i)]
        order = [count, *pairs, *range(2 * count + 1, 2 * count + 1 + len(tail))]
        whole = reshape(transpose(parts, order), [batch, *larger, *tail])
        if not any(map(any, crops)):
            return whole
        kept = [slice(before, n - after) for (before, after), n in zip(crops, larger, strict=True)]
        return strided_slice(whole, (slice(None), *kept))


@checked
def space_to_batch(input: Any, paddings: PairList, block_size: Positive, name: Name = None) -> Tensor:
    """`space_to_batch_nd` of images [batch, height, width, channels] with square blocks."""
    return space_to_batch_nd(input, (block_size, block_size), paddings, name)


@checked
def batch_to_space(input: Any, crops: PairList, block_size: Positive, name: Name = None) -> Tensor:
    """`batch_to_space_nd` of images [batch, height, width, channels] with square blocks."""
    return batch_to_space_nd(input, (block_size, block_size), crops, name)


# Patches --------------------------------------------------------------------------------------------------


def around(axis: Axis) -> list[int]:
    """Padding in front and behind, of an axis whose windows exceed it."""
    return [axis.before, max(0, axis.covered - axis.before - axis.extent)]


@checked
def extract_image_patches(
    images: Any,
    ksizes: WindowSize,
    strides: WindowSize,
    rates: WindowSize,
    padding: Padding,
    name: Name = None,
) -> Tensor:
    """The pixels of each window of images [batch, height, width, channels], as channels.

    Returns [batch, rows, columns, window height * window width * channels], the window's pixels in row-major
    order. Sizes, strides and rates (dilations) are as in `conv2d`; "SAME" pads with zeros.
    """
    op = "extract_image_patches"
    x = as_tensor(images)
    sizes, steps, gaps = (
        spatial_pair(op, value, what, "NHWC")[1:3]
        for value, what in ((ksizes, "ksizes"), (strides, "strides"), (rates, "rates"))
    )
    extents = known_extents(op, x, 4)[:2]
    axes = [make_axis(extents[i], sizes[i], steps[i], padding, gaps[i]) for i in (0, 1)]
    with x.graph.as_default(), name_scope(name or "ExtractImagePatches"):
        if any(axis.is_padded for axis in axes):
            x = pad(x, [[0, 0], *map(around, axes), [0, 0]])
        taken = [
            [slice(i * a.rate, i * a.rate + (a.count - 1) * a.stride + 1, a.stride) for i in range(a.window)]
            for a in axes
        ]
        return concat(
            [strided_slice(x, (slice(None), row, column)) for row in taken[0] for column in taken[1]], 3
        )
