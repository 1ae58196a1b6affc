"""Launch by launch: an engine whose caller brings the batches of each and wants its results at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from scheduler.averaging.synchronisation import require_round_robin
from scheduler.batches.sources import ReadyLaunch
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.results import RoundResults
from scheduler.engine.runs import EngineRun
from tensorbow.data import BatchInputs, BatchRun
from tensorbow.devices.forks import forked, tell_of_forks
from tensorbow.errors import FailedPreconditionError, InternalError
from tensorbow.specs import Array


@dataclass(frozen=True)
class StepperState:
    """Everything that the rounds from `round` on depend on, apart from their inputs."""

    round: int
    arrays: Mapping[str, Array]  # as ReplicaValues.state_arrays
    skipped_updates: int = 0
    skipped_in_a_row: Sequence[int] = ()  # by replica; () for none


class Stepper:
    """Steps all replicas of an engine by one launch per call; the rounds are those of `engine.run`.

    `step` waits for its tasks alone: the averaging goes on while the caller gets the next batches, and
    overlaps the next gradient. `settle` before anything of the engine's values is read or set. One caller
    at a time.
    """

    def __init__(self, engine: LearningEngine, start: int = 0):
        """start: the first round. The engine is this stepper's until `close`.

        Raises InvalidArgumentError for an engine whose batches go to whoever is free.
        """
        require_round_robin(engine.options, "stepper")
        engine.learners.set_caller_waits(True)
        self.engine = engine
        self.round = start  # the next one
        self._results: list[RoundResults] = []  # of the launch at hand, once they are there
        self._run: EngineRun | None = None
        self._rounds = self._launch = 0  # of the run: rounds of a launch, and the number of the next one
        self._closed = False
        self._lost = False  # in a forked process
        tell_of_forks(self)

    def step(self, inputs: Sequence[BatchInputs | BatchRun], rounds: int = 1) -> RoundResults:
        """Runs one round, or several in one launch; their results.

        inputs: for each replica, its arrays in the order of the program's inputs, which may be changed when
        `step` returns, or a recipe for them; of several rounds a BatchRun. rounds: as many as
        `engine.rounds_before_restart` allows, at most `engine.most_steps_per_launch`; every other number than
        in the step before costs some time.
        Raises InvalidArgumentError for inputs that do not fit, and otherwise as `LearningEngine.run`: the
        replicas are then as their last finished task left them, and the next `step` does the round again. Of
        several rounds some may be done.
        """
        self._require_open()
        if rounds == 1:
            self.engine.learners.require_inputs(cast(Sequence[BatchInputs], inputs))
        run = self._begun(rounds)
        self._results.clear()
        try:
            run.take(ReadyLaunch(self._launch, inputs, _nothing))
            while not self._results and run.finished_at is None:
                run.take(run.inbox.get())
        except BaseException:
            self._end()
            raise
        done = len(self._results[-1].rounds) if self._results else 0
        if run.finished_at is not None or done < rounds:
            self._fail(run)
        self.round += rounds
        self._launch += 1
        self.engine.restart_if_due(self.round, self.settle)
        return self._results.pop()

    def select(self, program: int) -> None:
        """Chooses which of the engine's programs the next steps run; see `LearningEngine.add_program`."""
        if program != self.engine.selected:
            self.settle()
            self.engine.select(program)

    def settle(self) -> None:
        """Waits until nothing is in flight: afterwards the engine's values may be read and set.

        Raises the error of a synchronisation that failed.
        """
        run = self._run
        if self._lost:
            self._end()
            raise forked("replicas")
        if run is None:
            return
        try:
            while run.in_flight and run.finished_at is None:
                run.take(run.inbox.get())
        except BaseException:
            self._end()
            raise
        run.keep_error(self.engine.learners.drain())
        if run.finished_at is not None or run.error is not None:
            self._fail(run)
        self.engine.round = self.round
        run.settled = True

    def pause(self) -> None:
        """Settles, and lets the engine go until the next step: afterwards its data may be changed, too."""
        self.settle()
        self._end()

    def state(self) -> StepperState:
        """A copy of the state, for `set_state`; settles."""
        self.settle()
        outcomes = self.engine.outcomes
        arrays = self.engine.learners.values.state_arrays()
        return StepperState(self.round, arrays, outcomes.skipped_updates, tuple(outcomes.skipped_in_a_row))

    def set_state(self, state: StepperState) -> None:
        """Goes on from another state, also after a step that failed.

        Raises InvalidArgumentError for arrays of other variables or replicas; nothing has changed then.
        """
        self.settle()
        self.engine.learners.values.load_state_arrays(state.arrays)
        self._end()
        self.engine.round = self.round = state.round
        outcomes = self.engine.outcomes
        outcomes.skipped_updates = state.skipped_updates
        outcomes.skipped_in_a_row = [*state.skipped_in_a_row] or [0] * self.engine.learners.count

    def lose_thread(self) -> None:
        """In a forked process: what is in flight is the parent's, and nothing here will tell of its end."""
        self._lost = True

    def close(self) -> None:
        """Settles and lets the engine go; idempotent. An error of what was in flight is raised."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._lost:
                self.settle()
        finally:
            self._end()
            self.engine.learners.set_caller_waits(False)

    def shut_down(self) -> None:
        """Closes the stepper, and the engine with its replicas."""
        try:
            self.close()
        finally:
            self.engine.close()

    def _require_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError("step: the stepper is closed; make a new one")
        if self._lost:
            raise forked("replicas")

    def _begun(self, rounds: int) -> EngineRun:
        if self._run is not None and rounds != self._rounds:
            self.pause()
        if self._run is None:
            if rounds != self.engine.steps_per_launch:
                self.engine.set_steps_per_launch(rounds)
            self._rounds, self._launch = rounds, self.round
            run = self._run = self.engine.new_run(self.round, sys.maxsize, self._results.append)
            try:
                self.engine.begin(run)
            except BaseException:  # also an interrupt, which may come when it has begun
                self._run = None
                self.engine.end(run)
                raise
        elif self._run.settled:
            self.engine.go_on(self._run, self.round)
        return self._run

    def _fail(self, run: EngineRun) -> NoReturn:
        self._end()
        self.engine.raise_error(run)
        raise InternalError(f"step {self.round}: the run has ended by itself")

    def _end(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self.engine.end(run)
            self.engine.round = self.round

    def __enter__(self) -> Stepper:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def _nothing() -> None:
    """The inputs of a step are the caller's."""
