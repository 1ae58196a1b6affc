"""Runs with backup workers: the thin shell around the state machine that says whose gradients count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from scheduler.batches.sources import ReadyBatch, ReadyLaunch
from scheduler.decisions.backup_workers import BackupState
from scheduler.decisions.messages import (
    BatchReady,
    CatchUp,
    Drop,
    Finish,
    GiveUp,
    Instruction,
    Launch,
    SchedulerEvent,
    SourceFailed,
    StepOnMean,
    StopRequested,
    SyncFailed,
    SyncFinished,
    TaskFailed,
    TaskFinished,
)
from scheduler.engine.outcomes import StepOutcomes
from scheduler.engine.results import RoundResults, TaskResult
from scheduler.engine.runs import EngineRun, OnResults, not_one_batch, tell_of_end
from scheduler.replicas.parted_learners import AnyLearners
from scheduler.replicas.task_launcher import TaskLauncher, announce
from tensorbow.data import BatchInputs, BatchRun
from tensorbow.devices import Event
from tensorbow.errors import AbortedError, InternalError, InvalidArgumentError


class BackupRun(EngineRun):
    """Rounds of the first gradients; a task's batch number is its replica's."""

    def __init__(
        self,
        learners: AnyLearners,
        outcomes: StepOutcomes,
        start: int,
        stop: int,
        launch_ahead: int,
        on_results: OnResults | None,
    ):
        if not isinstance(learners.tasks, TaskLauncher):
            raise InternalError("backup workers met replicas with several devices")
        self._tasks = learners.tasks
        super().__init__(learners, outcomes, start, stop, launch_ahead, on_results)
        self._machine = BackupState(learners.count, learners.options.backup, start, stop)
        self._events: list[SchedulerEvent] = []  # noted, and not told to the machine
        self._batches: dict[tuple[int, int], ReadyBatch] = {}  # by batch number and round
        self._members: Sequence[int] = ()  # of the update under way

    @property
    def in_flight(self) -> int:
        """See EngineRun.in_flight."""
        return self._machine.in_flight

    @property
    def begun(self) -> int:
        """The first round that is not done: what has begun of it is stale when the run ends."""
        return self.awaited

    def advance(self) -> None:
        """See EngineRun.advance."""
        events, self._events = self._events, []
        if self.finished_at is None:
            self._obey(self._machine.handle(*events) if events else self._machine.begin())

    def _request_stop(self) -> None:
        self._events.append(StopRequested())

    def _note(self, message: object) -> None:
        if type(message) is tuple:
            batch_number, round, done = message
            self._events.append(
                self._updated(round, done) if batch_number is None else _computed(batch_number, round, done)
            )
            if done.error is not None:
                self._keep_cause(done.error)
        elif isinstance(message, ReadyBatch):
            self._require_number(message)
            self._batches[message.batch_number, message.launch] = message
            self._events.append(BatchReady(message.batch_number, message.launch))
        elif isinstance(message, ReadyLaunch):
            raise InvalidArgumentError(
                "a source gave a whole round, but with backup workers tasks are launched one by one; call "
                "keep_on_devices(engine.learners) of the source with this engine's learners"
            )
        elif isinstance(message, BaseException):
            self.keep_error(message)
            self._events.append(SourceFailed(str(message)))
        else:
            raise InternalError(f"the engine was told {message!r}, which it does not know")

    def _updated(self, round: int, done: Event) -> SchedulerEvent:
        """Takes note of the end of an update, and hands the results of its replicas out."""
        if done.error is not None:
            return SyncFailed(round, str(done.error))
        results = list[TaskResult]()
        for replica in self._members:
            values = self._learners.replicas[replica].results(round)
            columns = [[value] for value in values]
            if self._outcomes.good(self._bad, replica, range(round, round + 1), columns):
                *metrics, _ = values
                loss = metrics.pop(0) if self._outcomes.has_loss else math.nan
                results.append(TaskResult(replica, round, loss, tuple(metrics), done.time_s, replica))
        if len(results) < len(self._members):
            return SyncFailed(round, f"not finite at step {round}")
        for replica in self._members:
            self._batches.pop((replica, round)).release()
        self.awaited = round + 1
        if self._on_results is not None:
            self._on_results(RoundResults.of_round(results))
        return SyncFinished(round)

    def _obey(self, instructions: Sequence[Instruction]) -> None:
        tasks = self._tasks
        for instruction in instructions:
            match instruction:
                case Launch(replica, round):
                    state = self._outcomes.state_of(round, replica)
                    inputs = self._inputs_of(replica, round)
                    done = tasks.begin_gradient(replica, round, inputs, state)
                    done.on_done(partial(tell_of_end, self.inbox, replica, round))
                case StepOnMean(round, members):
                    self._members = members
                    announce(tasks.combine(round, members), partial(tell_of_end, self.inbox, None, round))
                case CatchUp(replica, source):
                    tasks.catch_up(replica, source)
                case Drop(replica, round):
                    self._batches.pop((replica, round)).release()
                case Finish(round):
                    self.finished_at = round
                case GiveUp(reason):
                    self.finished_at = self.start
                    self.keep_error(AbortedError(reason))

    def _inputs_of(self, replica: int, round: int) -> BatchInputs:
        inputs = self._batches[replica, round].inputs
        if isinstance(inputs, BatchRun):
            raise not_one_batch(replica, round, inputs)
        return inputs

    def _task_of(self, round: int, batch_number: int) -> tuple[int, BatchInputs]:
        return batch_number, self._inputs_of(batch_number, round)


def _computed(replica: int, round: int, done: Event) -> SchedulerEvent:
    if done.error is not None:
        return TaskFailed(replica, round, str(done.error))
    return TaskFinished(replica, round)
