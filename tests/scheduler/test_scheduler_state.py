"""The pure state machine: transitions, stories, and every order of events that hypothesis thinks of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler import SchedulerState
from scheduler.decisions.messages import (
    BatchReady,
    Finish,
    GiveUp,
    Instruction,
    Launch,
    Restart,
    SourceFailed,
    StopRequested,
    SyncFailed,
    SyncFinished,
    Synchronise,
    TaskFailed,
    TaskFinished,
)
from tensorbow.errors import InternalError, InvalidArgumentError


def deliver(state: SchedulerState, *events: Any) -> list[Instruction]:
    """What the machine says to all of them."""
    said: list[Instruction] = []
    for event in events:
        said += state.handle(event)
        state.check_invariants()
    return said


def test_a_round_of_two_replicas() -> None:
    state = SchedulerState(2, 0, 1)
    assert state.begin() == []
    assert deliver(state, BatchReady(1, 0)) == [Launch(1, 0)]
    assert deliver(state, BatchReady(0, 0)) == [Launch(0, 0), Synchronise(0)]
    assert deliver(state, TaskFinished(0, 0), SyncFinished(0)) == []
    assert deliver(state, TaskFinished(1, 0)) == [Finish(1)]


def test_the_next_tasks_are_launched_before_the_averaging_has_ended() -> None:
    state = SchedulerState(2, 0, 9, launch_ahead=2)
    batches = [BatchReady(i, t) for t in range(3) for i in range(2)]
    expected = [Launch(0, 0), Launch(1, 0), Synchronise(0), Launch(0, 1), Launch(1, 1), Synchronise(1)]
    assert deliver(state, *batches) == expected


def test_staleness_lets_a_replica_go_ahead_of_the_slowest_by_as_many_averagings() -> None:
    for staleness in range(3):
        state = SchedulerState(2, 0, 9, launch_ahead=8, staleness=staleness)
        launched = deliver(state, *(BatchReady(0, t) for t in range(9)))
        assert launched == [Launch(0, t) for t in range(staleness + 1)]


def test_between_two_averagings_nobody_waits_but_nobody_runs_away() -> None:
    state = SchedulerState(2, 0, 99, tau=50, launch_ahead=3)
    assert len(deliver(state, *(BatchReady(0, t) for t in range(40)))) == 3
    assert deliver(state, *(TaskFinished(0, t) for t in range(3))) == []  # three rounds ahead of replica 1
    assert deliver(state, BatchReady(1, 0)) == [Launch(1, 0), Launch(0, 3)]


def test_averagings_are_counted_from_round_0_wherever_a_run_starts() -> None:
    state = SchedulerState(1, 4, 10, tau=3, launch_ahead=9)
    said = deliver(state, *(BatchReady(0, t) for t in range(4, 10)))
    assert [i.round for i in said if isinstance(i, Synchronise)] == [5, 8]


def test_nothing_passes_a_restart() -> None:
    state = SchedulerState(2, 0, 5, launch_ahead=5, staleness=4, restarts_before=lambda t: t == 2)
    said = deliver(state, *(BatchReady(0, t) for t in range(5)))
    assert said == [Launch(0, 0), Launch(0, 1)]
    said = deliver(state, *(BatchReady(1, t) for t in range(5)))
    assert said.index(Restart(1)) == said.index(Synchronise(1)) + 1 < said.index(Launch(0, 2))
    assert all(i.round < 2 for i in said[: said.index(Restart(1))])


@pytest.mark.parametrize("synchronised", [True, False])
def test_nothing_to_do(synchronised: bool) -> None:
    assert SchedulerState(2, 7, 7, synchronised=synchronised).begin() == [Finish(7)]


def test_a_stop_before_anything_was_launched() -> None:
    assert SchedulerState(3, 4, 9).handle(StopRequested()) == [Finish(4)]


def test_illegal_events_are_told_with_the_story_of_the_task() -> None:
    state = SchedulerState(1, 0, 3)
    deliver(state, BatchReady(0, 0), TaskFinished(0, 0))
    story = "waiting -> ready -> executing -> finished"
    with pytest.raises(InternalError, match=f"replica 0 in round 0.*{story}"):
        state.handle(TaskFinished(0, 0))
    with pytest.raises(InternalError, match=f"round=0.*launched.*{story}"):
        state.handle(BatchReady(0, 0))
    with pytest.raises(InternalError, match="replica 0 in round 1: no transition waiting -> finished"):
        state.handle(TaskFinished(0, 1))
    with pytest.raises(InternalError, match="there is no replica 5; there are 1"):
        state.handle(BatchReady(5, 0))
    with pytest.raises(InternalError, match="synchronisation in round 2: no transition waiting -> finished"):
        state.handle(SyncFinished(2))
    deliver(state, BatchReady(0, 2))
    with pytest.raises(InternalError, match="no transition ready -> ready"):
        state.handle(BatchReady(0, 2))


def test_events_before_the_start_and_after_the_end() -> None:
    state = SchedulerState(1, 3, 4)
    with pytest.raises(InternalError, match="started at round 3"):
        state.handle(BatchReady(0, 2))
    deliver(state, StopRequested())
    with pytest.raises(InternalError, match="after the end"):
        state.handle(BatchReady(0, 3))


@pytest.mark.parametrize(
    ("numbers", "word"),
    [
        ({"replicas": 0}, "replicas"),
        ({"tau": 0}, "tau"),
        ({"staleness": -1}, "staleness"),
        ({"launch_ahead": 0}, "launch_ahead"),
        ({"start": -1}, "start"),
        ({"start": 5, "stop": 4}, "stop must be at least 5"),
    ],
)
def test_numbers_out_of_range(numbers: dict[str, int], word: str) -> None:
    arguments = {"replicas": 1, "start": 0, "stop": 9, **numbers}
    with pytest.raises(InvalidArgumentError, match=word):
        SchedulerState(**arguments)  # type: ignore[arg-type]


def test_the_table_stays_small() -> None:
    state = SchedulerState(2, 0, 500)
    for t in range(500):
        deliver(state, BatchReady(0, t), BatchReady(1, t), TaskFinished(0, t), TaskFinished(1, t))
        state.handle(SyncFinished(t))
    assert len(state._tasks) < 100


class SchedulerMachine(RuleBasedStateMachine):
    """Plays source and devices: any order that first-in first-out streams allow, with stops and failures."""

    @initialize(
        replicas=st.integers(1, 4),
        start=st.integers(0, 5),
        rounds=st.integers(0, 9),
        tau=st.integers(1, 4),
        staleness=st.integers(0, 2),
        launch_ahead=st.integers(1, 3),
        synchronised=st.booleans(),
        restarts=st.sets(st.integers(1, 14), max_size=3),
        together=st.integers(1, 3),
    )
    def open(
        self,
        replicas: int,
        start: int,
        rounds: int,
        tau: int,
        staleness: int,
        launch_ahead: int,
        synchronised: bool,
        restarts: set[int],
        together: int,
    ) -> None:
        self.together, self.held = together, []  # events that the machine is told at once
        self.restarts = restarts
        self.tau, self.staleness, self.launch_ahead = tau, staleness, launch_ahead
        self.synchronised = synchronised
        self.last = start + rounds
        self.state = SchedulerState(
            replicas,
            start,
            self.last,
            tau=tau,
            staleness=staleness,
            launch_ahead=launch_ahead,
            synchronised=synchronised,
            restarts_before=restarts.__contains__,
        )
        self.fed = [start] * replicas
        self.launched = [start] * replicas
        self.running: list[list[int]] = [[] for _ in range(replicas)]
        self.syncs: list[int] = []  # enqueued, oldest first
        self.synchronised_rounds: list[int] = []
        self.restarted: set[int] = set()
        self.end: Instruction | None = None
        self.failed = self.stopped = False
        self.start = start
        self.events = 0
        self.obey(self.state.begin())

    def tell(self, event: Any) -> None:
        self.events += 1
        self.held.append(event)
        if len(self.held) == self.together:
            self.hand_over()

    @precondition(lambda self: self.end is None and self.held)
    @rule()
    def hand_over(self) -> None:
        events, self.held = self.held, []
        self.obey(self.state.handle(*events))

    def obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            assert self.end is None, "nothing comes after the end"
            if isinstance(instruction, Launch):
                self.check_launch(instruction.place, instruction.round)
            elif isinstance(instruction, Synchronise):
                self.check_synchronise(instruction.round)
            elif isinstance(instruction, Restart):
                before = instruction.round + 1
                assert before in self.restarts
                assert before not in self.restarted
                assert all(t == before for t in self.launched)
                self.restarted.add(before)
            else:
                self.end = instruction
                self.check_end(instruction)

    def check_launch(self, replica: int, round: int) -> None:
        assert round == self.launched[replica] < min(self.last, self.fed[replica])
        assert not self.failed
        self.launched[replica] += 1
        self.running[replica].append(round)
        assert len(self.running[replica]) <= self.launch_ahead
        if not self.synchronised:
            return
        assert all(r in self.restarted for r in self.restarts if self.start < r <= round), "passed a restart"
        if (round + 1) % self.tau == 0:
            needed = round - (self.staleness + 1) * self.tau
            assert needed < self.start or needed in self.synchronised_rounds, "launched before its z"

    def check_synchronise(self, round: int) -> None:
        assert self.synchronised
        assert (round + 1) % self.tau == 0
        assert all(t > round for t in self.launched), "averaged before its tasks"
        assert not self.synchronised_rounds or round == self.synchronised_rounds[-1] + self.tau
        self.synchronised_rounds.append(round)
        self.syncs.append(round)

    def check_end(self, instruction: Instruction) -> None:
        assert not any(self.running), "ended with tasks on the streams"
        assert not self.syncs, "ended with averagings on the streams"
        if isinstance(instruction, Finish):
            assert set(self.launched) == {instruction.round}, "ended with replicas apart"
            assert not self.failed
            assert self.stopped or instruction.round == self.last
            averaged = [t for t in range(self.start, instruction.round) if (t + 1) % self.tau == 0]
            assert self.synchronised_rounds == (averaged if self.synchronised else [])
        else:
            assert isinstance(instruction, GiveUp)
            assert self.failed

    def may_end(self, sync: int) -> bool:
        """A synchronisation ends after the tasks it waits for."""
        return all(not r or r[0] > sync for r in self.running)

    @precondition(lambda self: self.end is None)
    @rule(replica=st.integers(0, 3))
    def batch(self, replica: int) -> None:
        replica %= len(self.fed)
        if self.fed[replica] < self.last:
            self.fed[replica] += 1
            self.tell(BatchReady(replica, self.fed[replica] - 1))

    @precondition(lambda self: self.end is None and any(self.running))
    @rule(data=st.data(), fails=st.integers(0, 30))
    def task_ends(self, data: st.DataObject, fails: int) -> None:
        replica = data.draw(st.sampled_from([i for i, r in enumerate(self.running) if r]))
        round = self.running[replica].pop(0)
        if fails == 0:
            self.failed = True
            self.tell(TaskFailed(replica, round, "broken"))
        else:
            self.tell(TaskFinished(replica, round))

    @precondition(lambda self: self.end is None and self.syncs and self.may_end(self.syncs[0]))
    @rule(fails=st.integers(0, 30))
    def sync_ends(self, fails: int) -> None:
        round = self.syncs.pop(0)
        if fails == 0:
            self.failed = True
            self.tell(SyncFailed(round, "broken"))
        else:
            self.tell(SyncFinished(round))

    @precondition(lambda self: self.end is None)
    @rule(really=st.integers(0, 9))
    def stop(self, really: int) -> None:
        if really == 0:
            self.stopped = True
            self.tell(StopRequested())

    @precondition(lambda self: self.end is None)
    @rule(really=st.integers(0, 19))
    def source_fails(self, really: int) -> None:
        if really == 0:
            self.failed = True
            self.tell(SourceFailed("no more"))

    @precondition(lambda self: self.end is not None)
    @rule()
    def nothing_comes_after_the_end(self) -> None:
        with pytest.raises(InternalError, match="after the end"):
            self.state.handle(StopRequested())

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "state"):
            self.state.check_invariants()

    def teardown(self) -> None:
        """Progress: once all batches are there and all that runs has ended, the run has ended."""
        if not hasattr(self, "state"):
            return
        while self.end is None:
            self.events = 0
            for replica in range(len(self.fed)):
                if self.end is None and self.fed[replica] < self.last:
                    self.fed[replica] += 1
                    self.tell(BatchReady(replica, self.fed[replica] - 1))
            for replica, rounds in enumerate(self.running):
                if rounds and self.end is None:
                    self.tell(TaskFinished(replica, rounds.pop(0)))
            if self.end is None and self.syncs and self.may_end(self.syncs[0]):
                self.tell(SyncFinished(self.syncs.pop(0)))
            if self.end is None and self.held:
                self.events += 1
                self.hand_over()
            assert self.events, "nothing moves any more"
        self.state.check_invariants()


FEW = settings(max_examples=60, stateful_step_count=60, deadline=None)


class TestScheduler(SchedulerMachine.TestCase):
    settings = FEW


@pytest.mark.slow
class TestSchedulerLonger(SchedulerMachine.TestCase):
    settings = settings(FEW, max_examples=1000)
