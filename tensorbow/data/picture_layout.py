"""Doubt about pictures with their channels first, as PyTorch has them: here they are last."""

from __future__ import annotations

import logging

from tensorbow.data.array_dataset import TrainingData
from tensorbow.nest import named_leaves

_logger = logging.getLogger("tensorbow.data")
_LEAST = 8  # rows and columns of a picture


def warn_of_channels_first(data: TrainingData) -> None:
    """Warns of inputs that look like pictures [examples, channels, height, width]."""
    for path, spec in named_leaves(data.specs[0], "inputs"):
        dims = [int(extent or 0) for extent in spec.dims[1:]]
        if _is_channels_first(dims):
            channels, height, width = dims
            _logger.warning(
                "%s: %s look like pictures with channels first, and are taken as %d rows of %d columns with "
                "%d channels: give them as [examples, %d, %d, %d], by numpy.transpose(x, (0, 2, 3, 1)), "
                "unless the model itself expects channels first",
                *(data.name, f"{path} [examples, {channels}, {height}, {width}]"),
                *(channels, height, width, height, width, channels),
            )


def _is_channels_first(dims: list[int]) -> bool:
    """True for 1 or 3 channels before the sides of a square, or 3 before sides that are no channels."""
    if len(dims) != 3:
        return False
    first, height, width = dims
    is_square = first in (1, 3) and height == width >= _LEAST
    return is_square or (first == 3 and min(height, width) >= 2 * _LEAST)
