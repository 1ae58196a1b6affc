"""Results of finished learning tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class TaskResult(NamedTuple):
    """Report of a finished task: the loss (NaN if the step has none) and the metrics.

    Metrics of rank 0 are numbers, others arrays of their own. batch_number: number of its batch in the
    round; with `round_robin` the replica's number.
    """

    replica: int
    round: int
    loss: float
    metrics: tuple[Any, ...]
    time_s: float  # `time.perf_counter` at completion
    batch_number: int


@dataclass(slots=True)
class RoundResults:
    """Reports of the tasks of a launch in columns: whole rounds, by round and then by batch number.

    Rounds may be many and short, so that an object for each task would cost more than the task. Iteration
    gives a `TaskResult` for each. With backup workers of several processes a round may have none here.
    """

    rounds: range
    replicas: Sequence[int]  # by batch number
    losses: Sequence[float]  # [rounds * batches], as the metrics
    metrics: Sequence[Sequence[Any]]
    times_s: Sequence[float]  # by batch number: end of its last task, or of the round if it has none

    def __iter__(self) -> Iterator[TaskResult]:
        count, columns = len(self.replicas), self.metrics
        for index, loss in enumerate(self.losses):
            round_index, number = divmod(index, count)
            metrics = tuple(column[index] for column in columns)
            yield TaskResult(
                self.replicas[number], self.rounds[round_index], loss, metrics, self.times_s[number], number
            )

    @classmethod
    def of_round(cls, tasks: Sequence[TaskResult]) -> RoundResults:
        """Builds the results of one round from its tasks, in the order of their batches."""
        replicas, (round, *_), losses, metrics, times_s, _ = zip(*tasks, strict=True)
        return cls(range(round, round + 1), replicas, losses, tuple(zip(*metrics, strict=True)), times_s)
