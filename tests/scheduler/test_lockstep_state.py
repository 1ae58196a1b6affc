"""Rounds in lockstep: transitions, stories, and that `SchedulerState` says the same of the same events."""

from __future__ import annotations

import re

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler import SchedulerState
from scheduler.decisions.lockstep import LockstepState
from scheduler.decisions.messages import (
    BatchReady,
    Finish,
    GiveUp,
    Instruction,
    Launch,
    LaunchRound,
    Restart,
    RoundFailed,
    RoundFinished,
    RoundReady,
    SchedulerEvent,
    SourceFailed,
    StopRequested,
    SyncFinished,
    Synchronise,
    TaskFailed,
    TaskFinished,
)
from tensorbow.errors import InternalError, InvalidArgumentError


def ready(*rounds: int) -> list[RoundReady]:
    return [RoundReady(round) for round in rounds]


def test_rounds_are_launched_in_order() -> None:
    state = LockstepState(3, 4, 6)
    assert state.handle(RoundReady(5)) == []
    assert state.handle(RoundReady(4)) == [LaunchRound(4), LaunchRound(5)]
    assert state.handle(RoundFinished(4)) == []
    assert state.handle(RoundFinished(5)) == [Finish(6)]


def test_no_more_rounds_are_enqueued_than_are_to_be() -> None:
    for launch_ahead in (1, 2, 5):
        state = LockstepState(2, 0, 99, launch_ahead=launch_ahead)
        assert state.handle(*ready(*range(9))) == [LaunchRound(t) for t in range(launch_ahead)]
        assert state.handle(RoundFinished(0)) == [LaunchRound(launch_ahead)]
        assert state.in_flight == launch_ahead


def test_averaging_restarts_between_two_rounds() -> None:
    for synchronised in (True, False):
        state = LockstepState(
            1, 0, 9, launch_ahead=4, synchronised=synchronised, restarts_before={2}.__contains__
        )
        restart = [Restart(1)] if synchronised else []
        said = state.handle(*ready(0, 1, 2))
        assert said == [LaunchRound(0), LaunchRound(1), *restart, LaunchRound(2)]


def test_a_stop_lets_what_is_enqueued_end() -> None:
    state = LockstepState(2, 0, 99)
    state.handle(*ready(0, 1, 2))
    assert state.handle(StopRequested()) == []
    assert state.handle(RoundFinished(0)) == []
    assert state.handle(RoundFinished(1)) == [Finish(2)]


@pytest.mark.parametrize("event", [SourceFailed("broken"), RoundFailed(0, "broken")])
def test_after_a_failure_nothing_is_launched(event: SchedulerEvent) -> None:
    state = LockstepState(2, 0, 99)
    state.handle(*ready(0, 1, 2))
    assert state.handle(event) == []
    ends = [RoundFinished(0)] if isinstance(event, SourceFailed) else []
    assert state.handle(*ends, RoundFailed(1, "follows")) == [GiveUp("broken")]
    with pytest.raises(InternalError, match="after the end"):
        state.handle(RoundFinished(2))


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (RoundReady(3), r"round=3\) came again, or too late; .* round 3: waiting -> ready$"),
        (RoundReady(2), "too late; the story of round 2: waiting -> ready -> executing"),
        (RoundReady(1), "too late; .* waiting -> ready -> executing -> finished"),
        (RoundReady(0), r"too late; .* round 0: waiting$"),
        (RoundFinished(3), r"round 3 has ended before round 2.* waiting -> ready$"),
        (RoundFailed(1, ""), "round 1 has ended before round 2.* executing -> finished"),
    ],
)
def test_what_cannot_be_raises_with_the_story(event: SchedulerEvent, message: str) -> None:
    state = LockstepState(2, 1, 9, launch_ahead=1)
    state.handle(*ready(1))
    state.handle(RoundFinished(1), *ready(2), RoundReady(3))
    state.check_invariants()
    with pytest.raises(InternalError, match=message):
        state.handle(event)


def test_a_round_that_was_not_launched_cannot_end() -> None:
    with pytest.raises(InternalError, match=r"without being launched; the story of round 0: waiting$"):
        LockstepState(1, 0, 9).handle(RoundFinished(0))


@pytest.mark.parametrize("wrong", [{"replicas": 0}, {"launch_ahead": 0}, {"start": -1}, {"stop": 2}])
def test_numbers_out_of_range(wrong: dict[str, int]) -> None:
    name = re.escape(next(iter(wrong)))
    with pytest.raises(InvalidArgumentError, match=f"{name} must be at least"):
        LockstepState(**{"replicas": 2, "start": 3, "stop": 9, **wrong})


def test_its_books_stay_small() -> None:
    state = LockstepState(2, 0, 5000)
    for t in range(5000):
        state.handle(*ready(t))
        state.handle(RoundFinished(t))
        assert not state._ready
    assert state.ended


class Twins(RuleBasedStateMachine):
    """The same batches, ends, stops and failures for both machines, whole rounds at once."""

    @initialize(
        replicas=st.integers(1, 4),
        start=st.integers(0, 5),
        rounds=st.integers(0, 9),
        launch_ahead=st.integers(1, 3),
        synchronised=st.booleans(),
        restarts=st.sets(st.integers(1, 14), max_size=3),
    )
    def open(
        self,
        replicas: int,
        start: int,
        rounds: int,
        launch_ahead: int,
        synchronised: bool,
        restarts: set[int],
    ) -> None:
        self.replicas, self.stop, self.fed, self.synchronised = replicas, start + rounds, start, synchronised
        options = {
            "launch_ahead": launch_ahead,
            "synchronised": synchronised,
            "restarts_before": restarts.__contains__,
        }
        self.lockstep = LockstepState(replicas, start, self.stop, **options)  # type: ignore[arg-type]
        self.plain = SchedulerState(replicas, start, self.stop, **options)  # type: ignore[arg-type]
        self.running: list[int] = []
        self.ended = False
        self.launched: list[Launch] = []  # by the plain machine, of a round that it has not wholly launched
        self.compare(self.lockstep.begin(), self.plain.begin())

    def compare(self, said: list[Instruction], plainly: list[Instruction]) -> None:
        """What the plain machine says, told of rounds, is what the other one does."""
        rounds: list[Instruction] = []
        for instruction in plainly:
            if isinstance(instruction, Launch):
                self.launched.append(instruction)
                if len(self.launched) == self.replicas:
                    assert len({(launch.round) for launch in self.launched}) == 1
                    rounds.append(LaunchRound(instruction.round))
                    self.launched.clear()
            elif isinstance(instruction, Synchronise):
                assert self.synchronised
                assert rounds[-1] == LaunchRound(instruction.round)
            else:
                rounds.append(instruction)
        assert said == rounds
        self.running += [launch.round for launch in said if isinstance(launch, LaunchRound)]
        self.ended = bool(said) and isinstance(said[-1], Finish | GiveUp)

    def tell(self, event: SchedulerEvent, *plainly: SchedulerEvent) -> None:
        self.compare(self.lockstep.handle(event), self.plain.handle(*plainly))

    @precondition(lambda self: not self.ended and self.fed < self.stop)
    @rule()
    def round_is_ready(self) -> None:
        self.tell(RoundReady(self.fed), *(BatchReady(place, self.fed) for place in range(self.replicas)))
        self.fed += 1

    @precondition(lambda self: not self.ended and self.running)
    @rule(fails=st.integers(0, 20))
    def round_ends(self, fails: int) -> None:
        round = self.running.pop(0)
        syncs = [SyncFinished(round)] if self.synchronised else []
        if fails == 0:
            failed = [TaskFailed(place, round, "broken") for place in range(self.replicas)]
            self.tell(RoundFailed(round, "broken"), *failed, *syncs)
        else:
            finished = [TaskFinished(place, round) for place in range(self.replicas)]
            self.tell(RoundFinished(round), *finished, *syncs)

    @precondition(lambda self: not self.ended)
    @rule(event=st.sampled_from([StopRequested(), SourceFailed("no more"), *[None] * 20]))
    def ends_early(self, event: SchedulerEvent | None) -> None:
        if event is not None:
            self.tell(event, event)

    @precondition(lambda self: self.ended)
    @rule()
    def nothing_comes_after_the_end(self) -> None:
        for machine in (self.lockstep, self.plain):
            with pytest.raises(InternalError, match="after the end"):
                machine.handle(StopRequested())

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "lockstep"):
            self.lockstep.check_invariants()
            self.plain.check_invariants()
            assert self.lockstep.ended is self.plain.ended is self.ended
            assert self.lockstep.in_flight == len(self.running)

    def teardown(self) -> None:
        """Progress: once all batches are there and all that runs has ended, the run has ended."""
        if hasattr(self, "lockstep"):
            while not self.ended:
                assert self.running or self.fed < self.stop, "nothing moves any more"
                if self.fed < self.stop:
                    self.round_is_ready()
                if self.running and not self.ended:
                    self.round_ends(1)


FEW = settings(max_examples=60, stateful_step_count=60, deadline=None)


class TestTwins(Twins.TestCase):
    settings = FEW


@pytest.mark.slow
class TestTwinsLonger(Twins.TestCase):
    settings = settings(FEW, max_examples=1000)
