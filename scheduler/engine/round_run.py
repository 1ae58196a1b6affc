"""Run of rounds in lockstep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

from scheduler.batches.sources import ReadyBatch, ReadyLaunch
from scheduler.engine.outcomes import StepOutcomes
from scheduler.engine.results import RoundResults
from scheduler.engine.rollback import Rollback
from scheduler.engine.runs import EngineRun, OnResults, not_one_batch
from scheduler.replicas.launches import LaunchedRounds
from scheduler.replicas.parted_learners import AnyLearners
from scheduler.workers.lockstep import Going, Lockstep
from scheduler.workers.pulse import PULSE
from tensorbow.data import BatchInputs, BatchRun, LaunchRecipes
from tensorbow.devices import Event
from tensorbow.errors import (
    AbortedError,
    InternalError,
    InvalidArgumentError,
    TensorBowError,
)
from tensorbow.program import OTHERS_FAILED
from tensorbow.specs import Array


class RoundRun(EngineRun):
    """Rounds in lockstep: a bounded loop of launches of some rounds of all replicas, and their results.

    Launches are numbered from the first round on; with one round of each they have the rounds' numbers. They
    begin and end in order.
    """

    def __init__(
        self,
        learners: AnyLearners,
        outcomes: StepOutcomes,
        start: int,
        stop: int,
        launch_ahead: int,
        on_results: OnResults | None,
        steps: int,
        rollback: Rollback | None = None,
        lockstep: Lockstep | None = None,
    ):
        """steps: rounds of a launch. rollback: of a run in which ops can fail.
        lockstep: with other workers; they meet before each launch, and at the end.
        """
        super().__init__(learners, outcomes, start, stop, launch_ahead, on_results)
        self._steps = steps
        self._batches: dict[int, dict[int, ReadyBatch]] = {}  # by launch and batch number, till all are there
        self._ready: dict[int, ReadyLaunch] = {}  # by launch: not launched, or not finished well
        self._next = self._oldest = start  # launch: the next one, and the first that has not ended
        self._end = start + -(-(stop - start) // steps)
        self._ended: dict[int, LaunchedRounds] = {}  # by launch, till those before have
        self._synchronisations = 0  # in flight
        self._failed = False
        self._lockstep = lockstep
        self._others_failed = self._met_at_end = False
        self.rollback = rollback
        self.broken_at: int | None = None  # the first round in which an op has failed,
        self.is_whole = False  # and whether all replicas here are as before it

    @property
    def in_flight(self) -> int:
        """See EngineRun.in_flight."""
        return self._next - self._oldest + self._synchronisations

    def advance(self) -> None:
        """See EngineRun.advance."""
        while (
            not self._failed
            and self._next < min(self._end, self._oldest + self._launch_ahead)
            and self._next in self._ready
        ):
            if self.rollback is not None and self.rollback.is_due(self._ready[self._next].inputs):
                if self.in_flight:
                    return
                self.rollback.copy(self._first_round(self._next))
            if not self._all_go_on():
                break
            self._next += 1
            PULSE.begun += 1
            try:
                self._launch(self._next - 1)
            except TensorBowError as error:
                if self._lockstep is None:
                    raise
                self._next -= 1  # an exchange between workers has failed: no event reports the launch's end
                self._fail(error)
        if self.in_flight:
            return
        if not self._failed and self._next >= self._end and not self._met_at_end:
            self._met_at_end = True
            self._meet("the end of a run", Going.TO_STOP if self.stopping else Going.ON)
        if self._failed:
            self.finished_at = self.start
        elif self._next >= self._end:
            self.finished_at = self._first_round(self._next)

    def _request_stop(self) -> None:
        if self._next < self._end and not self._failed:
            self._all_go_on(Going.TO_STOP)

    # Other workers --------------------------------------------------------------------------------

    def _all_go_on(self, going: Going = Going.ON) -> bool:
        """Meets the other workers before a launch; True if it is to be."""
        if self._meet("a launch", going) is Going.TO_STOP:
            self._end = self._next
        return self._next < self._end and not self._failed

    def _meet(self, what: str, going: Going = Going.ON) -> Going:
        """The worst state of a worker; where one has failed, so has this run."""
        if self._lockstep is None:
            return going
        what += f" of {self._steps} rounds from round {self.start}"
        worst = self._lockstep.meet(what, self._next, going)
        if worst is Going.WRONG:
            self._failed = self._others_failed = True
        self.stopping = worst is Going.TO_STOP
        return worst

    def part(self) -> None:
        """See EngineRun.part."""
        error, reason = self.error, self.broken_off
        if error is not None:
            reason = f"{type(error).__name__}: {error}"
        if self._lockstep is not None and (reason or self._bad or self._others_failed):
            self._part_from(self._lockstep, reason, isinstance(error, AbortedError), self._others_failed)

    def _first_round(self, launch: int) -> int:
        """The first round of a launch, or where the last one ended."""
        return min(self.start + (launch - self.start) * self._steps, self.stop)

    def _rounds(self, launch: int) -> range:
        return range(self._first_round(launch), self._first_round(launch + 1))

    def _note(self, message: Any) -> None:
        if isinstance(message, LaunchedRounds):
            self._ended[message.number] = message
            while (tasks := self._ended.pop(self._oldest, None)) is not None:
                self._take_ended(tasks)
        elif isinstance(message, ReadyLaunch):
            self._take_ready(message)
        elif isinstance(message, ReadyBatch):
            self._gather(message)
        elif isinstance(message, Event):
            self._synchronisations -= 1
            if message.error is not None:
                self._fail(message.error)
        elif isinstance(message, BaseException):
            self.keep_error(message)
            self._failed = True
        else:
            raise InternalError(f"the engine was told {message!r}, which it does not know")

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        self._keep_cause(error)

    # Launches -------------------------------------------------------------------------------------

    def _gather(self, batch: ReadyBatch) -> None:
        """Takes one replica's batch; the round is ready when all replicas' are there."""
        self._require_number(batch)
        found = self._batches.setdefault(batch.launch, {})
        if batch.batch_number in found or batch.launch in self._ready or batch.launch < self._next:
            raise InternalError(
                f"the batch of replica {batch.batch_number} came again, for the launch at step "
                f"{self._first_round(batch.launch)}"
            )
        found[batch.batch_number] = batch
        if len(found) < self._learners.count:
            return
        batches = [found[number] for number in range(self._learners.count)]
        del self._batches[batch.launch]

        def release() -> None:
            for each in batches:
                each.release()

        self._take_ready(ReadyLaunch(batch.launch, [each.inputs for each in batches], release))

    def _take_ready(self, message: ReadyLaunch) -> None:
        if message.launch < self._next or message.launch in self._ready:
            first = self._first_round(message.launch)
            raise InternalError(f"the batches of the launch at step {first} came again, or too late")
        self._ready[message.launch] = message

    def _launch(self, launch: int) -> None:
        rounds, inputs = self._rounds(launch), self._ready[launch].inputs
        self._require_inputs(rounds, inputs)
        if self.rollback is not None:
            self.rollback.keep(inputs)
        state, told = self._outcomes.states_of(rounds), self.inbox.put
        self._synchronisations += self._learners.launcher.launch(launch, rounds, inputs, state, told, told)

    def _require_inputs(self, rounds: range, inputs: Sequence[BatchInputs | BatchRun]) -> None:
        """Raises InvalidArgumentError for batches of another number of replicas or rounds."""
        if isinstance(inputs, LaunchRecipes):
            recipes, is_one = inputs.recipes, inputs.round_index is not None
            if recipes.replicas != self._learners.count:
                raise InvalidArgumentError(
                    f"a round came for {recipes.replicas} replicas, but the engine has "
                    f"{self._learners.count}; give the source the same number"
                )
            if is_one if self._steps == 1 else not is_one and len(recipes) == len(rounds):
                return
        for replica in range(self._learners.count):
            own = inputs[replica]
            if self._steps > 1:
                self._require_run(replica, rounds, own)
            elif isinstance(own, BatchRun):
                raise not_one_batch(replica, rounds.start, own)

    def _require_run(self, replica: int, rounds: range, inputs: BatchInputs | BatchRun) -> None:
        if not isinstance(inputs, BatchRun) or len(inputs) != len(rounds):
            raise InvalidArgumentError(
                f"steps_per_launch={self._steps}: expected a BatchRun of {len(rounds)} batches for replica "
                f"{replica} and the launch at step {rounds.start}, got {inputs!r:.60}; open the source with "
                "gathered(), or make DatasetBatches(steps_per_launch=...)"
            )

    # Results --------------------------------------------------------------------------------------

    def _take_ended(self, tasks: LaunchedRounds) -> None:
        launcher, error, known = self._learners.launcher, tasks.error, len(self._bad)
        self._oldest += 1
        PULSE.ended, PULSE.round = PULSE.ended + 1, tasks.rounds.stop
        launcher.ended(tasks)
        if self._on_results is not None or self._outcomes.on_nan != "stop" or launcher.stopped:
            self._hand_out(tasks, error is None)
        if error is not None:
            tasks.forget()
            follows = isinstance(error, AbortedError)  # from another replica's error, maybe in a later launch
            if self.broken_at is None or (isinstance(self.error, AbortedError) and not follows):
                self.broken_at = tasks.rounds.start + tasks.whole_rounds
                self.is_whole = tasks.is_whole
            self._fail(error)
        elif len(self._bad) > known:
            self._failed = True
            self.keep_error(AbortedError(f"not finite at step {min(self._bad)[0]}"))
        else:
            self._ready.pop(tasks.number).release()
            if launcher.ended_by_others and not self._failed:
                self._failed, self.awaited = True, -1  # what was launched behind has not begun
                self.keep_error(AbortedError(OTHERS_FAILED))

    def _hand_out(self, tasks: LaunchedRounds, whole: bool) -> None:
        """Passes on the results of the rounds before the first one with a failed task. whole: none failed."""
        results = self._round_of(tasks) if whole and self._steps == 1 else self._rounds_of(tasks)
        if results is None or self._on_results is None or self.awaited != tasks.rounds.start:
            return  # without a receiver, or after a launch that did not end
        self.awaited += len(results.rounds)
        self._on_results(results)

    @property
    def has_workers(self) -> bool:
        """True if replicas of other workers meet these."""
        return self._lockstep is not None

    def hand_out_again(self, results: Sequence[RoundResults]) -> None:
        """Passes on the results of rounds that were done again, of those that were not passed on before."""
        for each in results:
            if self._on_results is not None and each.rounds.start >= self.awaited:
                self._on_results(each)

    def _round_of(self, tasks: LaunchedRounds) -> RoundResults | None:
        """Fast path of `_rounds_of` for one round."""
        fetched = [replica.results(tasks.number) for replica in self._learners.replicas]
        *columns, statuses = zip(*fetched, strict=True)
        if any(statuses):
            one = [[[value] for value in values] for values in fetched]
            good = [self._good(tasks, index, values) for index, values in enumerate(one)]
            if not all(good):
                return None
        else:
            self._outcomes.skipped_in_a_row = [0] * len(fetched)
        losses = columns.pop(0) if self._outcomes.has_loss else [math.nan] * len(fetched)
        return RoundResults(tasks.rounds, range(len(fetched)), losses, columns, tasks.times_s)

    def _good(self, tasks: LaunchedRounds, replica: int, columns: Sequence[Sequence[Any] | Array]) -> int:
        return self._outcomes.good(self._bad, replica, tasks.rounds, columns)

    def _rounds_of(self, tasks: LaunchedRounds) -> RoundResults | None:
        """Results of whole rounds; None if there is none. Tasks that end the run are added to `_bad`."""
        replicas = range(self._learners.count)
        fetched = [self._columns_of(replica, tasks) for replica in replicas]
        whole = min(self._good(tasks, replica, own) for replica, own in enumerate(fetched))
        if not whole:
            return None
        most, count = whole * len(replicas), len(replicas)
        by_round = [chain.from_iterable(zip(*each, strict=False)) for each in zip(*fetched, strict=True)]
        *columns, statuses = [[*islice(values, most)] for values in by_round]
        rounds = tasks.rounds[: len(statuses) // count]
        losses = columns.pop(0) if self._outcomes.has_loss else [math.nan] * len(statuses)
        return RoundResults(rounds, replicas, losses, columns, tasks.times_s)

    def _columns_of(self, replica: int, tasks: LaunchedRounds) -> list[Sequence[Any] | Array]:
        """Columns fetched by the finished tasks of a replica."""
        done = slice(tasks.whole_rounds if tasks.failed(replica) else None)
        return [column[done] for column in self._learners.launcher.fetched(replica, tasks)]

    def _task_of(self, round: int, batch_number: int) -> tuple[int, BatchInputs]:
        replica, launch = batch_number, self.start + (round - self.start) // self._steps
        inputs = self._ready[launch].inputs[replica]
        return replica, inputs[round - self._first_round(launch)] if isinstance(inputs, BatchRun) else inputs
