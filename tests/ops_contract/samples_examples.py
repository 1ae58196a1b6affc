"""Samples of batches made from a data set of pictures."""

from __future__ import annotations

import numpy as np

from tensorbow.ops.examples import MakeBatch
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, integers

AFFINE = {"scale": 0.013, "shift": 0.7}


def _made(picks: Array, pictures: Array, labels: Array) -> tuple[Array, Array]:
    _, height, width, channels = pictures.shape
    pad = int(np.abs(picks[:, 1:3]).max(initial=0))
    images = np.zeros((len(picks), height, width, channels), np.uint8)
    for image, (row, down, right, mirrored, *more) in zip(images, picks, strict=True):
        padded = np.zeros((height + 2 * pad, width + 2 * pad, channels), np.uint8)
        padded[pad : pad + height, pad : pad + width] = pictures[row][:, :: -1 if mirrored else 1]
        image[...] = padded[pad - down :, pad - right :][:height, :width]
        if more:
            top, left, bottom, end, level = more
            hidden = [np.arange(extent) for extent in (height, width)]
            rows, columns = (hidden[0] >= top) & (hidden[0] < bottom), (hidden[1] >= left) & (hidden[1] < end)
            image[np.ix_(rows, columns)] = level
    return images * np.float32(AFFINE["scale"]) - np.float32(AFFINE["shift"]), labels[picks[:, 0]]


def _sample(picks: Array, *shape: int, label: str = "") -> Sample:
    pictures, labels = integers(*shape, high=256, dtype=np.uint8), integers(shape[0], high=9, dtype=np.int64)
    return Sample(MakeBatch, (picks, pictures, labels), _made, AFFINE, label=label)


def _picks(count: int, examples: int, most: int) -> Array:
    draw = np.random.default_rng(count)
    moves = draw.integers(-most, most + 1, (count, 2))
    return np.concatenate([draw.integers(0, examples, (count, 1)), moves, draw.integers(0, 2, (count, 1))], 1)


def _wide(picks: Array, most: int) -> Array:
    """The picks, with rectangles as well, which may lie outside or be empty."""
    draw = np.random.default_rng(len(picks))
    first, size = draw.integers(-2, most, (len(picks), 2)), draw.integers(0, most, (len(picks), 2))
    return np.concatenate([picks, first, first + size, draw.integers(0, 256, (len(picks), 1))], 1)


SAMPLES = [
    _sample(_picks(5, 7, 0) * [1, 0, 0, 0], 7, 4, 6, 3, label="as they are"),
    _sample(_picks(9, 7, 2), 7, 4, 6, 3, label="moved and mirrored"),
    _sample(_picks(9, 7, 9), 7, 4, 6, 1, label="moved out of sight"),
    _sample(_picks(30, 7, 9) * [1, 1, 1, 0], 7, 4, 6, 2, label="moved out of sight, not mirrored"),
    _sample(_picks(2, 3, 1), 3, 1, 1, 1, label="one pixel"),
    _sample(_picks(0, 7, 2), 7, 4, 6, 3, label="empty"),
    _sample(_picks(170, 11, 4), 11, 28, 29, 1, label="large"),
    _sample(_wide(_picks(8, 7, 0) * [1, 0, 0, 0], 5), 7, 4, 6, 3, label="hidden in part"),
    _sample(_wide(_picks(19, 7, 3), 7), 7, 5, 4, 2, label="moved, mirrored and hidden in part"),
]
