import threading
from collections.abc import Callable
from typing import Any

import pytest

from allocators import (
    Allocation,
    Allocator,
    AllocatorError,
    BestFitAllocator,
    DriverAllocator,
    InvalidFree,
    VirtualSource,
)

MIB = 1024 * 1024
Make = Callable[..., Allocator]
kinds = pytest.mark.parametrize("kind", [BestFitAllocator, DriverAllocator])


@kinds
def test_a_free_behind_an_event_waits_for_it(make: Make, make_event: Any, kind: type[Allocator]) -> None:
    allocator = make(kind=kind)
    event = make_event()
    block = allocator.allocate(1024)
    allocator.free(block, after=event)
    statistics = allocator.statistics()
    assert (statistics.in_use_nbytes, statistics.waiting_nbytes, statistics.num_frees) == (1024, 1024, 0)
    second = allocator.allocate(1024)
    assert second.address != block.address
    event.passed = True
    assert allocator.statistics().waiting_nbytes == 1024
    allocator.allocate(1024)
    statistics = allocator.statistics()
    assert (statistics.in_use_nbytes, statistics.waiting_nbytes, statistics.num_frees) == (2048, 0, 1)


def test_an_event_that_is_done_frees_at_once(make: Make, make_event: Any) -> None:
    allocator = make()
    allocator.free(allocator.allocate(10), after=make_event(True))
    assert allocator.statistics().in_use_nbytes == 0


def test_trim_collects_and_a_waiting_block_keeps_its_region(make: Make, make_event: Any) -> None:
    allocator, event = make(), make_event()
    allocator.free(allocator.allocate(10), after=event)
    assert allocator.trim() == 0
    event.passed = True
    assert allocator.trim() == 2 * MIB


def test_freeing_what_waits_is_a_second_free(make: Make, make_event: Any) -> None:
    allocator = make()
    block = allocator.allocate(10)
    allocator.free(block, after=make_event())
    for target in (block, block.address):
        with pytest.raises(InvalidFree, match="freed before: it waits for its event"):
            allocator.free(target)


def test_a_waiting_neighbour_is_not_merged_until_its_event(make: Make, make_event: Any) -> None:
    allocator, event = make(), make_event()
    left, middle, right = (allocator.allocate(512) for _ in range(3))
    allocator.free(middle, after=event)
    allocator.free(left)
    allocator.free(right)
    assert [record.state for record in allocator.memory_map()] == ["free", "waiting", "free"]
    event.passed = True
    allocator.trim()
    assert allocator.memory_map() == []


def test_each_event_is_asked_once_however_many_blocks_wait(make: Make, make_event: Any) -> None:
    allocator, event = make(), make_event()
    blocks = [allocator.allocate(512) for _ in range(20)]
    for block in blocks:
        allocator.free(block, after=event)
    event.num_asked = 0
    allocator.allocate(512)
    assert event.num_asked == 1


def test_events_are_asked_before_more_memory_is(make: Make, make_event: Any) -> None:
    allocator, event = make(limit_nbytes=2 * MIB), make_event()
    allocator.free(allocator.allocate(2 * MIB), after=event)
    event.passed = True
    assert allocator.allocate(2 * MIB) is not None


def test_a_failing_event_leaves_the_books_right(make: Make) -> None:
    class Broken:
        broken = False

        def done(self) -> bool:
            if self.broken:
                raise RuntimeError("device lost")
            return False

    allocator, event = make(), Broken()
    block = allocator.allocate(512)
    event.broken = True
    with pytest.raises(RuntimeError, match="device lost"):
        allocator.free(block, after=event)
    assert allocator.statistics().waiting_nbytes == 0
    event.broken = False
    allocator.free(block, after=event)
    event.broken = True
    with pytest.raises(RuntimeError, match="device lost"):
        allocator.allocate(1)
    allocator.check_invariants()
    event.broken = False


class MeddlingEvent:
    """Calls `action` when asked whether it is done, as a finaliser may run in the middle of any call."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self.action: Callable[[], Any] | None = action
        self.error: Exception | None = None

    def done(self) -> bool:
        action, self.action = self.action, None
        if action is not None:
            try:
                action()
            except AllocatorError as error:
                self.error = error
        return False


@kinds
def test_a_free_from_inside_another_call_is_made_when_that_call_ends(
    make: Make, kind: type[Allocator]
) -> None:
    allocator = make(kind=kind)
    victim, block = allocator.allocate(512), allocator.allocate(512)
    event = MeddlingEvent(lambda: allocator.free(victim))
    allocator.free(block, after=event)
    assert event.error is None
    assert allocator.statistics().num_frees == 1
    with pytest.raises(InvalidFree):
        allocator.free(victim)


def test_a_wrong_free_from_inside_is_refused_there_and_not_later(make: Make) -> None:
    allocator = make()
    gone, victim, block = (allocator.allocate(512) for _ in range(3))
    allocator.free(gone)

    def twice() -> None:
        allocator.free(victim)
        allocator.free(victim.address)

    for action, words in ((lambda: allocator.free(gone), "freed before"), (twice, "freed before")):
        event = MeddlingEvent(action)
        allocator.free(allocator.allocate(256), after=event)
        with pytest.raises(InvalidFree, match=words):
            raise event.error
    allocator.check_invariants()
    allocator.free(block)


def test_anything_else_from_inside_is_an_error_and_no_deadlock(make: Make) -> None:
    allocator = make()
    for action in (lambda: allocator.allocate(1), allocator.trim, allocator.statistics):
        event = MeddlingEvent(action)
        allocator.free(allocator.allocate(256), after=event)
        with pytest.raises(AllocatorError, match="from inside its own work"):
            raise event.error


@kinds
def test_frees_from_other_threads(make: Make, make_event: Any, kind: type[Allocator]) -> None:
    allocator = make(VirtualSource(), kind)
    num_threads, each = 4, 200
    inbox: list[list[Allocation]] = [[] for _ in range(num_threads)]
    ready = threading.Barrier(num_threads + 1)
    failures: list[Exception] = []

    def work(mine: list[Allocation], index: int) -> None:
        ready.wait()
        try:
            for number, block in enumerate(mine):
                allocator.free(block, after=make_event(True) if number % 3 == index % 3 else None)
        except Exception as error:
            failures.append(error)

    for number in range(num_threads * each):
        inbox[number % num_threads].append(allocator.allocate(256 * (1 + number % 7)))
    threads = [threading.Thread(target=work, args=(mine, index)) for index, mine in enumerate(inbox)]
    for thread in threads:
        thread.start()
    ready.wait()
    kept = [allocator.allocate(512) for _ in range(each)]
    for thread in threads:
        thread.join()
    assert not failures
    allocator.check_invariants()
    assert len({block.address for block in kept}) == each
    statistics = allocator.statistics()
    assert statistics.in_use_nbytes == sum(block.allocated_nbytes for block in kept)
    assert statistics.num_frees == num_threads * each
