"""First come, first served dispatch as a pure state machine: the next batch goes to a free replica.

Crossbow, VLDB 2019, section 4: the task scheduler takes replicas from a pool of free ones. No threads,
streams, clocks or arrays here: `TaskRun` carries out the instructions and reports events (`messages`). The
docstring of `Synchronisation` has the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

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
from scheduler.decisions.tasks import (
    EXECUTING,
    FAILED,
    FINISHED,
    READY,
    REMEMBERED,
    OpenTask,
    Task,
    require_least,
)
from tensorbow.errors import InternalError


class FirstComeState:
    """Assigns batches to replicas. `handle` takes events and returns instructions, in order.

    Over the whole run, a batch has the index round * replicas + batch_number; batches are assigned in this
    order. So a stop, a restart or the end of an averaging period (tau rounds) falls between two batches,
    regardless of which replicas take them.
    """

    def __init__(
        self,
        replicas: int,
        start: int,
        stop: int,
        *,
        tau: int = 1,
        launch_ahead: int = 2,
        synchronised: bool = True,
        restarts_before: Callable[[int], bool] = lambda round: False,
    ):
        """Runs rounds `start` to `stop` - 1 of `replicas` batches each.

        launch_ahead: most unfinished tasks on a stream; a replica with fewer is free.
        restarts_before(r): whether averaging restarts before round r.
        A synchronisation is enqueued after all tasks of its rounds, on every replica behind its last task.
        Raises InvalidArgumentError for numbers out of range.
        """
        require_least(
            replicas=(replicas, 1),
            launch_ahead=(launch_ahead, 1),
            start=(start, 0),
            stop=(stop, start),
            tau=(tau, 1),
        )
        self.replicas, self.start, self.stop = replicas, start, stop
        self.tau, self.launch_ahead, self.synchronised = tau, launch_ahead, synchronised
        self._restarts_before = restarts_before
        self._failure: str | None = None
        self._ended = False
        self._in_flight = [0] * replicas
        self._tasks: dict[tuple[int, int], OpenTask] = {}  # by batch number and round
        self._syncs: dict[int, Task] = {}  # by round
        self._finished: deque[tuple[int, int]] = deque()
        self._next = start * replicas  # index in the run of the batch that is assigned next
        self._taken = [0] * replicas  # number of tasks assigned to each replica
        self._free_since = list(range(replicas))  # value of `_ends` when each replica last ended a task
        self._ends = replicas  # counter of ended tasks

    def handle(self, *events: SchedulerEvent) -> list[Instruction]:
        """Processes events in order and returns what to do now. Raises InternalError for an illegal event."""
        if self._ended:
            raise InternalError(f"{', '.join(map(str, events))} came after the end of the run")
        for event in events:
            self._handlers[type(event)](self, event)
        return self._advance()

    def begin(self) -> list[Instruction]:
        """Instructions before the first event: `Finish` if there is nothing to do, otherwise none."""
        return self._advance()

    @property
    def begun(self) -> int:
        """The first round of which no batch is assigned yet."""
        return -(-self._next // self.replicas)

    @property
    def ended(self) -> bool:
        """True if `Finish` or `GiveUp` was returned."""
        return self._ended

    # Events

    def _on_batch_ready(self, event: BatchReady) -> None:
        if not self.start <= event.round:
            raise InternalError(f"{event}: the run started at round {self.start}")
        task = self._tasks.get((event.batch_number, event.round))
        index = self._index_in_run(event.batch_number, event.round)
        if 0 <= event.batch_number < self.replicas and index < self._next:
            history = "long finished" if task is None else " -> ".join(task.story)
            raise InternalError(f"{event}: that batch is taken; its history: {history}")
        self._task(event.batch_number, event.round).move(READY)

    def _on_task_finished(self, event: TaskFinished) -> None:
        task = self._task(event.batch_number, event.round)
        task.move(FINISHED)
        self._leave(task)
        self._finished.append((event.batch_number, event.round))
        if len(self._finished) > REMEMBERED:
            self._tasks.pop(self._finished.popleft(), None)

    def _on_task_failed(self, event: TaskFailed) -> None:
        task = self._task(event.batch_number, event.round)
        task.move(FAILED)
        self._leave(task)
        self._fail(event.reason)

    def _leave(self, task: OpenTask) -> None:
        """Removes a task that ended from the count of its replica."""
        replica, _ = self.taker(task.batch_number, task.round)
        self._in_flight[replica] -= 1
        self._free_since[replica] = self._ends
        self._ends += 1

    def _on_sync_finished(self, event: SyncFinished) -> None:
        self._sync(event.round).move(FINISHED)
        del self._syncs[event.round]

    def _on_sync_failed(self, event: SyncFailed) -> None:
        self._sync(event.round).move(FAILED)
        del self._syncs[event.round]
        self._fail(event.reason)

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason

    def _on_stop_requested(self, event: StopRequested) -> None:
        self.stop = min(self.stop, self.begun)

    # Decisions

    _handlers: Mapping[type[SchedulerEvent], Callable[[FirstComeState, Any], None]] = {
        BatchReady: _on_batch_ready,
        TaskFinished: _on_task_finished,
        TaskFailed: _on_task_failed,
        SyncFinished: _on_sync_finished,
        SyncFailed: _on_sync_failed,
        SourceFailed: lambda state, event: state._fail(event.reason),
        StopRequested: _on_stop_requested,
    }

    def _advance(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        while self._failure is None and self._is_ready() and (replica := self._first_free()) is not None:
            self._take(replica, instructions)
        if self.in_flight:
            return instructions
        if self._failure is not None:
            self._ended = True
            instructions.append(GiveUp(self._failure))
        elif self._next == self.stop * self.replicas:
            self._ended = True
            instructions.append(Finish(self.stop))
        return instructions

    def _is_ready(self) -> bool:
        """True if there is a next batch and it is filled."""
        round, batch_number = divmod(self._next, self.replicas)
        task = self._tasks.get((batch_number, round))
        return round < self.stop and task is not None and task.state == READY

    def _first_free(self) -> int | None:
        """Free replica with the fewest tasks on its stream, among equals the longest waiting; or None."""
        replica = min(range(self.replicas), key=lambda i: (self._in_flight[i], self._free_since[i]))
        return replica if self._in_flight[replica] < self.launch_ahead else None

    def _take(self, replica: int, instructions: list[Instruction]) -> None:
        round, batch_number = divmod(self._next, self.replicas)
        task = self._tasks[batch_number, round]
        task.move(EXECUTING)
        task.replica, task.step = replica, self._taken[replica]
        self._taken[replica] += 1
        self._in_flight[replica] += 1
        self._next += 1
        instructions.append(Launch(batch_number, round))
        if self._next % self.replicas == 0:
            self._end_round(round, instructions)

    def _end_round(self, round: int, instructions: list[Instruction]) -> None:
        """Synchronises and restarts as due after a round, once all its batches are assigned."""
        if not self.synchronised:
            return
        if (round + 1) % self.tau == 0:
            task = self._syncs[round] = Task(None, round)
            task.move(READY)
            task.move(EXECUTING)
            instructions.append(Synchronise(round))
        if self._restarts_before(round + 1):
            instructions.append(Restart(round))

    # Tasks

    def _index_in_run(self, batch_number: int, round: int) -> int:
        return round * self.replicas + batch_number

    def _task(self, batch_number: int, round: int) -> OpenTask:
        if not 0 <= batch_number < self.replicas:
            raise InternalError(f"there is no batch {batch_number} in a round; there are {self.replicas}")
        return self._tasks.setdefault((batch_number, round), OpenTask(None, round, batch_number=batch_number))

    def _sync(self, round: int) -> Task:
        return self._syncs.get(round, Task(None, round))

    def taker(self, batch_number: int, round: int) -> tuple[int, int]:
        """The replica of a task, and the number of earlier tasks of this replica in the run.

        Raises InternalError for a task that is not assigned yet, or whose record is gone.
        """
        task = self._task(batch_number, round)
        if task.replica is None:
            raise InternalError(f"{task.who} in round {round} is with no replica")
        return task.replica, task.step

    @property
    def in_flight(self) -> int:
        """Tasks and synchronisations enqueued and not finished."""
        return sum(self._in_flight) + len(self._syncs)

    def check_invariants(self) -> None:
        """Raises InternalError if an invariant is violated."""
        executing: dict[int | None, list[int]] = {}
        for task in self._tasks.values():
            index = self._index_in_run(task.batch_number, task.round)
            is_taken = task.state in (EXECUTING, FINISHED, FAILED)
            self._require(
                is_taken == (index < self._next) == (task.replica is not None),
                f"{task.who} in round {task.round} is {task.state}; batch {self._next} is next",
            )
            if task.state == EXECUTING:
                executing.setdefault(task.replica, []).append(task.step)
        for replica, counted in enumerate(self._in_flight):
            steps = executing.get(replica, [])
            self._require(len(steps) == counted, f"replica {replica}: {steps} execute, {counted} counted")
            self._require(counted <= self.launch_ahead, f"replica {replica}: {counted} tasks are enqueued")
            self._require(
                len(set(steps)) == counted and all(0 <= s < self._taken[replica] for s in steps),
                f"replica {replica}: executes its tasks {steps} of {self._taken[replica]}",
            )
        had, began = sum(self._taken), self.start * self.replicas
        self._require(had == self._next - began, f"{had} tasks taken, of batches {began} to {self._next}")
        self._require(
            self._next <= self.stop * self.replicas, f"batch {self._next} is next, stop {self.stop}"
        )
        for round in self._syncs:
            last = (round + 1) * self.replicas
            self._require(self._next >= last, f"averages round {round}, batch {self._next} is next")
        if self._ended:
            self._require(not self.in_flight, f"ended with {self.in_flight} in flight")
            whole = self._next == self.stop * self.replicas
            self._require(whole or self._failure is not None, f"ended before {self.stop} at {self._next}")

    @staticmethod
    def _require(holds: bool, broken: str) -> None:
        if not holds:
            raise InternalError(f"an invariant of the scheduler is violated: {broken}")
