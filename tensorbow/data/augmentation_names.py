"""Augmentation of pictures by name, as options give it: `flip,crop:2,cutout:8`."""

from __future__ import annotations

from typing import Any

from tensorbow.data.augmentation import CropAndFlip, PictureChanges
from tensorbow.errors import InvalidArgumentError

NONE = "none"
PIXELS = {"crop": CropAndFlip.padding, "cutout": 8}  # by name: pixels if none are given
EXPECTED = "flip, crop:N, cutout:N, several of them separated by commas, or none"


def augmentation_of(text: str, mean: float = 0.0) -> CropAndFlip | PictureChanges | None:
    """Augmentation by names separated by commas: flip, crop:N (by up to N pixels; 4 without a number) and
    cutout:N (a square of N pixels; 8 without a number); None for `none`.

    mean: of the data set's pixels, scaled to 0..1: the level of what is hidden. Raises InvalidArgumentError
    for other names.
    """
    if text.strip() == NONE:
        return None
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition(":")
        found[name] = _value_of(name, value, part)
    moves = CropAndFlip(found.get("crop", 0), "flip" in found)
    if found.keys() <= {"flip", "crop"}:
        return moves if moves.padding or moves.flip else None
    return PictureChanges(moves, found.get("cutout", 0), level=round(255 * min(max(mean, 0), 1)))


def _value_of(name: str, value: str, part: str) -> Any:
    if name in PIXELS and (not value or (value.isdecimal() and len(value) < 5)):
        return int(value or PIXELS[name])
    if name == "flip" and not value:
        return True
    raise InvalidArgumentError(f"augmentation: expected {EXPECTED}, got {part!r:.60}")
