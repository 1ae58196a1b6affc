"""The best-fit allocator against a naive model that knows only intervals and searches all of them."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from allocators import (
    Allocation,
    BestFitAllocator,
    InvalidFree,
    OutOfMemory,
    PartitionedMemory,
    SourceExhausted,
    VirtualSource,
)

KIB = 1024
DEVICE_NBYTES = 256 * KIB
WASTE_NBYTES = 16 * KIB

sizes = st.one_of(
    st.integers(1, 2 * KIB),
    st.integers(0, 9).flatmap(lambda k: st.integers(-1, 1).map(lambda off: max(1, (256 << k) + off))),
    st.integers(1, 64 * KIB),
    st.integers(1, DEVICE_NBYTES + KIB),
)


class Flag:
    def __init__(self) -> None:
        self.up = False

    def done(self) -> bool:
        return self.up


class BestFitAgainstIntervals(RuleBasedStateMachine):
    blocks = Bundle("blocks")
    gone = Bundle("gone")
    events = Bundle("events")

    @initialize(
        allow_growth=st.booleans(),
        limit=st.sampled_from([8 * KIB, 64 * KIB, 200 * KIB + 100, DEVICE_NBYTES]),
        own_limit=st.sampled_from([None, 32 * KIB + 7, 128 * KIB]),
    )
    def start(self, allow_growth: bool, limit: int, own_limit: int | None) -> None:
        self.source = VirtualSource()
        self.memory = PartitionedMemory(self.source, DEVICE_NBYTES)
        self.partition = self.memory.partition("group:0", limit)
        self.rival = self.memory.partition("rival")
        self.rival_holds: list[tuple[int, int]] = []
        self.own_limit = own_limit
        self.allocator = BestFitAllocator(
            self.partition,
            name="tested",
            limit_nbytes=own_limit,
            allow_growth=allow_growth,
            first_region_nbytes=4 * KIB,
            largest_waste_nbytes=WASTE_NBYTES,
        )
        assert self.source.held_nbytes == 0
        self.in_use: dict[int, Allocation] = {}
        self.waiting: list[tuple[Flag, Allocation]] = []
        self.peak = self.handed_out = self.taken_back = self.largest = 0

    # ---- the model

    def regions(self) -> list[tuple[int, int]]:
        rival = {address for address, _ in self.rival_holds}
        return sorted(item for item in self.source.blocks.items() if item[0] not in rival)

    def taken(self) -> list[Allocation]:
        return sorted(
            [*self.in_use.values(), *(block for _, block in self.waiting)], key=lambda block: block.address
        )

    def gaps(self) -> list[tuple[int, int]]:
        """Free intervals as (nbytes, address): each region less what is taken in it."""
        found = []
        for address, nbytes in self.regions():
            cursor = address
            for block in self.taken():
                if address <= block.address < address + nbytes:
                    found.append((block.address - cursor, cursor))
                    cursor = block.address + block.allocated_nbytes
            found.append((address + nbytes - cursor, cursor))
        return [gap for gap in found if gap[0]]

    def collect(self) -> None:
        self.taken_back += sum(flag.up for flag, _ in self.waiting)
        self.waiting = [(flag, block) for flag, block in self.waiting if not flag.up]

    def idle_nbytes(self) -> int:
        whole = {(nbytes, address) for address, nbytes in self.regions()}
        return sum(nbytes for nbytes, address in self.gaps() if (nbytes, address) in whole)

    def room(self) -> int:
        """Bytes that the source can still give: within both limits, and not taken by the rival."""
        held = sum(nbytes for _, nbytes in self.regions())
        limit = (
            self.partition.limit_nbytes
            if self.own_limit is None
            else min(self.own_limit, self.partition.limit_nbytes)
        )
        return min(limit - held, DEVICE_NBYTES - self.source.held_nbytes)

    # ---- the rules

    def attempt(self, nbytes: int, owner: str) -> tuple[Allocation | None, OutOfMemory | None]:
        try:
            return self.allocator.allocate(nbytes, owner=owner), None
        except OutOfMemory as error:
            return None, error

    @rule(target=blocks, nbytes=sizes, owner=st.sampled_from(["", "conv1", "conv2"]))
    def allocate(self, nbytes: int, owner: str) -> Allocation | None:
        rounded = -(-nbytes // 256) * 256
        self.collect()
        before = self.regions()
        fitting = [gap for gap in self.gaps() if gap[0] >= rounded]
        block, error = self.attempt(nbytes, owner)
        if error is not None:
            assert not fitting
            assert all(gap < rounded for gap, _ in self.gaps())
            assert self.room() // 256 * 256 + self.idle_nbytes() < rounded
            assert (error.asked_nbytes, error.rounded_nbytes) == (nbytes, rounded)
            assert error.in_use_nbytes == sum(taken.allocated_nbytes for taken in self.taken())
            assert error.largest_free_nbytes == max((gap for gap, _ in self.gaps()), default=0)
            return None
        assert block is not None
        if fitting:
            gap, address = min(fitting)
            assert self.regions() == before
        else:
            ((address, gap),) = set(self.regions()) - set(before)
        splits = gap - rounded >= min(rounded, WASTE_NBYTES)
        assert (block.address, block.allocated_nbytes) == (address, rounded if splits else gap)
        assert (block.requested_nbytes, block.owner) == (nbytes, owner)
        end = block.address + block.allocated_nbytes
        for other in self.taken():
            assert end <= other.address or other.address + other.allocated_nbytes <= block.address
        self.in_use[block.id] = block
        self.handed_out += 1
        self.largest = max(self.largest, block.allocated_nbytes)
        self.peak = max(self.peak, sum(taken.allocated_nbytes for taken in self.taken()))
        return block

    @rule(target=blocks, nbytes=sizes)
    def allocate_apart(self, nbytes: int) -> Allocation | None:
        rounded = -(-nbytes // 256) * 256
        self.collect()
        before, room = self.regions(), self.room()
        try:
            block = self.allocator.allocate(nbytes, apart=True)
        except OutOfMemory:
            assert room < rounded
            return None
        assert block is not None
        if room >= rounded:
            assert set(self.regions()) - set(before) == {(block.address, rounded)}
            assert block.allocated_nbytes == rounded
        self.in_use[block.id] = block
        self.handed_out += 1
        self.largest = max(self.largest, block.allocated_nbytes)
        self.peak = max(self.peak, sum(taken.allocated_nbytes for taken in self.taken()))
        return block

    @rule()
    def allocate_nothing(self) -> None:
        assert self.allocator.allocate(0) is None

    @rule(target=gone, block=consumes(blocks), by_address=st.booleans())
    def free(self, block: Allocation | None, by_address: bool) -> Allocation | None:
        if block is not None:
            self.allocator.free(block.address if by_address else block)
            del self.in_use[block.id]
            self.taken_back += 1
        return block

    @rule(target=events)
    def record_event(self) -> Flag:
        return Flag()

    @rule(target=gone, block=consumes(blocks), event=events)
    def free_after(self, block: Allocation | None, event: Flag) -> Allocation | None:
        if block is not None:
            self.allocator.free(block, after=event)
            del self.in_use[block.id]
            if event.up:
                self.taken_back += 1
            else:
                self.waiting.append((event, block))
        return block

    @rule(event=events)
    def pass_event(self, event: Flag) -> None:
        event.up = True

    @rule()
    def trim(self) -> None:
        self.collect()
        idle, held = self.idle_nbytes(), self.partition.held_nbytes
        assert self.allocator.trim() == idle
        assert self.partition.held_nbytes == held - idle
        assert self.idle_nbytes() == 0

    @rule(block=gone)
    def free_again(self, block: Allocation | None) -> None:
        if block is None:
            return
        with pytest.raises(InvalidFree):
            self.allocator.free(block)
        if block.address not in {taken.address for taken in self.in_use.values()}:
            with pytest.raises(InvalidFree):
                self.allocator.free(block.address)

    @rule(block=blocks, offset=st.integers(1, 2 * KIB))
    def free_a_wrong_address(self, block: Allocation | None, offset: int) -> None:
        if block is not None and block.address + offset not in {
            taken.address for taken in self.in_use.values()
        }:
            with pytest.raises(InvalidFree):
                self.allocator.free(block.address + offset)

    @precondition(lambda self: self.partition.limit_nbytes < DEVICE_NBYTES)
    @rule(nbytes=st.integers(1, 64 * KIB))
    def grow_the_partition(self, nbytes: int) -> None:
        self.partition.grow(min(nbytes, DEVICE_NBYTES - self.partition.limit_nbytes))

    @rule(nbytes=st.integers(1, 128 * KIB))
    def rival_takes(self, nbytes: int) -> None:
        left = DEVICE_NBYTES - self.source.held_nbytes
        try:
            self.rival_holds.append((self.rival.allocate(nbytes), nbytes))
        except SourceExhausted:
            assert nbytes > left

    @precondition(lambda self: self.rival_holds)
    @rule()
    def rival_gives(self) -> None:
        self.rival.free(*self.rival_holds.pop())

    # ---- always

    @invariant()
    def the_books_agree(self) -> None:
        self.allocator.check_invariants()
        statistics = self.allocator.statistics()
        taken, gaps = self.taken(), self.gaps()
        assert statistics.num_allocations == self.handed_out
        assert statistics.num_frees == self.taken_back
        assert statistics.in_use_nbytes == sum(block.allocated_nbytes for block in taken)
        assert statistics.requested_nbytes == sum(block.requested_nbytes for block in taken)
        assert statistics.waiting_nbytes == sum(block.allocated_nbytes for _, block in self.waiting)
        assert (statistics.peak_nbytes, statistics.largest_nbytes) == (self.peak, self.largest)
        assert statistics.pool_nbytes == self.partition.held_nbytes == sum(n for _, n in self.regions())
        assert statistics.pool_nbytes <= self.partition.limit_nbytes
        assert self.own_limit is None or statistics.pool_nbytes <= self.own_limit
        assert self.source.held_nbytes == self.memory.held_nbytes <= DEVICE_NBYTES
        free = sum(nbytes for nbytes, _ in gaps)
        largest = max((nbytes for nbytes, _ in gaps), default=0)
        assert statistics.largest_free_nbytes == largest
        assert statistics.fragmentation == ((free - largest) / free if free else 0)

    @invariant()
    def the_map_is_the_intervals(self) -> None:
        records = self.allocator.memory_map()
        assert {(r.nbytes, r.address) for r in records if r.state == "free"} == set(self.gaps())
        assert {r.allocation_id for r in records if r.state == "in use"} == set(self.in_use)
        assert {r.allocation_id for r in records if r.state == "waiting"} == {b.id for _, b in self.waiting}

    def teardown(self) -> None:
        if hasattr(self, "allocator"):
            self.allocator.close(discard=True)
            assert self.partition.held_nbytes == 0


FEW = settings(
    max_examples=20, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


class TestBestFitAgainstIntervals(BestFitAgainstIntervals.TestCase):
    settings = FEW


@pytest.mark.slow
class TestBestFitAgainstIntervalsLonger(BestFitAgainstIntervals.TestCase):
    settings = settings(FEW, max_examples=1000)
