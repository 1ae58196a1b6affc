"""Bilinear resizing in integers: the same bytes on every machine, whatever BLAS or vector unit it has."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorbow.errors import InvalidArgumentError


def _weights(size_in: int, size_out: int) -> NDArray[np.int64]:
    """Interpolation weights [size_out, size_in]; each row sums to 2 * size_out. Pixel centres at halves."""
    unit = 2 * size_out
    weights = np.zeros((size_out, size_in), np.int64)
    for row in range(size_out):
        position = (2 * row + 1) * size_in - size_out  # in units of 1/unit input pixels
        left, fraction = divmod(position, unit)
        weights[row, min(max(left, 0), size_in - 1)] += unit - fraction
        weights[row, min(max(left + 1, 0), size_in - 1)] += fraction
    return weights


def resize_bilinear(
    images: NDArray[np.integer], height: int, width: int, maximum: int = 255
) -> NDArray[np.uint8]:
    """Resizes [n, h, w] pictures with values 0..maximum to uint8 [n, height, width] with values 0..255.

    Half-pixel centres, edges repeated, rounded to nearest (halves up). InvalidArgumentError for another
    rank, for values outside 0..maximum, or an empty size.
    """
    if images.ndim != 3 or images.dtype.kind not in "iu" or images.size == 0 or min(height, width) < 1:
        raise InvalidArgumentError(
            f"resize needs integer pictures [n, h, w] and a size above zero; "
            f"got {images.dtype} {list(images.shape)} to {height}x{width}"
        )
    if not 1 <= maximum <= 255 or images.min() < 0 or images.max() > maximum:
        raise InvalidArgumentError(
            f"resize needs values in 0..maximum with maximum in 1..255; "
            f"got {images.min()}..{images.max()} with maximum {maximum}"
        )
    rows, columns = _weights(images.shape[1], height), _weights(images.shape[2], width)
    total: NDArray[np.int64] = np.matmul(np.matmul(rows, images.astype(np.int64)), columns.T)
    unit = 4 * height * width * maximum
    return ((2 * 255 * total + unit) // (2 * unit)).astype(np.uint8)
