"""Rearrangements of images: blocks of pixels to channels or to the batch and back, and patches.

Made of reshapes, transposes and slices. Extents that are not known are computed from the shape of the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, as_tensor, control_dependencies, name_scope
from tensorbow.kinds import Name, Positive, checked
from tensorbow.ops.argument_kinds import BlockShape, DataFormat, Padding, PairList, WindowSize
from tensorbow.ops.arrays import concat, reshape, stack, transpose
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.checks import asserted
from tensorbow.ops.control import identity
from tensorbow.ops.data_format import with_channels_last
from tensorbow.ops.elementwise import add, floordiv, less_equal, maximum, multiply, subtract
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.slicing import pad, strided_slice
from tensorbow.ops.sliding_windows import Axis, make_axis, spatial_pair
from tensorbow.specs import compatible

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


Extent = int | Tensor


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


def is_known(x: Tensor) -> bool:
    """True if all extents but the batch's are known."""
    dims = x.spec.shape
    return bool(dims) and None not in (dims or ())[1:]


def _image_extents(op: str, x: Tensor) -> list[Extent]:
    """The four extents of images; the batch's is -1 if no other is unknown, which `reshape` infers."""
    return [batch_of(x), *known_extents(op, x, 4)] if is_known(x) else extents_of(op, x, 4)


def times(*factors: Extent) -> Extent:
    """The product of extents."""
    found: Extent = math.prod(each for each in factors if isinstance(each, int))
    for each in factors:
        if isinstance(each, Tensor):
            found = each if isinstance(found, int) and found == 1 else multiply(found, each)
    return found


def _parts_of(op: str, extent: Extent, block: int, what: str) -> Extent:
    if isinstance(extent, int):
        return _divided(op, extent, block, what)
    return extent if block == 1 else floordiv(extent, block)  # the reshape refuses a rest


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
    Raises InvalidArgumentError for extents that are not multiples of the block.
    """
    n = block_size

    def arrange(x: Tensor) -> Tensor:
        batch, height, width, channels = _image_extents("space_to_depth", x)
        rows, columns = (_parts_of("space_to_depth", extent, n, "an extent") for extent in (height, width))
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
        batch, height, width, channels = _image_extents("depth_to_space", x)
        rest = _parts_of("depth_to_space", channels, n * n, "channels")
        blocks = reshape(x, [batch, height, width, n, n, rest])
        larger = [batch, times(height, n), times(width, n), rest]
        return reshape(transpose(blocks, [0, 1, 3, 2, 4, 5]), larger)

    with as_tensor(input).graph.as_default(), name_scope(name or "DepthToSpace"):
        return with_channels_last("depth_to_space", arrange, input, data_format)


# Batch ----------------------------------------------------------------------------------------------------


def _padded_pairs(
    op: str, blocks: Sequence[int], pairs: Sequence[Any], extents: Sequence[int | None]
) -> None:
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
    if not is_known(x):
        with x.graph.as_default(), name_scope(name or "SpaceToBatchND"):
            return _space_to_batch(x, blocks, paddings)
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
    if not is_known(x):
        with x.graph.as_default(), name_scope(name or "BatchToSpaceND"):
            return _batch_to_space(x, blocks, crops)
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


def _flattened(op: str, x: Tensor, pairs: Sequence[Any], count: int) -> tuple[Tensor, list[Extent], Any]:
    """x with the axes after the block's as one, the extents of the others, and those of these: a list, or a
    vector where the rank is not known."""
    if x.shape.ndims is not None:
        _padded_pairs(op, [0] * count, pairs, x.spec.dims[1:])
        extents = extents_of(op, x, x.shape.ndims)
        lead, tail = extents[: count + 1], extents[count + 1 :]
        return reshape(x, [*lead, times(1, *tail)]), lead, tail
    if len(pairs) != count:
        raise InvalidArgumentError(f"{op}: a block of {count} axes and {len(pairs)} pairs; expected as many")
    computed = shape(x)
    lead = [strided_slice(computed, axis) for axis in range(count + 1)]
    vector = strided_slice(computed, slice(count + 1, None))
    return reshape(x, [*lead, reduce_prod(vector)]), lead, vector


def _in_shape(x: Tensor, lead: list[Extent], tail: Any) -> Tensor:
    if isinstance(tail, list):
        return reshape(x, [*lead, *tail])
    return reshape(x, concat([stack(lead), tail], 0))


def _space_to_batch(x: Tensor, blocks: list[int], pairs: Sequence[Any]) -> Tensor:
    count = len(blocks)
    flat, _, tail = _flattened("space_to_batch", x, pairs, count)
    padded = pad(flat, [[0, 0], *map(list, pairs), [0, 0]]) if any(map(any, pairs)) else flat
    batch, *extents, rest = extents_of("space_to_batch", padded, count + 2)
    smaller = [
        _parts_of("space_to_batch", extent, block, "a padded extent")
        for extent, block in zip(extents, blocks, strict=True)
    ]
    split = [number for both in zip(smaller, blocks, strict=True) for number in both]
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), 2 * count + 1]
    parts = transpose(reshape(padded, [batch, *split, rest]), order)
    return _in_shape(parts, [times(batch, *blocks), *smaller], tail)


def _fits(extent: Extent, crops: int) -> Operation | None:
    """Checks that so many elements can be cut off an extent: at once, or by an op where a step knows it."""
    message = f"batch_to_space: crops of {crops} are larger than an extent"
    if isinstance(extent, Tensor):
        return asserted(less_equal(crops, extent), [extent], message) if crops else None
    if crops > extent:
        raise InvalidArgumentError(f"{message} of {extent}")
    return None


def _batch_to_space(x: Tensor, blocks: list[int], crops: Sequence[Any]) -> Tensor:
    count = len(blocks)
    flat, (batch, *extents), tail = _flattened("batch_to_space", x, crops, count)
    rest = extents_of("batch_to_space", flat, count + 2)[-1]
    examples = _parts_of("batch_to_space", batch, math.prod(blocks), "a batch")
    pairs = [axis for i in range(count) for axis in (count + 1 + i, i)]
    parts = transpose(reshape(flat, [*blocks, examples, *extents, rest]), [count, *pairs, 2 * count + 1])
    larger = [times(extent, block) for extent, block in zip(extents, blocks, strict=True)]
    whole = reshape(parts, [examples, *larger, rest])
    fits = [_fits(extent, before + after) for extent, (before, after) in zip(larger, crops, strict=True)]
    with control_dependencies([each for each in fits if each is not None]):
        whole = identity(whole)
    whole = strided_slice(
        whole, (slice(None), *(slice(before, -after if after else None) for before, after in crops))
    )
    return _in_shape(whole, extents_of("batch_to_space", whole, count + 2)[:-1], tail)


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


class SlidingAxis:
    """Windows along an axis whose extent may be known in a step only.

    They begin at every `stride`-th element of the axis as `padded_for` pads it, as many as fit.
    """

    def __init__(self, extent: Extent, window: int, stride: int, padding: str, rate: int = 1):
        self.window, self._stride, self._rate = window, stride, rate
        self.span = (window - 1) * rate + 1
        self.padding: tuple[Extent, Extent] = (0, 0)
        if isinstance(extent, int):
            axis = make_axis(extent, window, stride, padding, rate)
            if axis.is_padded:
                self.padding = (axis.before, around(axis)[1])
        elif padding == "SAME":
            count = floordiv(add(extent, stride - 1), stride)
            needed = subtract(add(multiply(subtract(count, 1), stride), self.span), extent)
            total = maximum(needed, 0)
            before = floordiv(total, 2)
            self.padding = before, subtract(total, before)

    def elements(self, number: int) -> slice:
        """The element of that number of every window."""
        behind = number * self._rate - (self.span - 1)
        return slice(number * self._rate, behind or None, self._stride)


def padded_for(x: Tensor, axes: Sequence[SlidingAxis | None]) -> Tensor:
    """Zeros around x, so that all windows lie on it; None for an axis without windows."""
    pairs = [(0, 0) if axis is None else axis.padding for axis in axes]
    if all(each == 0 for pair in pairs for each in pair if isinstance(each, int)) and not any(
        isinstance(each, Tensor) for pair in pairs for each in pair
    ):
        return x
    if not any(isinstance(each, Tensor) for pair in pairs for each in pair):
        return pad(x, [list(pair) for pair in pairs])
    padded = pad(x, stack([stack(list(pair)) for pair in pairs]))
    if x.spec.shape is not None:
        kept = zip(axes, x.spec.shape, strict=True)
        padded.set_shape([extent if axis is None else None for axis, extent in kept])
    return padded


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
    with x.graph.as_default(), name_scope(name or "ExtractImagePatches"):
        _, *extents, _ = extents_of(op, x, 4)
        windows = [SlidingAxis(extents[i], sizes[i], steps[i], padding, gaps[i]) for i in (0, 1)]
        x = padded_for(x, [None, *windows, None])
        taken = [[window.elements(i) for i in range(window.window)] for window in windows]
        return concat(
            [strided_slice(x, (slice(None), row, column)) for row in taken[0] for column in taken[1]], 3
        )
