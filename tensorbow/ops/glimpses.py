"""Glimpses: a window of each image, around a place of its own (Mnih et al., 2014)."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Flag, Name, checked, one_of
from tensorbow.ops.arrays import expand_dims
from tensorbow.ops.broadcasting import shape, zeros_like
from tensorbow.ops.conditions import where_v2
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import add, divide, equal, logical_and, maximum, minimum, multiply, subtract
from tensorbow.ops.indexing import gather
from tensorbow.ops.math_functions import reduce_std
from tensorbow.ops.random import random_normal, random_uniform
from tensorbow.ops.reductions import reduce_max, reduce_mean, reduce_min
from tensorbow.ops.resizing import Size
from tensorbow.ops.selection import cast
from tensorbow.specs import compatible, float32, int32

__all__ = ["extract_glimpse"]

Noise: TypeAlias = Annotated[str, one_of("uniform", "gaussian", "zero")]


@checked
def extract_glimpse(
    input: Any,
    size: Size,
    offsets: Any,
    centered: Flag = True,
    normalized: Flag = True,
    uniform_noise: Flag = True,
    name: Name = None,
    *,
    noise: Noise | None = None,
) -> Tensor:
    """A window of `size` [height, width] of each image, float32 [batch, height, width, channels].

    offsets: the window's middle in each image, float32 [batch, 2], in rows and columns. normalized: they are
    parts of the extents, not pixels. centered: the origin is the image's middle, and -1 and 1 (in pixels:
    minus and plus the extent) are its borders; else it is the upper left corner.

    Pixels outside of the image are noise: "uniform" between its least and its greatest value, "gaussian" of
    its mean and deviation, or "zero"; by default as `uniform_noise` says, uniform or gaussian. The gradient
    is with respect to the images.

    Raises InvalidArgumentError for other shapes and dtypes, and for extents or a size that are not known.
    """
    images, places = as_tensor(input), as_tensor(offsets)
    for tensor, what in ((images, "images"), (places, "offsets")):
        require_dtype("extract_glimpse", tensor.spec, (float32,), what)
    dims = images.spec.shape
    if dims is None or len(dims) != 4 or None in dims[1:3] or not isinstance(size, tuple) or len(size) != 2:
        raise InvalidArgumentError(
            f"extract_glimpse: expected images [batch, height, width, channels] of known height and width, "
            f"and a known size, got {images.spec} and {size}"
        )
    if places.spec.shape is None or not compatible(places.spec.shape, (dims[0], 2)):
        raise InvalidArgumentError(
            f"extract_glimpse: expected offsets [batch, 2] for images {images.spec}, got {places.spec}"
        )
    kind = noise or ("uniform" if uniform_noise else "gaussian")
    extents, wanted = np.array(dims[1:3], np.float32), np.array(size, np.float32)
    with images.graph.as_default(), name_scope(name or "extract_glimpse"):
        middles = multiply(places, extents) if normalized else places
        if centered:
            middles = add(divide(middles, 2.0), extents / 2)
        starts = cast(subtract(middles, wanted / 2), int32)
        window, inside = images, constant(True)
        for axis in (0, 1):
            pixels = add(starts[:, axis : axis + 1], np.arange(size[axis], dtype=np.int32))
            within = minimum(maximum(pixels, 0), int(extents[axis]) - 1)
            window = gather(window, within, axis=axis + 1, batch_dims=1)
            mask = expand_dims(equal(pixels, within), 2 - axis)  # [batch, height, 1] or [batch, 1, width]
            inside = mask if axis == 0 else logical_and(inside, mask)
        return where_v2(expand_dims(inside, 3), window, _noise(kind, images, window))


def _noise(kind: str, images: Tensor, window: Tensor) -> Tensor:
    """Noise of the window's shape, as large as each image's values."""
    if kind == "zero":
        return zeros_like(window)
    axes = [1, 2, 3]
    if kind == "uniform":
        least, greatest = reduce_min(images, axes, keepdims=True), reduce_max(images, axes, keepdims=True)
        return add(least, multiply(random_uniform(shape(window)), subtract(greatest, least)))
    deviation = reduce_std(images, axes, keepdims=True)
    return add(reduce_mean(images, axes, keepdims=True), multiply(random_normal(shape(window)), deviation))
