"""Backup workers as a pure state machine: a round takes the first m of n gradients (OSDI 2016, section 4.4).

Every replica that is free computes the gradient of a round, on the batch of its number. When m of them are
there, these replicas step together on their mean. What the others were computing is stale and is dropped when
it ends; a replica that has missed an update copies weights and slots of one that has not, and goes on with
the round of then. No threads, streams, clocks or arrays here: `BackupRun` carries out the instructions and
reports events (`messages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from scheduler.decisions.tasks import DROPPED, EXECUTING, FAILED, FINISHED, READY, Task, require_least
from tensorbow.errors import InternalError


class BackupState:
    """Rounds `start` to `stop` - 1. `handle` takes events and returns instructions, in order.

    TaskFinished says that a gradient is computed, SyncFinished that the update of a round is done. A replica
    has at most one task in flight; a round begins when the update of the one before is done.
    """

    def __init__(self, replicas: int, backup: int, start: int, stop: int):
        """backup: replicas whose gradients a round does not wait for, fewer than `replicas`.

        Raises InvalidArgumentError for numbers out of range.
        """
        require_least(
            replicas=(replicas, backup + 1), backup=(backup, 0), start=(start, 0), stop=(stop, start)
        )
        self.replicas, self.wanted, self.round, self.stop = replicas, replicas - backup, start, stop
        self.members: list[int] = []  # replicas whose gradients the round has so far, or steps on
        self.updating = False  # the round has its gradients, and is not done
        self._failure: str | None = None
        self._ended = False
        self._tasks: dict[tuple[int, int], Task] = {}  # by replica and round: neither finished nor dropped
        self._computing: dict[int, int] = {}  # by replica, the round of its task in flight
        self._current: set[int] = {*range(replicas)}  # replicas that have done the last update, or copied it
        self._givers: set[int] = {*range(replicas)}  # replicas that did the last update, not copied it

    def handle(self, *events: SchedulerEvent) -> list[Instruction]:
        """Processes events in order and returns what to do now. Raises InternalError for an illegal event."""
        if self._ended:
            raise InternalError(f"{', '.join(map(str, events))} came after the end of the run")
        instructions: list[Instruction] = []
        for event in events:
            self._handlers[type(event)](self, event, instructions)
        self._advance(instructions)
        return instructions

    def begin(self) -> list[Instruction]:
        """Instructions before the first event: `Finish` if there is nothing to do, otherwise none."""
        instructions: list[Instruction] = []
        self._advance(instructions)
        return instructions

    @property
    def in_flight(self) -> int:
        """Tasks and updates enqueued and not finished."""
        return len(self._computing) + self.updating

    @property
    def has_ended(self) -> bool:
        """True behind `Finish` or `GiveUp`."""
        return self._ended

    # Events

    def _on_batch_ready(self, event: BatchReady, instructions: list[Instruction]) -> None:
        key = event.batch_number, event.round
        if not 0 <= event.batch_number < self.replicas or key in self._tasks:
            raise InternalError(f"{event}: there is no such batch, or it came before")
        task = self._tasks[key] = Task(*key)
        task.move(READY)
        if event.round < self.round:
            self._drop(task, instructions)

    def _drop(self, task: Task, instructions: list[Instruction]) -> None:
        task.move(DROPPED)
        self._forget(task, instructions)

    def _forget(self, task: Task, instructions: list[Instruction]) -> None:
        if task.replica is None:
            raise InternalError("a task of no replica")
        del self._tasks[task.replica, task.round]
        instructions.append(Drop(task.replica, task.round))

    def _on_task_finished(self, event: TaskFinished, instructions: list[Instruction]) -> None:
        task = self._end(event.batch_number, event.round, FINISHED)
        if event.round == self.round and not self.updating and len(self.members) < self.wanted:
            self.members.append(event.batch_number)
        else:
            self._forget(task, instructions)

    def _on_task_failed(self, event: TaskFailed, instructions: list[Instruction]) -> None:
        self._end(event.batch_number, event.round, FAILED)
        self._failure = self._failure or event.reason

    def _end(self, replica: int, round: int, state: str) -> Task:
        task = self._tasks.get((replica, round), Task(replica, round))
        task.move(state)
        del self._computing[replica]
        return task

    def _on_sync_finished(self, event: SyncFinished, instructions: list[Instruction]) -> None:
        self._require_update(event)
        for replica in self.members:
            del self._tasks[replica, self.round]
        self._current, self._givers = {*self.members}, {*self.members}
        self.members, self.updating = [], False
        self.round += 1
        for key in sorted(self._tasks):
            task = self._tasks[key]
            if task.state == READY and task.round < self.round:
                self._drop(task, instructions)

    def _on_sync_failed(self, event: SyncFailed, instructions: list[Instruction]) -> None:
        self._require_update(event)
        self.updating = False
        self._failure = self._failure or event.reason

    def _require_update(self, event: SyncFinished | SyncFailed) -> None:
        if not self.updating or event.round != self.round:
            raise InternalError(f"{event}: no update of that round is under way; the round is {self.round}")

    def _on_source_failed(self, event: SourceFailed, instructions: list[Instruction]) -> None:
        self._failure = self._failure or event.reason

    def _on_stop_requested(self, event: StopRequested, instructions: list[Instruction]) -> None:
        begun = self.updating or bool(self.members) or self.round in self._computing.values()
        self.stop = min(self.stop, self.round + begun)

    # Decisions

    _handlers: Mapping[type[SchedulerEvent], Any] = {
        BatchReady: _on_batch_ready,
        TaskFinished: _on_task_finished,
        TaskFailed: _on_task_failed,
        SyncFinished: _on_sync_finished,
        SyncFailed: _on_sync_failed,
        SourceFailed: _on_source_failed,
        StopRequested: _on_stop_requested,
    }

    def _advance(self, instructions: list[Instruction]) -> None:
        if self._failure is None and not self.updating:
            if self.round < self.stop:
                self._launch(instructions)
            if len(self.members) == self.wanted:
                self.members.sort()
                self.updating = True
                instructions.append(StepOnMean(self.round, tuple(self.members)))
        if self.in_flight:
            return
        if self._failure is not None:
            self._ended = True
            instructions.append(GiveUp(self._failure))
        elif self.round == self.stop:
            self._ended = True
            for replica in range(self.replicas):
                self._catch_up(replica, instructions)
            instructions.append(Finish(self.stop))

    def _launch(self, instructions: list[Instruction]) -> None:
        for replica in range(self.replicas):
            task = self._tasks.get((replica, self.round))
            enough = len(self.members) == self.wanted
            if task is not None and task.state == READY and replica not in self._computing and not enough:
                self._catch_up(replica, instructions)
                task.move(EXECUTING)
                self._computing[replica] = self.round
                instructions.append(Launch(replica, self.round))

    def _catch_up(self, replica: int, instructions: list[Instruction]) -> None:
        """Has a replica copy one that has done the last update, if it has not itself."""
        if replica not in self._current:
            instructions.append(CatchUp(replica, min(self._givers)))
            self._current.add(replica)

    def check_invariants(self) -> None:
        """Raises InternalError if an invariant is violated."""
        self._require(len(self.members) <= self.wanted, f"{self.members} step, not {self.wanted} replicas")
        self._require(self.updating <= (len(self.members) == self.wanted), f"{self.members} are too few")
        self._require({*self.members} <= self._current, f"{self.members} have missed an update")
        self._require(not {*self.members} & self._computing.keys(), "a member is computing")
        self._require(self.round <= self.stop, f"round {self.round} is behind the last, {self.stop}")
        executing = {
            r: t.round for t in self._tasks.values() if t.state == EXECUTING and (r := t.replica) is not None
        }
        self._require(executing == self._computing, f"{executing} execute, {self._computing} are counted")
        for replica, round in self._computing.items():
            late = round < self.round or self.updating
            self._require(late or replica in self._current, f"replica {replica} computes with old weights")
        if self._ended:
            self._require(not self.in_flight, f"ended with {self.in_flight} in flight")
            whole = self.round == self.stop and len(self._current) == self.replicas
            self._require(whole or self._failure is not None, f"ended at {self.round} of {self.stop}")

    @staticmethod
    def _require(holds: bool, broken: str) -> None:
        if not holds:
            raise InternalError(f"an invariant of the scheduler is violated: {broken}")
