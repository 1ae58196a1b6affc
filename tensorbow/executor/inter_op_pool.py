"""Threads on which slow parts of dynamic steps run while the steps go on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol, TypeAlias

PoolTask: TypeAlias = "Callable[[], None]"
IDLE_S = 5.0  # seconds after which a thread without work ends


def threads_beside_caller(parallelism: int) -> int:
    """Threads of a pool for `inter_op_parallelism_threads`, one of which is the caller's.

    0: of a pool whose number is not given. Most of what they run waits for something else.
    """
    return parallelism - 1 if parallelism else max(4, 2 * (os.cpu_count() or 1))


class TaskPool(Protocol):
    """Threads, or a share of them."""

    def run(self, task: PoolTask) -> bool:
        """Runs a task, which raises nothing, on one of the threads; False if none is free."""


class InterOpPool:
    """Threads that run tasks; they start when they are needed. All methods are thread-safe.

    There is no queue: a task that no thread can take at once is refused, and its owner runs it.
    """

    def __init__(self, most: int, name: str):
        """most: threads at the same time. name: of the threads."""
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[PoolTask | None] = SimpleQueue()
        self._threads = 0
        self._free = 0  # threads that wait, less the tasks that are on their way to them
        self._closed = False

    def run(self, task: PoolTask) -> bool:
        """Runs a task, which raises nothing, on one of the threads; False if none is free."""
        with self._lock:
            if self._closed or (self._free == 0 and self._threads == self._most):
                return False
            if self._free:
                self._free -= 1
            else:
                self._threads += 1
                thread = threading.Thread(target=self._work, name=f"{self._name} inter-op", daemon=True)
                thread.start()
        self._tasks.put(task)
        return True

    def allow(self, most: int) -> None:
        """Has at least so many threads from now on."""
        with self._lock:
            self._most = max(self._most, most)

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self._free:
                        self._free -= 1
                        self._threads -= 1
                        return
                continue
            if task is None:
                return
            task()
            del task
            with self._lock:
                if self._closed:
                    self._threads -= 1
                    return
                self._free += 1

    def close(self) -> None:
        """Ends the threads, once each has finished its task; idempotent. Later tasks are refused."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            free, self._free = self._free, 0
            self._threads -= free
        for _ in range(free):
            self._tasks.put(None)


class PoolShare:
    """At most so many threads of a pool that others use, too. Thread-safe."""

    def __init__(self, pool: TaskPool, most: int):
        self._pool, self._most = pool, most
        self._lock = threading.Lock()
        self._running = 0

    def run(self, task: PoolTask) -> bool:
        """Runs a task, which raises nothing, on one of the threads; False if none is free."""
        with self._lock:
            if self._running == self._most:
                return False
            self._running += 1
        taken = self._pool.run(partial(self._work, task))
        if not taken:
            self._end()
        return taken

    def _work(self, task: PoolTask) -> None:
        try:
            task()
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._running -= 1
