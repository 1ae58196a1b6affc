"""The scheduler's decisions as a pure state machine: events in, instructions out.

No threads, streams, clocks or arrays here: `LearningEngine` carries the instructions out and reports
what happened (`messages`). Here replica i takes batch i of every round; `first_come`
decides for `fcfs`, `lockstep` where all tasks of a round are one launch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from scheduler.decisions.machine import TaskMachine
from scheduler.decisions.messages import (
    BatchReady,
    Instruction,
    Launch,
    Restart,
    StopRequested,
    SyncFailed,
    SyncFinished,
    Synchronise,
    TaskFailed,
    TaskFinished,
)
from scheduler.decisions.tasks import EXECUTING, FAILED, FINISHED, READY, REMEMBERED, Task, require_least
from tensorbow.errors import InternalError


class SchedulerState(TaskMachine[range]):
    """Who may run next. `handle` takes events and returns instructions, in order."""

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
        super().__init__(replicas, start, stop, launch_ahead, synchronised, restarts_before)
        require_least(tau=(tau, 1), staleness=(staleness, 0))
        self.tau = tau
        self.staleness = staleness
        self._gang_from = gang_from
        self._lead = launch_ahead + (staleness if synchronised else 0)
        self._in_flight = [0] * replicas
        self._tasks: dict[tuple[int | None, int], Task] = {}
        self._finished: deque[tuple[int | None, int]] = deque()
        self._next = [start] * replicas  # the round each replica launches next
        self._posted = start  # rounds before this one are wholly enqueued, synchronisation included
        self._syncs_in_flight = 0

    # Events: each handler gives the replicas that may now be able to launch.

    def _on_batch_ready(self, event: BatchReady) -> range:
        if not self.start <= event.round:
            raise InternalError(f"{event}: the run started at round {self.start}")
        if 0 <= event.place < self.replicas and event.round < self._next[event.place]:
            raise InternalError(f"{event}: that round is launched; its story: {self._story(event)}")
        self._task(event.place, event.round).move(READY)
        return range(event.place, event.place + 1)

    def _on_task_finished(self, event: TaskFinished) -> range:
        self._task(event.place, event.round).move(FINISHED)
        self._in_flight[event.place] -= 1
        self._forget(event.place, event.round)
        return range(event.place, event.place + 1)

    def _on_task_failed(self, event: TaskFailed) -> range:
        self._task(event.place, event.round).move(FAILED)
        self._in_flight[event.place] -= 1
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

    def _advance(self, hints: Sequence[range]) -> list[Instruction]:
        instructions: list[Instruction] = []
        if self._failure is None:
            everyone = range(self.replicas)
            for candidates in hints:
                if candidates:
                    self._launch_what_can(candidates, instructions)
            while self._post_what_can(instructions):
                self._launch_what_can(everyone, instructions)
        self._end(instructions, self._posted if self._posted >= self.stop else None)
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
        if self._in_flight[replica] >= self.launch_ahead or round >= self.stop:
            return False
        if round >= self._posted + self._lead:
            return False
        task = self._tasks.get((replica, round))
        if task is None or task.state != READY:
            return False
        # What is enqueued wholly before the task leaves nothing that it could overtake.
        return round <= self._posted or (self._has_its_z(round) and not self._passes_restart(round))

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
        return self.synchronised and ((round + 1) % self.tau == 0 or self._is_gang(round))

    def _is_gang(self, round: int) -> bool:
        return self._gang_from is not None and round >= self._gang_from

    def _post_what_can(self, instructions: list[Instruction]) -> bool:
        moved = False
        enqueued = min(self.stop, min(self._next))
        while self._posted < enqueued:
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
        task = self._tasks.get((event.place, event.round))
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
