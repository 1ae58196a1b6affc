"""Learning-rate schedules: TensorFlow's piecewise rule on the host and in a graph, restarts, scaling."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.optimizers import as_schedule
from tensorbow.train import Constant, PiecewiseConstant, piecewise_constant

pytestmark = pytest.mark.usefixtures("session")


def test_piecewise_is_tensorflows_rule_on_both_sides(session):
    """values[0] for x <= boundaries[0], values[i] for boundaries[i-1] < x <= boundaries[i]."""
    schedule = PiecewiseConstant([100, 200], [1.0, 0.5, 0.1])
    expected = {0: 1.0, 99: 1.0, 100: 1.0, 101: 0.5, 200: 0.5, 201: 0.1, 10**6: 0.1}
    step = tb.placeholder(tb.int64, [])
    inside = schedule.tensor(step, tb.float64)
    function = piecewise_constant(step, [100, 200], [1.0, 0.5, 0.1])
    for number, rate in expected.items():
        assert schedule(number) == rate
        assert session.run(inside, {step: number}) == rate
        assert session.run(function, {step: number}) == np.float32(rate)


def test_the_function_takes_float_steps_and_any_values(session):
    x = tb.placeholder(tb.float32, [])
    y = piecewise_constant(x, [0.5, 1.5], [0.0, -1.0, 2.0])
    assert [session.run(y, {x: v}) for v in (0.5, 0.6, 1.5, 1.75)] == [0.0, -1.0, -1.0, 2.0]
    steps = tb.Variable(0, name="steps")
    rate = piecewise_constant(steps, [1], [0.5, 0.25])
    session.run(steps.initializer)
    rates = []
    for _ in range(3):
        rates.append(session.run(rate))
        session.run(steps.assign_add(1))
    assert rates == [0.5, 0.5, 0.25]


def test_restarts_come_with_new_rates():
    schedule = PiecewiseConstant([2, 5], [1.0, 0.5, 0.1])
    assert [step for step in range(10) if schedule.restarts(step)] == [3, 6]
    for step in range(1, 10):
        assert schedule.restarts(step) == (schedule(step) != schedule(step - 1))
    assert not any(Constant(0.1).restarts(step) for step in range(10))


def test_scaling():
    schedule = PiecewiseConstant([2], [1.0, 0.5]).scaled(0.5)
    assert [schedule(step) for step in (2, 3)] == [0.5, 0.25]
    assert schedule.restarts(3)
    assert Constant(0.1).scaled(3.0)(17) == pytest.approx(0.3)


def test_a_number_is_a_constant_schedule(session):
    schedule = as_schedule(0.25)
    assert isinstance(schedule, Constant)
    assert as_schedule(schedule) is schedule
    assert session.run(schedule.tensor(tb.constant(3), tb.float32)) == 0.25


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PiecewiseConstant([1, 2], [1.0, 2.0]), "2 boundaries need 3 values, got 2"),
        (lambda: PiecewiseConstant([2, 2], [1.0, 2.0, 3.0]), r"boundaries must rise, got \[2, 2\]"),
        (
            lambda: PiecewiseConstant([2], [1.0, 0.0]),
            "expected values to be a list of positive finite numbers",
        ),
        (
            lambda: PiecewiseConstant([2], [1.0, float("nan")]),
            "expected values to be a list of positive finite numbers",
        ),
        (lambda: Constant(0.0), "Constant: expected rate to be a finite number above 0, got float 0.0"),
        (lambda: piecewise_constant(tb.constant(1), [1], [1.0]), "1 boundaries need 2 values"),
    ],
)
def test_what_is_no_schedule(make, words):
    with pytest.raises(InvalidArgumentError, match=words):
        make()
