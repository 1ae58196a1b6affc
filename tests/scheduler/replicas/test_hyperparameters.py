"""Hyper-parameters that workers compare: each number of an optimiser shows, and a replica's own do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from scheduler.replicas.hyperparameters import hyperparameters, of_schedule
from tensorbow.ops.exchanges import ReplicaId

MAKERS: list[tuple[Callable[[float], Any], list[str]]] = [
    (lambda n: tb.train.GradientDescentOptimizer(n), ["learning_rate=0.25", "learning_rate=0.5"]),
    (lambda n: tb.train.MomentumOptimizer(0.1, n), ["momentum=0.25 of ApplyMomentum of w"]),
    (lambda n: tb.train.MomentumOptimizer(0.1, 0.9, weight_decay=n), ["weight_decay=0.25 of Apply"]),
    (lambda n: tb.train.AdamOptimizer(0.1, beta1=n), ["beta1=0.25 of ApplyAdam of w"]),
    (lambda n: tb.train.AdamOptimizer(0.1, epsilon=n), ["epsilon=0.25 of ApplyAdam of w"]),
    (lambda n: tb.train.RMSPropOptimizer(0.1, decay=n), ["rho=0.25 of ApplyRMSProp of w"]),
    (
        lambda n: tb.train.GradientDescentOptimizer(
            tb.train.exponential_decay(0.1, tb.train.get_or_create_global_step(), 100, n)
        ),
        ["learning_rate=0.25 of ApplyGradientDescent of w"],
    ),
    (
        lambda n: tb.train.MomentumOptimizer(tb.train.PiecewiseConstant([int(8 * n)], [0.1, 0.01]), 0.9),
        ["learning_rate=2 of ApplyMomentum of w", "learning_rate=0.01 of ApplyMomentum of w"],
    ),
]


def found(optimizer: Callable[[], Any], scale: Any = 1.0, rows: bool = False) -> list[str]:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.int32, [3], name="x")
        w = tb.Variable(np.ones((5, 2), np.float32), name="w")
        loss = tb.reduce_sum(tb.square(tb.gather(w, x) if rows else w)) * scale
        return hyperparameters(StepProgram((x,), loss, optimizer().minimize(loss), {})._operations)


@pytest.mark.parametrize(("make", "named"), MAKERS)
def test_each_number_of_an_optimiser_shows_and_those_of_the_loss_do_not(make, named):
    one, other = found(lambda: make(0.25)), found(lambda: make(0.5))
    assert any(text.startswith(named[0]) for text in one), one
    assert all(any(text.startswith(each) for text in one + other) for each in named)
    assert one != other
    assert len(one) == len(other)
    assert one == found(lambda: make(0.25), scale=3.0)


def test_updates_of_rows_show_theirs():
    assert "momentum=0.25 of SparseApplyMomentum of w" in found(
        lambda: tb.train.MomentumOptimizer(0.1, 0.25), rows=True
    )
    assert "learning_rate=0.25" in found(lambda: tb.train.GradientDescentOptimizer(0.25), rows=True)


def test_a_rate_by_the_replicas_number_is_no_difference():
    def rate_of(first: float) -> Any:
        rates = tb.stack([tb.constant(0.1), tb.constant(0.2)])
        return tb.gather(rates, ReplicaId(name="id")) * first

    one, other = (
        found(lambda f=first: tb.train.GradientDescentOptimizer(rate_of(f))) for first in (1.0, 3.0)
    )
    assert [text for text in one if text not in other] == ["learning_rate=1.0 of ApplyGradientDescent of w"]
    assert {f"learning_rate={n} of ApplyGradientDescent of w" for n in (0.1, 0.2)} <= {*one}


def test_an_engines_schedule_shows_its_numbers():
    class Warm(tb.train.PiecewiseConstant):
        def __init__(self) -> None:
            super().__init__([3], [0.5, 0.25])
            self._inner, self.name, self.owner = tb.train.Constant(2.0), "x", object()

    assert of_schedule(None) == []
    assert of_schedule(Warm()) == [
        "learning rate 0.5 at round 0, by Warm",
        "learning rate 2 at round 0, by Constant",
        "rate=2.0 of the Constant",
        "boundaries=[3] of the Warm",
        "values=[0.5, 0.25] of the Warm",
    ]
