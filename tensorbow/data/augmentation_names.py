"""Augmentation of pictures by name, as options give it: `flip,crop:2,cutout:8`."""

from __future__ import annotations

from tensorbow.data.augmentation import CropAndFlip, PictureChanges
from tensorbow.errors import InvalidArgumentError
from tensorbow.missing_names import did_you_mean

NONE = "none"
FLAGS = ("flip", "flip_vertical")
PIXELS = {"crop": CropAndFlip.padding, "cutout": 8}  # by name: the number where none is given
AMOUNTS = {"rotate": 15.0, "brightness": 0.2, "contrast": 0.2, "saturation": 0.2, "colour": 0.2, "erase": 0.5}
MOST = {"rotate": 180.0}  # 1 for the others
OTHER_NAMES = {"color": "colour", "rotation": "rotate", "hflip": "flip", "vflip": "flip_vertical"}
NAMES = (*FLAGS, *PIXELS, *AMOUNTS)
EXPECTED = (
    "flip, flip_vertical, crop:N, cutout:N, rotate:DEGREES, brightness:X, contrast:X, saturation:X, "
    "colour:X, erase:P, several of them separated by commas, or none"
)


def augmentation_of(text: str, mean: float = 0.0) -> CropAndFlip | PictureChanges | None:
    """Augmentation by names separated by commas, some with a number behind a colon; None for `none`.

    flip; flip_vertical; crop:N (by up to N pixels, 4 without a number); cutout:N (a square of N pixels, 8);
    rotate:DEGREES (15); brightness:X, contrast:X, saturation:X (0.2), and colour:X for all three;
    erase:P (a rectangle with probability P, 0.5). mean: of the data set's pixels, scaled to 0..1: the level
    of what cutout hides. Raises InvalidArgumentError for other names and values.
    """
    if text.strip() == NONE:
        return None
    found = dict(_read(part.strip()) for part in text.split(","))
    moves = CropAndFlip(int(found.get("crop", 0)), "flip" in found)
    if found.keys() <= {"flip", "crop"}:
        return moves if moves.padding or moves.flip else None
    all_colours = found.get("colour", 0.0)
    return PictureChanges(
        moves,
        flip_vertical="flip_vertical" in found,
        rotation=found.get("rotate", 0.0),
        brightness=found.get("brightness", all_colours),
        contrast=found.get("contrast", all_colours),
        saturation=found.get("saturation", all_colours),
        cutout=int(found.get("cutout", 0)),
        erase=found.get("erase", 0.0),
        level=round(255 * min(max(mean, 0), 1)),
    )


def _read(part: str) -> tuple[str, float]:
    """Name and number of one change."""
    name, colon, value = part.partition(":")
    name = OTHER_NAMES.get(name, name)
    if name not in NAMES:
        near = did_you_mean(name, NAMES)
        raise InvalidArgumentError(f"augmentation: expected {EXPECTED}, got {part!r:.60}{near}")
    if name in FLAGS:
        expected, known = "no number", not colon
    elif name in PIXELS:
        expected = "a whole number of pixels, 0 to 9999"
        known = not colon or (value.isdecimal() and len(value) < 5)
    else:
        most = MOST.get(name, 1.0)
        expected = f"a number from 0 to {most:g}"
        known = not colon or 0 <= _number(value) <= most
    if not known:
        raise InvalidArgumentError(f"augmentation: expected {expected} behind {name}, got {part!r:.60}")
    return name, float(value or {**dict.fromkeys(FLAGS, 1), **PIXELS, **AMOUNTS}[name])


def _number(text: str) -> float:
    """The number, or NaN."""
    try:
        return float(text)
    except ValueError:
        return float("nan")
