"""The tuner's decisions, step by step: what it asks for, when it stops, and what it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import Decision, Measure, Measurement, ReplicaTuner
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError


def tuned(tuner: ReplicaTuner, rate: Callable[[int], float]) -> tuple[list[int], Decision]:
    """The counts in the order they were asked for, each run of one count once; and the decision."""
    asked: list[int] = []
    while isinstance(step := tuner.next_step(), Measure):
        if not asked or asked[-1] != step.replicas:
            asked.append(step.replicas)
        tuner.record(step.replicas, rate(step.replicas))
        assert len(asked) < 1000
    return asked, step


def test_it_grows_while_throughput_does_looks_past_the_first_non_gain_and_steps_back() -> None:
    tuner = ReplicaTuner(16)
    asked, decision = tuned(tuner, lambda count: 100.0 * min(count, 3))
    assert asked == [1, 2, 3, 4, 5, 10, 4, 3]  # the choice and the best other once more
    assert (decision.replicas, decision.images_per_second, decision.complete) == (3, 300.0, True)
    assert decision.reason == "none of 1, 2, 4, 5, 10 is faster"
    assert [len(m.windows) for m in tuner.measurements] == [3, 3, 6, 6, 3, 3]


def test_a_gain_that_comes_late_is_found() -> None:
    assert tuned(ReplicaTuner(8), lambda count: (0, 10, 10, 20, 20, 20, 20, 20, 20)[count])[1].replicas == 3
    asked, decision = tuned(ReplicaTuner(12), lambda count: 10.0 if count < 5 else 20.0)
    assert asked[:4] == [1, 2, 3, 6]  # nothing at 2 and 3, so far ahead, and from there all on the way
    assert decision.replicas == 5


def test_the_limit_is_the_choice_where_throughput_still_grows() -> None:
    tuner = ReplicaTuner(6, why_no_more="memory")
    asked, decision = tuned(tuner, float)
    assert asked == [1, 2, 3, 4, 5, 6, 5, 6]
    assert decision.replicas == 6
    assert decision.reason == "images/s grow up to it; 6 is the most that may be tried (memory)"
    assert tuned(ReplicaTuner(1), float)[1].reason == (
        "it is the only one measured; 1 is the most that may be tried"
    )


def test_the_threshold_decides_what_is_worth_it() -> None:
    rates = {1: 100.0, 2: 108.0, 3: 109.0, 4: 109.0, 6: 109.0, 8: 109.0}
    for threshold, chosen in ((0.05, 2), (0.2, 1)):
        decision = tuned(ReplicaTuner(8, threshold), lambda count: rates.get(count, 109.0))[1]
        assert decision.replicas == chosen
        assert "more images/s, below the threshold of" in decision.reason


def test_counts_within_noise_of_each_other_get_more_windows_in_runs() -> None:
    wobble = iter([0.92, 1.08, 1.0, 1.05, 0.95] * 1000)
    tuner = ReplicaTuner(2)
    asked, decision = tuned(tuner, lambda count: (100.0 if count == 1 else 106.0) * next(wobble))
    windows = [len(measurement.windows) for measurement in tuner.measurements]
    assert max(windows) > 3
    assert max(windows) <= tuner.most_windows == 108
    assert len(asked) <= sum(windows) / tuner.windows + 2  # one change of count for several windows
    assert decision.complete
    quiet = ReplicaTuner(2)
    tuned(quiet, lambda count: 100.0 if count == 1 else 150.0)
    assert [len(measurement.windows) for measurement in quiet.measurements] == [6, 6]


def test_a_spell_in_which_the_machine_is_fast_does_not_decide() -> None:
    """While 2 and 4 are looked at for the first time the machine is twice as fast as ever after."""
    told: dict[int, int] = {}

    def rate(count: int) -> float:
        told[count] = told.get(count, 0) + 1
        spell = count in (2, 4) and told[count] <= 3
        return (100.0 if count < 3 else 98.0) * (2.0 if spell else 1.0)

    tuner = ReplicaTuner(4)
    asked, decision = tuned(tuner, rate)
    assert asked.count(2) > 1
    assert asked.count(4) > 1
    assert decision.complete
    assert decision.replicas == 1


def test_two_clear_losses_are_enough() -> None:
    """Twice as many are looked at after a flat stretch, not after a fall."""
    assert tuned(ReplicaTuner(16), lambda count: {1: 100.0, 2: 70.0}.get(count, 60.0))[0] == [1, 2, 3, 2, 1]
    assert 8 in tuned(ReplicaTuner(16), lambda count: min(count, 2) * 100.0)[0]
    late = {1: 100.0, 2: 180.0, 3: 200.0, 4: 160.0}
    assert max(tuned(ReplicaTuner(16), lambda count: late.get(count, 150.0))[0]) == 5


def test_where_windows_disagree_all_that_are_not_hopeless_are_looked_at_again() -> None:
    """While 2 is looked at for the first time the machine is busy; it would else be given up for good."""
    told: dict[int, int] = {}

    def rate(count: int) -> float:
        told[count] = told.get(count, 0) + 1
        busy = 0.55 if count == 2 and told[count] <= 3 else 1.0
        return {1: 100.0, 2: 150.0, 3: 60.0}[count] * busy * (0.7 if count == 1 and told[count] == 1 else 1.0)

    tuner = ReplicaTuner(3)
    asked, decision = tuned(tuner, rate)
    assert not tuner.steady
    assert asked.count(2) > 1
    assert decision.replicas == 2
    quiet = ReplicaTuner(3)
    tuned(quiet, lambda count: (100.0, 82.5, 60.0)[count - 1])
    assert quiet.steady


def test_the_spread_is_from_the_slowest_to_the_fastest_window() -> None:
    assert Measurement(1, (2104.9, 4471.8, 4431.6)).spread == pytest.approx(0.534, abs=1e-3)
    assert Measurement(1, (100.0,)).spread == 0


def test_it_may_begin_with_another_count() -> None:
    asked, decision = tuned(ReplicaTuner(8, start=3), lambda count: 100.0 * min(count, 3))
    assert asked == [3, 1, 2, 4, 5, 8, 4, 3]
    assert decision.replicas == 3


def test_one_window_each_is_confirmed_by_one_more() -> None:
    tuner = ReplicaTuner(2, windows=1)
    assert tuned(tuner, lambda count: 100.0 * count)[0] == [1, 2, 1, 2]
    assert [len(m.windows) for m in tuner.measurements] == [2, 2]


def test_an_early_mistake_is_corrected_by_later_windows() -> None:
    """The first windows of 2 and 3 are unlucky; more of them show the gain."""
    told: dict[int, int] = {}

    def rate(count: int) -> float:
        told[count] = told.get(count, 0) + 1
        unlucky = count in (2, 3) and told[count] <= 2
        return 100.0 * count * (0.5 if unlucky else 1.0) if count <= 4 else 400.0

    assert abs(tuned(ReplicaTuner(8), rate)[1].replicas - 4) <= 1


def test_it_can_be_ended_with_what_is_known() -> None:
    tuner = ReplicaTuner(8)
    tuner.record(1, 100.0)
    tuner.record(2, 180.0)
    tuner.end("the time is up")
    decision = tuner.next_step()
    assert decision == Decision(
        2, 180.0, "images/s grow up to it; larger numbers were not measured; the time is up", complete=False
    )
    lucky = ReplicaTuner(8)
    for count, rates in {1: (150.0, 90.0, 180.0), 2: (140.0, 200.0, 185.0), 4: (400.0,)}.items():
        for rate in rates:
            lucky.record(count, rate)
    lucky.end("the time is up")
    ended = lucky.next_step()
    assert isinstance(ended, Decision)
    assert ended.replicas == 2, "the fastest of those that have all their windows"
    uneven = ReplicaTuner(8)
    for count, once in {1: 100.0, 2: 200.0, 3: 150.0, 4: 300.0}.items():
        for _ in range(3):
            uneven.record(count, once)
    uneven.end("the time is up")
    assert uneven.next_step() == Decision(
        4, 300.0, "it is the fastest; larger numbers were not measured; the time is up", complete=False
    )
    short = ReplicaTuner(8)
    short.record(1, 100.0)
    short.end("the time is up")
    assert short.next_step() == Decision(
        1, 100.0, "it is the only one measured; the time is up", complete=False
    )
    nothing = ReplicaTuner(8)
    nothing.end("interrupted")
    with pytest.raises(FailedPreconditionError, match="nothing has been measured: interrupted"):
        nothing.next_step()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"most": 0}, "most: expected an integer of at least 1, got 0"),
        ({"start": 0}, "start: expected an integer of at least 1, got 0"),
        ({"most": True}, "most: expected an integer"),
        ({"windows": 0}, "windows: expected an integer of at least 1"),
        ({"most_windows": 2}, "most_windows: expected an integer of at least 3, got 2"),
        ({"threshold": 0.0}, r"threshold: expected a fraction in \(0, 1\), as 0.05, got 0.0"),
        ({"threshold": float("nan")}, "got nan"),
    ],
)
def test_bad_options(options: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        ReplicaTuner(**{"most": 4, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(("replicas", "rate"), [(0, 1.0), (5, 1.0), (1, 0.0), (1, -1.0), (1, float("inf"))])
def test_bad_windows(replicas: int, rate: float) -> None:
    tuner = ReplicaTuner(4)
    with pytest.raises(InvalidArgumentError, match="expected a"):
        tuner.record(replicas, rate)
    assert tuner.measurements == ()


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    most=st.integers(1, 30),
    windows=st.integers(1, 4),
    threshold=st.floats(0.001, 0.9),
    rates=st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=200),
)
def test_whatever_it_is_told_it_ends_within_its_windows_and_chooses_what_was_measured(
    most: int, windows: int, threshold: float, rates: list[float]
) -> None:
    tuner = ReplicaTuner(most, threshold, windows)
    told = 0
    while isinstance(step := tuner.next_step(), Measure):
        assert 1 <= step.replicas <= most
        tuner.record(step.replicas, rates[told % len(rates)])
        told += 1
    medians = {m.replicas: m.images_per_second for m in tuner.measurements}
    assert step.complete
    assert step.images_per_second == medians[step.replicas]
    assert step.reason
    for measurement in tuner.measurements:
        assert windows <= len(measurement.windows) <= tuner.most_windows
    assert tuner.next_step() == step
