"""Samples of batches made from a data set of pictures."""

from __future__ import annotations

import math
from fractions import Fraction

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
        source = pictures[row][:, :: -1 if mirrored else 1]
        if more:
            source = _turned(source[:: -1 if more[-1] else 1], *more[5:7])
        padded[pad : pad + height, pad : pad + width] = source
        image[...] = padded[pad - down :, pad - right :][:height, :width]
        if more:
            _recolour(image, *more[7:10])
            top, left, bottom, end, level = more[:5]
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


def _turned(picture: Array, sine: int, versine: int) -> Array:
    """Each pixel from the four around the point that it comes from, in exact fractions of 1 / 65536."""
    height, width, _ = picture.shape
    sin, cos = Fraction(int(sine), 65536), 1 - Fraction(int(versine), 65536)
    turned = np.zeros_like(picture)
    for y, x, channel in np.ndindex(picture.shape):
        down, right = y - Fraction(height - 1, 2), x - Fraction(width - 1, 2)
        row = cos * down + sin * right + Fraction(height - 1, 2)
        column = cos * right - sin * down + Fraction(width - 1, 2)
        total = Fraction(1, 2)
        for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
            at = math.floor(row) + corner[0], math.floor(column) + corner[1]
            if 0 <= at[0] < height and 0 <= at[1] < width:
                parts = (math.floor(256 * (each - math.floor(each))) for each in (row, column))
                weights = [part if to else 256 - part for part, to in zip(parts, corner, strict=True)]
                total += Fraction(weights[0] * weights[1], 65536) * int(picture[(*at, channel)])
        turned[y, x, channel] = math.floor(total)
    return turned


def _recolour(picture: Array, saturation: int, gain: int, offset: int) -> None:
    def level(of: Array) -> Array:
        return np.floor(of + 0.5).clip(0, 255)  # exact: 256ths of numbers below 2**24

    levels = picture.astype(np.float64)
    if picture.shape[-1] == 3:
        grey = level(levels @ [77 / 256, 150 / 256, 29 / 256])[..., None]
        levels = level(grey + (1 + saturation / 256) * (levels - grey))
    picture[...] = level((1 + gain / 256) * levels + offset / 256)


def _wide(picks: Array, most: int, turns: bool = False, colours: bool = False) -> Array:
    """The picks, with rectangles as well, which may lie outside or be empty, with turns and with colours."""
    count, draw = len(picks), np.random.default_rng(len(picks))
    first, size = draw.integers(-2, most, (count, 2)), draw.integers(0, most, (count, 2))
    level, upside_down = draw.integers(0, 256, (count, 1)), draw.integers(0, 2, (count, 1)) * turns
    angle = draw.uniform(-np.pi, np.pi, (count, 1)) * turns
    turn = np.rint(65536 * np.concatenate([np.sin(angle), 1 - np.cos(angle)], 1)).astype(np.int64)
    colour = draw.integers(-256, 257, (count, 3)) * colours * np.array([1, 1, 128])
    return np.concatenate([picks, first, first + size, level, turn, colour, upside_down], 1)


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
    _sample(_wide(_picks(6, 7, 2), 2, turns=True), 7, 5, 4, 2, label="rotated and moved"),
    _sample(_wide(_picks(5, 7, 1), 2, colours=True), 7, 4, 5, 3, label="recoloured"),
    _sample(_wide(_picks(6, 7, 1), 2, colours=True), 7, 4, 5, 1, label="recoloured grey pictures"),
    _sample(_wide(_picks(11, 7, 2), 4, turns=True, colours=True), 7, 6, 5, 3, label="changed in all ways"),
    _sample(_wide(_picks(0, 7, 2), 4, turns=True), 7, 4, 6, 3, label="changed in all ways, empty"),
]
