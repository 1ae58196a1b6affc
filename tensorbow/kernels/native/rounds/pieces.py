"""Pieces in which two workers exchange their sums, so that these stay in a core's caches.

Passes over whole vectors write this worker's sums to memory, and read those of all from there. In pieces, a
thread sums the replicas of one piece, begins to send it and to receive the other worker's, and uses an
earlier piece, which has come meanwhile. Both workers add the same two numbers: their bits are MPI's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import index

PIECE_NBYTES = 1 << 15  # least size of a piece of sums, by the bytes in which its chunks begin
PIECE_LAG = 1  # pieces that are summed, and begin to be exchanged, before the end of one is awaited
PIECE_SLOTS = PIECE_LAG + 2  # pieces in memory: a thread may be in one that is used, while others go on
PAGE_NBYTES = 4096


class SumPieces(NamedTuple):
    """Pieces of an exchange's sums: the bytes of each among all sums, and of memory for one."""

    parts: Sequence[range] = ()
    slot: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory: PIECE_SLOTS pieces of this worker, and behind them as many of the other one."""
        return 2 * PIECE_SLOTS * self.slot

    def places(self) -> Iterator[tuple[int, int, int]]:
        """Offsets in that memory of each piece, and of the other worker's, and its bytes."""
        for number, part in enumerate(self.parts):
            own = number % PIECE_SLOTS * self.slot + part.start - number * PIECE_NBYTES
            yield own, own + PIECE_SLOTS * self.slot, len(part)


NOT_CUT = SumPieces()  # sums that are exchanged at once


def cut_sums(sums: Sequence[tuple[int, int, int]]) -> SumPieces:
    """Cuts sums into pieces of whole chunks. sums: of each the offset, the bytes of all and of a chunk."""
    pieces: dict[int, range] = {}
    for offset, nbytes, chunk in sorted(sums):
        for begin in range(offset, offset + nbytes, chunk):
            number, end = begin // PIECE_NBYTES, min(begin + chunk, offset + nbytes)
            pieces[number] = range(pieces[number].start if number in pieces else begin, end)
    largest = PIECE_NBYTES + max((chunk for *_, chunk in sums), default=0)
    count = max(pieces, default=-1) + 1
    parts = [pieces.get(n, range(n * PIECE_NBYTES, n * PIECE_NBYTES)) for n in range(count)]
    return SumPieces(parts, -(-largest // PAGE_NBYTES) * PAGE_NBYTES)


def emit_first_chunk(
    builder: ir.IRBuilder, piece: ir.Value, offset: int, chunk_nbytes: int, chunks: int
) -> ir.Value:
    """The number of a sum's first chunk that begins in a piece or in a later one. offset: see `cut_sums`."""
    begin = builder.sub(builder.mul(piece, index(PIECE_NBYTES)), index(offset))
    first = builder.sdiv(builder.add(begin, index(chunk_nbytes - 1)), index(chunk_nbytes))
    first = builder.select(builder.icmp_signed(">", begin, index(0)), first, index(0))
    return builder.select(builder.icmp_signed("<", first, index(chunks)), first, index(chunks))
