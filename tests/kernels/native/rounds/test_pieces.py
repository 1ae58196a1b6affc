"""Pieces of the sums that two workers exchange."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

from tensorbow.kernels.native.rounds.pieces import PAGE_NBYTES, PIECE_NBYTES, PIECE_SLOTS, cut_sums

SUMS = st.lists(
    st.tuples(st.integers(1, PIECE_NBYTES), st.sampled_from([1 << 13, 3 << 12, PIECE_NBYTES + 64])),
    min_size=1,
    max_size=5,
)


@given(SUMS)
def test_pieces_have_all_chunks_in_their_order_and_memory_for_each(sums: list[tuple[int, int]]) -> None:
    placed, at = list[tuple[int, int, int]](), 0
    for nbytes, chunk in sums:
        placed.append((at, nbytes, chunk))
        at += -(-nbytes // 64) * 64
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
