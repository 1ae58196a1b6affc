"""Batches made from a data set of pictures that lies in the device's memory.

A batch is described by its picks, int64 [batch, 4]: for each example its row in the data set, how many pixels
its picture is moved down and to the right, and whether it is mirrored before that (0 or 1). Picks of more
columns, int64 [batch, 9], have a rectangle as well, which hides the pixels of rows TOP to BOTTOM - 1 and
columns LEFT to END - 1 behind the level LEVEL (0 to 255). Zeros change nothing.
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
PICK = 4  # columns of a pick that moves and mirrors a picture
WIDE_PICK = 9  # columns of a pick that changes it in all ways


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
    """Copies a picture, [height, width, channels], changed as a pick of all columns says."""
    move_picture(picture, pick[DOWN], pick[RIGHT], pick[MIRRORED], out)
    out[max(0, pick[TOP]) : max(0, pick[BOTTOM]), max(0, pick[LEFT]) : max(0, pick[END])] = pick[LEVEL]


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
