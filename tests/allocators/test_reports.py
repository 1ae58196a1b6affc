import pickle
from collections.abc import Callable
from typing import Any

import pytest

from allocators import Allocator, BestFitAllocator, Holder, InvariantViolation, OutOfMemory, VirtualSource

KIB, MIB = 1024, 1024 * 1024
Make = Callable[..., Allocator]


def test_statistics_follow_the_blocks(make: Make) -> None:
    allocator = make(limit_nbytes=64 * MIB)
    empty = allocator.statistics()
    assert (empty.pool_nbytes, empty.free_nbytes, empty.fragmentation) == (0, 0, 0.0)
    small, large = allocator.allocate(1000), allocator.allocate(100_000)
    allocator.free(large)
    allocator.allocate(300)
    statistics = allocator.statistics()
    assert statistics.num_allocations == 3
    assert statistics.num_frees == 1
    assert statistics.num_regions == 1
    assert statistics.in_use_nbytes == 1024 + 512
    assert statistics.requested_nbytes == 1300
    assert statistics.peak_nbytes == 1024 + 100_096
    assert statistics.largest_nbytes == 100_096
    assert statistics.limit_nbytes == 64 * MIB
    assert statistics.pool_nbytes == 2 * MIB
    assert statistics.largest_free_nbytes == statistics.free_nbytes == 2 * MIB - 1536
    allocator.free(small)


def test_fragmentation_is_what_the_largest_free_block_leaves_of_the_free_bytes(make: Make) -> None:
    allocator = make(first_region_nbytes=4096)
    blocks = [allocator.allocate(256) for _ in range(16)]
    assert allocator.statistics().fragmentation == 0.0
    for index in (0, 2, 3, 4):
        allocator.free(blocks[index])
    assert allocator.statistics().fragmentation == pytest.approx((1024 - 768) / 1024)
    allocator.free(blocks[1])
    assert allocator.statistics().fragmentation == 0.0


def test_the_map_tiles_the_regions(make: Make, make_event: Any) -> None:
    allocator = make()
    first = allocator.allocate(700, owner="conv1")
    second = allocator.allocate(512)
    allocator.free(second, after=make_event())
    records = allocator.memory_map()
    assert [record.state for record in records] == ["in use", "waiting", "free"]
    assert [record.allocation_id for record in records] == [first.id, second.id, None]
    assert [record.requested_nbytes for record in records] == [700, 512, 0]
    assert [record.owner for record in records] == ["conv1", "", ""]
    assert records[0].address == records[0].region_address
    assert sum(record.nbytes for record in records) == records[0].region_nbytes == 2 * MIB


def test_the_map_as_text(make: Make, make_event: Any) -> None:
    allocator = make(first_region_nbytes=4096, limit_nbytes=8192)
    blocks = [allocator.allocate(1024, owner=owner) for owner in ("conv1", "conv2", "")]
    allocator.free(blocks[1], after=make_event())
    head, region, *chunks = allocator.render_map().splitlines()
    assert head == (
        "gpu:0/group:0: 3.0 KiB in use of 4.0 KiB held in 1 regions (limit 8.0 KiB), peak 3.0 KiB,"
        " waiting 1.0 KiB, largest free block 1.0 KiB, fragmentation 0.00"
    )
    assert region == f"region {blocks[0].address:#x}  4.0 KiB  [{'#' * 16}{'~' * 16}{'#' * 16}{'.' * 16}]"
    assert "conv1  (1024 B requested)" in chunks[0]
    assert "waiting" in chunks[1]
    assert "(no owner)" in chunks[2]
    assert chunks[3].endswith("free")


def test_an_empty_map_is_its_head_line(make: Make) -> None:
    assert (
        make().render_map().startswith("gpu:0/group:0: 0 B in use of 0 B held in 0 regions (limit unlimited)")
    )


def test_holders_are_summed_by_owner_most_first(make: Make) -> None:
    allocator = make()
    for owner, nbytes in (("a", 256), ("b", 1024), ("a", 256), ("", 512)):
        allocator.allocate(nbytes, owner=owner)
    assert allocator.holders() == (Holder("b", 1024, 1), Holder("", 512, 1), Holder("a", 512, 2))


def test_out_of_memory_says_everything(make: Make) -> None:
    allocator = make(limit_nbytes=2 * MIB, name="gpu:1/group:2")
    for index in range(8):
        allocator.allocate(200 * KIB, owner=f"conv{index}")
    allocator.allocate(100, owner="conv3")
    with pytest.raises(OutOfMemory) as caught:
        allocator.allocate(500_001, owner="fc")
    error, text = caught.value, str(caught.value)
    assert (
        "allocator 'gpu:1/group:2' is out of memory: asked 488.3 KiB (500001 bytes), rounded 500224" in text
    )
    assert "in use 1.6 MiB, limit 2.0 MiB" in text
    assert f"largest free block {error.largest_free_nbytes / KIB:.1f} KiB, fragmentation 0.00" in text
    assert "Most is held by: conv3 200.2 KiB in 2 blocks, conv0 200.0 KiB in 1 block, " in text
    assert "and 3 more" in text
    assert "raise limit_nbytes or grow the partition" in text
    assert text.endswith("use a smaller batch_size or fewer replicas per device.")
    assert (error.asked_nbytes, error.rounded_nbytes) == (500_001, 500_224)
    assert (error.in_use_nbytes, error.limit_nbytes) == (8 * 200 * KIB + 256, 2 * MIB)
    assert error.largest_free_nbytes == 2 * MIB - error.in_use_nbytes
    assert error.fragmentation == 0.0
    assert error.holders[0] == Holder("conv3", 200 * KIB + 256, 2)
    assert isinstance(error, MemoryError)


def test_the_remedy_fits_the_cause(make: Make, make_event: Any) -> None:
    fragmented = make(limit_nbytes=4096, first_region_nbytes=4096)
    for block in [fragmented.allocate(256) for _ in range(16)][::2]:
        fragmented.free(block)
    with pytest.raises(OutOfMemory, match="enough is free but in pieces") as caught:
        fragmented.allocate(512)
    assert caught.value.fragmentation == pytest.approx(7 / 8)

    waiting = make(limit_nbytes=4096, first_region_nbytes=4096)
    waiting.free(waiting.allocate(4096), after=make_event())
    with pytest.raises(OutOfMemory, match=r"events of other streams that hold back 4\.0 KiB"):
        waiting.allocate(512)


def test_a_refusal_of_the_source_is_the_cause_of_the_error() -> None:
    class Refusing:
        def allocate(self, nbytes: int) -> int:
            raise MemoryError("driver: out of memory")

        def free(self, address: int, nbytes: int) -> None: ...

    with pytest.raises(
        OutOfMemory, match="the device has no more although the limit is not reached"
    ) as caught:
        BestFitAllocator(Refusing(), name="x", limit_nbytes=MIB).allocate(1)
    assert "driver: out of memory" in str(caught.value.__cause__)
    assert "Most is held by: nobody" in str(caught.value)


def test_out_of_memory_travels_between_processes(make: Make) -> None:
    with pytest.raises(OutOfMemory) as caught:
        make(limit_nbytes=256).allocate(257)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.statistics == caught.value.statistics


def test_the_invariants_are_able_to_fail() -> None:
    def corrupted(damage: Callable[[Any], None]) -> BestFitAllocator:
        allocator = BestFitAllocator(VirtualSource(), name="x")
        blocks = [allocator.allocate(512) for _ in range(4)]
        allocator.free(blocks[1])
        allocator.check_invariants()
        damage(allocator)
        return allocator

    def second_chunk(allocator: Any) -> Any:
        return next(iter(allocator._regions)).first.following

    damages: list[Callable[[Any], None]] = [
        lambda allocator: setattr(allocator, "_in_use_nbytes", 0),
        lambda allocator: setattr(allocator, "_peak_nbytes", 0),
        lambda allocator: setattr(allocator, "_num_frees", 0),
        lambda allocator: setattr(allocator, "_own_limit_nbytes", 256),
        lambda allocator: setattr(second_chunk(allocator), "nbytes", 256),
        lambda allocator: setattr(second_chunk(allocator), "address", 256),
        lambda allocator: setattr(second_chunk(allocator), "previous", None),
        lambda allocator: setattr(second_chunk(allocator), "waiting", True),
        lambda allocator: allocator._live.popitem(),
        lambda allocator: allocator._free_chunks.popitem(),
        lambda allocator: allocator._bins.insert(256, 1 << 20),
        lambda allocator: setattr(allocator._regions, "nbytes", 1),
    ]
    for damage in damages:
        with pytest.raises(InvariantViolation):
            corrupted(damage).check_invariants()
