"""Stores of the elements of queues, by the order in which they give them back; the queue has the lock."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

QueueElement: TypeAlias = "tuple[Any, ...]"  # an array or NumPy scalar for each component


class ElementStore(Protocol):
    """Elements in the order of a kind of queue."""

    def __len__(self) -> int: ...

    def put(self, elements: Sequence[QueueElement]) -> None:
        """Adds elements."""
        ...

    def take(self, count: int) -> list[QueueElement]:
        """Removes `count` elements, at most as many as there are, and returns them."""
        ...

    def put_back(self, elements: Sequence[QueueElement]) -> None:
        """Undoes `take`: they will be the next ones again, where the order is fixed."""
        ...


class FirstInFirstOut:
    """Elements in the order in which they came."""

    def __init__(self) -> None:
        self._elements: deque[QueueElement] = deque()

    def __len__(self) -> int:
        return len(self._elements)

    def put(self, elements: Sequence[QueueElement]) -> None:
        """Adds elements at the end."""
        self._elements.extend(elements)

    def take(self, count: int) -> list[QueueElement]:
        """Removes the oldest ones."""
        if count == len(self._elements):
            taken = list(self._elements)
            self._elements.clear()
            return taken
        return [self._elements.popleft() for _ in range(count)]

    def put_back(self, elements: Sequence[QueueElement]) -> None:
        """Adds them at the front."""
        self._elements.extendleft(reversed(elements))


class RandomOrder:
    """Elements drawn at random, each with equal probability."""

    def __init__(self, seed: tuple[int, int] | None):
        """seed: for the same draws in every run; None for other ones."""
        self._elements: list[QueueElement] = []
        self._numbers = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._elements)

    def put(self, elements: Sequence[QueueElement]) -> None:
        """Adds elements."""
        self._elements.extend(elements)

    def take(self, count: int) -> list[QueueElement]:
        """Draws elements without replacement."""
        elements, taken = self._elements, []
        for draw in self._numbers.random(count).tolist():
            place = int(draw * len(elements))
            elements[place], elements[-1] = elements[-1], elements[place]
            taken.append(elements.pop())
        return taken

    def put_back(self, elements: Sequence[QueueElement]) -> None:
        """Adds elements."""
        self._elements.extend(elements)


class SmallestFirst:
    """Elements by their first component, an int64 scalar; equal ones in the order in which they came."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, QueueElement]] = []
        self._numbers = itertools.count()
        self._earlier = itertools.count(-1, -1)

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, elements: Sequence[QueueElement]) -> None:
        """Adds elements."""
        for element in elements:
            heapq.heappush(self._heap, (int(element[0]), next(self._numbers), element))

    def take(self, count: int) -> list[QueueElement]:
        """Removes those of the smallest first components."""
        return [heapq.heappop(self._heap)[2] for _ in range(count)]

    def put_back(self, elements: Sequence[QueueElement]) -> None:
        """Adds elements before those of equal first components."""
        for element in reversed(elements):
            heapq.heappush(self._heap, (int(element[0]), next(self._earlier), element))
