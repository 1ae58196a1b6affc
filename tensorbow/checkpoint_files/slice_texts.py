"""Slices of arrays as TensorFlow's checkpoints name them: `4 3 0,2:0,3`, extents, then begin,length."""

from __future__ import annotations

from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import SaveSliceInfo


def slice_text(cut: SaveSliceInfo | None) -> str:
    """The text of a slice; "" for a whole array."""
    if cut is None:
        return ""
    parts = ":".join(f"{start},{extent}" for start, extent in zip(cut.var_offset, cut.var_shape, strict=True))
    return " ".join([*map(str, cut.full_shape), parts])


def parse_slice(text: str, op: str = "checkpoint") -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """The extents of the whole array, and the index of the slice. Raises InvalidArgumentError."""
    *extents, parts = text.split(" ")
    try:
        pairs = [tuple(map(int, part.split(","))) for part in parts.split(":")]
        whole = tuple(map(int, extents))
        index = tuple(slice(start, start + length) for start, length in pairs)
    except ValueError:
        whole, index = (), (slice(0),)
    if len(whole) != len(index) or any(
        not 0 <= part.start <= part.stop <= extent for part, extent in zip(index, whole, strict=False)
    ):
        raise InvalidArgumentError(
            f"{op}: {text!r:.80} is no slice, expected one as '4 3 0,2:0,3', extents and begin,length of each"
        )
    return whole, index


def index_of_slice(text: str) -> tuple[slice, ...]:
    """The index of a slice in its whole array. Raises InvalidArgumentError."""
    return parse_slice(text)[1]
