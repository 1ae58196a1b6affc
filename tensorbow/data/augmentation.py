"""Random augmentation of training pictures: a pure function of (seed, epoch, number of the batch)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.random_words import Purpose, random_words_of_streams
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import Flag, check_fields, instance, number, whole
from tensorbow.ops.examples import (
    BOTTOM,
    COLOUR_ONE,
    DOWN,
    END,
    GAIN,
    LEFT,
    LEVEL,
    MIRRORED,
    OFFSET,
    RIGHT,
    ROTATION_ONE,
    SATURATION,
    SINE,
    TOP,
    UPSIDE_DOWN,
    VERSINE,
    WIDE_PICK,
    change_picture,
    move_picture,
)


@dataclass(frozen=True)
class BatchKey:
    """Identifies a batch, independently of replicas; its augmentation depends on nothing else."""

    seed: int
    epoch: int
    number: int


class Augmentation(Protocol):
    """Function that changes a batch of pictures in place."""

    def __call__(self, images: NDArray[np.uint8], key: BatchKey) -> None:
        """Changes images, uint8 [n, height, width, channels]; deterministic in images and key."""


Padding: TypeAlias = Annotated[int, whole(0, 1 << 30)]
Pixels: TypeAlias = Annotated[int, whole(0, 1 << 14)]
Level: TypeAlias = Annotated[int, whole(0, 255)]
Degrees: TypeAlias = Annotated[float, number(0, 180)]
Change: TypeAlias = Annotated[float, number(0, 1)]

WORDS = 4  # random words of a picture for changes other than crops and mirroring
MIDDLE = 128  # the level that contrast keeps
ERASED = 0.02, 0.4  # least and largest part of a picture that is erased
LEAST_RATIO = 0.3  # of the sides of an erased rectangle, and of their inverse
_PART_BITS = 21  # of a word: three numbers each


@dataclass(frozen=True)
class CropAndFlip:
    """Pads each picture with `padding` black pixels on each side, crops it to its size at a random offset,
    and mirrors it horizontally with probability 1/2 (He et al., 2015, section 4.2).

    flip: False leaves out mirroring, for pictures whose meaning it would change, such as digits.
    """

    padding: Padding = 4
    flip: Flag = True

    def __post_init__(self) -> None:
        check_fields(self)

    def draw(self, examples: int, keys: Iterable[BatchKey]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Draws for the pictures of each batch the shift down and right, int64 [batches, examples, 2] in
        -padding..padding, and whether they are mirrored, bool [batches, examples].
        """
        streams = (((key.seed, key.epoch), key.number) for key in keys)
        words = random_words_of_streams(examples, Purpose.AUGMENTATION, streams)
        offsets = np.uint64(2 * self.padding + 1)  # how many there are
        down, right = (
            (words >> np.uint64(32)) % offsets,
            (words >> np.uint64(1) & np.uint64(0x7FFFFFFF)) % offsets,
        )
        moves = (np.stack([down, right], -1) % offsets).astype(np.int64) - self.padding
        mirrored = (words & np.uint64(self.flip)).astype(np.bool_)
        return moves, mirrored

    def __call__(self, images: NDArray[np.uint8], key: BatchKey) -> None:
        """Shifts and mirrors images, uint8 [n, height, width, channels], in place."""
        (moves,), (mirrored,) = self.draw(len(images), [key])
        for picture, (down, right), mirror in zip(images, moves.tolist(), mirrored.tolist(), strict=True):
            move_picture(picture.copy(), down, right, mirror, picture)

    def write_picks(self, picks: NDArray[np.int64], keys: Iterable[BatchKey], shape: Sequence[int]) -> None:
        """Writes the changes of each batch into picks of MakeBatch, int64 [batches, examples, columns], whose
        rows are set. shape: of a picture, (height, width, channels).
        """
        moves, mirrored = self.draw(picks.shape[1], keys)
        picks[..., DOWN : RIGHT + 1] = moves
        picks[..., MIRRORED] = mirrored


def _part(words: NDArray[np.uint64], part: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) from the part 0, 1 or 2 of each word."""
    bits = words >> np.uint64(64 - _PART_BITS * (part + 1)) & np.uint64((1 << _PART_BITS) - 1)
    numbers: NDArray[np.float64] = bits.astype(np.float64) / (1 << _PART_BITS)
    return numbers


def _signed(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform numbers in [-1, 1) from the upper half of each word."""
    numbers: NDArray[np.float64] = 2 * ((words >> np.uint64(32)).astype(np.float64) / (1 << 32)) - 1
    return numbers


Moves: TypeAlias = Annotated[CropAndFlip, instance(CropAndFlip, expected="a CropAndFlip")]


@dataclass(frozen=True)
class PictureChanges:
    """Several random changes of training pictures; the draws of one do not depend on which others there are.

    A picture is mirrored and rotated, then moved, then its colours are changed, then a part is hidden: on the
    host and on devices in the same integers (`tensorbow.ops.examples.change_picture`).

    moves: crops and horizontally mirrored pictures. flip_vertical: mirrors half of the pictures vertically.
    rotation: by an angle of at most so many degrees in both directions, about the centre. brightness,
    contrast, saturation: factors in 1 - x to 1 + x; of all levels, of their distance from the middle level
    128, and of their distance from the pixel's grey (pictures of three channels only). cutout: hides a square
    of so many pixels, whose centre is any pixel of the picture, so that some of it may lie outside (DeVries
    & Taylor, 2017, section 3.2). level: what is seen there, 0 to 255; with the mean of the data set it is
    near 0 when normalised, as in the paper. erase: probability with which a rectangle of 2 to 40 % of the
    picture, of random shape, gets a random level (Zhong et al., 2017, section 3.2).
    Raises InvalidArgumentError for cutout and erase together: a picture has one hidden part.
    """

    moves: Moves = CropAndFlip(0, flip=False)
    flip_vertical: Flag = False
    rotation: Degrees = 0.0
    brightness: Change = 0.0
    contrast: Change = 0.0
    saturation: Change = 0.0
    cutout: Pixels = 0
    erase: Change = 0.0
    level: Level = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.cutout and self.erase:
            raise InvalidArgumentError(
                f"PictureChanges: expected cutout or erase, got cutout {self.cutout} and erase {self.erase}; "
                "a picture has one hidden part"
            )

    def write_picks(self, picks: NDArray[np.int64], keys: Iterable[BatchKey], shape: Sequence[int]) -> None:
        """Writes the changes of each batch into picks of MakeBatch, int64 [batches, examples, columns], whose
        rows are set. shape: of a picture, (height, width, channels).
        """
        keys = list(keys)
        self.moves.write_picks(picks, keys, shape)
        examples = picks.shape[1]
        streams = [((key.seed, key.epoch), key.number) for key in keys]
        words = random_words_of_streams(WORDS * examples, Purpose.MORE_AUGMENTATION, streams)
        words = words.reshape(-1, examples, WORDS)
        if self.cutout:
            self._hide_squares(picks, words[..., 0], shape)
        if self.erase:
            self._erase(picks, words[..., 0], words[..., 1], shape)
        picks[..., UPSIDE_DOWN] = words[..., 2] & np.uint64(self.flip_vertical)
        if self.rotation:
            angles = np.deg2rad(self.rotation * _signed(words[..., 2]))
            picks[..., SINE] = np.rint(ROTATION_ONE * np.sin(angles))
            picks[..., VERSINE] = ROTATION_ONE - np.rint(ROTATION_ONE * np.cos(angles))
        self._recolour(picks, words[..., 3])

    def _hide_squares(
        self, picks: NDArray[np.int64], words: NDArray[np.uint64], shape: Sequence[int]
    ) -> None:
        """Writes rectangles from one word each."""
        height, width = (np.uint64(extent) for extent in shape[:2])
        centres = (words >> np.uint64(32)) % height, (words & np.uint64(0xFFFFFFFF)) % width
        for centre, first, end, extent in zip(centres, (TOP, LEFT), (BOTTOM, END), shape, strict=False):
            begin = centre.astype(np.int64) - self.cutout // 2
            picks[..., first] = np.maximum(begin, 0)
            picks[..., end] = np.minimum(begin + self.cutout, extent)
        picks[..., LEVEL] = self.level

    def _erase(
        self,
        picks: NDArray[np.int64],
        places: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        shape: Sequence[int],
    ) -> None:
        """Writes rectangles of random sizes from two words each; erased as the first's upper half says."""
        low, high = ERASED
        area = (low + (high - low) * _part(sizes, 0)) * math.prod(shape[:2])
        ratio = LEAST_RATIO + (1 / LEAST_RATIO - LEAST_RATIO) * _part(sizes, 1)
        erased = _part(places, 0) < self.erase
        ends = ((TOP, BOTTOM, area * ratio, 1), (LEFT, END, area / ratio, 2))
        for (first, end, square, part), extent in zip(ends, shape, strict=False):
            size = np.clip(np.rint(np.sqrt(square)), 1, extent).astype(np.int64)
            begin = np.floor(_part(places, part) * (extent + 1 - size)).astype(np.int64)
            picks[..., first], picks[..., end] = erased * begin, erased * (begin + size)
        picks[..., LEVEL] = np.floor(256 * _part(sizes, 2))

    def _recolour(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> None:
        brightness, contrast, saturation = (
            1 + most * (2 * _part(words, part) - 1)
            for part, most in enumerate((self.brightness, self.contrast, self.saturation))
        )
        picks[..., SATURATION] = np.rint(COLOUR_ONE * saturation) - COLOUR_ONE
        picks[..., GAIN] = np.rint(COLOUR_ONE * brightness * contrast) - COLOUR_ONE
        picks[..., OFFSET] = np.rint(COLOUR_ONE * MIDDLE * (1 - contrast))

    def __call__(self, images: NDArray[np.uint8], key: BatchKey) -> None:
        """Changes images, uint8 [n, height, width, channels], in place."""
        picks = np.zeros((1, len(images), WIDE_PICK), np.int64)
        self.write_picks(picks, [key], images.shape[1:])
        for picture, pick in zip(images, picks[0].tolist(), strict=True):
            change_picture(picture.copy(), pick, picture)
