import threading

import pytest

from allocators import (
    AllocatorError,
    BestFitAllocator,
    BoundedMemorySource,
    InvalidFree,
    OutOfMemory,
    PartitionedMemory,
    SourceExhausted,
    VirtualSource,
)

MIB = 1024 * 1024


def test_a_partition_keeps_its_limit_and_can_grow() -> None:
    memory = PartitionedMemory(VirtualSource(), 10 * MIB)
    partition = memory.partition("group:0", 2 * MIB)
    assert isinstance(partition, BoundedMemorySource)
    partition.allocate(2 * MIB)
    with pytest.raises(
        SourceExhausted, match=r"'group:0': asked 1\.0 MiB, holds 2\.0 MiB of its limit 2\.0 MiB"
    ):
        partition.allocate(MIB)
    assert partition.grow(MIB) == partition.limit_nbytes == 3 * MIB
    partition.allocate(MIB)
    with pytest.raises(
        ValueError, match=r"cannot grow from 3\.0 MiB by 8\.0 MiB: the device's limit is 10\.0 MiB"
    ):
        partition.grow(8 * MIB)
    with pytest.raises(ValueError, match="can only grow"):
        partition.grow(-1)


def test_what_all_hold_stays_within_the_device() -> None:
    memory = PartitionedMemory(VirtualSource(), 4 * MIB)
    first, second = memory.partition("group:0"), memory.partition("group:1", 3 * MIB)
    address = first.allocate(3 * MIB)
    assert (first.available_nbytes, second.available_nbytes) == (MIB, MIB)
    with pytest.raises(
        SourceExhausted, match=r"within its limit, but .* other partitions .* 3\.0 MiB; trim\(\)"
    ):
        second.allocate(2 * MIB)
    second.allocate(MIB)
    assert memory.held_nbytes == 4 * MIB
    first.free(address, 3 * MIB)
    second.allocate(2 * MIB)
    assert second.available_nbytes == 0


def test_a_guarantee_is_kept_from_the_others() -> None:
    memory = PartitionedMemory(VirtualSource(), 4 * MIB)
    central = memory.partition("central", 3 * MIB, guaranteed_nbytes=2 * MIB)
    group = memory.partition("group:0")
    assert group.available_nbytes == 2 * MIB
    assert central.available_nbytes == 3 * MIB
    group.allocate(2 * MIB)
    assert central.available_nbytes == 2 * MIB
    central.allocate(2 * MIB)
    with pytest.raises(ValueError, match="cannot be guaranteed, 0 B of"):
        memory.partition("late", guaranteed_nbytes=1)


@pytest.mark.parametrize(("limit", "guaranteed"), [(-1, 0), (2 * MIB, 0), (1024, 2048), (1024, -1)])
def test_senseless_sizes_are_refused(limit: int, guaranteed: int) -> None:
    memory = PartitionedMemory(VirtualSource(), MIB)
    with pytest.raises(ValueError, match="expected 0 <= guaranteed_nbytes <= limit_nbytes"):
        memory.partition("x", limit, guaranteed_nbytes=guaranteed)
    with pytest.raises(ValueError, match="limit_nbytes"):
        PartitionedMemory(VirtualSource(), -1)


def test_names_are_unique_until_closed() -> None:
    memory = PartitionedMemory(VirtualSource(), MIB)
    partition = memory.partition("group:0", guaranteed_nbytes=MIB)
    with pytest.raises(ValueError, match="'group:0' exists already"):
        memory.partition("group:0")
    address = partition.allocate(512)
    with pytest.raises(AllocatorError, match=r"still holds 512 B: close its allocator"):
        partition.close()
    partition.free(address, 512)
    partition.close()
    partition.close()
    with pytest.raises(AllocatorError, match="is closed"):
        partition.allocate(1)
    assert memory.partitions == {}
    assert memory.partition("group:0").available_nbytes == MIB


def test_a_partition_takes_back_only_what_it_gave() -> None:
    memory = PartitionedMemory(VirtualSource(), MIB)
    first, second = memory.partition("a"), memory.partition("b")
    address = first.allocate(512)
    with pytest.raises(InvalidFree, match="it has not given that"):
        second.free(address, 512)
    with pytest.raises(InvalidFree, match="it was given as 512 bytes"):
        first.free(address, 256)
    with pytest.raises(ValueError, match="at least 1 byte"):
        first.allocate(0)
    assert first.held_nbytes == memory.held_nbytes == 512


def test_a_refusal_of_the_source_costs_nothing() -> None:
    memory = PartitionedMemory(VirtualSource(1024), MIB)
    partition = memory.partition("a")
    with pytest.raises(SourceExhausted, match="virtual source"):
        partition.allocate(2048)
    assert partition.held_nbytes == 0
    assert partition.available_nbytes == MIB


def test_one_allocator_per_stream_group() -> None:
    source = VirtualSource()
    memory = PartitionedMemory(source, 16 * MIB)
    allocators = [
        BestFitAllocator(memory.partition(f"group:{index}", 4 * MIB), name=f"gpu:0/group:{index}")
        for index in range(3)
    ]
    blocks = [allocator.allocate(3 * MIB) for allocator in allocators]
    assert len({block.address for block in blocks}) == 3
    for allocator, block in zip(allocators, blocks, strict=True):
        assert [other.owns(block.address) for other in allocators] == [
            other is allocator for other in allocators
        ]
        assert allocator.limit_nbytes == 4 * MIB
    with pytest.raises(OutOfMemory, match=r"limit 4\.0 MiB"):
        allocators[0].allocate(2 * MIB)
    memory.partitions["group:0"].grow(2 * MIB)
    assert allocators[0].allocate(2 * MIB) is not None
    assert allocators[0].limit_nbytes == 6 * MIB
    memory.partitions["group:1"].grow(12 * MIB)
    with pytest.raises(OutOfMemory, match="the device has no more") as caught:
        allocators[1].allocate(8 * MIB)
    assert "other partitions" in str(caught.value.__cause__)
    for allocator in allocators:
        allocator.check_invariants()
        allocator.close(discard=True)
    assert source.held_nbytes == memory.held_nbytes == 0


def test_an_allocator_without_growth_takes_its_partition_whole() -> None:
    memory = PartitionedMemory(VirtualSource(), 16 * MIB)
    partition = memory.partition("group:0", 4 * MIB)
    allocator = BestFitAllocator(partition, name="x", allow_growth=False)
    assert partition.held_nbytes == 0
    allocator.allocate(1)
    assert partition.held_nbytes == 4 * MIB
    partition.grow(MIB)
    allocator.allocate(4 * MIB - 256)
    assert allocator.allocate(1 * MIB).allocated_nbytes == MIB
    assert partition.held_nbytes == 5 * MIB


def test_allocators_of_one_device_race_for_its_memory() -> None:
    source = VirtualSource()
    memory = PartitionedMemory(source, 8 * MIB)
    errors: list[Exception] = []

    def work(index: int) -> None:
        allocator = BestFitAllocator(
            memory.partition(f"group:{index}"), name=f"group:{index}", first_region_nbytes=64 * 1024
        )
        try:
            for turn in range(100):
                try:
                    blocks = [allocator.allocate(50_000 * (1 + (turn + index) % 5)) for _ in range(8)]
                except OutOfMemory:
                    blocks = []
                if source.held_nbytes > memory.limit_nbytes:
                    raise AssertionError("the device's limit is broken")
                for block in blocks:
                    allocator.free(block)
                if turn % 10 == 0:
                    allocator.close(discard=True)
                    allocator = BestFitAllocator(memory.partitions[f"group:{index}"], name=f"group:{index}")
            allocator.close(discard=True)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert source.held_nbytes == memory.held_nbytes == 0
