"""Runs with backup workers: the thin shell around the state machine that says whose gradients count.

With other workers the machine is in worker 0, and instructions and events name replicas by their numbers
among those of all (`backup_desk`). While a worker's program has the results of a round, the thread that hears
the others takes the messages, so that none of them waits for the program.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple

from scheduler.averaging.member_transport import MemberTransport
from scheduler.batches.sources import ReadyBatch, ReadyLaunch
from scheduler.decisions.backup_workers import BackupState
from scheduler.decisions.messages import (
    BatchReady,
    CatchUp,
    Drop,
    Finish,
    GiveUp,
    Instruction,
    Launch,
    RoundDone,
    SchedulerEvent,
    SourceFailed,
    StepOnMean,
    StopRequested,
    SyncFailed,
    SyncFinished,
    TaskFailed,
    TaskFinished,
)
from scheduler.engine.backup_desk import Desk, JointDesk, OwnDesk
from scheduler.engine.outcomes import StepOutcomes
from scheduler.engine.results import RoundResults, TaskResult
from scheduler.engine.runs import EngineRun, OnResults, not_one_batch, tell_of_end
from scheduler.replicas.learners import Learners
from scheduler.replicas.parted_learners import AnyLearners
from scheduler.replicas.task_launcher import announce
from scheduler.workers.lockstep import Lockstep
from scheduler.workers.pulse import PULSE
from tensorbow.data import BatchInputs, BatchRun
from tensorbow.devices import Event
from tensorbow.errors import (
    AbortedError,
    InternalError,
    InvalidArgumentError,
    TensorBowError,
    raise_if_any,
)


class WorkerLetter(NamedTuple):
    """Message of another worker to this run."""

    sender: int
    content: Any


class BackupRun(EngineRun):
    """Rounds of the first gradients; a task's batch number is its replica's.

    Of several workers each gets the results of its own replicas, of a round in which none of them has counted
    none. What goes wrong on one is told to worker 0, and all obey until nothing is in flight anywhere.
    Results are handed out when all that is known is obeyed; a program that takes its time gets those of
    several rounds one after the other.
    """

    def __init__(
        self,
        learners: AnyLearners,
        outcomes: StepOutcomes,
        start: int,
        stop: int,
        launch_ahead: int,
        on_results: OnResults | None,
        lockstep: Lockstep | None = None,
    ):
        """lockstep: with other workers."""
        if not isinstance(learners, Learners):
            raise InternalError("backup workers met replicas with several devices")
        self._tasks = learners.tasks
        super().__init__(learners, outcomes, start, stop, launch_ahead, on_results)
        self._lockstep, self._numbers, self._first = lockstep, learners.numbers, learners.first
        self._worker_counts = learners.worker_counts
        self._desk: Desk | None = None
        self._transport: MemberTransport | None = None
        if lockstep is None:
            self._desk = OwnDesk(BackupState(learners.count, learners.options.backup, start, stop))
        else:
            if not isinstance(transport := learners.transport, MemberTransport):
                raise InternalError("backup workers of several processes met another transport")
            self._transport = transport
        self._events: list[SchedulerEvent] = []  # not yet passed to the state machine
        self._batches: dict[tuple[int, int], ReadyBatch] = {}  # by batch number and round
        self._computing = 0  # tasks in flight
        self._members: Sequence[int] = ()  # replicas here of the update under way
        self._results: list[TaskResult] = []  # of the round under way
        self._todo: deque[Instruction] = deque()
        self._taking = Lock()  # held by the thread that takes messages
        self._untold: deque[RoundResults] = deque()  # to be handed out
        self._is_telling = False  # the program has results, so that another thread takes messages
        self._error_meanwhile: BaseException | None = None  # raised in that thread
        self._is_broken = False  # this worker launches nothing any more, while others may await it
        self._gave_up = False

    @property
    def in_flight(self) -> int:
        """See EngineRun.in_flight."""
        return self._computing + bool(self._members)

    @property
    def begun(self) -> int:
        """The first round that is not done; its gradients that are under way are stale when the run ends."""
        return self.awaited

    def take(self, message: Any) -> None:
        """See EngineRun.take."""
        with self._taking:
            super().take(message)
        self._tell()

    def take_all(self, message: Any, stops: Callable[[], bool]) -> None:
        """See EngineRun.take_all."""
        with self._taking:
            super().take_all(message, stops)
        self._tell()

    def _tell(self) -> None:
        """Hands results out, by the thread of the program."""
        try:
            while self._untold and self._on_results is not None:
                self._is_telling = True  # from here on this thread takes no messages
                self._on_results(self._untold.popleft())
        finally:
            with self._taking:
                self._is_telling = False
        error, self._error_meanwhile = self._error_meanwhile, None
        raise_if_any(error)

    def _take_meanwhile(self) -> None:
        """Takes what there is while the program has results; called again and again by another thread."""
        if not self._is_telling or self.inbox.empty() or not self._taking.acquire(blocking=False):
            return
        try:
            if self._is_telling and self._error_meanwhile is None and self.finished_at is None:
                super().take_all(self.inbox.get(), lambda: False)
        except BaseException as error:
            self._error_meanwhile = error
        finally:
            self._taking.release()

    def advance(self) -> None:
        """See EngineRun.advance."""
        if self.finished_at is not None:
            return
        if self._desk is None:
            self._desk = self._joined()
        events, self._events = self._events, []
        self._todo.extend(self._desk.decided(events))
        while self._todo:
            self._obey(self._todo.popleft())

    def _joined(self) -> JointDesk:
        """Meets the other workers, and begins to hear them. Raises AbortedError where one has failed."""
        assert self._lockstep is not None
        lockstep, letters, learners = self._lockstep, self._lockstep.letters(), self._learners
        lockstep.require_equal("a run with backup workers", [f"rounds {self.start} to {self.stop - 1}"])
        counts, backup = self._worker_counts, learners.options.backup
        desk = JointDesk(lockstep, letters, counts, backup, self.start, self.stop)
        letters.begin(
            lambda sender, message: self.inbox.put(WorkerLetter(sender, message)), self._take_meanwhile
        )
        PULSE.begun += 1
        return desk

    def part(self) -> None:
        """See EngineRun.part: where this worker breaks off, it obeys until all have ended."""
        lockstep, desk = self._lockstep, self._desk
        if lockstep is None or not isinstance(desk, JointDesk):
            return
        if self.finished_at is None:
            self._is_broken = True
            self._untold.clear()
            self._events.append(SourceFailed(f"{lockstep.name}: {self.broken_off}"))
            self.advance()
            while self.finished_at is None:
                self.take(self.next_message())
        lockstep.letters().end()
        if self._gave_up:
            follows = not self.broken_off and isinstance(self.error, AbortedError)
            reason = self.broken_off or f"{type(self.error).__name__}: {self.error}"
            self._part_from(lockstep, reason, follows, True)

    def _request_stop(self) -> None:
        self._events.append(StopRequested())

    def _note(self, message: object) -> None:
        if type(message) is tuple:
            batch_number, round, done = message
            if batch_number is None:
                self._events.append(self._updated(round, done))
            else:
                self._computing -= 1
                self._events.append(_computed(self._first + batch_number, round, done))
            if done.error is not None:
                self._keep_cause(done.error)
        elif isinstance(message, ReadyBatch):
            self._require_number(message)
            self._batches[message.batch_number, message.launch] = message
            self._events.append(BatchReady(self._first + message.batch_number, message.launch))
        elif isinstance(message, ReadyLaunch):
            raise InvalidArgumentError(
                "a source gave a whole round, but with backup workers tasks are launched one by one; call "
                "keep_on_devices(engine.learners) of the source with this engine's learners"
            )
        elif isinstance(message, WorkerLetter):
            if isinstance(message.content, BaseException):
                raise message.content
            if isinstance(self._desk, JointDesk):
                self._desk.read(*message)
        elif isinstance(message, BaseException):
            self.keep_error(message)
            self._events.append(SourceFailed(str(message)))
        else:
            raise InternalError(f"the engine was told {message!r}, which it does not know")

    def _updated(self, round: int, done: Event) -> SchedulerEvent:
        """Takes note of the end of an update, and of the results of its replicas here."""
        members, self._members = self._members, ()
        if done.error is not None:
            return SyncFailed(round, str(done.error))
        for replica in members:
            values = self._learners.replicas[replica].results(round)
            columns = [[value] for value in values]
            if self._outcomes.good(self._bad, replica, range(round, round + 1), columns):
                *metrics, _ = values
                loss = metrics.pop(0) if self._outcomes.has_loss else math.nan
                self._results.append(TaskResult(replica, round, loss, tuple(metrics), done.time_s, replica))
        if len(self._results) < len(members):
            return SyncFailed(round, f"not finite at step {round}")
        for replica in members:
            self._batches.pop((replica, round)).release()
        return SyncFinished(round)

    def _hand_out(self, round: int) -> None:
        """Has the results of a round handed out, when its update has ended on all workers."""
        results, self._results = self._results, []
        self.awaited = round + 1
        if self._lockstep is not None:
            PULSE.begun, PULSE.ended, PULSE.round = PULSE.begun + 1, PULSE.ended + 1, round + 1
        if self._on_results is not None and not self._is_broken:
            if results:
                of_round = RoundResults.of_round(results)
            else:
                metrics = len(self._learners.executable.fetches) - self._outcomes.has_loss - 1
                of_round = RoundResults(range(round, round + 1), [], [], [()] * metrics, [perf_counter()])
            self._untold.append(of_round)

    def _obey(self, instruction: Instruction) -> None:
        tasks, first = self._tasks, self._first
        match instruction:
            case Launch(replica, round):
                self._launch(replica - first, round)
            case StepOnMean(round, members):
                own = self._numbers
                self._members = [replica - first for replica in members if replica in own]
                if self._transport is not None and isinstance(self._desk, JointDesk):
                    self._transport.members = self._desk.workers_of(members)
                announce(tasks.combine(round, self._members), partial(tell_of_end, self.inbox, None, round))
            case CatchUp(replica, source):
                self._catch_up(replica, source)
            case RoundDone(round):
                self._hand_out(round)
            case Drop(replica, round):
                self._batches.pop((replica - first, round)).release()
            case Finish(round):
                self.finished_at = round
                self.stopping = round < self.stop
            case GiveUp(reason):
                self.finished_at, self._gave_up = self.start, True
                self.keep_error(AbortedError(reason))

    def _launch(self, replica: int, round: int) -> None:
        """Launches a gradient; what goes wrong with that is worker 0's to know, where there are others."""
        try:
            if self._is_broken:
                raise AbortedError(self.broken_off)
            state = self._outcomes.state_of(round, replica)
            done = self._tasks.begin_gradient(replica, round, self._inputs_of(replica, round), state)
        except TensorBowError as error:
            if self._lockstep is None:
                raise
            self.keep_error(error)
            self._events.append(TaskFailed(self._first + replica, round, str(error)))
            self.inbox.put(None)
            return
        self._computing += 1
        done.on_done(partial(tell_of_end, self.inbox, replica, round))

    def _catch_up(self, replica: int, source: int) -> None:
        """Copies weights and slots within this worker, or gives them away or takes them."""
        tasks, first, own = self._tasks, self._first, self._numbers
        if replica in own and source in own:
            tasks.catch_up(replica - first, source - first)
            return
        assert self._lockstep is not None
        assert isinstance(self._desk, JointDesk)
        letters = self._lockstep.letters()
        if source in own:
            tasks.give_state(source - first, partial(letters.send_vector, self._desk.owner(replica)))
        else:
            tasks.take_state(replica - first, partial(letters.take_vector, self._desk.owner(source)))

    def _inputs_of(self, replica: int, round: int) -> BatchInputs:
        inputs = self._batches[replica, round].inputs
        if isinstance(inputs, BatchRun):
            raise not_one_batch(replica, round, inputs)
        return inputs

    def _task_of(self, round: int, batch_number: int) -> tuple[int, BatchInputs]:
        return batch_number, self._inputs_of(batch_number, round)


def _computed(replica: int, round: int, done: Event) -> SchedulerEvent:
    if done.error is not None:
        return TaskFailed(replica, round, str(done.error))
    return TaskFinished(replica, round)
