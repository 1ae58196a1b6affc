"""Smooth learning rates: formulas on the host and in a graph, scaling, no restarts."""

import math

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.train import (
    CosineDecay,
    ExponentialDecay,
    MomentumOptimizer,
    OneCycle,
    PiecewiseConstant,
    PolynomialDecay,
    WarmUp,
    cosine_decay,
    exponential_decay,
    warm_up,
)

pytestmark = pytest.mark.usefixtures("session")

STEPS = (0, 1, 7, 10, 19, 20, 55, 1000)
CASES = {
    "exponential": (ExponentialDecay(0.5, 10, 0.8), lambda t: 0.5 * 0.8 ** (t / 10)),
    "stairs": (ExponentialDecay(0.5, 10, 0.8, staircase=True), lambda t: 0.5 * 0.8 ** (t // 10)),
    "cosine": (
        CosineDecay(0.5, 20, alpha=0.1),
        lambda t: 0.5 * (0.9 * (1 + math.cos(math.pi * min(t, 20) / 20)) / 2 + 0.1),
    ),
    "polynomial": (PolynomialDecay(0.5, 20, 0.1, 2.0), lambda t: 0.4 * (1 - min(t, 20) / 20) ** 2 + 0.1),
    "one cycle": (
        OneCycle(0.5, 20, end=0.1),
        lambda t: (
            0.02 + 0.48 * (1 - math.cos(math.pi * t / 6)) / 2
            if t < 6
            else 0.1 + 0.4 * (1 + math.cos(math.pi * (min(t, 20) - 6) / 14)) / 2
        ),
    ),
    "one fall": (OneCycle(0.5, 20, rise=0), lambda t: 0.25 * (1 + math.cos(math.pi * min(t, 20) / 20))),
    "one rise": (
        OneCycle(0.5, 20, rise=1, end=0.5),
        lambda t: 0.02 + 0.48 * (1 - math.cos(math.pi * min(t, 20) / 20)) / 2,
    ),
    "warm-up": (WarmUp(0.5, 8), lambda t: 0.5 * min(1, (t + 1) / 8)),
    "warm-up of cosine": (
        WarmUp(CosineDecay(0.5, 20), 8),
        lambda t: 0.25 * (1 + math.cos(math.pi * min(t, 20) / 20)) * min(1, (t + 1) / 8),
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_formulas_on_both_sides(session, name):
    schedule, formula = CASES[name]
    step = tb.placeholder(tb.int64, [])
    inside = schedule.tensor(step, tb.float64)
    for number in STEPS:
        assert schedule(number) == pytest.approx(formula(number), abs=1e-15)
        assert session.run(inside, {step: number}) == pytest.approx(formula(number), abs=1e-12)
        assert schedule.scaled(3.0)(number) == pytest.approx(3 * formula(number), abs=1e-15)
        assert not schedule.restarts(number)


def test_functions_as_tensorflow_has_them(session):
    step = tb.Variable(0, name="global_step", trainable=False)
    rates = [
        exponential_decay(0.5, step, 10, 0.8),
        exponential_decay(0.5, step, 10, 0.8, staircase=True),
        cosine_decay(0.5, step, 20, alpha=0.1),
        warm_up(0.5, step, 8),
    ]
    assert all(rate.dtype == tb.float32 for rate in rates)
    for number in STEPS:
        step.load(number)
        expected = [CASES[name][1](number) for name in ("exponential", "stairs", "cosine", "warm-up")]
        np.testing.assert_allclose(session.run(rates), expected, rtol=1e-5, atol=1e-6)


def test_decay_steps_that_are_not_whole(session):
    """1000 / batch_size may be a fraction."""
    stairs, half = ExponentialDecay(0.5, 2.5, 0.8, staircase=True), CosineDecay(0.5, 7.5)
    for schedule, step, rate in ((stairs, 2, 0.5), (stairs, 3, 0.4), (half, 0, 0.5), (half, 8, 0.0)):
        assert schedule(step) == pytest.approx(rate)
        assert session.run(schedule.tensor(tb.constant(step), tb.float64)) == pytest.approx(rate)


def test_a_warm_up_restarts_where_its_schedule_does():
    schedule = WarmUp(PiecewiseConstant([2, 5], [1.0, 0.5, 0.1]), 4)
    assert [step for step in range(9) if schedule.restarts(step)] == [3, 6]
    assert [schedule(step) for step in (0, 3, 6)] == [0.25, 0.5, 0.1]


def test_a_smooth_schedule_follows_the_global_step(session):
    step = tb.Variable(0, name="global_step")
    w = tb.Variable(np.array([1.0]))
    schedule = ExponentialDecay(0.25, 1, 0.5)
    update = MomentumOptimizer(schedule, 0.0).minimize(tb.reduce_sum(w), global_step=step)
    session.run(tb.global_variables_initializer())
    for _ in range(3):
        session.run(update)
    assert session.run(w)[0] == pytest.approx(1 - 0.25 - 0.125 - 0.0625)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: ExponentialDecay(0.0, 1, 0.5),
            "ExponentialDecay: expected rate to be a finite number above 0, got float 0.0",
        ),
        (
            lambda: ExponentialDecay(0.1, 0, 0.5),
            "expected decay_steps to be a finite number above 0, got int 0",
        ),
        (
            lambda: ExponentialDecay(0.1, 1, float("nan")),
            "expected decay_rate to be a finite number above 0, got float nan",
        ),
        (
            lambda: CosineDecay(0.1, 10, alpha=2.0),
            "expected alpha to be a finite number of at least 0 and of at most 1, got float 2.0",
        ),
        (lambda: WarmUp(0.1, 0), "WarmUp: expected steps to be a whole number of at least 1"),
        (
            lambda: cosine_decay(0.1, tb.constant(1), 0),
            "expected decay_steps to be a finite number above 0, got int 0",
        ),
    ],
)
def test_what_is_no_schedule(make, words):
    with pytest.raises(InvalidArgumentError, match=words):
        make()


def test_a_global_step_of_floats(session):
    step = tb.get_variable("global_step", [], initializer=tb.constant_initializer(0), trainable=False)
    rate = tb.train.exponential_decay(1.0, step, 2, 0.5, staircase=True)
    weight = tb.Variable(0.0, name="weight")
    update = tb.train.GradientDescentOptimizer(rate).minimize(tb.identity(weight), step)
    session.run(tb.global_variables_initializer())
    found = []
    for _ in range(4):
        session.run(update)
        found.append(session.run([weight, step]))
    assert found == [[-1.0, 1.0], [-2.0, 2.0], [-2.5, 3.0], [-3.0, 4.0]]
