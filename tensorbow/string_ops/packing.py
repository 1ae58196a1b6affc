"""Strings as rows of bytes of one width, for what holds only numbers, and the op that reads them back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, HostCall
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.specs import Array, TensorSpec, string, uint8

_LENGTH_NBYTES = 2  # in front of each string, little-endian: strings may end with zeros
_LEAST_WIDTH, _MOST_WIDTH = 64, 1 << 15


def packed_width(strings: Array) -> int:
    """Bytes of a row that holds each of these strings, and longer ones: a power of two, at least 64.

    Raises InvalidArgumentError for a string of more than 32,766 bytes.
    """
    longest = max(map(len, strings.ravel().tolist()), default=0) + _LENGTH_NBYTES
    if longest > _MOST_WIDTH:
        raise InvalidArgumentError(
            f"expected strings of at most {_MOST_WIDTH - _LENGTH_NBYTES:,} bytes, got one of "
            f"{longest - _LENGTH_NBYTES:,}"
        )
    return max(_LEAST_WIDTH, 1 << (longest - 1).bit_length())


def packed_strings(strings: Array, width: int) -> Array:
    """Strings (objects of bytes) [...] as uint8 [..., width].

    Raises InvalidArgumentError for a string that is too long.
    """
    texts = strings.ravel().tolist()
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    room = width - _LENGTH_NBYTES
    if lengths.max(initial=0) > room:
        raise InvalidArgumentError(f"expected strings of at most {room} bytes, got one of {lengths.max()}")
    packed: Array = np.empty((len(texts), width), np.uint8)
    packed[:, 0], packed[:, 1] = lengths & 255, lengths >> 8
    packed[:, _LENGTH_NBYTES:] = np.array(texts, f"S{room}").reshape(-1, 1).view(np.uint8)
    return packed.reshape(*strings.shape, width)


def _unpacked_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("UnpackStrings", inputs[0], (uint8,), "packed")
    return TensorSpec(inputs[0].dims[:-1], string)


def _unpack(call: HostCall) -> Array:
    (packed,) = call.inputs
    width = packed.shape[-1]
    rows = np.ascontiguousarray(packed).reshape(-1, width)
    lengths = rows[:, 0].astype(np.int64) | rows[:, 1].astype(np.int64) << 8
    blob = rows.tobytes()
    texts: Array = np.empty(len(rows), object)
    begins = range(_LENGTH_NBYTES, _LENGTH_NBYTES + len(blob), width)
    texts[:] = [blob[begin : begin + size] for begin, size in zip(begins, lengths.tolist(), strict=False)]
    shaped: Array = texts.reshape(packed.shape[:-1])
    return shaped


UnpackStrings = define_op(
    "UnpackStrings",
    spec=_unpacked_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("packed",),
    host=_unpack,
    strings=True,
    doc="The strings [...] of rows of bytes [..., width] that `packed_strings` has made.",
)
