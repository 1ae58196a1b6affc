"""Pieces of the sums that two workers exchange."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, Emitter
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.kernels.native.rounds.pieces import (
    PAGE_NBYTES,
    PIECE_NBYTES,
    PIECE_SLOTS,
    cut_sums,
    emit_first_chunk,
)
from tests.native_rig.emitted_code import call_emitted

CHUNKS = st.sampled_from([1 << 13, 3 << 12, PIECE_NBYTES + 64])
SUMS = st.lists(st.tuples(st.integers(1, PIECE_NBYTES), CHUNKS), min_size=1, max_size=5)


def placed_of(sums: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Sums one behind the other: offset, bytes and bytes of a chunk of each."""
    placed, at = list[tuple[int, int, int]](), 0
    for nbytes, chunk in sums:
        placed.append((at, nbytes, chunk))
        at += -(-nbytes // 64) * 64
    return placed


@given(SUMS)
def test_pieces_have_all_chunks_in_their_order_and_memory_for_each(sums: list[tuple[int, int]]) -> None:
    placed = placed_of(sums)
    pieces = cut_sums(placed)
    begins = {offset + begin for offset, nbytes, chunk in placed for begin in range(0, nbytes, chunk)}
    for number, part in enumerate(pieces.parts):
        own = {begin for begin in begins if begin // PIECE_NBYTES == number}
        assert own <= {*part}
        assert not own or part.start == min(own)
    assert all(one.stop <= two.start for one, two in pairwise(filter(None, pieces.parts)))
    last = placed[-1][0] + placed[-1][1]
    assert max(part.stop for part in pieces.parts) == last
    assert pieces.slot % PAGE_NBYTES == 0
    for number, (own, theirs, nbytes) in enumerate(pieces.places()):
        slot = number % PIECE_SLOTS
        assert slot * pieces.slot <= own
        assert own + nbytes <= (slot + 1) * pieces.slot
        assert theirs - own == PIECE_SLOTS * pieces.slot
        assert theirs + nbytes <= pieces.nbytes


@settings(max_examples=10)
@given(SUMS)
@example([(3 * PIECE_NBYTES, 1 << 13)])
def test_native_code_takes_the_chunks_of_each_piece(sums: list[tuple[int, int]]) -> None:
    placed = placed_of(sums)
    pieces = cut_sums(placed)
    firsts = np.full([len(placed), len(pieces.parts) + 1], -1, np.int64)

    def write(e: Emitter, addresses: Sequence[ir.Value]) -> None:
        for row, (offset, nbytes, chunk) in zip(addresses, placed, strict=True):
            with e.loop(firsts.shape[1]) as piece:
                first = emit_first_chunk(e.builder, piece, offset, chunk, -(-nbytes // chunk))
                e.store(first, e.offset(row, INT, piece), 8)

    call_emitted(write, [*firsts], host_target())
    covered = [list[range]() for _ in pieces.parts]
    for (offset, nbytes, chunk), row in zip(placed, firsts.tolist(), strict=True):
        assert (row[0], row[-1]) == (0, -(-nbytes // chunk))
        for number, (first, end) in enumerate(pairwise(row)):
            begins = range(offset + first * chunk, offset + end * chunk, chunk)
            assert all(begin // PIECE_NBYTES == number for begin in begins)
            covered[number] += [range(begin, min(begin + chunk, offset + nbytes)) for begin in begins]
    for part, chunks in zip(pieces.parts, covered, strict=True):  # what is sent is what the code reads
        assert not chunks or part == range(min(c.start for c in chunks), max(c.stop for c in chunks))
        assert chunks or not part
