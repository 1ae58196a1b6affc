"""Runs of rounds: messages come in (batches, ends of tasks, errors), launches go out, results in order.

A task is given by its round and `batch_number`, the number of its batch in that round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from scheduler.batches.sources import ReadyBatch
from scheduler.engine.outcomes import StepOutcomes
from scheduler.engine.results import RoundResults
from scheduler.replicas.parted_learners import AnyLearners
from scheduler.workers.lockstep import Lockstep
from scheduler.workers.pulse import PULSE
from tensorbow.data import BatchInputs, BatchRun
from tensorbow.devices import Event
from tensorbow.errors import AbortedError, InvalidArgumentError, NumericsError
from tensorbow.runtime.run_watch import current_watch

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
        """Waits for a message of the inbox. Raises DeadlineExceededError past the limit of the session's run
        that the calling thread is in."""
        watch = current_watch()
        if watch is not None:
            watch.start_clock()
        PULSE.waits = True
        try:
            message = self.inbox.get(timeout=None if watch is None else watch.left_s())
        except Empty:
            message = None  # wakes the run; the limit is past, or next to it
        finally:
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
        several = sum(bad[0] == first[0] for bad in self._bad) > 1
        round, loss_is_finite, batch_number = (several and self._cause()) or first
        index, inputs = self._task_of(round, batch_number)
        return self._outcomes.numerics_error(index, inputs, round, loss_is_finite, batch_number)

    def _cause(self) -> tuple[int, bool, int] | None:
        """The first task of the first bad round in which a repetition finds something."""
        round, find = min(self._bad)[0], self._outcomes.find_cause
        tasks = sorted(bad for bad in self._bad if bad[0] == round)
        return next((bad for bad in tasks if find(*self._task_of(round, bad[2]), round, bad[2])), None)

    def _part_from(self, lockstep: Lockstep, reason: str, follows: bool, told: bool) -> None:
        """Tells other workers that the run has failed, or why theirs has, see Lockstep.part.

        Where a mean gradient is not finite, all workers know, and one without a cause of its own follows.
        """
        is_mean = False
        if self._bad:
            round, mean_from = min(self._bad)[0], self._learners.mean_gradient_from
            reason = f"a loss or gradient is not finite at step {round}"
            is_mean = mean_from is not None and round >= mean_from
            follows = is_mean and self._cause() is None
        error = lockstep.part(reason, follows=follows, told=told)
        if follows and is_mean and str(error).startswith(lockstep.name):
            return  # no worker has found a cause: this one reports its own error
        if follows or not reason:
            self.error = error
            self._bad.clear()

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
        """The replica of a task that has failed, and its batch."""

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


def tell_of_end(inbox: SimpleQueue[Any], batch_number: int | None, round: int, event: Event) -> None:
    """Tells of a task's end; an event must not hold the run."""
    inbox.put((batch_number, round, event))


def not_one_batch(replica: int, round: int, inputs: BatchRun) -> InvalidArgumentError:
    """The error of a run of batches where one was expected."""
    return InvalidArgumentError(
        f"steps_per_launch=1: expected a batch for replica {replica} at step {round}, got a "
        f"BatchRun of {len(inputs)}; give the engine the source's steps_per_launch"
    )
