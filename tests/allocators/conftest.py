from collections.abc import Callable, Iterator
from typing import Any

import pytest

from allocators import Allocator, BestFitAllocator, VirtualSource


class ManualEvent:
    """Event that is done when the test says so."""

    def __init__(self, passed: bool = False) -> None:
        self.passed = passed
        self.num_asked = 0

    def done(self) -> bool:
        self.num_asked += 1
        return self.passed


@pytest.fixture
def make_event() -> Callable[..., ManualEvent]:
    return ManualEvent


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Makes allocators; checks their invariants and that they return all memory when the test ends."""
    made: list[tuple[Allocator, Any]] = []

    def factory(source: Any = None, kind: type[Allocator] = BestFitAllocator, **options: Any) -> Allocator:
        source = VirtualSource() if source is None else source
        allocator = kind(source, **{"name": "gpu:0/group:0", **options})
        made.append((allocator, source))
        return allocator

    yield factory
    for allocator, source in made:
        allocator.check_invariants()
        allocator.close(discard=True)
        allocator.check_invariants()
        if isinstance(source, VirtualSource):
            assert source.held_nbytes == 0
