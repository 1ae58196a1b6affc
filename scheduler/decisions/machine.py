"""What the state machines of a run have in common: events in, instructions out, one end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from scheduler.decisions.messages import (
    BatchReady,
    Finish,
    GiveUp,
    Instruction,
    SchedulerEvent,
    SourceFailed,
    StopRequested,
    SyncFailed,
    SyncFinished,
    TaskFailed,
    TaskFinished,
)
from scheduler.decisions.tasks import require_least
from tensorbow.errors import InternalError

Hint = TypeVar("Hint")
Handlers: TypeAlias = Mapping[type[SchedulerEvent], Callable[[Any, Any], Hint]]


class Machine(ABC, Generic[Hint]):
    """Who may run next. `handle` takes events and returns instructions, in order.

    Of each event a handler takes note; the hint that it gives says where to look for what can be done now.
    """

    def __init__(
        self,
        replicas: int,
        start: int,
        stop: int,
        launch_ahead: int,
        synchronised: bool,
        restarts_before: Callable[[int], bool],
    ):
        """Rounds `start` to `stop` - 1. `restarts_before(r)`: averaging restarts before round r.

        launch_ahead: tasks enqueued on a stream and not finished, at most.
        Raises InvalidArgumentError for numbers out of range.
        """
        require_least(
            replicas=(replicas, 1),
            launch_ahead=(launch_ahead, 1),
            start=(start, 0),
            stop=(stop, start),
        )
        self.replicas = replicas
        self.start = start
        self.stop = stop
        self.launch_ahead = launch_ahead
        self.synchronised = synchronised
        self._restarts_before = restarts_before
        self._failure: str | None = None
        self._ended = False
        self._handlers = self._handlers_of_events()

    @classmethod
    @abstractmethod
    def _handlers_of_events(cls) -> Handlers[Hint]:
        """The functions of (machine, event) that take note of an event, by its type."""

    def handle(self, *events: SchedulerEvent) -> list[Instruction]:
        """Takes note of events, in order; says what to do now. Raises InternalError for an impossible one."""
        if self._ended:
            raise InternalError(f"{', '.join(map(str, events))} came after the end of the run")
        return self._advance([self._handlers[type(event)](self, event) for event in events])

    def begin(self) -> list[Instruction]:
        """The instructions before any event (only `Finish`, when there is nothing to do)."""
        return self._advance(())

    def taker(self, place: int, round: int) -> tuple[int, int]:
        """The replica that has a task, and which of its tasks that is."""
        return place, round

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Tasks and synchronisations enqueued and not finished."""

    @property
    def ended(self) -> bool:
        """Whether `Finish` or `GiveUp` was said."""
        return self._ended

    @abstractmethod
    def _advance(self, hints: Sequence[Hint]) -> list[Instruction]:
        """What can be done now."""

    def _end(self, instructions: list[Instruction], finished_at: int | None) -> None:
        """Ends the run where nothing is in flight and it has failed, or is finished."""
        if self.in_flight:
            return
        if self._failure is not None:
            self._ended = True
            instructions.append(GiveUp(self._failure))
        elif finished_at is not None:
            self._ended = True
            instructions.append(Finish(finished_at))

    def _require(self, holds: bool, broken: str) -> None:
        if not holds:
            raise InternalError(f"the scheduler's books do not balance: {broken}")


class TaskMachine(Machine[Hint]):
    """One that launches tasks and synchronisations one by one."""

    @classmethod
    def _handlers_of_events(cls) -> Handlers[Hint]:
        return {
            BatchReady: cls._on_batch_ready,
            TaskFinished: cls._on_task_finished,
            TaskFailed: cls._on_task_failed,
            SyncFinished: cls._on_sync_finished,
            SyncFailed: cls._on_sync_failed,
            SourceFailed: lambda machine, event: machine._fail(event.reason),
            StopRequested: cls._on_stop_requested,
        }

    @abstractmethod
    def _on_batch_ready(self, event: BatchReady) -> Hint: ...

    @abstractmethod
    def _on_task_finished(self, event: TaskFinished) -> Hint: ...

    @abstractmethod
    def _on_task_failed(self, event: TaskFailed) -> Hint: ...

    @abstractmethod
    def _on_sync_finished(self, event: SyncFinished) -> Hint: ...

    @abstractmethod
    def _on_sync_failed(self, event: SyncFailed) -> Hint: ...

    @abstractmethod
    def _on_stop_requested(self, event: StopRequested) -> Hint: ...

    @abstractmethod
    def _fail(self, reason: str) -> Hint: ...
