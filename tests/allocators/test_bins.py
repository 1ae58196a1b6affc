import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators import InvariantViolation, format_nbytes
from allocators.bins import NUM_BINS, FreeBins, bin_index
from allocators.granule import round_down, round_up


@pytest.mark.parametrize("k", range(NUM_BINS))
def test_bin_borders(k: int) -> None:
    lower = 256 << k
    assert bin_index(lower) == k
    assert bin_index(lower - 1) == max(0, k - 1)
    assert bin_index(2 * lower - 256) == k
    assert bin_index(2 * lower) == min(NUM_BINS - 1, k + 1)


def test_there_are_21_bins_and_the_last_takes_all_from_256_mib() -> None:
    assert NUM_BINS == 21
    assert bin_index((256 << 20) - 256) == 19
    assert bin_index(256 << 20) == bin_index(1 << 45) == 20


@given(st.integers(0, 1 << 40), st.sampled_from([1, 3, 64, 256, 4096]))
def test_rounding(nbytes: int, multiple: int) -> None:
    up, down = round_up(nbytes, multiple), round_down(nbytes, multiple)
    assert up % multiple == down % multiple == 0
    assert down <= nbytes <= up < nbytes + multiple
    assert up - down in (0, multiple)


def test_sizes_are_written_for_people() -> None:
    assert format_nbytes(0) == "0 B"
    assert format_nbytes(1023) == "1023 B"
    assert format_nbytes(1536) == "1.5 KiB"
    assert format_nbytes(2 << 20) == "2.0 MiB"
    assert format_nbytes(3 << 30) == "3.0 GiB"
    assert format_nbytes(None) == "unlimited"


@given(
    st.lists(st.integers(1, 1 << 22), max_size=40),
    st.lists(st.integers(1, 1 << 23), max_size=10),
    st.randoms(),
)
def test_bins_find_what_a_search_of_all_chunks_finds(
    granules: list[int], wanted: list[int], shuffler: random.Random
) -> None:
    chunks = {(256 * size, 256 * (index + 1)) for index, size in enumerate(granules)}
    bins = FreeBins()
    order = sorted(chunks)
    shuffler.shuffle(order)
    for nbytes, address in order:
        bins.insert(nbytes, address)
    while True:
        bins.check(chunks)
        assert bins.largest_nbytes() == max((nbytes for nbytes, _ in chunks), default=0)
        for size in wanted:
            fitting = [chunk for chunk in chunks if chunk[0] >= 256 * size]
            assert bins.best_fit(256 * size) == (min(fitting)[1] if fitting else None)
        if not order:
            return
        gone = order.pop()
        bins.remove(*gone)
        chunks.remove(gone)


def test_removing_what_is_not_there_is_noticed() -> None:
    bins = FreeBins()
    bins.insert(512, 1024)
    with pytest.raises(InvariantViolation, match="missing in bin 1"):
        bins.remove(512, 2048)
    with pytest.raises(InvariantViolation, match="other chunks"):
        bins.check(set())
