"""First come, first served: every order of batches, ends, stops and failures that hypothesis thinks of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.decisions.first_come import FirstComeState
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


def deliver(state: FirstComeState, *events: Any) -> list[Instruction]:
    """Instructions of the machine for these events."""
    said: list[Instruction] = []
    for event in events:
        said += state.handle(event)
        state.check_invariants()
    return said


def batches(replicas: int, rounds: int) -> list[BatchReady]:
    return [BatchReady(batch, round) for round in range(rounds) for batch in range(replicas)]


def test_whoever_is_free_takes_the_next_batch() -> None:
    state = FirstComeState(2, 0, 9, tau=3, launch_ahead=1)
    assert deliver(state, *batches(2, 3)) == [Launch(0, 0), Launch(1, 0)]
    assert [state.taker(0, 0), state.taker(1, 0)] == [(0, 0), (1, 0)]
    assert deliver(state, TaskFinished(1, 0)) == [Launch(0, 1)]
    assert state.taker(0, 1) == (1, 1)
    assert deliver(state, TaskFinished(0, 1)) == [Launch(1, 1)]
    assert state.taker(1, 1) == (1, 2)
    assert deliver(state, TaskFinished(1, 1), TaskFinished(0, 0)) == [
        Launch(0, 2),
        Launch(1, 2),
        Synchronise(2),
    ]
    assert state.taker(0, 2) == (1, 3)
    assert state.taker(1, 2) == (0, 1)


def test_the_emptiest_stream_is_filled_first_then_the_one_that_waits_longest() -> None:
    state = FirstComeState(3, 0, 9, launch_ahead=2, synchronised=False)
    deliver(state, *batches(3, 2))
    assert [state.taker(batch, round)[0] for round in range(2) for batch in range(3)] == [0, 1, 2] * 2
    deliver(state, TaskFinished(1, 0), TaskFinished(0, 0), *batches(3, 4)[6:])
    assert [state.taker(0, 2)[0], state.taker(1, 2)[0]] == [1, 0]
    with pytest.raises(InternalError, match="task of batch 2 in round 2 is with no replica"):
        state.taker(2, 2)


def test_batches_are_taken_in_their_order() -> None:
    state = FirstComeState(2, 3, 5, launch_ahead=2)
    assert deliver(state, BatchReady(1, 3), BatchReady(0, 4)) == []
    said = deliver(state, BatchReady(0, 3))
    assert said == [Launch(0, 3), Launch(1, 3), Synchronise(3), Launch(0, 4)]


def test_averagings_are_counted_from_round_0_wherever_a_run_starts() -> None:
    state = FirstComeState(1, 4, 10, tau=3, launch_ahead=9)
    said = deliver(state, *(BatchReady(0, t) for t in range(4, 10)))
    assert [i.round for i in said if isinstance(i, Synchronise)] == [5, 8]


def test_the_next_averaging_period_does_not_wait_for_the_end_of_the_averaging() -> None:
    state = FirstComeState(2, 0, 2, launch_ahead=2, restarts_before=lambda t: t == 1)
    said = deliver(state, *batches(2, 2))
    period = [Launch(0, 0), Launch(1, 0), Synchronise(0)]
    assert said == [*period, Restart(0), Launch(0, 1), Launch(1, 1), Synchronise(1)]


def test_a_slow_replica_may_take_no_batch_of_an_averaging_period() -> None:
    state = FirstComeState(2, 0, 9, launch_ahead=1)
    deliver(state, *batches(2, 3))
    for round in (1, 2):  # replica 0 is still with its first batch
        deliver(state, TaskFinished(1, round - 1), TaskFinished(0, round))
        assert state.taker(0, round)[0] == state.taker(1, round)[0] == 1
    assert state.in_flight == 2 + 3


def test_a_stop_ends_with_the_round_that_is_begun() -> None:
    state = FirstComeState(3, 0, 9, launch_ahead=2, synchronised=False)
    deliver(state, BatchReady(0, 0), StopRequested())
    said = deliver(state, *batches(3, 2)[1:], *(TaskFinished(batch, 0) for batch in range(3)))
    assert said == [Launch(1, 0), Launch(2, 0), Finish(1)]
    assert FirstComeState(3, 4, 9).handle(StopRequested()) == [Finish(4)]


def test_nothing_to_do() -> None:
    assert FirstComeState(2, 7, 7).begin() == [Finish(7)]


def test_illegal_events_are_told_with_the_story_of_the_task() -> None:
    state = FirstComeState(1, 0, 3)
    deliver(state, BatchReady(0, 0), TaskFinished(0, 0))
    story = "waiting -> ready -> executing -> finished"
    with pytest.raises(InternalError, match=f"batch 0, taken by replica 0, in round 0.*{story}"):
        state.handle(TaskFinished(0, 0))
    with pytest.raises(InternalError, match=f"round=0.*is taken.*{story}"):
        state.handle(BatchReady(0, 0))
    with pytest.raises(InternalError, match="batch 0 in round 1: no transition waiting -> finished"):
        state.handle(TaskFinished(0, 1))
    with pytest.raises(InternalError, match="there is no batch 5 in a round; there are 1"):
        state.handle(BatchReady(5, 0))
    with pytest.raises(InternalError, match="synchronisation in round 2: no transition waiting -> finished"):
        state.handle(SyncFinished(2))
    with pytest.raises(InternalError, match="started at round 3"):
        FirstComeState(1, 3, 4).handle(BatchReady(0, 2))
    ended = FirstComeState(1, 3, 4)
    ended.handle(StopRequested())
    with pytest.raises(InternalError, match="after the end"):
        ended.handle(BatchReady(0, 3))


@pytest.mark.slow
def test_long_finished_tasks_are_forgotten() -> None:
    state = FirstComeState(2, 0, 500)
    for t in range(500):
        deliver(state, BatchReady(0, t), BatchReady(1, t), TaskFinished(0, t), TaskFinished(1, t))
        state.handle(SyncFinished(t))
        if t == 400:
            with pytest.raises(InternalError, match="long finished"):
                state.handle(BatchReady(0, 0))
    assert state.ended
    assert len(state._tasks) < 100


@pytest.mark.parametrize(
    ("numbers", "word"),
    [
        ({"replicas": 0}, "replicas must be at least 1, got 0"),
        ({"tau": 0}, "tau"),
        ({"launch_ahead": 0}, "launch_ahead"),
        ({"start": 5, "stop": 4}, "stop must be at least 5"),
    ],
)
def test_numbers_out_of_range(numbers: dict[str, int], word: str) -> None:
    arguments: dict[str, Any] = {"replicas": 1, "start": 0, "stop": 9, **numbers}
    with pytest.raises(InvalidArgumentError, match=word):
        FirstComeState(**arguments)


class FirstComeMachine(RuleBasedStateMachine):
    """Plays source and devices: any order that first-in first-out streams allow, with stops and failures."""

    @initialize(
        replicas=st.integers(1, 4),
        start=st.integers(0, 5),
        rounds=st.integers(0, 9),
        options=st.fixed_dictionaries(
            {"tau": st.integers(1, 4), "launch_ahead": st.integers(1, 3), "synchronised": st.booleans()}
        ),
        restarts=st.sets(st.integers(1, 14), max_size=3),
    )
    def open(
        self, replicas: int, start: int, rounds: int, options: dict[str, Any], restarts: set[int]
    ) -> None:
        self.replicas, self.start, self.last = replicas, start, start + rounds
        self.tau, self.launch_ahead = options["tau"], options["launch_ahead"]
        self.synchronised, self.restarts = options["synchronised"], restarts
        check = restarts.__contains__
        self.state = FirstComeState(replicas, start, self.last, **options, restarts_before=check)
        self.fed = [start] * replicas  # by batch number, the round whose batch comes next
        self.taken: list[tuple[int, int]] = []  # (round, batch), in order
        self.had = [0] * replicas
        # What lies on each replica's stream, oldest first: tasks (round, batch), and averagings (round, -1).
        self.streams: list[list[tuple[int, int]]] = [[] for _ in range(replicas)]
        self.syncs: list[int] = []  # enqueued, oldest first
        self.averaged: list[int] = []
        self.restarted: list[int] = []
        self.end: Instruction | None = None
        self.failed = self.stopped = False
        self.events = 0
        self.obey(self.state.begin())

    def tell(self, event: Any) -> None:
        self.events += 1
        self.obey(self.state.handle(event))

    def obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            assert self.end is None, "nothing comes after the end"
            if isinstance(instruction, Launch):
                self.check_launch(instruction.batch_number, instruction.round)
            elif isinstance(instruction, Synchronise):
                self.check_synchronise(instruction.round)
            elif isinstance(instruction, Restart):
                assert self.synchronised
                before = instruction.round + 1
                assert before in self.restarts
                assert len(self.taken) == (before - self.start) * self.replicas, "not between two rounds"
                self.restarted.append(before)
            else:
                self.end = instruction
                self.check_end(instruction)

    def tasks_on(self, replica: int) -> int:
        return sum(batch >= 0 for _, batch in self.streams[replica])

    def check_launch(self, batch: int, round: int) -> None:
        assert not self.failed
        number = self.start * self.replicas + len(self.taken)
        assert (round, batch) == divmod(number, self.replicas), "each batch once, in order"
        assert round < min(self.last, self.fed[batch]), "its batch is not there"
        if self.synchronised:
            due = [t for t in range(self.start, round) if (t + 1) % self.tau == 0]
            assert self.averaged == due, "a period began before the averaging of the one before"
            assert self.restarted == sorted(r for r in self.restarts if self.start < r <= round)
        replica, step = self.state.taker(batch, round)
        assert step == self.had[replica]
        on_streams = [self.tasks_on(other) for other in range(self.replicas)]
        assert on_streams[replica] == min(on_streams) < self.launch_ahead, "another was more free"
        self.had[replica] += 1
        self.taken.append((round, batch))
        self.streams[replica].append((round, batch))

    def check_synchronise(self, round: int) -> None:
        assert self.synchronised
        assert (round + 1) % self.tau == 0
        assert len(self.taken) == (round + 1 - self.start) * self.replicas, "averaged before its tasks"
        self.averaged.append(round)
        self.syncs.append(round)
        for stream in self.streams:
            stream.append((round, -1))

    def check_end(self, instruction: Instruction) -> None:
        assert not any(map(self.tasks_on, range(self.replicas))), "ended with tasks on the streams"
        assert not self.syncs, "ended with averagings on the streams"
        if isinstance(instruction, Finish):
            assert not self.failed
            assert len(self.taken) == (instruction.round - self.start) * self.replicas
            assert self.stopped or instruction.round == self.last
            due = [t for t in range(self.start, instruction.round) if (t + 1) % self.tau == 0]
            assert self.averaged == (due if self.synchronised else [])
        else:
            assert isinstance(instruction, GiveUp)
            assert self.failed

    def may_end(self, replica: int) -> bool:
        """Its oldest is a task, or an averaging that it can pass: one waits for the z of the one before."""
        stream = self.streams[replica]
        while stream and self.syncs and stream[0] == (self.syncs[0], -1):
            stream.pop(0)
        return bool(stream) and stream[0][1] >= 0

    def sync_may_end(self) -> bool:
        """Every replica has come to its averaging."""
        for replica in range(self.replicas):
            self.may_end(replica)
        return bool(self.syncs) and not any((self.syncs[0], -1) in stream for stream in self.streams)

    def end_task(self, replica: int, fails: bool = False) -> None:
        round, batch = self.streams[replica].pop(0)
        self.failed = self.failed or fails
        self.tell(TaskFailed(batch, round, "") if fails else TaskFinished(batch, round))

    def end_sync(self, fails: bool = False) -> None:
        round = self.syncs.pop(0)
        self.failed = self.failed or fails
        self.tell(SyncFailed(round, "broken") if fails else SyncFinished(round))

    @precondition(lambda self: self.end is None)
    @rule(number=st.integers(0, 3))
    def batch(self, number: int) -> None:
        number %= self.replicas
        if self.fed[number] < self.last:
            self.fed[number] += 1
            self.tell(BatchReady(number, self.fed[number] - 1))

    @precondition(lambda self: self.end is None and any(map(self.may_end, range(self.replicas))))
    @rule(data=st.data(), fails=st.integers(0, 30))
    def task_ends(self, data: st.DataObject, fails: int) -> None:
        who = data.draw(st.sampled_from([i for i in range(self.replicas) if self.may_end(i)]))
        self.end_task(who, fails == 0)

    @precondition(lambda self: self.end is None and self.sync_may_end())
    @rule(fails=st.integers(0, 30))
    def sync_ends(self, fails: int) -> None:
        self.end_sync(fails == 0)

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

    @invariant()
    def nobody_idles_beside_a_batch(self) -> None:
        if not hasattr(self, "state") or self.end is not None or self.failed or self.stopped:
            return
        round, batch = divmod(self.start * self.replicas + len(self.taken), self.replicas)
        is_there = round < self.last and self.fed[batch] > round
        assert not is_there or all(self.tasks_on(i) == self.launch_ahead for i in range(self.replicas))

    def teardown(self) -> None:
        """Progress: once all batches are there and all that runs has ended, the run has ended."""
        if not hasattr(self, "state"):
            return
        while self.end is None:
            self.events = 0
            for number in range(self.replicas):
                self.batch(number) if self.end is None else None
            for replica in range(self.replicas):
                if self.end is None and self.may_end(replica):
                    self.end_task(replica)
            if self.end is None and self.sync_may_end():
                self.end_sync()
            assert self.events, "nothing moves any more"
        self.state.check_invariants()


FEW = settings(max_examples=25, stateful_step_count=60, deadline=None)


class TestFirstCome(FirstComeMachine.TestCase):
    settings = FEW


@pytest.mark.slow
class TestFirstComeLonger(FirstComeMachine.TestCase):
    settings = settings(FEW, max_examples=1000)
