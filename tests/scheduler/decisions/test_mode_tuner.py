"""The tuner of modes, step by step: one mode after the other, what is left out, and the faster one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import Decision, Measure, ReplicaTuner
from scheduler.decisions.mode_tuner import ModeTuner
from tensorbow.errors import FailedPreconditionError

MODES = ("captured", "fused")
Rate = Callable[[str | None, int], float]


def tuned(tuner: ModeTuner, rate: Rate) -> tuple[list[tuple[str | None, int]], Decision]:
    """The modes and counts in the order they were asked for, and the decision."""
    asked: list[tuple[str | None, int]] = []
    while isinstance(step := tuner.next_step(), Measure):
        if not asked or asked[-1] != (step.mode, step.replicas):
            asked.append((step.mode, step.replicas))
        assert tuner.record(step.replicas, rate(step.mode, step.replicas)).mode == step.mode == tuner.mode
        assert len(asked) < 1000
    return asked, step


def two_speeds(mode: str | None, count: int) -> float:
    return 100.0 * min(count, 2) if mode == "captured" else 60.0 * min(count, 5)


def test_each_mode_has_its_counts_and_the_faster_is_chosen() -> None:
    tuner = ModeTuner(MODES, 6, why_no_more="memory")
    asked, decision = tuned(tuner, two_speeds)
    assert asked[0] == ("captured", 1)
    assert [mode for mode, _ in asked] == sorted(mode for mode, _ in asked if mode)
    assert asked[[mode for mode, _ in asked].index("fused")] == ("fused", 1)
    assert (decision.mode, decision.replicas, decision.images_per_second) == ("fused", 5, 300.0)
    assert decision.complete
    assert decision.reason.endswith("; captured replicas reach 200 examples/s, with 2 per device")
    assert {known.mode for known in tuner.measurements} == {*MODES}
    slow = tuned(ModeTuner(MODES, 6), lambda mode, count: two_speeds(mode, count) / (1 + (mode == "fused")))
    assert (slow[1].mode, slow[1].replicas) == ("captured", 2)


def test_the_second_mode_may_go_on_from_the_choice_of_the_first() -> None:
    asked, decision = tuned(ModeTuner(MODES, 12, goes_on=True), two_speeds)
    fused = [count for mode, count in asked if mode == "fused"]
    assert fused[:4] == [2, 3, 4, 5]
    assert min(fused) == 2
    assert (decision.mode, decision.replicas) == ("fused", 5)


@pytest.mark.slow
@given(st.lists(st.floats(1.0, 1e6), min_size=6, max_size=6))
def test_without_modes_it_is_a_replica_tuner(rates: list[float]) -> None:
    plain, tuner = (
        ReplicaTuner(6, 0.05, 1, 3, why_no_more="so"),
        ModeTuner([None], 6, windows=1, why_no_more="so"),
    )
    tuner.current.most_windows = 3
    asked, decision = tuned(tuner, lambda _, count: rates[count - 1])
    counts: list[int] = []
    while isinstance(step := plain.next_step(), Measure):
        if not counts or counts[-1] != step.replicas:
            counts.append(step.replicas)
        plain.record(step.replicas, rates[step.replicas - 1])
    assert ([count for _, count in asked], decision) == (counts, step)
    assert tuner.measurements == plain.measurements


def captured_done(**options: bool) -> ModeTuner:
    tuner = ModeTuner(MODES, 4, **options)
    while tuner.has_more:
        step = tuner.next_step()
        if step.mode == "captured":
            tuner.record(step.replicas, two_speeds(step.mode, step.replicas))
    return tuner


def test_what_cannot_be_had_is_left_out() -> None:
    for tuner in (ModeTuner(MODES, 4), captured_done()):
        tuner.leave_out("there are none")
        asked, decision = tuned(tuner, two_speeds)
        assert "fused" not in {mode for mode, _ in asked}
        assert (decision.mode, decision.replicas, decision.complete) == ("captured", 2, True)
        assert tuner.left_out == "there are none"


def test_it_can_be_ended_at_any_time() -> None:
    tuner = ModeTuner(MODES, 4)
    tuner.end("over")
    with pytest.raises(FailedPreconditionError, match="nothing has been measured: over"):
        tuner.next_step()
    tuner = ModeTuner(MODES, 4)
    tuner.record(1, 100.0)
    tuner.end("over")
    decision = tuner.next_step()
    assert isinstance(decision, Decision)
    assert (decision.mode, decision.replicas, decision.complete) == ("captured", 1, False)
    assert decision.reason.endswith("; over; fused not measured: over")
    tuner = captured_done()
    tuner.end("over")
    decision = tuner.next_step()
    assert isinstance(decision, Decision)
    assert (decision.mode, decision.replicas, decision.complete) == ("captured", 2, False)
    tuner = captured_done()
    tuner.record(1, 1000.0)
    tuner.end("over")
    decision = tuner.next_step()
    assert isinstance(decision, Decision)
    assert (decision.mode, decision.replicas, decision.complete) == ("fused", 1, False)


def test_a_mode_can_be_ended_for_the_next() -> None:
    tuner = ModeTuner(MODES, 4)
    tuner.record(1, 100.0)
    tuner.end_mode("half is over")
    asked, decision = tuned(tuner, two_speeds)
    assert {mode for mode, _ in asked} == {"fused"}
    assert (decision.mode, decision.complete) == ("fused", False)


def test_a_limit_holds_for_the_next_mode() -> None:
    tuner = ModeTuner(MODES, 4)
    tuner.current.limit(2, "memory")
    asked, _ = tuned(tuner, lambda mode, count: float(count))
    assert max(count for _, count in asked) == 2
