"""Run of tasks with dispatch `fcfs`: first come, first served."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from scheduler.batches.sources import ReadyBatch, ReadyLaunch
from scheduler.decisions.first_come import FirstComeState
from scheduler.decisions.messages import (
    BatchReady,
    Finish,
    GiveUp,
    Instruction,
    Launch,
    Restart,
    SchedulerEvent,
    SourceFailed,
    StopRequested,
    SyncFailed,
    SyncFinished,
    Synchronise,
    TaskFailed,
    TaskFinished,
)
from scheduler.engine.outcomes import StepOutcomes
from scheduler.engine.results import RoundResults, TaskResult
from scheduler.engine.runs import EngineRun, OnResults, not_one_batch, tell_of_end
from scheduler.replicas.parted_learners import AnyLearners
from scheduler.replicas.task_launcher import announce
from tensorbow.data import BatchInputs, BatchRun
from tensorbow.devices import Event
from tensorbow.errors import (
    AbortedError,
    InternalError,
    InvalidArgumentError,
)


class TaskRun(EngineRun):
    """First come, first served: a thin shell around the state machine that assigns batches to replicas."""

    def __init__(
        self,
        learners: AnyLearners,
        outcomes: StepOutcomes,
        start: int,
        stop: int,
        launch_ahead: int,
        on_results: OnResults | None,
        restarts_before: Callable[[int], bool],
    ):
        super().__init__(learners, outcomes, start, stop, launch_ahead, on_results)
        self._machine = FirstComeState(
            learners.count,
            start,
            stop,
            tau=learners.options.tau,
            launch_ahead=launch_ahead,
            synchronised=learners.synchronises,
            restarts_before=restarts_before,
        )
        self._events: list[SchedulerEvent] = []  # not yet passed to the state machine
        self._batches: dict[tuple[int, int], ReadyBatch] = {}  # by batch number and round
        self._results: dict[int, dict[int, TaskResult]] = {}  # by round and batch number

    @property
    def in_flight(self) -> int:
        """See EngineRun.in_flight."""
        return self._machine.in_flight

    @property
    def begun(self) -> int:
        """The first round of which no replica has taken a batch."""
        return self._machine.begun

    def advance(self) -> None:
        """See EngineRun.advance."""
        events, self._events = self._events, []
        if self.finished_at is None:
            self._obey(self._machine.handle(*events) if events else self._machine.begin())

    def _request_stop(self) -> None:
        self._events.append(StopRequested())

    def _note(self, message: Any) -> None:
        if type(message) is tuple:
            self._events.append(self._ended(*message))
        elif isinstance(message, ReadyBatch):
            self._require_number(message)
            self._batches[message.batch_number, message.launch] = message
            self._events.append(BatchReady(message.batch_number, message.launch))
        elif isinstance(message, ReadyLaunch):
            raise InvalidArgumentError(
                "a source gave a whole round, but with fcfs tasks are launched one by one; call "
                "keep_on_devices(engine.learners) of the source with this engine's learners"
            )
        elif isinstance(message, BaseException):
            self.keep_error(message)
            self._events.append(SourceFailed(str(message)))
        else:
            raise InternalError(f"the engine was told {message!r}, which it does not know")

    def _ended(self, batch_number: int | None, round: int, done: Event) -> SchedulerEvent:
        """Takes note of the end of a task, or of a synchronisation (batch_number None)."""
        if done.error is not None:
            self._keep_cause(done.error)
            reason = str(done.error)
            if batch_number is None:
                return SyncFailed(round, reason)
            return TaskFailed(batch_number, round, reason)
        if batch_number is None:
            return SyncFinished(round)
        replica, result_number = self._machine.taker(batch_number, round)
        values = self._learners.replicas[replica].results(result_number)
        columns = [[value] for value in values]
        if not self._outcomes.good(self._bad, replica, range(round, round + 1), columns, batch_number):
            return TaskFailed(batch_number, round, f"not finite, at replica {replica}")
        self._batches.pop((batch_number, round)).release()
        if self._on_results is not None:
            *metrics, _ = values
            loss = metrics.pop(0) if self._outcomes.has_loss else math.nan
            self._hand_out(TaskResult(replica, round, loss, tuple(metrics), done.time_s, batch_number))
        return TaskFinished(batch_number, round)

    def _hand_out(self, result: TaskResult) -> None:
        """Gives results on, in the order of rounds, as soon as all tasks of a round are done."""
        count = self._learners.count
        self._results.setdefault(result.round, {})[result.batch_number] = result
        while len(of_round := self._results.get(self.awaited, ())) == count:
            results = RoundResults.of_round([of_round[number] for number in range(count)])
            del self._results[self.awaited]
            self.awaited += 1
            if self._on_results is not None:
                self._on_results(results)

    def _obey(self, instructions: Sequence[Instruction]) -> None:
        tasks = self._learners.tasks
        for instruction in instructions:
            match instruction:
                case Launch(batch_number, round):
                    self._launch(batch_number, round)
                case Synchronise(round):
                    announce(tasks.synchronise(round), partial(tell_of_end, self.inbox, None, round))
                case Restart(round):
                    tasks.restart(round)
                case Finish(round):
                    self.finished_at = round
                case GiveUp(reason):
                    self.finished_at = self.start
                    self.keep_error(AbortedError(reason))

    def _launch(self, batch_number: int, round: int) -> None:
        inputs = self._batches[batch_number, round].inputs
        replica, result_number = self._machine.taker(batch_number, round)
        if isinstance(inputs, BatchRun):
            raise not_one_batch(replica, round, inputs)
        state = self._outcomes.state_of(round, batch_number)
        done = self._learners.tasks.launch_task(replica, round, inputs, state, result_number)
        done.on_done(partial(tell_of_end, self.inbox, batch_number, round))

    def _task_of(self, round: int, batch_number: int) -> tuple[int, BatchInputs]:
        inputs = self._batches[batch_number, round].inputs
        replica, _ = self._machine.taker(batch_number, round)
        if isinstance(inputs, BatchRun):
            raise not_one_batch(replica, round, inputs)
        return replica, inputs
