"""Launch by launch: an engine whose caller brings the batches of each round and takes its results."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from scheduler.averaging.synchronisation import require_round_robin
from scheduler.batches.sources import OnReady, ReadyBatch, ReadyLaunch
from scheduler.engine.backup_run import BackupRun
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.results import RoundResults
from scheduler.engine.rollback import EngineState, Rollback, rollback_for
from scheduler.engine.round_run import RoundRun
from scheduler.engine.runs import EngineRun, OnResults
from scheduler.engine.task_run import TaskRun
from tensorbow.data import BatchInputs, BatchRun
from tensorbow.devices.forks import forked, tell_of_forks
from tensorbow.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
)


class Stepper:
    """Trains an engine round by round; the rounds are those of `engine.run`.

    `step` runs all replicas by one launch per call. It waits for its tasks alone: the averaging goes on while
    the caller gets the next batches, and overlaps the next gradient. With dispatch `fcfs` and with backup
    workers, where a round is not waited for before the next is given, `give` hands in the batches of a round,
    and `results` waits for those of the oldest. `settle` before anything of the engine's values is read or
    set. One caller at a time.
    """

    def __init__(self, engine: LearningEngine, start: int = 0):
        """start: the first round. The engine is this stepper's until `close`."""
        self._gives = not engine.options.in_lockstep
        engine.learners.set_caller_waits(not self._gives)
        self.engine = engine
        self.round = start  # the next one
        self.begun = start  # where rounds are given: the first one that had not begun at the last `settle`
        self._results: deque[RoundResults] = deque()  # that are there, and not given to the caller
        self._run: EngineRun | None = None
        self._rollback: Rollback | None = None  # of the last run of single rounds
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
        Raises InvalidArgumentError for inputs that do not fit or dispatch `fcfs`, and otherwise as
        `LearningEngine.run`: the next `step` does the round again. Of several rounds some may be done; go on
        from a `state` before.
        """
        self._require_open()
        require_round_robin(self.engine.options, "a stepper's step")
        if rounds == 1:
            self.engine.learners.require_inputs(cast(Sequence[BatchInputs], inputs))
        run = self._begun(rounds)
        self._results.clear()
        try:
            run.take(ReadyLaunch(self._launch, inputs, _nothing))
            while not self._results and run.finished_at is None:
                run.take(run.next_message())
        except BaseException as error:
            waiting = ", ".join(self.engine.learners.waiting)
            self._end(f"{type(error).__name__}: {error}")
            if isinstance(error, DeadlineExceededError) and waiting:
                raise DeadlineExceededError(f"{error}; it waited for {waiting}") from None
            raise
        done = len(self._results[-1].rounds) if self._results else 0
        if run.finished_at is not None or done < rounds:
            self._fail(run)
        self.round += rounds
        self._launch += 1
        self.engine.restart_if_due(self.round, self.settle)
        return self._results.pop()

    def give(self, inputs: Sequence[BatchInputs]) -> None:
        """Gives the batches of a further round to whichever replicas are free, or get free in `results`.

        inputs: by number of the batch in its round, as for `step`; they must stay unchanged until `results`
        has returned those of the round, or `settle` says that it has not begun.
        Raises InvalidArgumentError for inputs that do not fit, and where `step` is to be called. What goes
        wrong in a round is raised by `results` or `settle`.
        """
        self._require_open()
        if not self._gives:
            raise InvalidArgumentError(
                "give: expected dispatch fcfs, or backup workers, got 'round_robin' without; call step"
            )
        if self.engine.lockstep is not None:
            raise InvalidArgumentError(
                "give: expected one process with backup, got several workers, which end together where one "
                "fails; call train"
            )
        self.engine.learners.require_inputs(inputs)
        run = self._begun(1)
        batches = [ReadyBatch(number, self.round, own, _nothing) for number, own in enumerate(inputs)]
        self.round += 1
        self._take(run, batches)

    def train(self, rounds: Sequence[Sequence[BatchInputs]], on_results: OnResults) -> None:
        """Runs rounds of several workers with backup workers; when it returns nothing is in flight.

        rounds: the inputs of each round, as for `give`. on_results: takes the results of each one, in order.
        Raises as `LearningEngine.run`; `round` is the first one whose results were not told.
        """
        self._require_open()
        for inputs in rounds:
            self.engine.learners.require_inputs(inputs)

        def open_source(start: int, stop: int, on_ready: OnReady, on_error: object) -> _Given:
            for number, inputs in enumerate(rounds, start):
                for batch_number, own in enumerate(inputs):
                    on_ready(ReadyBatch(batch_number, number, own, _nothing))
            return _Given()

        def tell(results: RoundResults) -> None:
            self.round = self.begun = results.rounds.stop
            on_results(results)

        self.engine.run(open_source, self.round, self.round + len(rounds), tell)

    @property
    def has_results(self) -> bool:
        """True if `results` need not wait."""
        return bool(self._results)

    def results(self) -> RoundResults:
        """The results of the oldest round that was given and whose results were not returned.

        Raises as `LearningEngine.run`, after the results of the rounds before; all tasks that had begun have
        ended then, and `round` is the first one that is not done. FailedPreconditionError if none was given.
        """
        self._require_open()
        run = self._run
        while run is not None and not self._results and run.finished_at is None:
            self._take(run)
        if self._results:
            return self._results.popleft()
        if run is None:
            raise FailedPreconditionError("results: there is no round under way; give one before")
        self._fail(run)

    def _take(self, run: EngineRun, batches: Sequence[ReadyBatch] = ()) -> None:
        """Takes batches, and what a run is told, or waits for it. An interrupt ends the run: a message may be
        lost."""
        try:
            for batch in batches:
                run.inbox.put(batch)
            run.take_all(run.next_message(), lambda: False)
        except BaseException as error:
            self._end(f"{type(error).__name__}: {error}")
            raise

    def select(self, program: int) -> None:
        """Chooses which of the engine's programs the next steps run; see `LearningEngine.add_program`."""
        if program != self.engine.selected:
            self.settle()
            self.engine.select(program)

    def settle(self) -> None:
        """Waits until nothing is in flight: afterwards the engine's values may be read and set.

        Of rounds that were given those that have begun are done; their results stay for `results`. Later
        ones, from `begun` on, are forgotten: `round` is the next to give. Raises the error of a
        synchronisation that failed, and of a round that was given.
        """
        run = self._run
        if self._lost:
            self._end()
            raise forked("replicas")
        if run is None:
            return
        if self._gives:
            self._stop(run)
            return
        try:
            while run.in_flight and run.finished_at is None:
                run.take(run.next_message())
        except BaseException as error:
            self._end(f"{type(error).__name__}: {error}")
            raise
        run.keep_error(self.engine.learners.drain())
        if run.finished_at is not None or run.error is not None:
            self._fail(run)
        self.engine.round = self.round
        run.settled = True

    def _stop(self, run: EngineRun) -> None:
        """Ends a run of rounds that are given with the last one that has begun. Raises what went wrong."""
        try:
            run.take_all(None, lambda: True)
            while run.finished_at is None:
                run.take(run.next_message())
        finally:
            self._end()
        self.engine.raise_error(run)

    def pause(self) -> None:
        """Settles, and lets the engine go until the next step: afterwards its data may be changed, too."""
        self.settle()
        self._end()

    def state(self) -> EngineState:
        """A copy of the state, for `set_state`; settles."""
        self.settle()
        return EngineState.of(self.round, self.engine.learners, self.engine.outcomes)

    def set_state(self, state: EngineState) -> None:
        """Goes on from another state, also after a step that failed.

        Raises InvalidArgumentError for arrays of other variables or replicas; nothing has changed then.
        """
        self.settle()
        state.restore(self.engine.learners, self.engine.outcomes)
        self._end()
        self.engine.round = self.round = state.round
        self._rollback = None  # the next step may fail as the last one has: it is copied before

    def lose_thread(self) -> None:
        """Marks what is in flight as lost, in a forked process: nothing tells this process of its end."""
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
            self.begun = self.round
            if rounds != self.engine.steps_per_launch:
                self.engine.set_steps_per_launch(rounds)
            self._rounds, self._launch = rounds, self.round
            rollback = self._new_rollback(rounds)
            run = self._run = self.engine.new_run(self.round, sys.maxsize, self._results.append, rollback)
            try:
                self.engine.begin(run)
            except BaseException:  # also an interrupt, which may come when it has begun
                self._run = None
                self.engine.end(run)
                raise
        elif self._run.settled:
            self.engine.go_on(self._run, self.round)
            if isinstance(self._run, RoundRun):
                self._run.rollback = self._new_rollback(rounds)
        return self._run

    def _new_rollback(self, rounds: int) -> Rollback | None:
        """Rollback for launches of one round; None for several, whose caller goes back by `set_state`."""
        if rounds > 1:
            return None
        engine = self.engine
        has_workers = engine.lockstep is not None
        self._rollback = rollback_for(engine.learners, engine.outcomes, has_workers, self._rollback)
        return self._rollback

    def _fail(self, run: EngineRun) -> NoReturn:
        self._end()
        self.engine.raise_error(run)
        raise InternalError(f"step {self.round}: the run has ended by itself")

    def _end(self, broken_off: str = "") -> None:
        run, self._run = self._run, None
        if run is not None:
            run.broken_off = broken_off
            if isinstance(run, (TaskRun, BackupRun)):
                self.round, self.begun = run.awaited, run.begun
            self.engine.end(run)
            self.engine.round = self.round

    def __enter__(self) -> Stepper:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


class _Given:
    """A source whose batches are all there."""

    def close(self) -> None:
        """Does nothing: nothing is open."""


def _nothing() -> None:
    """The inputs of a step are the caller's."""
