"""Two ways in which a free can come too early: before an event, and inside the allocator's own work."""

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
    """A point in a stream's work that is passed once. Immutable and one-shot: once done, done for ever."""

    def done(self) -> bool:
        """Whether the point has been passed. Must not block: it is called with the allocator's lock held."""
        ...


class WaitingFrees:
    """Chunks whose free waits for an event, one list per event, so that each event is asked once."""

    __slots__ = ("_by_event",)

    def __init__(self) -> None:
        self._by_event: dict[int, tuple[Completion, list[Chunk]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_event)

    def add(self, event: Completion, chunk: Chunk) -> None:
        """Hold `chunk` back until `event` is done. The event is kept alive, so its identity is its key."""
        self._by_event.setdefault(id(event), (event, []))[1].append(chunk)

    def ready(self) -> Iterator[Chunk]:
        """Remove and yield the chunks whose event is done, in the order of the events' first use."""
        for key, (event, chunks) in list(self._by_event.items()):
            if event.done():
                del self._by_event[key]
                yield from chunks

    def chunks(self) -> Iterator[Chunk]:
        """All chunks held back."""
        for _, chunks in self._by_event.values():
            yield from chunks

    def clear(self) -> None:
        """Forget them all."""
        self._by_event.clear()


class Guard(Generic[Item]):
    """The one lock of an allocator, with an answer to a free that arrives while its own thread holds it.

    That happens: the garbage collector may run a finaliser, which frees a tensor, at any moment inside the
    allocator. A plain lock would deadlock there, a reentrant one would let the free in among half-made
    changes. Here such a free is postponed and replayed when the outer call leaves; any other call from
    inside is an error. Uncontended it costs well under a microsecond.
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
        """Keep `item` for the end of the outer call if this thread is inside one; says whether it did.

        `check` may refuse it by raising; it is shown those that are postponed already.
        """
        with self._lock:
            if not self._busy:
                return False
            check(item, self._postponed)
            self._postponed.append(item)
            return True
