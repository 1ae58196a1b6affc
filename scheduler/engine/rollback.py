"""Return of all replicas to one round, after an op failed in some of them only.

Ops without compiled code (Python kernels) can fail in the middle of a round, when other replicas have done
it, or later ones. A run with such ops copies the state now and then, and keeps the inputs of the rounds
since; the rounds before the failed one are then done again from the copy, with the same bits. What dynamic
parts do may have effects, and is not done again: there the state is copied before every round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from scheduler.engine.outcomes import StepOutcomes
from scheduler.replicas.parted_learners import AnyLearners
from tensorbow.data import BatchInputs
from tensorbow.errors import InternalError
from tensorbow.specs import Array

LEAST_S = 0.25  # between two copies
COPIES = 100  # times as long as a copy takes passes until the next one
INPUTS_NBYTES = 64 << 20  # of the rounds since a copy, at most


@dataclass(frozen=True)
class EngineState:
    """Everything that the rounds from `round` on depend on, apart from their inputs."""

    round: int
    arrays: Mapping[str, Array]  # as ReplicaValues.state_arrays
    skipped_updates: int = 0
    skipped_in_a_row: Sequence[int] = ()  # by replica; () for none

    @classmethod
    def of(cls, round: int, learners: AnyLearners, outcomes: StepOutcomes) -> EngineState:
        """Copies the state before a round, while nothing is in flight."""
        arrays = learners.values.state_arrays()
        return cls(round, arrays, outcomes.skipped_updates, tuple(outcomes.skipped_in_a_row))

    def restore(self, learners: AnyLearners, outcomes: StepOutcomes) -> None:
        """Sets the state, while nothing is in flight.

        Raises InvalidArgumentError for arrays of other variables or replicas; nothing has changed then.
        """
        learners.values.load_state_arrays(self.arrays)
        outcomes.skipped_updates = self.skipped_updates
        outcomes.skipped_in_a_row = [*self.skipped_in_a_row] or [0] * learners.count


class Rollback:
    """Copy of the state in a run with one round a launch, and the inputs of the rounds since."""

    def __init__(self, learners: AnyLearners, outcomes: StepOutcomes):
        self._learners, self._outcomes = learners, outcomes
        self._each_round = learners.runs_executors
        self._state: EngineState | None = None
        self._copy_again_s = 0.0
        self._inputs: list[list[BatchInputs]] = []  # by round since the copy, of each replica
        self._nbytes = 0  # of their arrays

    @staticmethod
    def is_needed(learners: AnyLearners) -> bool:
        """True if replicas run op by op, so that one of them can fail alone.

        On GPUs no op behind a dynamic part fails; rounds of it that are launched whole undo themselves.
        """
        kind, part = learners.replicas[0].device.kind, learners.executor_part
        return learners.launcher.most_rounds == 1 and (
            kind == "cpu" or (kind != "null" and (part is None or bool(part.writes)))
        )

    @property
    def is_due(self) -> bool:
        """True if a copy is to be made before the next launch."""
        old = perf_counter() >= self._copy_again_s or self._nbytes > INPUTS_NBYTES
        return self._state is None or self._each_round or old

    def copy(self, round: int) -> None:
        """Copies the state before a round, while nothing is in flight."""
        began = perf_counter()
        self.forget()
        self._state = EngineState.of(round, self._learners, self._outcomes)
        now = perf_counter()
        self._copy_again_s = now + max(LEAST_S, COPIES * (now - began))

    def keep(self, inputs: Sequence[BatchInputs]) -> None:
        """Keeps the inputs of the next round; arrays are copied, since their source uses them again."""
        if self._each_round:
            return
        kept: list[BatchInputs] = []
        for own in inputs:
            if isinstance(own, tuple):
                own = tuple(np.array(array) for array in own)
                self._nbytes += sum(array.nbytes for array in own)
            kept.append(own)
        self._inputs.append(kept)

    def forget(self) -> None:
        """Drops the copy: values may have been set since."""
        self._state, self._inputs, self._nbytes = None, [], 0

    def go_back(self, round: int) -> tuple[int, list[list[BatchInputs]]]:
        """Sets the state of the copy; its round, and the inputs of the rounds from there to `round` - 1."""
        if self._state is None:
            raise InternalError(f"there is no state from which step {round} can be reached")
        self._state.restore(self._learners, self._outcomes)
        return self._state.round, self._inputs[: round - self._state.round]
