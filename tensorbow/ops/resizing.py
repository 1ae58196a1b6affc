"""Images of another size: every method is a weighted sum of gathered rows, then of gathered columns.

Positions and weights are constants, computed when the graph is built, so the extents of the images must be
known. They are those of TensorFlow 1: pixel i of the result lies at i * scale, without half pixels.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Flag, Name, checked, sequence, whole
from tensorbow.ops.arrays import expand_dims, squeeze
from tensorbow.ops.constant import constant
from tensorbow.ops.elementwise import add, multiply
from tensorbow.ops.indexing import gather
from tensorbow.ops.selection import cast
from tensorbow.specs import Array, float32

__all__ = [
    "ResizeMethod",
    "resize_area",
    "resize_bicubic",
    "resize_bilinear",
    "resize_images",
    "resize_nearest_neighbor",
]

Size: TypeAlias = Annotated[Any, sequence(whole(1), "[height, width], whole numbers of at least 1")]
Method: TypeAlias = Annotated[int, whole(0, 3)]
Taps = list[tuple[Array, Array]]  # positions and weights of one source pixel for each pixel of the result

KEYS = -0.75  # the slope of Keys' cubic kernel at 1 that TensorFlow 1 uses


class ResizeMethod:
    """Methods of `resize_images`."""

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


def _taps(extent: int, size: int, method: int, align_corners: bool) -> Taps:
    scale = (extent - 1) / (size - 1) if align_corners and size > 1 else extent / size
    at = np.arange(size) * scale
    low = np.floor(at).astype(np.int64)
    if method == ResizeMethod.NEAREST_NEIGHBOR:
        nearest = np.floor(at + 0.5).astype(np.int64) if align_corners else low
        return [(np.minimum(nearest, extent - 1), np.ones(size))]
    if method == ResizeMethod.AREA:
        last = extent if align_corners else np.inf
        ends = np.minimum(at + scale, last)
        count = math.ceil(scale) + 1
        parts = [(low + k, np.minimum(ends, low + k + 1) - np.maximum(at, low + k)) for k in range(count)]
        total = sum(np.maximum(weights, 0) for _, weights in parts)
        return [(np.minimum(i, extent - 1), np.maximum(weights, 0) / total) for i, weights in parts]
    part = at - low
    if method == ResizeMethod.BILINEAR:
        return [(np.minimum(low, extent - 1), 1 - part), (np.minimum(low + 1, extent - 1), part)]
    return [(np.clip(low + k, 0, extent - 1), _cubic(np.abs(part - k))) for k in (-1, 0, 1, 2)]


def _cubic(x: Array) -> Array:
    """Keys' cubic kernel (Keys, 1981) at a distance of up to 2."""
    near = ((KEYS + 2) * x - (KEYS + 3)) * x * x + 1
    far = KEYS * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, far)


def _resampled(x: Tensor, axis: int, taps: Taps) -> Tensor:
    total = None
    for positions, weights in taps:
        term = gather(x, constant(positions), axis=axis)
        if not (weights == 1).all():
            shaped = weights.reshape([-1] + [1] * (3 - axis))
            term = multiply(term, constant(shaped, x.dtype))
        total = term if total is None else add(total, term)
    assert total is not None  # every method has a tap
    return total


@checked
def resize_images(
    images: Any,
    size: Size,
    method: Method = ResizeMethod.BILINEAR,
    align_corners: Flag = False,
    name: Name = None,
) -> Tensor:
    """Images of `size` [height, width], by one of the methods of `ResizeMethod`.

    images: [batch, height, width, channels] or [height, width, channels], height and width known. Returns
    float32 (float64 for that), or the dtype of the images for NEAREST_NEIGHBOR. With `align_corners` the
    corners' centres stay where they are. Raises InvalidArgumentError for other ranks and unknown extents.
    """
    x = as_tensor(images)
    rank = x.shape.ndims
    known = rank in (3, 4) and None not in x.spec.dims[-3:-1]
    if len(size) != 2 or not known or 0 in x.spec.dims[-3:-1]:
        raise InvalidArgumentError(
            f"resize_images: expected images [batch, height, width, channels] of known height and width "
            f"and a size [height, width], got {x.spec} and {list(size)}"
        )
    with x.graph.as_default(), name_scope(name or "resize_images"):
        batch = x if rank == 4 else expand_dims(x, 0)
        if method != ResizeMethod.NEAREST_NEIGHBOR and not x.dtype.is_floating:
            batch = cast(batch, float32)
        for axis, wanted in enumerate(size, start=1):
            extent = batch.spec.dims[axis] or 1
            if extent != wanted:
                batch = _resampled(batch, axis, _taps(extent, wanted, method, align_corners))
        return batch if rank == 4 else squeeze(batch, 0)


@checked
def resize_bilinear(images: Any, size: Size, align_corners: Flag = False, name: Name = None) -> Tensor:
    """`resize_images` by bilinear interpolation."""
    return resize_images(images, size, ResizeMethod.BILINEAR, align_corners, name)


@checked
def resize_nearest_neighbor(
    images: Any, size: Size, align_corners: Flag = False, name: Name = None
) -> Tensor:
    """`resize_images` by the nearest pixel, in the dtype of the images."""
    return resize_images(images, size, ResizeMethod.NEAREST_NEIGHBOR, align_corners, name)


@checked
def resize_bicubic(images: Any, size: Size, align_corners: Flag = False, name: Name = None) -> Tensor:
    """`resize_images` by cubic convolution (Keys, 1981)."""
    return resize_images(images, size, ResizeMethod.BICUBIC, align_corners, name)


@checked
def resize_area(images: Any, size: Size, align_corners: Flag = False, name: Name = None) -> Tensor:
    """`resize_images` by the mean of the area that a pixel of the result covers."""
    return resize_images(images, size, ResizeMethod.AREA, align_corners, name)
