"""Best fit with coalescing, call by call: sizes, splits, merges, limits, statistics, errors.

As long as the list of its cases.
"""

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from allocators import AllocatorError, BestFitAllocator, InvalidFree, OutOfMemory, SourceFault, VirtualSource

KIB, MIB = 1024, 1024 * 1024
Make = Callable[..., BestFitAllocator]


class GrudgingSource(VirtualSource):
    """Refuses any single block above `largest`, with the MemoryError of some driver."""

    largest = 1 << 60

    def allocate(self, nbytes: int) -> int:
        self.asked = [*getattr(self, "asked", []), nbytes]
        if nbytes > self.largest:
            raise MemoryError("driver: out of memory")
        return super().allocate(nbytes)


def regions(allocator: BestFitAllocator) -> list[int]:
    return list({record.region_address: record.region_nbytes for record in allocator.memory_map()}.values())


# ---- blocks


def test_no_bytes_give_no_block_and_touch_nothing(make: Make) -> None:
    source = VirtualSource()
    allocator = make(source)
    assert allocator.allocate(0) is None
    allocator.free(None)
    assert source.num_allocate_calls == 0
    assert allocator.statistics().num_allocations == 0


@pytest.mark.parametrize("allow_growth", [True, False])
def test_nothing_is_reserved_before_the_first_request(make: Make, allow_growth: bool) -> None:
    source = VirtualSource(64 * MIB)
    allocator = make(source, allow_growth=allow_growth)
    assert source.held_nbytes == 0
    allocator.allocate(1)
    assert source.held_nbytes == (2 * MIB if allow_growth else 64 * MIB)


def test_requests_are_rounded_to_granules_and_both_sizes_are_kept(make: Make) -> None:
    block = make().allocate(1000, owner="conv1")
    assert (block.requested_nbytes, block.allocated_nbytes, block.owner) == (1000, 1024, "conv1")
    assert block.address % 256 == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        block.address = 0


def test_ids_are_unique_across_allocators(make: Make) -> None:
    first, second = make(), make()
    ids = [allocator.allocate(8).id for allocator in (first, second, first, second)]
    assert ids == sorted(set(ids))


def test_negative_and_fractional_sizes_are_refused(make: Make) -> None:
    allocator = make()
    with pytest.raises(ValueError, match="nbytes must be at least 0, got -1"):
        allocator.allocate(-1)
    with pytest.raises(TypeError):
        allocator.allocate(1.5)


@pytest.mark.parametrize(
    ("free_nbytes", "asked", "allocated"),
    [
        (1024, 512, 512),  # the rest is exactly the request: split
        (1024, 513, 1024),  # the rest would be less: the whole chunk
        (1024, 256, 256),
        (768, 512, 768),
    ],
)
def test_split_when_the_rest_is_at_least_the_request(
    make: Make, free_nbytes: int, asked: int, allocated: int
) -> None:
    allocator = make(first_region_nbytes=free_nbytes)
    assert allocator.allocate(asked).allocated_nbytes == allocated


@pytest.mark.parametrize(("rest", "splits"), [(128 * MIB, True), (128 * MIB - 256, False)])
def test_split_when_the_waste_would_be_128_mib(make: Make, rest: int, splits: bool) -> None:
    asked = 512 * MIB
    allocator = make(first_region_nbytes=asked + rest)
    assert allocator.allocate(asked).allocated_nbytes == (asked if splits else asked + rest)


def test_best_fit_takes_the_smallest_then_the_lowest(make: Make) -> None:
    allocator = make()
    sizes = [4 * KIB, 1 * KIB, 3 * KIB, 1 * KIB, 3 * KIB, 1 * KIB]
    blocks = [allocator.allocate(size) for size in sizes]
    for index in (0, 2, 4):
        allocator.free(blocks[index])
    assert allocator.allocate(2560).address == blocks[2].address
    assert allocator.allocate(2560).address == blocks[4].address
    assert allocator.allocate(2560).address == blocks[0].address


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_neighbours_merge_in_whatever_order_they_are_freed(make: Make, order: tuple[int, ...]) -> None:
    allocator = make()
    blocks = [allocator.allocate(512) for _ in range(3)]
    for index in order:
        allocator.free(blocks[index])
        allocator.check_invariants()
    (record,) = allocator.memory_map()
    assert (record.state, record.nbytes) == ("free", 2 * MIB)


def test_adjacent_regions_never_merge(make: Make) -> None:
    allocator = make()
    blocks = [allocator.allocate(2 * MIB), allocator.allocate(4 * MIB)]
    assert blocks[1].address == blocks[0].address + 2 * MIB
    for block in blocks:
        allocator.free(block)
    assert [record.nbytes for record in allocator.memory_map()] == [2 * MIB, 4 * MIB]


# ---- wrong frees


def test_a_second_free_is_an_error(make: Make) -> None:
    allocator = make()
    block, _kept = allocator.allocate(100), allocator.allocate(100)
    allocator.free(block)
    for target in (block, block.address):
        with pytest.raises(InvalidFree, match=r"cannot free 0x[0-9a-f]+.*: freed before"):
            allocator.free(target)


def test_a_second_free_is_noticed_after_the_address_was_handed_out_again(make: Make) -> None:
    allocator = make()
    block = allocator.allocate(100, owner="conv1")
    allocator.free(block)
    again = allocator.allocate(100, owner="conv2")
    assert again.address == block.address
    with pytest.raises(InvalidFree, match=rf"conv1.*now belongs to allocation {again.id} \(conv2\)"):
        allocator.free(block)
    allocator.free(again)


def test_foreign_and_inner_addresses_are_errors(make: Make) -> None:
    allocator, other = make(), make(VirtualSource(first_address=1 << 41))
    block, foreign = allocator.allocate(1000), other.allocate(1000)
    with pytest.raises(InvalidFree, match="a foreign address, in no region"):
        allocator.free(foreign)
    with pytest.raises(InvalidFree, match="a foreign address, in no region"):
        allocator.free(0)
    with pytest.raises(InvalidFree, match=f"inside the block that starts at {block.address:#x}"):
        allocator.free(block.address + 256)
    with pytest.raises(InvalidFree, match="never given"):
        allocator.free(block.address + 4096)
    assert allocator.statistics().in_use_nbytes == 1024


def test_another_allocators_block_at_the_same_address_is_refused(make: Make) -> None:
    allocator, twin = make(), make()
    mine, other = allocator.allocate(10), twin.allocate(10)
    assert mine.address == other.address
    with pytest.raises(InvalidFree, match="of another allocator"):
        allocator.free(other)


def test_owns_is_about_regions(make: Make) -> None:
    allocator = make()
    assert not allocator.owns(1 << 40)
    block = allocator.allocate(256)
    assert allocator.owns(block.address)
    assert allocator.owns(block.address + 2 * MIB - 1)
    assert not allocator.owns(block.address + 2 * MIB)
    assert not allocator.owns(block.address - 1)
    allocator.free(block)
    allocator.trim()
    assert not allocator.owns(block.address)


# ---- regions


def test_regions_start_at_2_mib_and_double(make: Make) -> None:
    allocator = make()
    for _ in range(15):
        allocator.allocate(2 * MIB)
    assert regions(allocator) == [2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB]


def test_a_region_is_at_least_the_request(make: Make) -> None:
    allocator = make()
    allocator.allocate(9 * MIB)
    assert regions(allocator) == [16 * MIB]


def test_the_last_region_takes_what_the_limit_leaves(make: Make) -> None:
    allocator = make(limit_nbytes=5 * MIB + 100)
    allocator.allocate(2 * MIB)
    allocator.allocate(1 * MIB)
    assert regions(allocator) == [2 * MIB, 3 * MIB]
    assert allocator.limit_nbytes == 5 * MIB + 100


def test_a_refusing_source_is_asked_for_less_down_to_the_request(make: Make) -> None:
    source = GrudgingSource()
    source.largest = 3 * MIB
    allocator = make(source, first_region_nbytes=16 * MIB)
    allocator.allocate(2 * MIB)
    (size,) = regions(allocator)
    assert 2.7 * MIB <= size <= 3 * MIB
    assert all(0.85 < low / high < 0.91 for high, low in pairwise(source.asked))
    source.largest = 2 * MIB + 256
    source.asked = []
    allocator.allocate(2 * MIB + 1)
    assert source.asked[-1] == 2 * MIB + 256


def test_a_request_that_fails_does_not_blow_up_later_regions(make: Make) -> None:
    source = GrudgingSource()
    source.largest = 64 * MIB
    allocator = make(source)
    with pytest.raises(OutOfMemory):
        allocator.allocate(1 << 40)
    allocator.allocate(1)
    assert regions(allocator) == [2 * MIB]


def test_after_a_refusal_doubling_starts_from_what_was_granted(make: Make) -> None:
    source = GrudgingSource()
    source.largest = 5 * MIB
    allocator = make(source, first_region_nbytes=4 * MIB)
    allocator.allocate(4 * MIB)
    allocator.allocate(4 * MIB)
    granted = regions(allocator)[1]
    assert 4 * MIB < granted <= 5 * MIB
    source.largest = 64 * MIB
    allocator.allocate(4 * MIB)
    allocator.allocate(granted)
    assert regions(allocator)[2:] == [granted, 2 * granted]


def test_without_growth_the_limit_is_one_region_and_a_refusal_makes_it_smaller(make: Make) -> None:
    allocator = make(limit_nbytes=32 * MIB + 17, allow_growth=False)
    allocator.allocate(1)
    assert regions(allocator) == [32 * MIB]
    source = GrudgingSource()
    source.largest = 30 * MIB
    allocator = make(source, limit_nbytes=32 * MIB, allow_growth=False)
    allocator.allocate(1)
    assert 28 * MIB < regions(allocator)[0] <= 30 * MIB


def test_without_growth_a_limit_is_needed(make: Make) -> None:
    with pytest.raises(ValueError, match="limit_nbytes, or a source with a limit, is needed"):
        make(VirtualSource(), allow_growth=False)
    assert make(VirtualSource(MIB), allow_growth=False).limit_nbytes == MIB


def test_the_smaller_of_both_limits_counts(make: Make) -> None:
    assert make(VirtualSource(3 * MIB), limit_nbytes=2 * MIB).limit_nbytes == 2 * MIB
    assert make(VirtualSource(3 * MIB), limit_nbytes=4 * MIB).limit_nbytes == 3 * MIB
    assert make(VirtualSource()).limit_nbytes is None


@pytest.mark.parametrize(
    "option", [{"limit_nbytes": -1}, {"first_region_nbytes": 0}, {"largest_waste_nbytes": 0}]
)
def test_senseless_options_are_refused(make: Make, option: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        make(**option)


def test_trim_returns_wholly_free_regions_only(make: Make) -> None:
    source = VirtualSource()
    allocator = make(source)
    first, second, third = (allocator.allocate(size * MIB) for size in (2, 4, 8))
    allocator.free(first)
    allocator.free(third)
    assert allocator.trim() == 10 * MIB
    assert source.held_nbytes == 4 * MIB
    assert allocator.trim() == 0
    allocator.free(second)
    assert allocator.trim() == 4 * MIB
    assert source.held_nbytes == 0
    allocator.allocate(1)
    assert regions(allocator) == [2 * MIB]


def test_after_a_trim_regions_double_from_what_is_left(make: Make) -> None:
    allocator = make()
    kept, *others = (allocator.allocate(size * MIB) for size in (2, 4, 8, 16))
    for block in others:
        allocator.free(block)
    allocator.trim()
    allocator.allocate(1)
    assert regions(allocator) == [2 * MIB, 4 * MIB]
    assert kept is not None


def test_a_block_apart_has_a_region_of_its_size_that_trim_gives_back(make: Make) -> None:
    source = VirtualSource()
    allocator = make(source)
    allocator.allocate(1)
    block = allocator.allocate(5 * MIB + 1, apart=True)
    assert block is not None
    assert (block.requested_nbytes, block.allocated_nbytes) == (5 * MIB + 1, 5 * MIB + 256)
    assert regions(allocator) == [2 * MIB, 5 * MIB + 256]
    allocator.allocate(1)
    assert regions(allocator) == [2 * MIB, 5 * MIB + 256]
    allocator.free(block)
    assert allocator.trim() == 5 * MIB + 256
    assert source.held_nbytes == 2 * MIB


def test_a_block_apart_is_taken_from_what_is_held_where_no_more_is_to_be_had(make: Make) -> None:
    allocator = make(limit_nbytes=8 * MIB, allow_growth=False)
    allocator.allocate(1)
    block = allocator.allocate(3 * MIB, apart=True)
    assert block is not None
    assert regions(allocator) == [8 * MIB]
    with pytest.raises(OutOfMemory):
        allocator.allocate(6 * MIB, apart=True)


def test_free_regions_go_back_before_memory_is_said_to_be_out(make: Make) -> None:
    source = VirtualSource()
    allocator = make(source, limit_nbytes=8 * MIB)
    blocks = [allocator.allocate(2 * MIB) for _ in range(4)]
    for block in blocks:
        allocator.free(block)
    assert regions(allocator) == [2 * MIB, 4 * MIB, 2 * MIB]
    assert allocator.allocate(8 * MIB).requested_nbytes == 8 * MIB
    assert regions(allocator) == [8 * MIB]


def test_free_regions_stay_when_giving_them_back_cannot_help(make: Make) -> None:
    allocator = make(limit_nbytes=8 * MIB)
    kept, idle = allocator.allocate(2 * MIB), allocator.allocate(4 * MIB)
    allocator.free(idle)
    with pytest.raises(OutOfMemory):
        allocator.allocate(7 * MIB)
    assert regions(allocator) == [2 * MIB, 4 * MIB]
    allocator.free(kept)


@pytest.mark.parametrize(("address", "words"), [(0, "above 0"), (1000, "aligned to 256")])
def test_a_source_that_breaks_its_contract_is_named(address: int, words: str) -> None:
    class Faulty:
        def allocate(self, nbytes: int) -> int:
            return address

        def free(self, address: int, nbytes: int) -> None: ...

    with pytest.raises(SourceFault, match=words):
        BestFitAllocator(Faulty(), name="x").allocate(1)


@pytest.mark.parametrize("second", [4096, 4096 - 256, 4096 + 256])
def test_a_source_that_gives_memory_twice_is_named(second: int) -> None:
    class Faulty:
        addresses = iter((4096, second))

        def allocate(self, nbytes: int) -> int:
            return next(self.addresses)

        def free(self, address: int, nbytes: int) -> None: ...

    allocator = BestFitAllocator(Faulty(), name="x", first_region_nbytes=1024)
    allocator.allocate(1024)
    with pytest.raises(SourceFault, match="given already"):
        allocator.allocate(1024)


# ---- closing


def test_close_gives_everything_back_once(make: Make) -> None:
    source = VirtualSource()
    allocator = make(source)
    allocator.free(allocator.allocate(100))
    allocator.close()
    allocator.close()
    assert allocator.closed
    assert source.held_nbytes == 0
    assert allocator.statistics().pool_nbytes == 0
    assert allocator.memory_map() == []
    for nbytes in (0, 1):
        with pytest.raises(AllocatorError, match="is closed"):
            allocator.allocate(nbytes)


def test_close_names_who_still_holds_memory(make: Make, make_event: Any) -> None:
    allocator = make()
    block = allocator.allocate(MIB, owner="fc1/weights")
    with pytest.raises(AllocatorError, match=r"1\.0 MiB are in use .*fc1/weights"):
        allocator.close()
    allocator.free(block, after=make_event())
    with pytest.raises(AllocatorError, match=r"1\.0 MiB of it wait for an event"):
        allocator.close()
    assert not allocator.closed


def test_blocks_dropped_by_close_may_be_freed_late_once(make: Make) -> None:
    source = VirtualSource()
    allocator = make(source)
    block, other = allocator.allocate(100), allocator.allocate(100)
    allocator.close(discard=True)
    assert source.held_nbytes == 0
    with pytest.raises(InvalidFree, match="a foreign address"):
        allocator.free(dataclasses.replace(block, id=other.id))
    allocator.free(block)
    with pytest.raises(InvalidFree, match="freed before"):
        allocator.free(block)
    allocator.free(other.address)


def test_a_failing_source_does_not_keep_the_other_regions() -> None:
    class Failing(VirtualSource):
        def free(self, address: int, nbytes: int) -> None:
            super().free(address, nbytes)
            if nbytes == 4 * MIB:
                raise RuntimeError("driver is gone")

    source = Failing()
    allocator = BestFitAllocator(source, name="x")
    for size in (2, 4, 8):
        allocator.allocate(size * MIB)
    with pytest.raises(RuntimeError, match="driver is gone"):
        allocator.close(discard=True)
    assert source.held_nbytes == 0
    assert allocator.closed
