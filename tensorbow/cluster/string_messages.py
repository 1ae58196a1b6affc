"""Arrays of strings as bytes of a message: the length of each as a little-endian uint64, then all of them."""

from __future__ import annotations

import itertools

import numpy as np

from tensorbow.errors import DataLossError
from tensorbow.specs import Array


def pack_strings(array: Array) -> Array:
    """An array of byte strings as a vector of uint8."""
    strings = array.ravel().tolist()
    lengths = np.array([len(each) for each in strings], "<u8")
    return np.frombuffer(lengths.tobytes() + b"".join(strings), np.uint8)


def unpack_strings(data: bytes, shape: tuple[int, ...]) -> Array:
    """The reverse of `pack_strings`. Raises DataLossError for bytes that are no strings of this shape."""
    strings: Array = np.empty(shape, object)
    start = 8 * strings.size
    if len(data) < start:
        raise DataLossError(f"{strings.size:,} strings in {len(data):,} bytes")
    lengths = np.frombuffer(data, "<u8", strings.size).tolist()
    bounds = list(itertools.accumulate(lengths, initial=start))
    if bounds[-1] != len(data):
        raise DataLossError(f"the lengths of strings add up to {bounds[-1]:,}, not to {len(data):,} bytes")
    flat = strings.reshape(-1)
    for index, (first, last) in enumerate(itertools.pairwise(bounds)):
        flat[index] = data[first:last]
    return strings
