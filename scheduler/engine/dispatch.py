"""From a message of a run to what is enqueued: the part of the engine that obeys the state machine.

A message (a batch, the end of a task or of a synchronisation, an error) becomes an event of the machine,
whose instructions are carried out by the learners; the devices' events put the next messages into the inbox.
Where rounds are launched as a whole, `scheduler.engine.rounds` says how.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

from scheduler.batches.sources import ReadyBatch, ReadyRound
from scheduler.decisions.first_come import FirstComeState
from scheduler.decisions.lockstep import LockstepState
from scheduler.decisions.machine import Machine
from scheduler.decisions.messages import (
    BatchReady,
    Finish,
    GiveUp,
    Instruction,
    Launch,
    LaunchRound,
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
from scheduler.decisions.round_robin import SchedulerState
from scheduler.engine.results import EngineRun, RoundResults
from scheduler.engine.rounds import WholeRounds
from scheduler.replicas.round_launcher import LaunchedRounds
from tensorbow.data import BatchRun
from tensorbow.devices import Event
from tensorbow.errors import AbortedError, InternalError, InvalidArgumentError
from tensorbow.optimizers import Schedule, ScheduledBy


class Dispatch(WholeRounds):
    """What `LearningEngine` does with the messages of a run; the fields are the engine's."""

    launch_ahead: int
    steps_per_launch: int
    schedule: Schedule | None
    _own_schedules: list[ScheduledBy]
    _ahead: list[int]
    _stopping: bool

    def _new_run(self, start: int, stop: int, on_results: Callable[[RoundResults], None] | None) -> EngineRun:
        count, options, steps = self.learners.count, self.options, self.steps_per_launch
        restarts_before = partial(_restarts_before, weakref.ref(self))
        state: Machine[Any]
        if self.learners.launcher is not None:
            state = LockstepState(
                count,
                start,
                start + -(-(stop - start) // steps),
                launch_ahead=self.launch_ahead,
                synchronised=self.learners.exchanges,
                restarts_before=restarts_before if steps == 1 else lambda launch: False,
            )
        elif options.first_come:
            state = FirstComeState(
                count,
                start,
                stop,
                tau=options.tau,
                launch_ahead=self.launch_ahead,
                synchronised=self.learners.exchanges,
                restarts_before=restarts_before,
            )
        else:
            state = SchedulerState(
                count,
                start,
                stop,
                tau=options.tau,
                staleness=options.staleness,
                launch_ahead=self.launch_ahead,
                synchronised=self.learners.exchanges,
                gang_from=self.learners.gang_from,
                restarts_before=restarts_before,
            )
        return EngineRun(state, start, stop, steps, SimpleQueue(), on_results, awaited=start)

    def _restarts_before(self, round: int) -> bool:
        jumps = self.schedule is not None and self.schedule.restarts(round)
        for own, ahead in zip(self._own_schedules, self._ahead, strict=True):
            jumps = jumps or own.schedule.restarts(round + ahead)
        return self.learners.restarts_before(round, jumps)

    def follow_counts(self, round: int) -> None:
        """Takes note, before a round, of how far the counts are that the optimisers' own schedules go by."""
        container = self.learners.replicas[0].container
        self._ahead = [int(container.read(own.step.op.name)) - round for own in self._own_schedules]

    def take(self, run: EngineRun, message: Any) -> None:
        """Turns one message of the inbox into events of the machine, and does what it says. None is none."""
        if message is not None:
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
        if isinstance(message, ReadyRound):
            return self._take_round(run, message)
        if isinstance(message, LaunchedRounds):
            return [self._rounds_ended(run, message)]
        if isinstance(message, ReadyBatch):
            if not 0 <= message.replica < self.learners.count:
                raise InvalidArgumentError(
                    f"a batch came for replica {message.replica}, but the engine has {self.learners.count} "
                    f"replicas, 0 to {self.learners.count - 1}; give the source the same number"
                )
            if self.learners.launcher is not None:
                return self._gather(run, message)
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
        values = self.learners.replicas[replica].results(step)
        result = None
        if run.on_results is not None or values[-1]:
            result = self._result(run, replica, place, launch, values, done.time_s)
            if result is None:
                return TaskFailed(place, launch, f"not finite, at replica {replica}")
        else:
            self._skipped_in_a_row[replica] = 0
        run.batches.pop((place, launch)).release()
        if result is not None and run.on_results is not None:
            run.hand_out(result, self.learners.count)
        return TaskFinished(place, launch)

    def _obey(self, run: EngineRun, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case LaunchRound(round):
                    self._launch_rounds(run, round)
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
        if isinstance(inputs, BatchRun):
            raise self._not_one_batch(replica, launch, inputs)
        done = self.learners.launch(replica, launch, inputs, self._state_of(launch, place), step)
        if done is not None:
            self._report(run, place, launch, done)

    def _report(self, run: EngineRun, place: int | None, round: int, done: Event) -> None:
        """Has an event tell the inbox when it is done."""
        inbox = run.inbox
        done.on_done(lambda event: inbox.put((place, round, event)))

    def _synchronise(self, run: EngineRun, round: int) -> None:
        synchronised, tasks = self.learners.synchronise(round)
        for index, done in enumerate(tasks):
            self._report(run, index, round, done)
        self._announce(run, round, synchronised)

    def _announce(self, run: EngineRun, round: int, events: Sequence[Event]) -> None:
        """Reports a synchronisation when it has ended on every device, with the first error."""
        if len(events) == 1:
            self._report(run, None, round, events[0])
            return
        waiting = deque(events)
        waiting.popleft().on_done(partial(_next_done, run.inbox, round, waiting))


def _restarts_before(engine: weakref.ref[Dispatch], round: int) -> bool:
    """For the machine of a run: the engine holds it, so it must not hold the engine."""
    held = engine()
    return held is not None and held._restarts_before(round)


def _next_done(inbox: SimpleQueue[Any], round: int, waiting: deque[Event], event: Event) -> None:
    """Goes on to the next device's event; a function that called itself as a closure would be a cycle."""
    if event.error is not None or not waiting:
        inbox.put((None, round, event))
    else:
        waiting.popleft().on_done(partial(_next_done, inbox, round, waiting))
