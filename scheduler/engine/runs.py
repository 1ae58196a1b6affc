"""Runs of rounds: messages come in (batches, ends of tasks, errors), launches go out, results in order.

`RoundRun` is for rounds in lockstep, `TaskRun` for dispatch `fcfs`: first come, first served. A task is given
by its round and `batch_number`, the number of its batch in that round.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice
from queue import SimpleQueue
from typing import Any

from scheduler.batches.sources import ReadyBatch, ReadyLaunch
from scheduler.decisions.first_come import FirstComeState
from scheduler.decisions.messages import (
    BatchReady,
    Finish,
    GiveUp,
    Instruction,
    Launch,
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
from scheduler.engine.outcomes import StepOutcomes
from scheduler.engine.results import RoundResults, TaskResult
from scheduler.engine.rollback import Rollback
from scheduler.replicas.launches import LaunchedRounds
from scheduler.replicas.parted_learners import AnyLearners
from scheduler.replicas.task_launcher import announce
from scheduler.workers.lockstep import Going, Lockstep
from scheduler.workers.pulse import PULSE
from tensorbow.data import BatchInputs, BatchRun, LaunchRecipes
from tensorbow.devices import Event
from tensorbow.errors import (
    AbortedError,
    InternalError,
    InvalidArgumentError,
    NumericsError,
    TensorBowError,
)
from tensorbow.program import OTHERS_FAILED
from tensorbow.specs import Array

OnResults = Callable[[RoundResults], None]


class EngineRun(ABC):
    """Rounds `start` to `stop` - 1 under way on an engine.

    `LearningEngine.run` and `Stepper` both make one by `LearningEngine.begin`, and feed it with the messages
    of its inbox until `finished_at` is set. One thread at a time.
    """

    def __init__(
        self,
        learners: AnyLearners,
        outcomes: StepOutcomes,
        start: int,
        stop: int,
        launch_ahead: int,
        on_results: OnResults | None,
    ):
        """launch_ahead: launches enqueued and not finished, at most."""
        self.start, self.stop = start, stop
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self.error: BaseException | None = None
        self.broken_off = ""  # the error that ends it from outside, such as an interrupt, as text
        self.finished_at: int | None = None  # the round before which it ended
        self.stopping = False  # it knows of the request to stop, which may be another worker's
        self.settled = False  # nothing is in flight until its stepper goes on: values may be read and set
        self._learners, self._outcomes, self._launch_ahead = learners, outcomes, launch_ahead
        self._on_results = on_results
        self.awaited = start  # the round whose results are to be handed out next
        self._bad: list[tuple[int, bool, int]] = []  # (round, loss is finite, batch number) that end the run

    def next_message(self) -> Any:
        """Waits for a message of the inbox."""
        PULSE.waits = True
        message = self.inbox.get()
        PULSE.waits = False
        return message

    def take(self, message: Any) -> None:
        """Takes a message of the inbox, and launches what can be launched; None only wakes the run."""
        if message is not None:
            self._note(message)
        self.advance()

    def take_all(self, message: Any, stops: Callable[[], bool]) -> None:
        """Takes a message together with those behind it, and a request to stop."""
        while True:
            if message is not None:
                self._note(message)
            if stops() or self.inbox.empty():
                break
            message = self.inbox.get()
        if stops() and not self.stopping:
            self.stopping = True
            self._request_stop()
        self.advance()

    def keep_error(self, error: BaseException | None) -> None:
        """Keeps an error to be raised at the end, unless an earlier one is kept; None has no effect."""
        self.error = self.error or error

    @property
    def is_bad(self) -> bool:
        """True if a task whose loss or gradient was not finite ends the run."""
        return bool(self._bad)

    def numerics_error(self) -> NumericsError:
        """The error of the first such task. Of a round on the mean gradient any may be the cause: the first
        in which a repetition finds something."""
        first = min(self._bad)
        tasks = sorted(bad for bad in self._bad if bad[0] == first[0])
        causes = (
            bad for bad in tasks if self._outcomes.find_cause(*self._task_of(bad[0], bad[2]), bad[0], bad[2])
        )
        round, loss_is_finite, batch_number = next(causes, first) if len(tasks) > 1 else first
        index, inputs = self._task_of(round, batch_number)
        return self._outcomes.numerics_error(index, inputs, round, loss_is_finite, batch_number)

    def part(self) -> None:  # noqa: B027 - most runs have no other workers
        """Tells other workers if the run has failed, or learns why theirs has; while nothing is in flight."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Launches and synchronisations enqueued and not finished."""

    @abstractmethod
    def advance(self) -> None:
        """Launches what can be launched, and ends the run where nothing is left to do."""

    @abstractmethod
    def _note(self, message: Any) -> None:
        """Takes note of a message."""

    @abstractmethod
    def _request_stop(self) -> None:
        """Ends it at the next round that all replicas can reach together."""

    @abstractmethod
    def _task_of(self, round: int, batch_number: int) -> tuple[int, BatchInputs]:
        """The replica of a task that has not finished well, and what it was trained on."""

    def _require_number(self, batch: ReadyBatch) -> None:
        """Raises InvalidArgumentError for a batch number that is not below the number of replicas."""
        count = self._learners.count
        if not 0 <= batch.batch_number < count:
            raise InvalidArgumentError(
                f"a batch came for replica {batch.batch_number}, but the engine has {count} "
                f"replicas, 0 to {count - 1}; give the source the same number"
            )

    def _keep_cause(self, error: BaseException) -> None:
        """Keeps an error of a device, instead of one that only follows on another."""
        if self.error is None or isinstance(self.error, AbortedError):
            self.error = error


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
        """steps: rounds of a launch. rollback: of a run with one round a launch, in which ops can fail.
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
        self.broken_at: int | None = None  # the first round in which an op has failed

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
            if self.rollback is not None and self.rollback.is_due:
                if self.in_flight:
                    return
                self.rollback.copy(self._next)
            if not self._all_go_on():
                break
            self._next += 1
            PULSE.begun += 1
            try:
                self._launch(self._next - 1)
            except TensorBowError as error:
                if self._lockstep is None:
                    raise
                self._next -= (
                    1  # an exchange between workers has failed, and nobody tells of the launch's end
                )
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
        worst = self._lockstep.meet(f"{what} of {self._steps} rounds, {self.start} first", self._next, going)
        if worst is Going.WRONG:
            self._failed = self._others_failed = True
        self.stopping = worst is Going.TO_STOP
        return worst

    def part(self) -> None:
        """See EngineRun.part."""
        error, reason = self.error, self.broken_off
        if self._bad:
            reason = f"a loss or gradient is not finite at step {min(self._bad)[0]}"
        elif error is not None:
            reason = f"{type(error).__name__}: {error}"
        if self._lockstep is None or not (reason or self._others_failed):
            return
        follows = isinstance(error, AbortedError) and not self._bad
        told = self._lockstep.part(reason, follows=follows, told=self._others_failed)
        if follows or not reason:
            self.error = told

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
            self.rollback.keep([own for own in inputs if not isinstance(own, BatchRun)])
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
            self._fail(error)
            if self.broken_at is None:
                self.broken_at = tasks.rounds.start + tasks.whole_rounds
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
            return  # nobody asks, or the launch before was not done to its end
        self.awaited += len(results.rounds)
        self._on_results(results)

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


class TaskRun(EngineRun):
    """First come, first served: the thin shell around the state machine that says who takes which batch."""

    def __init__(
        self,
        learners: AnyLearners,
        outcomes: StepOutcomes,
        start: int,
        stop: int,
        launch_ahead: int,
        on_results: OnResults | None,
        restarts_before: Callable[[int], bool],
    ):
        super().__init__(learners, outcomes, start, stop, launch_ahead, on_results)
        self._machine = FirstComeState(
            learners.count,
            start,
            stop,
            tau=learners.options.tau,
            launch_ahead=launch_ahead,
            synchronised=learners.synchronises,
            restarts_before=restarts_before,
        )
        self._events: list[SchedulerEvent] = []  # noted, and not told to the machine
        self._batches: dict[tuple[int, int], ReadyBatch] = {}  # by batch number and round
        self._results: dict[int, dict[int, TaskResult]] = {}  # by round and batch number

    @property
    def in_flight(self) -> int:
        """See EngineRun.in_flight."""
        return self._machine.in_flight

    @property
    def begun(self) -> int:
        """The first round of which no replica has taken a batch."""
        return self._machine.begun

    def advance(self) -> None:
        """See EngineRun.advance."""
        events, self._events = self._events, []
        if self.finished_at is None:
            self._obey(self._machine.handle(*events) if events else self._machine.begin())

    def _request_stop(self) -> None:
        self._events.append(StopRequested())

    def _note(self, message: Any) -> None:
        if type(message) is tuple:
            self._events.append(self._ended(*message))
        elif isinstance(message, ReadyBatch):
            self._require_number(message)
            self._batches[message.batch_number, message.launch] = message
            self._events.append(BatchReady(message.batch_number, message.launch))
        elif isinstance(message, ReadyLaunch):
            raise InvalidArgumentError(
                "a source gave a whole round, but with fcfs tasks are launched one by one; call "
                "keep_on_devices(engine.learners) of the source with this engine's learners"
            )
        elif isinstance(message, BaseException):
            self.keep_error(message)
            self._events.append(SourceFailed(str(message)))
        else:
            raise InternalError(f"the engine was told {message!r}, which it does not know")

    def _ended(self, batch_number: int | None, round: int, done: Event) -> SchedulerEvent:
        """Takes note of the end of a task, or of a synchronisation (batch_number None)."""
        if done.error is not None:
            self._keep_cause(done.error)
            reason = str(done.error)
            if batch_number is None:
                return SyncFailed(round, reason)
            return TaskFailed(batch_number, round, reason)
        if batch_number is None:
            return SyncFinished(round)
        replica, result_number = self._machine.taker(batch_number, round)
        values = self._learners.replicas[replica].results(result_number)
        columns = [[value] for value in values]
        if not self._outcomes.good(self._bad, replica, range(round, round + 1), columns, batch_number):
            return TaskFailed(batch_number, round, f"not finite, at replica {replica}")
        self._batches.pop((batch_number, round)).release()
        if self._on_results is not None:
            *metrics, _ = values
            loss = metrics.pop(0) if self._outcomes.has_loss else math.nan
            self._hand_out(TaskResult(replica, round, loss, tuple(metrics), done.time_s, batch_number))
        return TaskFinished(batch_number, round)

    def _hand_out(self, result: TaskResult) -> None:
        """Gives results on, in the order of rounds, as soon as all tasks of a round are done."""
        count = self._learners.count
        self._results.setdefault(result.round, {})[result.batch_number] = result
        while len(of_round := self._results.get(self.awaited, ())) == count:
            results = RoundResults.of_round([of_round[number] for number in range(count)])
            del self._results[self.awaited]
            self.awaited += 1
            if self._on_results is not None:
                self._on_results(results)

    def _obey(self, instructions: Sequence[Instruction]) -> None:
        tasks = self._learners.tasks
        for instruction in instructions:
            match instruction:
                case Launch(batch_number, round):
                    self._launch(batch_number, round)
                case Synchronise(round):
                    announce(tasks.synchronise(round), partial(tell_of_end, self.inbox, None, round))
                case Restart(round):
                    tasks.restart(round)
                case Finish(round):
                    self.finished_at = round
                case GiveUp(reason):
                    self.finished_at = self.start
                    self.keep_error(AbortedError(reason))

    def _launch(self, batch_number: int, round: int) -> None:
        inputs = self._batches[batch_number, round].inputs
        replica, result_number = self._machine.taker(batch_number, round)
        if isinstance(inputs, BatchRun):
            raise not_one_batch(replica, round, inputs)
        state = self._outcomes.state_of(round, batch_number)
        done = self._learners.tasks.launch_task(replica, round, inputs, state, result_number)
        done.on_done(partial(tell_of_end, self.inbox, batch_number, round))

    def _task_of(self, round: int, batch_number: int) -> tuple[int, BatchInputs]:
        inputs = self._batches[batch_number, round].inputs
        replica, _ = self._machine.taker(batch_number, round)
        if isinstance(inputs, BatchRun):
            raise not_one_batch(replica, round, inputs)
        return replica, inputs


def tell_of_end(inbox: SimpleQueue[Any], batch_number: int | None, round: int, event: Event) -> None:
    """Tells of a task's end; an event must not hold the run."""
    inbox.put((batch_number, round, event))


def not_one_batch(replica: int, round: int, inputs: BatchRun) -> InvalidArgumentError:
    """The error of a run of batches where one was expected."""
    return InvalidArgumentError(
        f"steps_per_launch=1: expected a batch for replica {replica} at step {round}, got a "
        f"BatchRun of {len(inputs)}; give the engine the source's steps_per_launch"
    )
