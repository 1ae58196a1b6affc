from collections.abc import Callable

import pytest

from allocators import BestFitAllocator, DriverAllocator, InvalidFree, OutOfMemory, VirtualSource

Make = Callable[..., DriverAllocator]


def test_one_source_call_per_tensor_and_per_free(make: Make) -> None:
    source = VirtualSource()
    allocator = make(source, DriverAllocator)
    for _ in range(3):
        blocks = [allocator.allocate(nbytes) for nbytes in (100, 300, 100)]
        for block in blocks:
            allocator.free(block)
    assert source.num_allocate_calls == source.num_free_calls == 9
    assert allocator.allocate(0) is None
    assert source.num_allocate_calls == 9


def test_a_pool_asks_far_less_of_the_source(make: Make) -> None:
    calls = []
    for kind in (DriverAllocator, BestFitAllocator):
        source = VirtualSource()
        allocator = make(source, kind)
        for _ in range(50):
            for block in [allocator.allocate(4096) for _ in range(10)]:
                allocator.free(block)
        calls.append(source.num_allocate_calls)
    assert calls == [500, 1]


def test_its_pool_is_what_is_in_use(make: Make) -> None:
    source = VirtualSource()
    allocator = make(source, DriverAllocator)
    first, second = allocator.allocate(100), allocator.allocate(1000)
    allocator.free(first)
    statistics = allocator.statistics()
    assert statistics.pool_nbytes == statistics.in_use_nbytes == source.held_nbytes == 1024
    assert statistics.peak_nbytes == 1280
    assert (statistics.largest_free_nbytes, statistics.fragmentation) == (0, 0.0)
    assert allocator.owns(second.address + 1023)
    assert not allocator.owns(first.address)
    assert allocator.trim() == 0
    assert [record.allocation_id for record in allocator.memory_map()] == [second.id]


def test_wrong_frees_and_limits_are_errors_as_elsewhere(make: Make) -> None:
    allocator = make(None, DriverAllocator, limit_nbytes=1024)
    block = allocator.allocate(600, owner="fc1")
    with pytest.raises(InvalidFree, match="lies inside the block"):
        allocator.free(block.address + 256)
    with pytest.raises(
        OutOfMemory, match=r"asked 512 B .* in use 768 B, limit 1\.0 KiB.*fc1 768 B in 1 block"
    ):
        allocator.allocate(512)
    allocator.free(block)
    with pytest.raises(InvalidFree, match="freed before and its region given back"):
        allocator.free(block)
    assert allocator.allocate(1024) is not None


def test_a_refusing_source_is_out_of_memory(make: Make) -> None:
    allocator = make(VirtualSource(512), DriverAllocator)
    allocator.allocate(512)
    with pytest.raises(OutOfMemory):
        allocator.allocate(1)
