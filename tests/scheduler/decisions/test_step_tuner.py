"""Tuning by single steps: what is discarded, when a number is chosen, and which numbers are tried."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.decisions import step_tuner
from scheduler.decisions.mode_tuner import ModeTuner
from scheduler.decisions.step_tuner import LEAST_STEPS, WARM_STEPS, BatchSplitTuner, StepTuner


def test_steps_after_a_change_are_discarded_and_windows_have_their_least_length() -> None:
    steps = StepTuner(ModeTuner([None], 2), 1.0)
    for _ in range(WARM_STEPS):
        steps.add(100.0, 1)
    for _ in range(2 * LEAST_STEPS):
        assert not steps.tuner.measurements
        steps.add(0.125, 3)
    assert [m.windows for m in steps.tuner.measurements] == [(24.0,)]
    steps.warm_up()
    for _ in range(WARM_STEPS):
        steps.add(100.0, 1)
    for _ in range(2 * LEAST_STEPS):
        steps.add(1.0, 8)
    assert steps.replicas == 2, "the third window of 1 was the last one needed"
    assert [m.windows for m in steps.tuner.measurements] == [(24.0, 8.0, 8.0)]


def test_a_number_that_does_not_fit_is_left_out_also_where_it_did_fit_before() -> None:
    steps = StepTuner(ModeTuner([None], 8), 0.1)
    while steps.replicas < 3:
        steps.add(1.0, steps.replicas)
    steps.refuse("no room")
    while steps.decision is None:
        assert steps.replicas < 3
        steps.add(1.0, steps.replicas)
    assert (steps.decision.replicas, steps.decision.complete) == (2, True)
    assert "(no room)" in steps.decision.reason
    steps.refuse("no room any more")
    assert (steps.replicas, steps.decision.complete) == (1, False)
    assert steps.decision.reason == "no room any more"


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    devices=st.integers(1, 3),
    parts=st.lists(st.integers(1, 48), min_size=1, max_size=4),
    best=st.integers(1, 20),
    steady=st.integers(2, 40),
    batches=st.lists(st.integers(0, 3), min_size=30, max_size=30),
)
def test_only_numbers_are_tried_that_divide_all_batches_so_far(
    devices: int, parts: list[int], best: int, steady: int, batches: list[int]
) -> None:
    tuner = BatchSplitTuner(devices, lambda per_device: per_device <= steady)
    seen: list[int] = []
    runs = 0
    while tuner.decision is None or runs < len(batches):
        rows = devices * parts[batches[runs % len(batches)] % len(parts)]
        tuner.before_run([rows])
        assert tuner.replicas <= steady
        seen.append(rows)
        for each in {*seen}:
            assert each % (tuner.replicas * devices) == 0
        tuner.after_run(rows / min(tuner.replicas, best), rows)
        runs += 1
        assert runs < 5000
    tuner.before_run(seen[:1])
    assert tuner.replicas == tuner.decision.replicas


def test_the_fastest_number_of_those_that_divide_the_batch_is_chosen() -> None:
    for best, chosen in ((1, 1), (3, 3), (5, 4), (16, 12)):
        tuner = BatchSplitTuner(1, lambda per_device: True)
        while tuner.decision is None:
            tuner.before_run([24, 48])
            tuner.after_run(0.1 / tuner.replicas if tuner.replicas <= best else 0.1, 24)
        assert tuner.decision.replicas == chosen
    asked = set()
    tuner = BatchSplitTuner(1, lambda per_device: True)
    while tuner.decision is None:
        tuner.before_run([])
        asked.add(tuner.replicas)
        tuner.after_run(0.1, tuner.replicas)
    assert tuner.decision.replicas == step_tuner.MOST_REPLICAS
    assert asked == {*range(1, step_tuner.MOST_REPLICAS + 1)}


def test_a_batch_that_the_choice_does_not_divide_starts_a_new_tuning() -> None:
    tuner = BatchSplitTuner(2, lambda per_device: True)
    while tuner.decision is None:
        tuner.before_run([64])
        tuner.after_run(0.1 / tuner.replicas, 64)
    assert tuner.decision.replicas == 16
    tuner.before_run([32])
    assert (tuner.decision.replicas, tuner.replicas) == (16, 16)
    tuner.before_run([7])  # of two devices: the session refuses it, and it is forgotten
    assert tuner.replicas == 16
    tuner.before_run([20])
    assert (tuner.decision, tuner.replicas) == (None, 1)
    while tuner.decision is None:
        tuner.after_run(0.1 / tuner.replicas, 20)
        tuner.before_run([20])
    assert tuner.decision.replicas == 2


def test_it_decides_when_its_time_is_over() -> None:
    tuner = BatchSplitTuner(1, lambda per_device: True)
    runs = 0
    while tuner.decision is None:
        tuner.before_run([16])
        tuner.after_run(7.0, 16)
        runs += 1
    assert runs == 9, "60 s of 7 s each, and the first window has ended"
    assert not tuner.decision.complete
    assert "60 s of training are over" in tuner.decision.reason
