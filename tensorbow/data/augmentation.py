"""Random augmentation of training pictures: a pure function of (seed, epoch, number of the batch)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.random_words import Purpose, random_words_of_streams
from tensorbow.kinds import Flag, check_fields, instance, whole
from tensorbow.ops.examples import (
    BOTTOM,
    DOWN,
    END,
    LEFT,
    LEVEL,
    MIRRORED,
    RIGHT,
    TOP,
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

WORDS = 4  # random words of a picture for changes other than crops and mirroring


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


Moves: TypeAlias = Annotated[CropAndFlip, instance(CropAndFlip, expected="a CropAndFlip")]


@dataclass(frozen=True)
class PictureChanges:
    """Several random changes of training pictures, in this order.

    moves: crops and mirrored pictures. cutout: hides a square of so many pixels, whose centre is any pixel of
    the picture, so that some of it may lie outside (DeVries & Taylor, 2017, section 3.2). level: what is seen
    there, 0 to 255; with the mean of the data set it is near 0 when normalised, as in the paper. Each picture
    is changed anew in each epoch. The draws of one change do not depend on which others there are.
    """

    moves: Moves = CropAndFlip(0, flip=False)
    cutout: Pixels = 0
    level: Level = 0

    def __post_init__(self) -> None:
        check_fields(self)

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

    def __call__(self, images: NDArray[np.uint8], key: BatchKey) -> None:
        """Changes images, uint8 [n, height, width, channels], in place."""
        picks = np.zeros((1, len(images), WIDE_PICK), np.int64)
        self.write_picks(picks, [key], images.shape[1:])
        for picture, pick in zip(images, picks[0].tolist(), strict=True):
            change_picture(picture.copy(), pick, picture)
