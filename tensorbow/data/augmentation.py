"""Random augmentation of training pictures: a pure function of (seed, epoch, number of the batch)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.random_words import Purpose, random_words_of_streams
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import Flag, check_fields, whole
from tensorbow.ops.examples import move_picture


@dataclass(frozen=True)
class BatchKey:
    """Identifies a batch, independently of replicas; its augmentation depends on nothing else."""

    seed: int
    epoch: int
    number: int


def augmentation_of(text: str) -> CropAndFlip | None:
    """Augmentation by names separated by commas: flip, crop (by 4 pixels) and crop:N; None for `none`.

    Raises InvalidArgumentError for other names.
    """
    padding, flip = 0, False
    for part in text.split(","):
        name, _, pixels = part.strip().partition(":")
        if name == "crop" and (not pixels or (pixels.isdecimal() and len(pixels) < 5)):
            padding = int(pixels or CropAndFlip.padding)
        elif part.strip() == "flip":
            flip = True
        elif text.strip() != "none":
            raise InvalidArgumentError(
                f"augmentation: expected flip, crop, crop:N or both, or none, got {part!r:.60}"
            )
    return CropAndFlip(padding, flip) if padding or flip else None


class Augmentation(Protocol):
    """Function that changes a batch of pictures in place."""

    def __call__(self, images: NDArray[np.uint8], key: BatchKey) -> None:
        """Changes images, uint8 [n, height, width, channels]; deterministic in images and key."""


Padding: TypeAlias = Annotated[int, whole(0, 1 << 30)]


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
