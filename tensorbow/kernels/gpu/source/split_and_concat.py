"""Kernel that copies between one array and its pieces along an axis: concat and split.

The table of pieces is a kernel argument, so one launch handles up to 128 pieces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, in_order
from tensorbow.kernels.gpu.runtime.context import POINTERS, GpuContext, PointerTable
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.kernels.gpu.source.index_types import IndexType, index_for
from tensorbow.kernels.gpu.source.words import (
    QUAD,
    WORDS,
    elements_per_word,
)
from tensorbow.specs import Array

MAXIMUM_PIECES = 128  # kernel arguments are limited to 4 KiB

PIECES = (
    QUAD
    + POINTERS
    + """
// Piece k is [rows, start[k + 1] - start[k]]; unused ones start at the end.
struct Table { $I start[$N + 1]; };
struct Part { $I pitch; $I first; $I width; };  // columns first to first + width of a row of pitch words
extern "C" __global__ void pieces(
    $W* whole, TbPointers<$W, $N> piece, Table table, Part part, $I count
) {
    TB_FOR_EACH($I, i, count) {
        $I row = i / part.width, column = i - row * part.width;
        int k = 0;
        for (int half = $N / 2; half > 0; half /= 2)
            if (column >= table.start[k + half]) k += half;
        $I start = table.start[k], width = table.start[k + 1] - start;
        $W* in_piece = piece.at[k] + row * width + (column - start);
        $W* in_whole = whole + row * part.pitch + part.first + column;
        $MOVE;
    }
}
"""
)


def join(context: GpuContext, whole: DeviceArray, pieces: Sequence[DeviceArray], axis: int) -> Enqueue:
    """Fills `whole` with the pieces one after the other along the axis."""
    return _moves(context, "ConcatV2", whole, pieces, axis, "*in_whole = *in_piece")


def cut(context: GpuContext, whole: DeviceArray, pieces: Sequence[DeviceArray], axis: int) -> Enqueue:
    """Fills each piece with its part of `whole`."""
    return _moves(context, "Split", whole, pieces, axis, "*in_piece = *in_whole")


def _moves(
    context: GpuContext, name: str, whole: DeviceArray, pieces: Sequence[DeviceArray], axis: int, move: str
) -> Enqueue:
    itemsize, rows = whole.dtype.itemsize, math.prod(whole.shape[:axis])
    given = [piece for piece in pieces if piece.size]
    widths = [math.prod(piece.shape[axis:]) for piece in given]
    words = elements_per_word(itemsize, (whole.address, *(piece.address for piece in given)), widths)
    index, pitch = index_for(whole.size), sum(widths) // words
    launches, first = [], 0
    for start in range(0, len(given), MAXIMUM_PIECES):
        chosen = slice(start, start + MAXIMUM_PIECES)
        extents = [width // words for width in widths[chosen]]
        slots = max(2, 1 << (len(extents) - 1).bit_length())
        code = CudaSource.of(name, PIECES, N=str(slots), I=index.name, W=WORDS[itemsize * words], MOVE=move)
        width = sum(extents)
        launches.append(
            context.launch(
                code,
                "pieces",
                context.blocks(rows * width),
                256,
                whole,
                PointerTable(tuple(given[chosen]), slots),
                _starts(index, slots, extents),
                index.array([pitch, first, width]),
                index.make(rows * width),
            )
        )
        first += width
    return in_order(*launches)


def _starts(index: IndexType, slots: int, extents: Sequence[int]) -> Array:
    """The first columns of the pieces; unused ones start at the end."""
    starts = np.cumsum([0, *extents]).tolist()
    return index.array(starts + starts[-1:] * (slots + 1 - len(starts)))
