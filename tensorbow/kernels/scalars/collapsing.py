"""Collapsing of a map's axes that no input distinguishes."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.errors import InternalError

Mask = tuple[bool, ...]  # per collapsed axis: True if the input has it


def collapse(
    shape: Sequence[int], inputs: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[Mask, ...]]:
    """The fewest axes that distinguish the inputs: their extents, and which of them each input has.

    Raises InternalError for an input that does not broadcast to `shape`.
    """
    masks: list[list[bool]] = []
    for operand in inputs:
        aligned = (1,) * (len(shape) - len(operand)) + tuple(operand)
        if len(aligned) != len(shape) or any(a not in (1, b) for a, b in zip(aligned, shape, strict=True)):
            raise InternalError(f"an input of shape {list(operand)} does not broadcast to {list(shape)}")
        masks.append([extent != 1 for extent in aligned])
    extents: list[int] = []
    columns: list[tuple[bool, ...]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        column = tuple(mask[axis] for mask in masks)
        if columns and columns[-1] == column:
            extents[-1] *= extent
        else:
            extents.append(extent)
            columns.append(column)
    if not extents:  # one element: every input is read where the result is written
        return (1,), tuple((True,) for _ in masks)
    return tuple(extents), tuple(tuple(column[k] for column in columns) for k in range(len(masks)))
