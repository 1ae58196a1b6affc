"""The scheduler's decisions as a pure state machine: events in, instructions out.

No threads, streams, clocks or arrays here: `LearningEngine` carries the instructions out and reports
what happened (`scheduler.messages`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler.messages import (
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
from tensorbow.errors import InternalError, InvalidArgumentError

# States ---------------------------------------------------------------------------------------

REMEMBERED = 64  # finished tasks whose stories are kept

READY, EXECUTING, FINISHED, FAILED = "ready", "executing", "finished", "failed"


@dataclass(slots=True)
class Task:
    """One step of one replica, or (replica None) one synchronisation, with its story."""

    replica: int | None
    round: int
    state: str = "waiting"
    story: list[str] = field(default_factory=lambda: ["waiting"])

    def move(self, state: str) -> None:
        """Takes a transition of the table. Raises InternalError with the story."""
        if (self.state, state) not in TRANSITIONS:
            who = "synchronisation" if self.replica is None else f"task of replica {self.replica}"
            raise InternalError(
                f"{who} in round {self.round}: no transition {self.state} -> {state}; "
                f"its story: {' -> '.join(self.story)}"
            )
        self.state = state
        self.story.append(state)


TRANSITIONS = frozenset(
    {
        ("waiting", READY),  # the batch is in a slot; for a synchronisation: all its tasks are enqueued
        (READY, EXECUTING),  # enqueued
        (EXECUTING, FINISHED),
        (EXECUTING, FAILED),
    }
)


class SchedulerState:
    """Who may run next. `handle` takes an event and returns instructions, in order."""

    def __init__(
        self,
        replicas: int,
        start: int,
        stop: int,
        *,
        tau: int = 1,
        staleness: int = 0,
        launch_ahead: int = 2,
        synchronised: bool = True,
        gang_from: int | None = None,
        restarts_before: Callable[[int], bool] = lambda round: False,
    ):
        """Rounds `start` to `stop` - 1. `restarts_before(r)`: averaging restarts before round r.

        launch_ahead: tasks enqueued on a stream and not finished, at most.
        staleness: synchronisations that z may lag; 0 is Crossbow's algorithm (VLDB 2019, section 3).
        gang_from: from this round on a task ends with its round's synchronisation (a mean of gradients
            that every update waits for), whatever tau and staleness are.
        A replica leads the slowest one by `launch_ahead + staleness` rounds at most, whatever tau is,
        so that a stop is never far. Raises InvalidArgumentError for numbers out of range.
        """
        for name, value, least in (
            ("replicas", replicas, 1),
            ("tau", tau, 1),
            ("staleness", staleness, 0),
            ("launch_ahead", launch_ahead, 1),
            ("start", start, 0),
            ("stop", stop, start),
        ):
            if value < least:
                raise InvalidArgumentError(f"{name} must be at least {least}, got {value}")
        self.replicas = replicas
        self.start = start
        self.stop = stop
        self.tau = tau
        self.staleness = staleness
        self.launch_ahead = launch_ahead
        self.synchronised = synchronised
        self._gang_from = gang_from
        self._restarts_before = restarts_before
        self._lead = launch_ahead + (staleness if synchronised else 0)
        self._tasks: dict[tuple[int | None, int], Task] = {}
        self._finished: deque[tuple[int | None, int]] = deque()
        self._next = [start] * replicas  # the round each replica launches next
        self._in_flight = [0] * replicas
        self._posted = start  # rounds before this one are wholly enqueued, synchronisation included
        self._syncs_in_flight = 0
        self._failure: str | None = None
        self._ended = False
        self._handlers: dict[type[SchedulerEvent], Callable[[Any], range]] = {
            BatchReady: self._on_batch_ready,
            TaskFinished: self._on_task_finished,
            TaskFailed: self._on_task_failed,
            SyncFinished: self._on_sync_finished,
            SyncFailed: self._on_sync_failed,
            SourceFailed: self._on_source_failed,
            StopRequested: self._on_stop_requested,
        }

    def handle(self, event: SchedulerEvent) -> list[Instruction]:
        """Takes note of an event; says what to do now. Raises InternalError for an impossible one."""
        if self._ended:
            raise InternalError(f"{event} came after the end of the run")
        return self._advance(self._handlers[type(event)](event))

    def begin(self) -> list[Instruction]:
        """The instructions before any event (only `Finish`, when there is nothing to do)."""
        return self._advance(range(0))

    # Events: each handler gives the replicas that may now be able to launch.

    def _on_batch_ready(self, event: BatchReady) -> range:
        if not self.start <= event.round:
            raise InternalError(f"{event}: the run started at round {self.start}")
        if 0 <= event.replica < self.replicas and event.round < self._next[event.replica]:
            raise InternalError(f"{event}: that round is launched; its story: {self._story(event)}")
        self._task(event.replica, event.round).move(READY)
        return range(event.replica, event.replica + 1)

    def _on_task_finished(self, event: TaskFinished) -> range:
        self._task(event.replica, event.round).move(FINISHED)
        self._in_flight[event.replica] -= 1
        self._forget(event.replica, event.round)
        return range(event.replica, event.replica + 1)

    def _on_task_failed(self, event: TaskFailed) -> range:
        self._task(event.replica, event.round).move(FAILED)
        self._in_flight[event.replica] -= 1
        return self._fail(event.reason)

    def _on_sync_finished(self, event: SyncFinished) -> range:
        self._task(None, event.round).move(FINISHED)
        self._syncs_in_flight -= 1
        self._forget(None, event.round)
        return range(0)

    def _on_sync_failed(self, event: SyncFailed) -> range:
        self._task(None, event.round).move(FAILED)
        self._syncs_in_flight -= 1
        return self._fail(event.reason)

    def _on_source_failed(self, event: SourceFailed) -> range:
        return self._fail(event.reason)

    def _on_stop_requested(self, event: StopRequested) -> range:
        self.stop = min(self.stop, max(self._next))
        return range(0)

    def _fail(self, reason: str) -> range:
        if self._failure is None:
            self._failure = reason
            self._give_up_gangs()
        return range(0)

    def _give_up_gangs(self) -> None:
        """Tasks whose update waits for a synchronisation that will not be enqueued now never end."""
        for replica in range(self.replicas):
            for round in range(self._posted, self._next[replica]):
                task = self._tasks[replica, round]
                if self._is_gang(round) and task.state == EXECUTING:
                    task.move(FAILED)
                    self._in_flight[replica] -= 1

    # Decisions

    def _advance(self, candidates: range) -> list[Instruction]:
        instructions: list[Instruction] = []
        if self._failure is None:
            everyone = range(self.replicas)
            self._launch_what_can(candidates, instructions)
            while self._post_what_can(instructions):
                self._launch_what_can(everyone, instructions)
        if not self._syncs_in_flight and not any(self._in_flight):
            if self._failure is not None:
                self._ended = True
                instructions.append(GiveUp(self._failure))
            elif self._posted >= self.stop:
                self._ended = True
                instructions.append(Finish(self._posted))
        return instructions

    def _launch_what_can(self, candidates: range, instructions: list[Instruction]) -> None:
        for replica in candidates:
            while self._may_launch(replica):
                round = self._next[replica]
                self._tasks[replica, round].move(EXECUTING)
                self._next[replica] += 1
                self._in_flight[replica] += 1
                instructions.append(Launch(replica, round))

    def _may_launch(self, replica: int) -> bool:
        round = self._next[replica]
        if round >= self.stop or self._in_flight[replica] >= self.launch_ahead:
            return False
        if round >= self._posted + self._lead:
            return False
        task = self._tasks.get((replica, round))
        if task is None or task.state != READY:
            return False
        return self._has_its_z(round) and not self._passes_restart(round)

    def _has_its_z(self, round: int) -> bool:
        """Whether the synchronisation whose z the task reads is enqueued: `staleness` before the last."""
        if self._is_gang(round):
            return self._posted >= round
        if not self.synchronises(round):
            return True
        syncs_before = (round + 1) // self.tau - 1
        return self._posted >= (syncs_before - self.staleness) * self.tau

    def _passes_restart(self, round: int) -> bool:
        """Whether a restart that is not enqueued yet comes before the task."""
        if not self.synchronised:
            return False
        return any(self._restarts_before(r) for r in range(self._posted + 1, round + 1))

    def synchronises(self, round: int) -> bool:
        """Whether averaging follows a round."""
        return self.synchronised and (self._is_gang(round) or (round + 1) % self.tau == 0)

    def _is_gang(self, round: int) -> bool:
        return self._gang_from is not None and round >= self._gang_from

    def _post_what_can(self, instructions: list[Instruction]) -> bool:
        moved = False
        while self._posted < self.stop and min(self._next) > self._posted:
            round = self._posted
            if self.synchronises(round):
                task = self._task(None, round)
                task.move(READY)
                task.move(EXECUTING)
                self._syncs_in_flight += 1
                instructions.append(Synchronise(round))
            self._posted += 1
            if self.synchronised and self._restarts_before(self._posted):
                instructions.append(Restart(round))
            moved = True
        return moved

    # Tasks

    def _task(self, replica: int | None, round: int) -> Task:
        if replica is not None and not 0 <= replica < self.replicas:
            raise InternalError(f"there is no replica {replica}; there are {self.replicas}")
        key = (replica, round)
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = Task(replica, round)
        return task

    def _story(self, event: BatchReady) -> str:
        task = self._tasks.get((event.replica, event.round))
        return "long finished" if task is None else " -> ".join(task.story)

    def _forget(self, replica: int | None, round: int) -> None:
        """Keeps the table small: the oldest finished tasks are dropped."""
        self._finished.append((replica, round))
        if len(self._finished) > REMEMBERED:
            self._tasks.pop(self._finished.popleft(), None)

    @property
    def in_flight(self) -> int:
        """Tasks and synchronisations enqueued and not finished."""
        return sum(self._in_flight) + self._syncs_in_flight

    @property
    def ended(self) -> bool:
        """Whether `Finish` or `GiveUp` was said."""
        return self._ended

    def launched(self) -> tuple[int, ...]:
        """The round each replica launches next."""
        return tuple(self._next)

    def check_invariants(self) -> None:
        """Raises InternalError when the books do not balance."""
        executing: dict[int | None, list[int]] = {}
        for task in self._tasks.values():
            if task.state == EXECUTING:
                executing.setdefault(task.replica, []).append(task.round)
        for replica, counted in enumerate(self._in_flight):
            rounds = executing.get(replica, [])
            self._require(len(rounds) == counted, f"replica {replica}: {rounds} execute, {counted} counted")
            self._require(counted <= self.launch_ahead, f"replica {replica}: {counted} tasks are enqueued")
            self._require(
                all(self.start <= r < self._next[replica] for r in rounds),
                f"replica {replica}: executes a round of {rounds}, it launches {self._next[replica]} next",
            )
            self._require(
                all(self._has_its_z(r) for r in rounds),
                f"replica {replica}: launched {rounds} before their z",
            )
        syncs = executing.get(None, [])
        self._require(
            len(syncs) == self._syncs_in_flight, f"{syncs} are averaged, {self._syncs_in_flight} counted"
        )
        self._require(all(r < self._posted for r in syncs), f"averages {syncs}, posted {self._posted}")
        self._require(self._posted <= min(self._next), f"posted {self._posted}, launched {self._next}")
        self._require(
            max(self._next) <= max(self.stop, self.start), f"launched {self._next}, stop {self.stop}"
        )
        self._require(
            max(self._next) <= self._posted + self._lead, f"{self._next} lead {self._posted} too far"
        )
        if self._failure is None:
            self._require(self._posted == min(self._next), f"posted {self._posted}, launched {self._next}")
        if self._ended:
            self._require(not self.in_flight, f"ended with {self.in_flight} in flight")
            aligned = set(self._next) == {self.stop}
            self._require(aligned or self._failure is not None, f"ended before {self.stop} at {self._next}")

    def _require(self, holds: bool, broken: str) -> None:
        if not holds:
            raise InternalError(f"the scheduler's books do not balance: {broken}")
