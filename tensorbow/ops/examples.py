"""Batches made from a data set of pictures that lies in the device's memory.

A batch is described by its picks, int64 [batch, 4]: for each example its row in the data set, how many pixels
its picture is moved down and to the right, and whether it is mirrored before that (0 or 1). Picks of more
columns, int64 [batch, 15], describe further changes; zeros change nothing. `change_picture` says in which
order, in integers, so that every device has the same bits:

- TOP, LEFT, BOTTOM, END, LEVEL: pixels of rows TOP to BOTTOM - 1 and columns LEFT to END - 1 become LEVEL.
- SINE, VERSINE: sine, and 1 - cosine, of the angle of a rotation, in units of 1 / ROTATION_ONE.
- SATURATION, GAIN, OFFSET: of colours, 1 / COLOUR_ONE each; a level x becomes (1 + GAIN) x + OFFSET.
- UPSIDE_DOWN: 1 for a picture mirrored vertically.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, KernelCall
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.indexing import check_positions
from tensorbow.specs import TensorSpec, compatible, float32, int64, uint8

ROW, DOWN, RIGHT, MIRRORED, TOP, LEFT, BOTTOM, END, LEVEL = range(9)
SINE, VERSINE, SATURATION, GAIN, OFFSET, UPSIDE_DOWN = range(9, 15)
PICK = 4  # columns of a pick that moves and mirrors a picture
WIDE_PICK = 15  # columns of a pick that changes it in all ways
ROTATION_BITS, COLOUR_BITS = 16, 8  # below the point of fixed-point numbers
ROTATION_ONE, COLOUR_ONE = 1 << ROTATION_BITS, 1 << COLOUR_BITS
GREY = (77, 150, 29)  # weights of red, green and blue, of COLOUR_ONE: ITU-R BT.601


def move_picture(picture: NDArray[np.uint8], down: int, right: int, mirrored: int, out: NDArray[Any]) -> None:
    """Copies a picture, [height, width, channels], mirrored and then moved; the pixels it leaves are 0."""
    height, width, _ = picture.shape
    source = picture[:, ::-1] if mirrored else picture
    to_rows, from_rows = _inside(height, down)
    to_columns, from_columns = _inside(width, right)
    if down or right:
        out[...] = 0
    out[to_rows, to_columns] = source[from_rows, from_columns]


def _inside(extent: int, move: int) -> tuple[slice, slice]:
    """Target and source range, along one axis, of the pixels that a move keeps inside."""
    size, to, source = max(0, extent - abs(move)), max(0, move), max(0, -move)
    return slice(to, to + size), slice(source, source + size)


def change_picture(picture: NDArray[np.uint8], pick: Sequence[int], out: NDArray[Any]) -> None:
    """Copies a picture, uint8 [height, width, channels], changed as a pick of all columns says: mirrored,
    rotated, moved, its colours changed, and hidden in part.
    """
    if pick[MIRRORED]:
        picture = picture[:, ::-1]
    if pick[UPSIDE_DOWN]:
        picture = picture[::-1]
    if pick[SINE] or pick[VERSINE]:
        picture = _rotated(picture, pick[SINE], ROTATION_ONE - pick[VERSINE])
    move_picture(picture, pick[DOWN], pick[RIGHT], False, out)
    if pick[SATURATION] or pick[GAIN] or pick[OFFSET]:
        out[...] = _recoloured(out.astype(np.int64), pick[SATURATION], pick[GAIN], pick[OFFSET])
    out[max(0, pick[TOP]) : max(0, pick[BOTTOM]), max(0, pick[LEFT]) : max(0, pick[END])] = pick[LEVEL]


def _rotated(picture: NDArray[np.uint8], sine: int, cosine: int) -> NDArray[np.uint8]:
    """A picture rotated about its centre, interpolated linearly between the four nearest pixels; those
    outside are 0. Positions are in halves of a pixel times ROTATION_ONE, weights in COLOUR_ONE.
    """
    height, width, _ = picture.shape
    y, x = np.arange(1 - height, height, 2)[:, None], np.arange(1 - width, width, 2)
    row = cosine * y + sine * x + (height - 1) * ROTATION_ONE
    column = cosine * x - sine * y + (width - 1) * ROTATION_ONE
    padded = np.pad(picture.astype(np.int64), ((1, 1), (1, 1), (0, 0)))
    total = np.full(picture.shape, COLOUR_ONE * COLOUR_ONE // 2)
    for below, after in np.ndindex(2, 2):
        rows = np.clip((row >> (ROTATION_BITS + 1)) + below, -1, height) + 1
        columns = np.clip((column >> (ROTATION_BITS + 1)) + after, -1, width) + 1
        weights = _weight(row, below) * _weight(column, after)
        total += padded[rows, columns] * weights[..., None]
    return (total >> 2 * COLOUR_BITS).astype(np.uint8)


def _weight(position: NDArray[np.int64], following: int) -> NDArray[np.int64]:
    """Weight, along one axis, of the pixel before a position or of the one that follows."""
    fraction: NDArray[np.int64] = position >> (ROTATION_BITS + 1 - COLOUR_BITS) & COLOUR_ONE - 1
    return fraction if following else COLOUR_ONE - fraction


def _recoloured(levels: NDArray[np.int64], saturation: int, gain: int, offset: int) -> NDArray[np.int64]:
    """Levels of a picture, [height, width, channels], of other saturation (of 3 channels) and contrast."""
    half = COLOUR_ONE // 2
    if saturation and levels.shape[-1] == len(GREY):
        grey = (levels @ np.array(GREY) + half >> COLOUR_BITS)[..., None]
        mixed = levels * (COLOUR_ONE + saturation) - grey * saturation
        levels = np.clip(mixed + half >> COLOUR_BITS, 0, 255)
    changed: NDArray[np.int64] = np.clip(
        (levels * (COLOUR_ONE + gain) + offset + half) >> COLOUR_BITS, 0, 255
    )
    return changed


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    picks, pictures, labels = inputs
    require_dtype("MakeBatch", picks, (int64,), "picks")
    require_dtype("MakeBatch", pictures, (uint8,), "pictures")
    require_dtype("MakeBatch", labels, (int64,), "labels")
    columns = picks.dims[1:] if picks.rank == 2 else ()
    if columns not in ((PICK,), (WIDE_PICK,), (None,)) or pictures.rank != 4 or labels.rank != 1:
        raise InvalidArgumentError(
            f"MakeBatch: expected picks [batch, {PICK}] or [batch, {WIDE_PICK}], pictures [examples, height, "
            f"width, channels] and labels [examples]; got {picks}, {pictures} and {labels}"
        )
    if not compatible(pictures.dims[:1], labels.dims):
        raise InvalidArgumentError(f"MakeBatch: expected a label for each picture, got {pictures}, {labels}")
    batch = picks.dims[0]
    return [TensorSpec((batch, *pictures.dims[1:]), float32), TensorSpec((batch,), int64)]


def _make_batch(call: KernelCall) -> None:
    (picks, pictures, labels), (images, targets) = call.inputs, call.outputs
    rows = np.ascontiguousarray(picks[:, ROW])
    check_positions("MakeBatch", rows, len(pictures))
    for image, pick in zip(images, picks.tolist(), strict=True):
        if len(pick) == PICK:
            move_picture(pictures[pick[ROW]], pick[DOWN], pick[RIGHT], pick[MIRRORED], image)
        else:
            change_picture(pictures[pick[ROW]], pick, image)
    np.multiply(images, np.float32(call.attrs["scale"]), out=images)
    np.subtract(images, np.float32(call.attrs["shift"]), out=images)
    if rows.size:
        np.take(labels, rows, out=targets, mode="clip")  # "raise" would buffer


MakeBatch = define_op(
    "MakeBatch",
    spec=_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=_make_batch,
    inputs=("picks", "pictures", "labels"),
    attrs={"scale": REQUIRED, "shift": REQUIRED},
    unknown_dtypes=lambda inputs, attrs: (float32, int64),
    doc=(
        "Images float32 [batch, height, width, channels] and labels int64 [batch] of the picked examples. A "
        "pixel x becomes x * scale - shift, both steps rounded to float32."
    ),
)
