"""Backup workers: every order of batches, ends, stops and failures that hypothesis thinks of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.decisions.backup_workers import BackupState
from scheduler.decisions.messages import (
    BatchReady,
    CatchUp,
    Drop,
    Finish,
    GiveUp,
    Instruction,
    Launch,
    SourceFailed,
    StepOnMean,
    StopRequested,
    SyncFailed,
    SyncFinished,
    TaskFailed,
    TaskFinished,
)
from tensorbow.errors import InternalError, InvalidArgumentError


def deliver(state: BackupState, *events: Any) -> list[Instruction]:
    said: list[Instruction] = []
    for event in events:
        said += state.handle(event)
        state.check_invariants()
    return said


def ready(replicas: int, round: int) -> list[BatchReady]:
    return [BatchReady(batch, round) for batch in range(replicas)]


def test_the_first_two_of_three_step_and_the_third_catches_up_when_it_is_free() -> None:
    state = BackupState(3, 1, 0, 3)
    assert deliver(state, *ready(3, 0), *ready(3, 1)) == [Launch(0, 0), Launch(1, 0), Launch(2, 0)]
    assert deliver(state, TaskFinished(2, 0), TaskFinished(0, 0)) == [StepOnMean(0, (0, 2))]
    assert deliver(state, SyncFinished(0)) == [Launch(0, 1), Launch(2, 1)]
    assert deliver(state, TaskFinished(1, 0)) == [Drop(1, 0), CatchUp(1, 0), Launch(1, 1)]
    assert deliver(state, TaskFinished(1, 1), TaskFinished(0, 1)) == [StepOnMean(1, (0, 1))]
    said = deliver(
        state, *ready(3, 2), SyncFinished(1), TaskFinished(1, 2), TaskFinished(0, 2), SyncFinished(2)
    )
    assert said == [Launch(0, 2), Launch(1, 2), StepOnMean(2, (0, 1)), Drop(2, 2)]
    assert deliver(state, TaskFinished(2, 1)) == [Drop(2, 1), CatchUp(2, 0), Finish(3)]


def test_a_batch_that_comes_when_its_round_is_over_is_dropped() -> None:
    state = BackupState(2, 1, 4, 9)
    assert deliver(state, BatchReady(1, 4), TaskFinished(1, 4), SyncFinished(4)) == [
        Launch(1, 4),
        StepOnMean(4, (1,)),
    ]
    assert deliver(state, BatchReady(0, 4), BatchReady(0, 5)) == [Drop(0, 4), CatchUp(0, 1), Launch(0, 5)]


def test_a_replica_whose_own_copy_may_be_on_its_way_gives_none() -> None:
    state = BackupState(3, 2, 0, 3)
    deliver(state, *ready(3, 0), *ready(3, 1), TaskFinished(2, 0), TaskFinished(0, 0), TaskFinished(1, 0))
    said = deliver(state, SyncFinished(0))
    assert [one for one in said if isinstance(one, CatchUp)] == [CatchUp(0, 2), CatchUp(1, 2)]


def test_without_backups_a_round_waits_for_all() -> None:
    state = BackupState(2, 0, 0, 1)
    assert deliver(state, *ready(2, 0), TaskFinished(1, 0)) == [Launch(0, 0), Launch(1, 0)]
    assert deliver(state, TaskFinished(0, 0), SyncFinished(0)) == [StepOnMean(0, (0, 1)), Finish(1)]


def test_a_failure_ends_the_run_when_nothing_is_in_flight() -> None:
    state = BackupState(3, 1, 0, 9)
    deliver(state, *ready(3, 0), TaskFinished(0, 0))
    assert deliver(state, TaskFailed(1, 0, "broken"), SourceFailed("gone")) == []
    assert deliver(state, TaskFinished(2, 0)) == [GiveUp("broken")]
    with pytest.raises(InternalError, match="came after the end of the run"):
        state.handle(StopRequested())


def test_illegal_events_and_numbers() -> None:
    state = BackupState(2, 1, 0, 3)
    with pytest.raises(InternalError, match="no update of that round is under way; the round is 0"):
        state.handle(SyncFinished(0))
    with pytest.raises(
        InternalError, match="task of replica 1 in round 0: no transition waiting -> finished"
    ):
        state.handle(TaskFinished(1, 0))
    deliver(state, BatchReady(0, 0))
    with pytest.raises(InternalError, match="it came before"):
        state.handle(BatchReady(0, 0))
    with pytest.raises(InvalidArgumentError, match="replicas must be at least 3, got 2"):
        BackupState(2, 2, 0, 1)
    assert BackupState(2, 1, 5, 5).begin() == [Finish(5)]


class EveryOrder(RuleBasedStateMachine):
    """A shell that obeys; weights are the list of updates that a replica has done."""

    @initialize(replicas=st.integers(1, 5), data=st.data(), rounds=st.integers(0, 6))
    def begin(self, replicas: int, data: Any, rounds: int) -> None:
        self.n, self.rounds = replicas, rounds
        self.backup = data.draw(st.integers(0, replicas - 1))
        self.state = BackupState(replicas, self.backup, 0, rounds)
        self.unread = [(batch, round) for round in range(rounds) for batch in range(replicas)]
        self.tasks: dict[int, int] = {}
        self.weights: list[list[tuple[int, ...]]] = [[] for _ in range(replicas)]
        self.update: StepOnMean | None = None
        self.held: set[tuple[int, int]] = set()
        self.end: Instruction | None = None
        self.obey(self.state.begin())

    def tell(self, *events: Any) -> None:
        self.obey(self.state.handle(*events))

    def obey(self, said: list[Instruction]) -> None:
        for one in said:
            assert self.end is None
            match one:
                case Launch(batch, round):
                    assert batch not in self.tasks
                    assert len(self.weights[batch]) == round
                    self.tasks[batch] = round
                case StepOnMean(round, members):
                    assert self.update is None
                    assert len(members) == self.n - self.backup
                    assert all(len(self.weights[i]) == round and i not in self.tasks for i in members)
                    self.update = one
                case CatchUp(replica, source):
                    assert replica not in self.tasks
                    assert self.update is None
                    self.weights[replica] = [*self.weights[source]]
                case Drop(batch, round):
                    self.held.remove((batch, round))
                case _:
                    self.end = one

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "state"):
            self.state.check_invariants()

    def running(self) -> bool:
        return self.end is None

    @precondition(lambda self: self.running() and self.unread)
    @rule(data=st.data())
    def a_batch_is_filled(self, data: Any) -> None:
        firsts = {batch: (batch, round) for batch, round in reversed(self.unread)}
        batch = data.draw(st.sampled_from(sorted(firsts.values())))
        self.unread.remove(batch)
        self.held.add(batch)
        self.tell(BatchReady(*batch))

    @precondition(lambda self: self.running() and self.tasks)
    @rule(data=st.data())
    def gradients_are_there(self, data: Any) -> None:
        batches = data.draw(st.lists(st.sampled_from(sorted(self.tasks)), min_size=1, unique=True))
        self.tell(*(TaskFinished(batch, self.tasks.pop(batch)) for batch in batches))

    @precondition(lambda self: self.running() and self.update)
    @rule(fails=st.booleans() | st.just(False))
    def an_update_ends(self, fails: bool) -> None:
        update, self.update = self.update, None
        assert update is not None
        if fails:
            self.tell(SyncFailed(update.round, "the sum broke"))
            return
        for member in update.members:
            self.weights[member].append(update.members)
            self.held.remove((member, update.round))
        self.tell(SyncFinished(update.round))

    @rule()
    def a_stop(self) -> None:
        if self.running():
            self.tell(StopRequested())

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        while self.running() and (self.update or self.tasks or self.unread):
            if self.update:
                self.an_update_ends(False)
            elif self.tasks:
                batch = min(self.tasks)
                self.tell(TaskFinished(batch, self.tasks.pop(batch)))
            else:
                batch = self.unread.pop(0)
                self.held.add(batch)
                self.tell(BatchReady(*batch))
        assert self.end is not None
        if isinstance(self.end, Finish):
            assert all(weights == self.weights[0] for weights in self.weights)
            assert len(self.weights[0]) == self.end.round <= self.rounds


TestEveryOrder = EveryOrder.TestCase
TestEveryOrder.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
