"""Threads that make the elements of a pipeline."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tensorbow.data.drawing_ahead import DrawingAhead


def in_parallel(function: Callable[[Any], Any], elements: Iterable[Any], threads: int) -> Iterator[Any]:
    """Results in order; at most twice as many elements as threads are under way."""
    with ThreadPoolExecutor(threads, "tensorbow map") as pool:
        pending: deque[Future[Any]] = deque()
        try:
            for element in elements:
                pending.append(pool.submit(function, element))
                if len(pending) >= 2 * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def made_ahead(elements: Iterator[Any], count: int) -> Iterator[Any]:
    """Elements made by a thread, which ends with the iteration."""
    ahead = DrawingAhead(lambda: elements.__next__, count, "tensorbow prefetch")
    try:
        while True:
            try:
                element = ahead.take()
            except StopIteration:
                return
            yield element
    finally:
        ahead.close()
