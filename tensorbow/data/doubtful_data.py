"""Doubts about data that mean something else in other libraries: channels first, one-hot labels."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from tensorbow.data.array_dataset import TrainingData
from tensorbow.nest import named_leaves

_logger = logging.getLogger("tensorbow.data")
_LEAST = 8  # rows and columns of a picture
_ROWS = 10_000  # of labels that are looked at


def warn_of_doubts(data: TrainingData, *, any_labels: bool) -> None:
    """Warns of data to train with that a model of the zoo would take otherwise than it seems meant.

    any_labels: the model has a loss of its own, for which labels may have any form.
    """
    _warn_of_channels_first(data)
    if not any_labels and _is_one_hot(data.labels):
        _logger.warning(
            "%s: labels [examples, %d] look like classes in one-hot form, and are taken as %d numbers to "
            "regress: give numpy.argmax(labels, 1)",
            *(data.name, data.labels.shape[1], data.labels.shape[1]),
        )


def _warn_of_channels_first(data: TrainingData) -> None:
    for path, spec in named_leaves(data.specs[0], "inputs"):
        dims = [int(extent or 0) for extent in spec.dims[1:]]
        if _is_channels_first(dims):
            channels, height, width = dims
            _logger.warning(
                "%s: %s look like pictures with channels first, and are taken as pictures of %d x %d with %d "
                "channels: give them as [examples, %d, %d, %d], by numpy.transpose(x, (0, 2, 3, 1)), "
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


def _is_one_hot(labels: Any) -> bool:
    """True for labels [examples, classes] of which the first rows have a 1 among zeros each."""
    if not isinstance(labels, np.ndarray) or labels.ndim != 2 or labels.shape[1] < 2:
        return False
    rows = labels[:_ROWS]
    return bool(((rows == 0) | (rows == 1)).all() and (rows.sum(1) == 1).all())
