"""Bilinear resizing in integer arithmetic: the same bytes on every machine."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import checked, refuse, whole

Extent: TypeAlias = Annotated[int, whole(1, 1 << 20)]
Greatest: TypeAlias = Annotated[int, whole(1, 255)]


def _neighbours(
    size_in: int, size_out: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Interpolation along one axis: per output pixel the input pixels before and after its centre, and the
    weight of the one after; the two weights sum to 2 * size_out. Pixel centres are at halves.
    """
    unit = 2 * size_out
    positions = np.arange(1, unit, 2, dtype=np.int64) * size_in - size_out  # in units of 1/unit input pixels
    before, fraction = np.divmod(positions, unit)
    return before.clip(0, size_in - 1), (before + 1).clip(0, size_in - 1), fraction


@checked
def resize_bilinear(
    images: NDArray[np.integer], height: Extent, width: Extent, maximum: Greatest = 255
) -> NDArray[np.uint8]:
    """Resizes [n, h, w] pictures with values 0..maximum to uint8 [n, height, width] with values 0..255.

    Half-pixel centres, edges repeated, rounded to nearest (halves up). Raises InvalidArgumentError for
    another rank, values outside 0..maximum, or an empty array.
    """
    if not isinstance(images, np.ndarray):
        raise refuse("resize_bilinear", "images", "a NumPy array", images)
    if images.ndim != 3 or images.dtype.kind not in "iu" or images.size == 0:
        raise InvalidArgumentError(
            "resize_bilinear: expected images to be integers [n, h, w], none of them zero; "
            f"got {images.dtype} {list(images.shape)}"
        )
    if images.min() < 0 or images.max() > maximum:
        raise InvalidArgumentError(
            "resize_bilinear: expected images of values in 0..maximum; "
            f"got {images.min()}..{images.max()} with maximum {maximum}"
        )
    above, below, down = _neighbours(images.shape[1], height)
    left, right, across = _neighbours(images.shape[2], width)

    def row(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the input, interpolated along the width: [n, height, width], times 2 * width."""
        first, second = (images[:, rows[:, None], columns].astype(np.int64) for columns in (left, right))
        return first * (2 * width - across) + second * across

    total = row(above) * (2 * height - down)[:, None] + row(below) * down[:, None]
    unit = 4 * height * width * maximum
    return ((2 * 255 * total + unit) // (2 * unit)).astype(np.uint8)
