"""From a message of a run to what is enqueued: the part of the engine that obeys the state machine.

A message (a batch, the end of a task or of a synchronisation, an error) becomes an event of `SchedulerState`,
whose instructions are carried out by the learners; the devices' events put the next messages into the inbox.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from queue import SimpleQueue
from typing import Any, NamedTuple

from scheduler.batches import ReadyBatch
from scheduler.first_come import FirstComeState
from scheduler.learners import Learners
from scheduler.machine import Machine
from scheduler.messages import (
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
from scheduler.options import Synchronisation
from scheduler.state import SchedulerState
from scheduler.task_result import EngineRun, TaskResult
from tensorbow.data import BatchRun
from tensorbow.devices import Event
from tensorbow.errors import AbortedError, InternalError, InvalidArgumentError, NumericsError
from tensorbow.optimizers import Schedule

HOPELESS = 100  # updates of one replica skipped in a row, after which `skip` stops too


class _Together(NamedTuple):
    """The message that all tasks of a launch have ended, and the averaging in them."""

    launch: int
    tasks: Sequence[Event]


class Dispatch:
    """What `LearningEngine` does with the messages of a run; the fields are the engine's."""

    learners: Learners
    options: Synchronisation
    launch_ahead: int
    steps_per_launch: int
    most_steps_per_launch: int
    schedule: Schedule | None
    on_nan: str
    skipped_updates: int
    _stopping: bool
    _skipped_in_a_row: list[int]
    _has_loss: bool
    _counters: list[str]
    _rate: Schedule | None

    def set_steps_per_launch(self, steps: int) -> None:
        """Changes the number between two runs, of an engine that was made with None.

        Raises InvalidArgumentError for a number out of 1 to `most_steps_per_launch`.
        """
        if not 1 <= steps <= self.most_steps_per_launch:
            raise InvalidArgumentError(
                f"steps_per_launch: expected 1 to {self.most_steps_per_launch} of this engine, got {steps}"
            )
        self.steps_per_launch = steps

    def _new_run(self, start: int, stop: int, on_result: Callable[[TaskResult], None] | None) -> EngineRun:
        count, options, steps = self.learners.count, self.options, self.steps_per_launch
        launches = start + -(-(stop - start) // steps)
        state: Machine[Any]
        if options.first_come:
            state = FirstComeState(
                count,
                start,
                stop,
                tau=options.tau,
                launch_ahead=self.launch_ahead,
                synchronised=self.learners.exchanges,
                restarts_before=self._restarts_before,
            )
        else:
            state = SchedulerState(
                count,
                start,
                launches,
                tau=options.tau if steps == 1 else 1,
                staleness=options.staleness,
                launch_ahead=self.launch_ahead,
                synchronised=self.learners.exchanges,
                gang_from=self.learners.gang_from,
                joint=self.learners.joint is not None,
                restarts_before=self._restarts_before if steps == 1 else lambda launch: False,
            )
        return EngineRun(state, start, stop, steps, SimpleQueue(), on_result, awaited=start * count)

    def _restarts_before(self, round: int) -> bool:
        jumps = self.schedule is not None and self.schedule.restarts(round)
        return self.learners.restarts_before(round, jumps)

    def take(self, run: EngineRun, message: Any) -> None:
        """Turns one message of the inbox into events of the machine, and does what it says."""
        self._obey(run, run.state.handle(*self._events(run, message)))

    def take_all(self, run: EngineRun, message: Any) -> None:
        """Takes a message together with those behind it, and a request to stop. None says nothing."""
        events: list[SchedulerEvent] = []
        while True:
            if message is not None:
                events += self._events(run, message)
            if self._stopping or run.inbox.empty():
                break
            message = run.inbox.get()
        if self._stopping and not run.stopping:
            run.stopping = True
            events.append(StopRequested())
        if events:
            self._obey(run, run.state.handle(*events))

    def _events(self, run: EngineRun, message: Any) -> list[SchedulerEvent]:
        """What one message is to the machine."""
        if type(message) is tuple:
            return [self._ended(run, *message)]
        if isinstance(message, _Together):
            return self._ended_together(run, message)
        if isinstance(message, ReadyBatch):
            if not 0 <= message.replica < self.learners.count:
                raise InvalidArgumentError(
                    f"a batch came for replica {message.replica}, but the engine has {self.learners.count} "
                    f"replicas, 0 to {self.learners.count - 1}; give the source the same number"
                )
            run.batches[message.replica, message.round] = message
            return [BatchReady(message.replica, message.round)]
        if isinstance(message, BaseException):
            run.error = run.error or message
            return [SourceFailed(str(message))]
        raise InternalError(f"the scheduler was told {message!r}, which it does not know")

    def _ended(self, run: EngineRun, place: int | None, launch: int, done: Event) -> SchedulerEvent:
        """Takes note of the end of a task, or of a synchronisation (place None)."""
        if done.error is not None:
            if run.error is None or isinstance(run.error, AbortedError):  # that only follows on another
                run.error = done.error
            reason = str(done.error)
            return SyncFailed(launch, reason) if place is None else TaskFailed(place, launch, reason)
        if place is None:
            return SyncFinished(launch)
        replica, step = run.state.taker(place, launch)
        rounds, rows = self._fetched(run, replica, launch, step)
        count, time_s = self.learners.count, done.time_s
        for round, (*values, status) in zip(rounds, rows, strict=False):
            loss = values.pop(0) if self._has_loss else math.nan
            if not status:
                self._skipped_in_a_row[replica] = 0
            elif self.on_nan == "stop" or self._skips_too_often(replica):
                run.bad.append((round, math.isfinite(loss) or not self._has_loss, place))
                return TaskFailed(place, launch, f"not finite; the loss is {loss}")
            else:
                self.skipped_updates += 1
            result = TaskResult(replica, round, loss, tuple(values), time_s, place)
            run.results[round * count + place] = result
        run.batches.pop((place, launch)).release()
        run.hand_out()
        return TaskFinished(place, launch)

    def _fetched(
        self, run: EngineRun, replica: int, launch: int, step: int
    ) -> tuple[Sequence[int], Sequence[Sequence[Any]]]:
        """The rounds of a launch, and what its tasks have fetched, as far as they were done."""
        if run.steps == 1:
            views = self.learners.replicas[replica].results(step)
            if run.on_result is None and not views[-1].item():
                return self._nothing_fetched(replica)
            return (launch,), [[view.copy() if view.ndim else view.item() for view in views]]
        rounds = run.rounds(launch)
        columns = self.learners.fetched(replica, rounds)
        if run.on_result is None and not columns[-1].any():
            return self._nothing_fetched(replica)
        return rounds, list(zip(*(c.tolist() if c.ndim == 1 else c for c in columns), strict=True))

    def _nothing_fetched(self, replica: int) -> tuple[Sequence[int], Sequence[Sequence[Any]]]:
        """What `_fetched` gives where nobody asks, and nothing is wrong."""
        self._skipped_in_a_row[replica] = 0
        return (), ()

    def _skips_too_often(self, replica: int) -> bool:
        """Counts a skipped update; True when the replica has not got out of it by itself."""
        self._skipped_in_a_row[replica] += 1
        return self._skipped_in_a_row[replica] >= HOPELESS

    def _obey(self, run: EngineRun, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Launch(place, round):
                    self._launch(run, place, round)
                case Synchronise(round):
                    self._synchronise(run, round)
                case Restart(round):
                    self.learners.restart(round)
                case Finish(round):
                    run.finished_at = round
                case GiveUp(reason):
                    run.finished_at = run.start
                    run.error = run.error or AbortedError(reason)

    def _launch(self, run: EngineRun, place: int, launch: int) -> None:
        inputs = run.batches[place, launch].inputs
        replica, step = run.state.taker(place, launch)
        if run.steps > 1:
            done = self._launch_run(run, replica, run.rounds(launch), inputs)
        elif isinstance(inputs, BatchRun):
            raise InvalidArgumentError(
                f"steps_per_launch=1: expected a batch for replica {replica} and round {launch}, got a "
                f"BatchRun of {len(inputs)}; give the engine the source's steps_per_launch"
            )
        else:
            done = self.learners.launch(replica, launch, inputs, self._state_of(launch, place), step)
        if done is not None:
            self._report(run, place, launch, done)

    def _launch_run(self, run: EngineRun, replica: int, rounds: range, inputs: object) -> Event | None:
        if not isinstance(inputs, BatchRun) or len(inputs) != len(rounds):
            raise InvalidArgumentError(
                f"steps_per_launch={run.steps}: expected a BatchRun of {len(rounds)} batches for replica "
                f"{replica} and the launch at round {rounds.start}, got {inputs!r:.60}; open the source with "
                "gathered(), or make DatasetBatches(steps_per_launch=...)"
            )
        state: dict[str, Any] = dict.fromkeys(self._counters, rounds)
        if self._rate is not None:
            state["learning_rate"] = [self._rate(round) for round in rounds]
        if self.on_nan == "skip":
            state["status"] = 0
        return self.learners.launch_run(replica, rounds, inputs, state)

    def _report(self, run: EngineRun, place: int | None, round: int, done: Event) -> None:
        """Has an event tell the inbox when it is done."""
        inbox = run.inbox
        done.on_done(lambda event: inbox.put((place, round, event)))

    def _synchronise(self, run: EngineRun, round: int) -> None:
        synchronised, tasks = self.learners.synchronise(round)
        if tasks and self.learners.joint is not None:
            self._report_together(run, round, tasks)
            return
        for index, done in enumerate(tasks):
            self._report(run, index, round, done)
        self._announce(run, round, synchronised)

    def _report_together(self, run: EngineRun, launch: int, tasks: Sequence[Event]) -> None:
        """Has the last of joint tasks tell the inbox of all: none ends before z is there, or without it."""
        inbox, ended, last = run.inbox, count(1), len(tasks)

        def one_done(event: Event) -> None:
            if next(ended) == last:
                inbox.put(_Together(launch, tasks))

        for task in tasks:
            task.on_done(one_done)

    def _ended_together(self, run: EngineRun, message: _Together) -> list[SchedulerEvent]:
        """The tasks of a launch have ended, and their synchronisation."""
        launch, tasks = message
        failed = next((done for done in tasks if done.error is not None), tasks[0])
        ended = [self._ended(run, place, launch, done) for place, done in enumerate(tasks)]
        return [*ended, self._ended(run, None, launch, failed)]

    def _state_of(self, round: int, place: int) -> dict[str, Any]:
        """The step scalars that change from task to task."""
        state: dict[str, Any] = dict.fromkeys(self._counters, round)
        if self.options.first_come:
            state["replica"] = place  # whoever takes the batch: random ops draw by the two
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

    def _numerics_error(self, run: EngineRun, round: int, loss_is_finite: bool, place: int) -> NumericsError:
        index, _ = run.state.taker(place, round)
        replica = self.learners.replicas[index]
        launch = run.launch_of(round)
        inputs = run.batches[place, launch].inputs
        if isinstance(inputs, BatchRun):
            inputs = inputs[round - run.first_round(launch)]
        op = replica.name_bad_op(inputs, self._state_of(round, place))
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
