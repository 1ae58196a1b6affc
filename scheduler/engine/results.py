"""What finished learning tasks report, and what one run of the engine keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple

from scheduler.batches.sources import ReadyBatch, ReadyRound
from scheduler.decisions.machine import Machine
from tensorbow.data import BatchInputs, BatchRun, RoundInputs


class TaskResult(NamedTuple):
    """What one finished task reports: the loss (NaN if the step has none), and the metrics.

    Metrics of rank 0 are numbers, others arrays of their own. place: of its batch in the round; with
    `round_robin` the replica's number.
    """

    replica: int
    round: int
    loss: float
    metrics: tuple[Any, ...]
    time_s: float  # `time.perf_counter` at completion
    place: int


@dataclass(slots=True)
class RoundResults:
    """What the tasks of one launch report, in columns: those of whole rounds, by round and then by place.

    Rounds may be many and short, so that an object for each task would cost more than the task. Who wants
    these iterates: that gives a `TaskResult` for each.
    """

    rounds: range
    replicas: Sequence[int]  # by place
    losses: Sequence[float]  # [rounds * places], as the metrics
    metrics: Sequence[Sequence[Any]]
    times_s: Sequence[float]  # by place: when the last of its tasks ended

    def __iter__(self) -> Iterator[TaskResult]:
        places, columns = len(self.replicas), self.metrics
        for index, loss in enumerate(self.losses):
            round, place = divmod(index, places)
            metrics = tuple(column[index] for column in columns)
            yield TaskResult(
                self.replicas[place], self.rounds[round], loss, metrics, self.times_s[place], place
            )

    @classmethod
    def of_round(cls, tasks: Sequence[TaskResult]) -> RoundResults:
        """Those of one round, of all its tasks by place."""
        replicas, (round, *_), losses, metrics, times_s, _ = zip(*tasks, strict=True)
        return cls(range(round, round + 1), replicas, losses, tuple(zip(*metrics, strict=True)), times_s)


@dataclass
class EngineRun:
    """Rounds under way on an engine: the machine, its inbox, and what is on its way.

    `LearningEngine.run` and `Stepper` both make one by `begin` and feed it by `take`.
    """

    state: Machine[Any]  # where it counts rounds, these are launches
    start: int
    stop: int
    steps: int  # rounds of a launch; with one of each, launches have the rounds' numbers
    inbox: SimpleQueue[Any]
    on_results: Callable[[RoundResults], None] | None
    batches: dict[tuple[int, int], ReadyBatch] = field(default_factory=dict)  # by place and round
    ready: dict[int, ReadyRound] = field(default_factory=dict)  # by round, of those that are launched as one
    results: dict[int, dict[int, TaskResult]] = field(default_factory=dict)  # by round and place
    awaited: int = 0  # the round whose results are to be handed out next
    bad: list[tuple[int, bool, int]] = field(default_factory=list)  # (round, loss is finite, place)
    error: BaseException | None = None
    stopping: bool = False  # the machine knows of the request to stop
    finished_at: int | None = None
    settled: bool = False  # nothing is in flight until its stepper goes on: values may be read and set

    def hand_out(self, result: TaskResult, places: int) -> None:
        """Gives results on, in the order of rounds, as soon as all tasks of a round are done."""
        self.results.setdefault(result.round, {})[result.place] = result
        while len(of_round := self.results.get(self.awaited, ())) == places:
            assert self.on_results is not None
            del self.results[self.awaited]
            self.awaited += 1
            self.on_results(RoundResults.of_round([of_round[place] for place in range(places)]))

    def keep(self, error: BaseException | None) -> None:
        """Keeps the first error, to be raised at the end; None is none."""
        self.error = self.error or error

    def inputs_of(self, place: int, launch: int) -> BatchInputs | BatchRun:
        """What a task that has not finished is trained on."""
        if launch not in self.ready:
            return self.batches[place, launch].inputs
        inputs = self.ready[launch].inputs
        return inputs.of(place) if isinstance(inputs, RoundInputs) else inputs[place]

    def first_round(self, launch: int) -> int:
        """The first round of a launch, or where the last one ended."""
        return min(self.start + (launch - self.start) * self.steps, self.stop)

    def rounds(self, launch: int) -> range:
        """The rounds of a launch."""
        return range(self.first_round(launch), self.first_round(launch + 1))

    def launch_of(self, round: int) -> int:
        """The launch that a round is in."""
        return self.start + (round - self.start) // self.steps
