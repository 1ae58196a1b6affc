"""Doubts about data: channels first, one-hot labels, classes from 1, numbers that are not finite."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from tensorbow.data.array_dataset import ArrayDataset, TrainingData
from tensorbow.nest import named_leaves
from tensorbow.specs import Array

_logger = logging.getLogger("tensorbow.data")
_LEAST = 8  # rows and columns of a picture
_ROWS = 10_000  # of labels that are looked at
_CLASSES, _EACH = 100, 5  # most classes, and least examples of each on average
_NBYTES = 1 << 30  # of an array that is searched for numbers that are not finite


def warn_of_doubts(data: TrainingData, *, any_labels: bool) -> None:
    """Warns of data to train with that a model of the zoo would take otherwise than it seems meant.

    any_labels: labels are meant as they are, as for the loss of a user's model.
    """
    _warn_of_channels_first(data)
    warn_of_infinite_numbers(data)
    labels = data.labels
    if isinstance(labels, np.ndarray):
        _warn_of_classes(data.name, labels, data.class_names)
    if any_labels or not isinstance(labels, np.ndarray):
        return
    if _is_one_hot(labels):
        _logger.warning(
            "%s: labels [examples, %d] look like classes in one-hot form, and are taken as %d numbers to "
            "regress: give numpy.argmax(labels, 1)",
            *(data.name, labels.shape[1], labels.shape[1]),
        )
    elif _are_classes_as_floats(labels):
        _logger.warning(
            "%s: labels %s [examples] are whole numbers from 0 to %d, and are taken as numbers to regress: "
            "for classes give integers, or task='classification' (--task classification)",
            *(data.name, labels.dtype, labels.max()),
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


def warn_of_infinite_numbers(data: TrainingData) -> None:
    """Warns of NaN and infinite numbers, but for NaN in tables, which stands for a missing number."""
    if not isinstance(data, ArrayDataset):
        return
    found = [("inputs", data.inputs)] if data.standardisation is None else []
    found += [] if data.labels is None else [("labels", data.labels)]
    for what, nest in found:
        for path, array in named_leaves(nest, what):
            if array.dtype.kind != "f" or array.nbytes > _NBYTES:
                continue
            bad = ~np.isfinite(array.reshape(len(array), -1)).all(1)
            if bad.any():
                _logger.warning(
                    "%s: %s: %d of %d examples have NaN or infinite numbers, with which training ends; leave "
                    "out or mend those that numpy.isfinite(x) finds",
                    *(data.name, path, bad.sum(), len(bad)),
                )


def _warn_of_classes(name: str, labels: Array, class_names: Sequence[str]) -> None:
    """Warns of labels [examples] that are classes numbered from 1, or all the same class."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or class_names:
        return
    least, most = labels.min(), labels.max()
    if least == most and len(labels) >= 2 * _EACH:
        _logger.warning("%s: all labels are %d: there is nothing to learn; give other labels", name, least)
    elif least == 1 and most <= _CLASSES and len(np.unique(labels)) == most:
        _logger.warning(
            "%s: labels are numbered from 1 to %d, and are taken as %d classes from 0: give labels - 1",
            *(name, most, most + 1),
        )


def _is_channels_first(dims: list[int]) -> bool:
    """True for 1 or 3 channels before the sides of a square, or 3 before sides that are no channels."""
    if len(dims) != 3:
        return False
    first, height, width = dims
    is_square = first in (1, 3) and height == width >= _LEAST
    return is_square or (first == 3 and min(height, width) >= 2 * _LEAST)


def _is_one_hot(labels: Array) -> bool:
    """True for labels [examples, classes] of which the first rows have a 1 among zeros each."""
    if labels.ndim != 2 or labels.shape[1] < 2:
        return False
    rows = labels[:_ROWS]
    return bool(((rows == 0) | (rows == 1)).all() and (rows.sum(1) == 1).all())


def _are_classes_as_floats(labels: Array) -> bool:
    """True for floating labels [examples] that are each of the numbers from 0 to a small one, many times."""
    if labels.ndim != 1 or labels.dtype.kind != "f":
        return False
    if not (labels[:_ROWS] == np.round(labels[:_ROWS])).all():
        return False
    found = np.unique(labels)
    few = 2 <= len(found) <= min(_CLASSES, len(labels) // _EACH)
    return bool(few and (found == np.arange(len(found))).all())
