"""Decisions of a run with backup workers: in this process, or in worker 0 for the replicas of all workers.

The state machine is the same. Where there are other workers, that of worker 0 knows all replicas by their
numbers: each worker sends it what has happened, and gets the instructions that concern its replicas, in the
order in which they were given. What several workers do together, a sum or a copy, they do in that same order,
so none waits for one that waits for it; and only workers whose gradients count, or that copy, take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from scheduler.decisions.backup_workers import BackupState
from scheduler.decisions.messages import (
    CatchUp,
    Drop,
    Instruction,
    Launch,
    RoundDone,
    SchedulerEvent,
    StepOnMean,
    SyncFailed,
    SyncFinished,
)
from scheduler.workers.letters import Letters
from scheduler.workers.lockstep import Lockstep


class Desk(Protocol):
    """Decisions for the replicas of this process."""

    def decided(self, events: Sequence[SchedulerEvent]) -> list[Instruction]:
        """Instructions for these replicas, after some events of theirs."""


class OwnDesk:
    """Decides in this process, for all replicas."""

    def __init__(self, machine: BackupState):
        self._machine = machine

    def decided(self, events: Sequence[SchedulerEvent]) -> list[Instruction]:
        """See Desk."""
        ended = [RoundDone(event.round) for event in events if isinstance(event, SyncFinished)]
        return [*ended, *(self._machine.handle(*events) if events else self._machine.begin())]


class JointDesk:
    """Decides with the other workers; worker 0 has the state machine.

    letters that come from others are to be given to `read`, by the thread of the run.
    """

    def __init__(
        self, lockstep: Lockstep, letters: Letters, counts: Sequence[int], backup: int, start: int, stop: int
    ):
        """counts: replicas of each worker."""
        self._rank, self._letters = lockstep.rank, letters
        self._owners = [worker for worker, count in enumerate(counts) for _ in range(count)]
        self._workers = range(len(counts))
        self._machine = BackupState(sum(counts), backup, start, stop) if self._rank == 0 else None
        self._has_ended = False
        self._events: list[SchedulerEvent] = []  # of other workers, noted by worker 0
        self._told: list[Instruction] = []  # instructions of worker 0 for this worker
        self._updating: set[int] = set()  # workers from which worker 0 awaits the end of an update
        self._failed: SyncFailed | None = None  # the first of them

    def read(self, sender: int, message: Any) -> None:
        """Stores a message of another worker."""
        if self._machine is None:
            self._told += message
        else:
            self._events += self._joined(sender, message)

    def workers_of(self, replicas: Sequence[int]) -> list[int]:
        """The workers that have some of these replicas, in order."""
        return sorted({self._owners[replica] for replica in replicas})

    def owner(self, replica: int) -> int:
        """The worker that has a replica."""
        return self._owners[replica]

    def decided(self, events: Sequence[SchedulerEvent]) -> list[Instruction]:
        """See Desk; sends other workers what concerns them first."""
        if self._machine is None:
            if events:
                self._letters.send(0, [*events])
            told, self._told = self._told, []
            return told
        every = [*self._events, *self._joined(0, events)]
        self._events = []
        if self._has_ended:
            return []  # events after the last decision change nothing
        instructions: list[Instruction] = [
            RoundDone(event.round) for event in every if isinstance(event, SyncFinished)
        ]
        instructions += self._machine.handle(*every) if every else self._machine.begin()
        for instruction in instructions:
            if isinstance(instruction, StepOnMean):
                self._updating = {*self.workers_of(instruction.members)}
        by_worker = [[i for i in instructions if worker in self._concerned(i)] for worker in self._workers]
        for worker in self._workers[1:]:
            if by_worker[worker]:
                self._letters.send(worker, by_worker[worker])
        self._has_ended = self._machine.has_ended
        return by_worker[0]

    def _concerned(self, instruction: Instruction) -> Sequence[int]:
        match instruction:
            case Launch(replica, _) | Drop(replica, _):
                return [self._owners[replica]]
            case StepOnMean(_, members):
                return self.workers_of(members)
            case CatchUp(replica, source):
                return self.workers_of([replica, source])
        return self._workers

    def _joined(self, sender: int, events: Sequence[SchedulerEvent]) -> list[SchedulerEvent]:
        """Events of a worker; the end of an update is one when it has ended on all workers that take part."""
        result: list[SchedulerEvent] = []
        for event in events:
            if isinstance(event, SyncFinished | SyncFailed):
                self._updating.discard(sender)
                if isinstance(event, SyncFailed):
                    self._failed = self._failed or event
                if not self._updating:
                    result.append(self._failed or event)
            else:
                result.append(event)
        return result
