"""What the state machine is told (events) and what it says (instructions).

Rounds count from 0. A task is one step of one replica on one batch; a synchronisation follows the last of
every `tau` rounds. A task's name is its batch's: the round, and the place in it, from 0 to the number of
replicas - 1. Which replica has it, the machine's `taker` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

# Events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchReady:
    """The batch of a task lies in a slot."""

    place: int
    round: int


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A task has ended on its stream."""

    place: int
    round: int


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task ended with an error."""

    place: int
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class SyncFinished:
    """The synchronisation of a round has ended on all devices."""

    round: int


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """A synchronisation ended with an error."""

    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """No further batch will come."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """End at the next round that all replicas can reach together."""


SchedulerEvent: TypeAlias = (
    "BatchReady | TaskFinished | TaskFailed | SyncFinished | SyncFailed | SourceFailed | StopRequested"
)

# Instructions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Enqueue a task on the stream of the replica that has it."""

    place: int
    round: int


@dataclass(frozen=True, slots=True)
class Synchronise:
    """Enqueue the averaging of a round; all its tasks are enqueued."""

    round: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Enqueue a restart of averaging after a round: w_i = z, u = 0."""

    round: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Everything up to (not including) this round has ended; nothing is in flight."""

    round: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Something failed; what was in flight has ended, nothing more was launched."""

    reason: str


Instruction: TypeAlias = "Launch | Synchronise | Restart | Finish | GiveUp"
