"""From a message of a run to what is enqueued: the part of the engine that obeys the state machine.

A message (a batch, the end of a task or of a synchronisation, an error) becomes an event of `SchedulerState`,
whose instructions are carried out by the learners; the devices' events put the next messages into the inbox.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from scheduler.batches import ReadyBatch
from scheduler.learners import Learners
from scheduler.messages import (
    BatchReady,
    Finish,
    GiveUp,
    Instruction,
    Launch,
    Restart,
    SchedulerEvent,
    SourceFailed,
    SyncFailed,
    SyncFinished,
    Synchronise,
    TaskFailed,
    TaskFinished,
)
from scheduler.task_result import EngineRun, TaskResult
from tensorbow.devices import Event
from tensorbow.errors import AbortedError, InternalError, InvalidArgumentError, NumericsError
from tensorbow.optimizers import Schedule

HOPELESS = 100  # updates of one replica skipped in a row, after which `skip` stops too


class Dispatch:
    """What `LearningEngine` does with the messages of a run; the fields are the engine's."""

    learners: Learners
    on_nan: str
    skipped_updates: int
    _skipped_in_a_row: list[int]
    _has_loss: bool
    _counters: list[str]
    _rate: Schedule | None

    def take(self, run: EngineRun, message: Any) -> None:
        """Turns one message of the inbox into an event of the machine, and does what it says."""
        event: SchedulerEvent
        if type(message) is tuple:
            event = self._ended(run, *message)
        elif isinstance(message, ReadyBatch):
            if not 0 <= message.replica < self.learners.count:
                raise InvalidArgumentError(
                    f"a batch came for replica {message.replica}, but the engine has {self.learners.count} "
                    f"replicas, 0 to {self.learners.count - 1}; give the source the same number"
                )
            run.batches[message.replica, message.round] = message
            event = BatchReady(message.replica, message.round)
        elif isinstance(message, BaseException):
            run.error = run.error or message
            event = SourceFailed(str(message))
        else:
            raise InternalError(f"the scheduler was told {message!r}, which it does not know")
        self._obey(run, run.state.handle(event))

    def _ended(self, run: EngineRun, replica: int | None, round: int, done: Event) -> SchedulerEvent:
        """Takes note of the end of a task, or of a synchronisation (replica None)."""
        if done.error is not None:
            run.error = run.error or done.error
            reason = str(done.error)
            return SyncFailed(round, reason) if replica is None else TaskFailed(replica, round, reason)
        if replica is None:
            return SyncFinished(round)
        *views, status = self.learners.replicas[replica].results(round)
        values = [view.item() if not view.ndim else view.copy() for view in views]
        loss = values.pop(0) if self._has_loss else math.nan
        if status:
            if self.on_nan == "stop" or self._skips_too_often(replica):
                run.bad.append((round, math.isfinite(loss) or not self._has_loss, replica))
                return TaskFailed(replica, round, f"not finite; the loss is {loss}")
            self.skipped_updates += 1
        else:
            self._skipped_in_a_row[replica] = 0
        run.batches.pop((replica, round)).release()
        count = self.learners.count
        run.results[round * count + replica] = TaskResult(replica, round, loss, tuple(values), done.time_s)
        while (result := run.results.pop(run.awaited, None)) is not None:
            run.awaited += 1
            run.on_result(result)
        return TaskFinished(replica, round)

    def _skips_too_often(self, replica: int) -> bool:
        """Counts a skipped update; True when the replica has not got out of it by itself."""
        self._skipped_in_a_row[replica] += 1
        return self._skipped_in_a_row[replica] >= HOPELESS

    def _obey(self, run: EngineRun, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Launch(replica, round):
                    self._launch(run, replica, round)
                case Synchronise(round):
                    self._synchronise(run, round)
                case Restart(round):
                    self.learners.restart(round)
                case Finish(round):
                    run.finished_at = round
                case GiveUp(reason):
                    run.finished_at = run.state.start
                    run.error = run.error or AbortedError(reason)

    def _launch(self, run: EngineRun, index: int, round: int) -> None:
        inputs = run.batches[index, round].inputs
        done = self.learners.launch(index, round, inputs, self._state_of(round))
        if done is not None:
            self._report(run, index, round, done)

    def _report(self, run: EngineRun, index: int | None, round: int, done: Event) -> None:
        """Has an event tell the inbox when it is done."""
        inbox = run.inbox
        done.on_done(lambda event: inbox.put((index, round, event)))

    def _synchronise(self, run: EngineRun, round: int) -> None:
        synchronised, tasks = self.learners.synchronise(round)
        for index, done in enumerate(tasks):
            self._report(run, index, round, done)
        self._announce(run, round, synchronised)

    def _state_of(self, round: int) -> dict[str, Any]:
        """The step scalars that change from task to task."""
        state: dict[str, Any] = dict.fromkeys(self._counters, round)
        if self._rate is not None:
            state["learning_rate"] = self._rate(round)
        if self.on_nan == "skip":
            state["status"] = 0
        return state

    def _announce(self, run: EngineRun, round: int, events: Sequence[Event]) -> None:
        """Reports a synchronisation when it has ended on every device, with the first error."""
        if len(events) == 1:
            self._report(run, None, round, events[0])
            return
        inbox, waiting = run.inbox, deque(events)

        def next_done(event: Event) -> None:
            if event.error is not None or not waiting:
                inbox.put((None, round, event))
            else:
                waiting.popleft().on_done(next_done)

        waiting.popleft().on_done(next_done)

    def _numerics_error(self, run: EngineRun, round: int, loss_is_finite: bool, index: int) -> NumericsError:
        replica = self.learners.replicas[index]
        op = replica.name_bad_op(run.batches[index, round].inputs, self._state_of(round))
        replica.set_state({"status": 0})
        rate = f" ({self._rate(round):g})" if self._rate is not None else ""
        what, remedy = "a gradient" if loss_is_finite else "the loss", "skip such updates by on_nan='skip'"
        if self.on_nan == "skip":
            what, remedy = f"for {HOPELESS} steps in a row {what}", "go on from a checkpoint"
        return NumericsError(
            f"{what} of replica {index} is not finite at step {round}; "
            f"first NaN or infinite result: {op or 'none when run again'}; no variable was written by that "
            f"step; lower the learning rate{rate}, or {remedy}"
        )
