from itertools import pairwise

import pytest

from allocators import BoundedMemorySource, InvalidFree, SourceExhausted, VirtualSource


def test_addresses_are_aligned_apart_and_never_given_twice() -> None:
    source = VirtualSource()
    seen = []
    for nbytes in (1, 256, 257, 4096):
        address = source.allocate(nbytes)
        assert address % 256 == 0
        seen.append((address, nbytes))
        source.free(address, nbytes)
    for (low, nbytes), (high, _) in pairwise(seen):
        assert low + nbytes <= high


def test_the_limit_is_on_what_is_held() -> None:
    source = VirtualSource(1024)
    address = source.allocate(1000)
    with pytest.raises(SourceExhausted, match=r"asked 25 B, 1000 B of 1\.0 KiB given"):
        source.allocate(25)
    source.free(address, 1000)
    assert source.allocate(1024) > address
    assert source.held_nbytes == 1024
    assert (source.num_allocate_calls, source.num_free_calls) == (3, 1)


def test_misuse_is_noticed() -> None:
    source = VirtualSource()
    address = source.allocate(512)
    with pytest.raises(InvalidFree, match="given as 512 bytes, not 256"):
        source.free(address, 256)
    with pytest.raises(InvalidFree, match="not the start of anything"):
        source.free(address + 256, 256)
    source.free(address, 512)
    with pytest.raises(InvalidFree, match="not the start of anything"):
        source.free(address, 512)
    with pytest.raises(ValueError, match="at least 1 byte"):
        source.allocate(0)
    assert source.blocks == {}


def test_senseless_options_are_refused() -> None:
    with pytest.raises(ValueError, match="limit_nbytes"):
        VirtualSource(-1)
    with pytest.raises(ValueError, match="first_address"):
        VirtualSource(first_address=100)


def test_it_is_a_bounded_source() -> None:
    assert isinstance(VirtualSource(), BoundedMemorySource)
    assert VirtualSource(5).limit_nbytes == 5
