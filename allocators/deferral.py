"""Deferred frees: those that wait for an event, and those that come during another call of the allocator."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from allocators.errors import AllocatorError
from allocators.regions import Chunk

Item = TypeVar("Item")


class Completion(Protocol):
    """An event: a point in a stream's work. One-shot: once done, it stays done."""

    def done(self) -> bool:
        """True if the stream has passed the point. Must not block: the allocator's lock is held."""
        ...


class WaitingFrees:
    """Chunks whose free waits for an event, in one list per event, so that each event is queried once."""

    __slots__ = ("_by_event",)

    def __init__(self) -> None:
        self._by_event: dict[int, tuple[Completion, list[Chunk]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_event)

    def add(self, event: Completion, chunk: Chunk) -> None:
        """Keep `chunk` until `event` is done. The event is kept alive, so its id can be the key."""
        self._by_event.setdefault(id(event), (event, []))[1].append(chunk)

    def ready(self) -> Iterator[Chunk]:
        """Remove and yield the chunks whose event is done, in the order of the events' first use."""
        for key, (event, chunks) in list(self._by_event.items()):
            if event.done():
                del self._by_event[key]
                yield from chunks

    def chunks(self) -> Iterator[Chunk]:
        """All waiting chunks."""
        for _, chunks in self._by_event.values():
            yield from chunks

    def clear(self) -> None:
        """Remove all chunks."""
        self._by_event.clear()


class Guard(Generic[Item]):
    """Lock of an allocator that postpones a free which arrives while its own thread holds the lock.

    The garbage collector may run a finaliser, which frees a tensor, at any moment inside the allocator. A
    plain lock would deadlock then; a reentrant one would run the free on inconsistent state. Here such a free
    is postponed until the outer call ends; any other reentrant call raises `AllocatorError`. Uncontended, it
    costs well under a microsecond.
    """

    __slots__ = ("_busy", "_lock", "_postponed", "_replay")

    def __init__(self, replay: Callable[[Item], None]) -> None:
        self._lock = threading.RLock()
        self._busy = False
        self._postponed: deque[Item] = deque()
        self._replay = replay

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._busy:
            self._lock.release()
            raise AllocatorError(
                "an allocator was called from inside its own work (by a finaliser, an event or its source): "
                "only free() may be called there"
            )
        self._busy = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            while self._postponed:
                self._replay(self._postponed.popleft())
        finally:
            self._busy = False
            self._lock.release()

    def postpone(self, item: Item, check: Callable[[Item, deque[Item]], None]) -> bool:
        """Postpone `item` to the end of the outer call if this thread is inside one; returns whether it is.

        `check(item, postponed)` may refuse it by raising.
        """
        with self._lock:
            if not self._busy:
                return False
            check(item, self._postponed)
            self._postponed.append(item)
            return True
