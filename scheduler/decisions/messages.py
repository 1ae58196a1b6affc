"""Events that the state machine receives, and instructions that it returns.

Rounds count from 0. A task is one step of one replica on one batch; a synchronisation follows the last of
every `tau` rounds. A task is identified by its batch: the round, and `batch_number`, the number of the batch
in it, from 0 to the number of replicas - 1. The state machine's `taker` returns the replica that has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

# Events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchReady:
    """The batch of a task is filled."""

    batch_number: int
    round: int


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A task has ended on its stream."""

    batch_number: int
    round: int


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task ended with an error."""

    batch_number: int
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
    """The source of batches failed; no further batch will come."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """End after the last round that has begun."""


SchedulerEvent: TypeAlias = (
    "BatchReady | TaskFinished | TaskFailed | SyncFinished | SyncFailed | SourceFailed | StopRequested"
)

# Instructions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Enqueue a task on the stream of the replica that has it."""

    batch_number: int
    round: int


@dataclass(frozen=True, slots=True)
class Synchronise:
    """Enqueue the averaging of a round, all of whose tasks are enqueued."""

    round: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Enqueue a restart of averaging after a round: w_i = z, u = 0."""

    round: int


@dataclass(frozen=True, slots=True)
class StepOnMean:
    """Enqueue the step of some replicas on the mean of their gradients of a round; others hand in nothing."""

    round: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Enqueue a copy of weights and slots to a replica, before its next task."""

    replica: int
    source: int


@dataclass(frozen=True, slots=True)
class RoundDone:
    """End of a round's update, with backup workers: its results may be handed out."""

    round: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Release a batch: its task was not launched, or its gradient came too late."""

    batch_number: int
    round: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The run has ended: all rounds before this one are finished, and nothing is in flight."""

    round: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The run has failed: nothing was launched after the failure, and nothing is in flight."""

    reason: str


Instruction: TypeAlias = (
    "Launch | Synchronise | Restart | StepOnMean | CatchUp | RoundDone | Drop | Finish | GiveUp"
)
