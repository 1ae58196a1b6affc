"""Calls that all workers of a job make together, on the host: decisions, and values that all know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from scheduler.workers.group import WorkerGroup
from scheduler.workers.watch_client import told_error
from tensorbow.errors import TensorBowError

T = TypeVar("T")
U = TypeVar("U")


class JointCalls:
    """The workers of a job; a process that was started by itself is one worker.

    All workers make the same calls in the same order, while no round is in flight.
    """

    def __init__(self, workers: WorkerGroup):
        self.workers = workers

    @property
    def size(self) -> int:
        """Number of workers."""
        return self.workers.size

    @property
    def leads(self) -> bool:
        """True for worker 0, which evaluates, writes the run's files and prints."""
        return self.workers.rank == 0

    def by_first(self, function: Callable[[], T]) -> T:
        """Calls a function in worker 0; the value, or the library's error, is that of all workers."""
        if self.size == 1:
            return function()
        value: Any = None
        error: TensorBowError | None = None
        if self.leads:
            try:
                value = function()
            except TensorBowError as raised:
                error = raised
        told = self.agreed((value, None if error is None else (type(error), str(error))))
        if error is not None:
            raise error
        if told[1] is not None:
            raise told_error(*told[1])
        result: T = told[0]
        return result

    def by_all(self, function: Callable[[], None]) -> None:
        """Calls a function in each worker; the library's error of one, the first by number, is that of all.

        That worker raises it as its own, which is shown to people, the others as one that is told.
        """
        error: TensorBowError | None = None
        try:
            function()
        except TensorBowError as raised:
            error = raised
        told = self.all(None if error is None else (type(error), str(error)))
        for number, found in enumerate(told):
            if found is not None:
                raise error if number == self.workers.rank and error is not None else told_error(*found)

    def by_first_with(self, own: U, function: Callable[[list[U]], T]) -> T:
        """`by_first`, of a function of the values that all workers give, by worker."""
        gathered = self.workers.gather(own)
        return self.by_first(lambda: function(gathered or []))

    def agreed(self, value: T) -> T:
        """The value of worker 0."""
        result: T = self.workers.broadcast(value)
        return result

    def all(self, value: T) -> list[T]:
        """The value that each worker gives, by worker."""
        return self.workers.all_gather(value)

    def any(self, value: bool) -> bool:
        """True if it is for some worker."""
        return any(self.all(value))

    def first_of(self, value: T | None) -> T | None:
        """The first value that is not None, by worker."""
        return next((each for each in self.all(value) if each is not None), None)

    def gathered(self, items: Sequence[T]) -> list[T]:
        """The items of all workers, worker by worker."""
        return [item for each in self.all(list(items)) for item in each]
