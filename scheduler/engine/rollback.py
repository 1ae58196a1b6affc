"""Return of all replicas to one round, after an op failed in some of them only.

Ops without compiled code (Python kernels) can fail in the middle of a round, when other replicas have done
it, or later ones, and native code can refuse an input there: a label of a data set on the devices that is out
of range (the labels are looked through before a run), or an index that the step computes. A run with such ops
copies the state now and then, and keeps the inputs of the rounds since; the rounds before the failed one are
then done again from the copy, with the same bits. What dynamic parts do may have effects, and is not done
again: there the state is copied before every round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import cast

import numpy as np

from scheduler.engine.outcomes import StepOutcomes
from scheduler.replicas.parted_learners import AnyLearners
from tensorbow.data import BatchInputs, BatchRecipe, BatchRun, LaunchRecipes, RoundRecipes
from tensorbow.errors import InternalError
from tensorbow.specs import Array

LEAST_S = 0.25  # between two copies
COPIES = 100  # time between two copies, at least, in durations of a copy
COPIES_OF_WHOLE_ROUNDS = 1000  # the same for rounds of native code, which are fast,
LONG_S = 30.0  # except that they wait no longer than this once COPIES have passed
INPUTS_NBYTES = 64 << 20  # of the rounds since a copy, at most
STATE_NBYTES = 1 << 30  # of all replicas and z: more is not copied for rounds of native code


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
    """Copy of the state in a run, and the inputs of the launches since."""

    def __init__(self, learners: AnyLearners, outcomes: StepOutcomes, last: Rollback | None = None):
        """last: of the run before, if that is to delay the first copy of rounds of native code."""
        self._learners, self._outcomes = learners, outcomes
        self._each_round, self._in_whole_rounds = learners.runs_executors, learners.launcher.may_refuse
        self._state: EngineState | None = None
        self._copy_again_s: float = 0.0 if last is None else last._copy_again_s
        self._inputs: list[Sequence[BatchInputs | BatchRun]] = []  # by launch since the copy, of each replica
        self._recipes: RoundRecipes | None = None  # those kept last, which their source has, too
        self._nbytes = 0  # of the other inputs

    def is_due(self, inputs: Sequence[BatchInputs | BatchRun]) -> bool:
        """True if a copy is to be made before the next launch, given its inputs by replica.

        In rounds of native code only recipes are kept: copies of arrays would take as long as a short round.
        """
        if self._in_whole_rounds:
            if not (isinstance(inputs, LaunchRecipes) or _are_recipes(inputs)):
                self.forget()
                return False
        elif self._state is None:
            return True
        return self._each_round or perf_counter() >= self._copy_again_s or self._nbytes > INPUTS_NBYTES

    @property
    def is_possible(self) -> bool:
        """False if there is no copy."""
        return self._state is not None

    def copy(self, round: int) -> None:
        """Copies the state before a round, while nothing is in flight."""
        began = perf_counter()
        self.forget()
        self._state = EngineState.of(round, self._learners, self._outcomes)
        now = perf_counter()
        until_s = COPIES * (now - began)
        if self._in_whole_rounds:
            until_s = max(until_s, min(LONG_S, COPIES_OF_WHOLE_ROUNDS * (now - began)))
        self._copy_again_s = now + max(LEAST_S, until_s)

    def keep(self, inputs: Sequence[BatchInputs | BatchRun]) -> None:
        """Keeps the inputs of the next launch; arrays are copied, since their source uses them again."""
        if self._each_round or self._state is None:
            return
        if isinstance(inputs, LaunchRecipes):
            if inputs.recipes is not self._recipes:
                if self._recipes is not None:
                    self._nbytes += self._recipes.picks_drawn_to(0).nbytes
                self._recipes = inputs.recipes
            self._inputs.append(inputs)
        else:
            self._inputs.append([self._copied(own) for own in inputs])

    def _copied(self, own: BatchInputs | BatchRun) -> BatchInputs | BatchRun:
        """Inputs of a replica; arrays are copied."""
        if isinstance(own, (BatchRun, BatchRecipe)):
            return own
        arrays = tuple(np.array(array) for array in own)
        self._nbytes += sum(array.nbytes for array in arrays)
        return arrays

    def forget(self) -> None:
        """Drops the copy: values may have been set since."""
        self._state, self._inputs, self._recipes, self._nbytes = None, [], None, 0

    def go_back(self, round: int) -> tuple[int, list[list[BatchInputs]]]:
        """Sets the state of the copy; its round, and the inputs of the rounds from there to `round` - 1."""
        if self._state is None:
            raise InternalError(f"there is no state from which step {round} can be reached")
        self._state.restore(self._learners, self._outcomes)
        rounds = (one for launch in self._inputs for one in _rounds_of(launch))
        return self._state.round, [*islice(rounds, round - self._state.round)]


def rollback_for(
    learners: AnyLearners, outcomes: StepOutcomes, has_workers: bool, last: Rollback | None = None
) -> Rollback | None:
    """Rollback for a run, or None where it needs none, the state is large, or replicas have other workers.

    A run needs one if a replica can fail alone: where replicas run op by op, or by native code that may
    refuse an input which is not checked before. last: see Rollback.
    On GPUs no op behind a dynamic part fails; rounds of it that are launched whole undo themselves.
    """
    kind, part = learners.replicas[0].device.kind, learners.executor_part
    if learners.launcher.may_refuse:
        nbytes = sum(ref.nbytes for ref in learners.layout.refs().values())
        is_small = nbytes * (learners.count + 1) <= STATE_NBYTES
        is_needed = is_small and learners.launcher.may_refuse_midway
    else:
        by_op = kind == "cpu" or (kind != "null" and (part is None or bool(part.writes)))
        is_needed = learners.launcher.most_rounds == 1 and by_op
    return Rollback(learners, outcomes, last) if is_needed and not has_workers else None


def _are_recipes(inputs: Sequence[BatchInputs | BatchRun]) -> bool:
    """True if the devices make the batches of a launch that is given replica by replica."""
    first = inputs[0]
    return isinstance(first[0] if isinstance(first, BatchRun) else first, BatchRecipe)


def _rounds_of(launch: Sequence[BatchInputs | BatchRun]) -> Iterator[list[BatchInputs]]:
    """Inputs of the replicas in each round of a launch."""
    if isinstance(launch[0], BatchRun):
        yield from map(list, zip(*cast("Sequence[BatchRun]", launch), strict=True))
    else:
        yield [*cast("Sequence[BatchInputs]", launch)]
