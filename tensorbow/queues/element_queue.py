"""State of a queue: its elements, and the calls that wait for room or for elements.

Calls are served in the order in which they came (TensorFlow's queues, OSDI 2016, section 3.1): a call that
waits for many elements takes them as they come, so it may ask for more than the capacity.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from tensorbow.errors import CancelledError, OutOfRangeError, ResourceExhaustedError
from tensorbow.graph import OnCancel
from tensorbow.queues.element_stores import ElementStore, QueueElement

Done: TypeAlias = Callable[[list[QueueElement]], None]
Fail: TypeAlias = Callable[[BaseException], None]
_handles = itertools.count(1)


@dataclass(eq=False)
class _Put:
    elements: Sequence[QueueElement]
    done: Callable[[], None]
    fail: Fail
    placed: int = 0


@dataclass(eq=False)
class _Take:
    count: int
    up_to: bool
    done: Done
    fail: Fail
    taken: list[QueueElement] = field(default_factory=list)


@dataclass(eq=False)
class _Peek:
    index: int
    done: Done
    fail: Fail


class ElementQueue:
    """A queue of a process; all methods are thread-safe and return at once.

    `done` and `fail` of the calls run in the thread that ends the wait, without the queue's lock.
    """

    def __init__(self, label: str, store: ElementStore, capacity: int, keeps: int = 0, memory_limit: int = 0):
        """label: for messages. capacity: most elements. keeps: elements that stay while it is open.

        memory_limit: most bytes, 0 for no limit.
        """
        self.handle = next(_handles)
        self.label = label
        self._store = store
        self._capacity = capacity
        self._keeps = keeps
        self._memory_limit = memory_limit
        self._nbytes = 0  # of the elements, if there is a limit
        self._lock = threading.Lock()
        self._puts: deque[_Put] = deque()
        self._takes: deque[_Take] = deque()
        self._peeks: list[_Peek] = []
        self._ends: list[Callable[[], None]] = []  # calls of `end` that wait for the puts before them
        self._ended = False  # closed: nothing more may be put

    def size(self) -> int:
        """The number of elements."""
        with self._lock:
            return len(self._store)

    def is_ended(self) -> bool:
        """True if it was closed."""
        with self._lock:
            return self._ended

    def put(
        self,
        elements: Sequence[QueueElement],
        done: Callable[[], None],
        fail: Fail,
        on_cancel: OnCancel | None = None,
    ) -> None:
        """Adds elements as soon as there is room, calls `done` after the last one.

        on_cancel: is told first how the call is taken back. CancelledError for a closed queue.
        """
        call = _Put(elements, done, fail)
        if on_cancel is not None:
            on_cancel(partial(self._take_back, call))
        largest = max(map(_nbytes, elements), default=0) if self._memory_limit else 0
        with self._lock:
            if largest > self._memory_limit:
                later = [lambda: fail(self._too_large_error(largest))]
            elif self._ended:
                later = [lambda: fail(self._closed_error())]
            else:
                self._puts.append(call)
                later = self._serve()
        _run(later)

    def take(
        self, count: int, up_to: bool, done: Done, fail: Fail, on_cancel: OnCancel | None = None
    ) -> None:
        """Removes `count` elements as soon as they are there and passes them to `done`.

        OutOfRangeError if the queue is closed and has fewer; with `up_to` only if it has none, and what is
        left is passed. on_cancel: see `put`.
        """
        call = _Take(count, up_to, done, fail)
        if on_cancel is not None:
            on_cancel(partial(self._take_back, call))
        with self._lock:
            self._takes.append(call)
            later = self._serve()
        _run(later)

    def peek(self, index: int, done: Done, fail: Fail, on_cancel: OnCancel | None = None) -> None:
        """Passes the element at a position to `done` as soon as it is there; it stays in the queue.

        OutOfRangeError if the queue is closed and has fewer. on_cancel: see `put`.
        """
        call = _Peek(index, done, fail)
        if on_cancel is not None:
            on_cancel(partial(self._take_back, call))
        with self._lock:
            self._peeks.append(call)
            later = self._serve()
        _run(later)

    def clear(self) -> None:
        """Removes all elements."""
        with self._lock:
            self._store.take(len(self._store))
            self._nbytes = 0
            later = self._serve()
        _run(later)

    def end(self, cancels: bool, done: Callable[[], None]) -> None:
        """Closes the queue: nothing more may be put, and takes fail when the elements are used up.

        cancels: ends the puts that wait with CancelledError; else `done` comes after them.
        """
        with self._lock:
            self._ended = True
            later: list[Callable[[], None]] = []
            if cancels:
                error = self._closed_error()
                later = [lambda fail=put.fail: fail(error) for put in self._puts]  # type: ignore[misc]
                self._puts.clear()
            self._ends.append(done)
            later += self._serve()
        _run(later)

    def close(self) -> None:
        """Closes the queue and ends the puts that wait; called when its session is closed."""
        self.end(True, lambda: None)

    def _closed_error(self) -> CancelledError:
        return CancelledError(f"{self.label} is closed: nothing more can be enqueued")

    def _take_back(self, call: _Put | _Take | _Peek) -> None:
        """Ends a call that waits: elements that it has put stay, those that it has taken come back."""
        with self._lock:
            if isinstance(call, _Put):
                if call in self._puts:
                    self._puts.remove(call)
            elif isinstance(call, _Peek):
                if call in self._peeks:
                    self._peeks.remove(call)
            elif call in self._takes:
                self._takes.remove(call)
                self._put_back(call.taken)
            later = self._serve()
        _run(later)

    def _serve(self) -> list[Callable[[], None]]:
        """Moves elements until nothing can; the functions to call without the lock."""
        later: list[Callable[[], None]] = []
        moved = True
        while moved:
            moved = False
            while self._puts:
                put = self._puts[0]
                room = max(0, self._capacity - len(self._store))
                part = put.elements[put.placed : put.placed + room]
                if self._memory_limit:
                    part = self._fitting(part)
                self._store.put(part)
                put.placed += len(part)
                moved |= bool(part)
                if put.placed < len(put.elements):
                    break
                self._puts.popleft()
                later.append(put.done)
            last = self._ended and not self._puts
            self._serve_peeks(last, later)
            while self._takes:
                take = self._takes[0]
                there = max(0, len(self._store) - (0 if last else self._keeps))
                missing = take.count - len(take.taken)
                if part := self._store.take(min(missing, there)):
                    take.taken += part
                    if self._memory_limit:
                        self._nbytes -= sum(map(_nbytes, part))
                    moved = True
                if len(take.taken) == take.count or (last and take.up_to and take.taken):
                    later.append(lambda take=take: take.done(take.taken))  # type: ignore[misc]
                elif last:
                    self._put_back(take.taken)
                    error = self._exhausted_error(take.count)
                    later.append(lambda take=take, error=error: take.fail(error))  # type: ignore[misc]
                else:
                    break
                self._takes.popleft()
        if self._ended and not self._puts:
            later += self._ends
            self._ends = []
        return later

    def _serve_peeks(self, last: bool, later: list[Callable[[], None]]) -> None:
        for peek in list(self._peeks):
            seen = self._store.take(min(peek.index + 1, len(self._store)))
            self._store.put_back(seen)
            if len(seen) > peek.index:
                later.append(lambda peek=peek, seen=seen: peek.done(seen[-1:]))  # type: ignore[misc]
            elif last:
                error = self._exhausted_error(peek.index + 1)
                later.append(lambda peek=peek, error=error: peek.fail(error))  # type: ignore[misc]
            else:
                continue
            self._peeks.remove(peek)

    def _fitting(self, elements: Sequence[QueueElement]) -> Sequence[QueueElement]:
        """The first elements for which there is room in bytes; counts them."""
        for number, element in enumerate(elements):
            nbytes = _nbytes(element)
            if self._nbytes + nbytes > self._memory_limit:
                return elements[:number]
            self._nbytes += nbytes
        return elements

    def _put_back(self, elements: Sequence[QueueElement]) -> None:
        self._store.put_back(elements)
        if self._memory_limit:
            self._nbytes += sum(map(_nbytes, elements))

    def _too_large_error(self, nbytes: int) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"{self.label}: an element of {nbytes:,} bytes, more than the memory_limit of "
            f"{self._memory_limit:,}"
        )

    def _exhausted_error(self, count: int) -> OutOfRangeError:
        return OutOfRangeError(
            f"{self.label} is closed and has insufficient elements (requested {count}, "
            f"current size {len(self._store)})"
        )


def _nbytes(element: QueueElement) -> int:
    return sum(component.nbytes for component in element)


def _run(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()
