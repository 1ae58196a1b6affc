"""Two losses and two optimisers in a step: which gradients are averaged, and checked before writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from tensorbow.errors import NumericsError
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of

SIZE, ROUNDS, RATE = 3, 4, np.float32(0.1)


def own(round: int, replica: int) -> Any:
    return np.random.default_rng((3, round, replica)).uniform(1, 2, SIZE).astype(np.float32)


def adversaries(sees_update: bool, bad: bool = False) -> Model:
    """`a` and `b` have losses and optimisers of their own; the gradient of `b` may read the updated `a`.

    bad: the gradient of `b` is NaN in round 2 of replica 1.
    """
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [SIZE], name="x")
        a = tb.Variable(np.ones(SIZE, np.float32), name="a")
        b = tb.Variable(np.ones(SIZE, np.float32), name="b")
        first = tb.reduce_sum(a * tb.abs(x))
        update = tb.train.GradientDescentOptimizer(RATE).minimize(first, var_list=[a])
        with tb.control_dependencies([update] if sees_update else []):
            read = a.read_value() if sees_update else tb.constant(1.0)
            second = tb.reduce_sum(tb.sqrt(x) * b * read)
        other = tb.train.GradientDescentOptimizer(RATE).minimize(second, var_list=[b])

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        value = own(round, replica)
        return (-value if bad and (round, replica) == (2, 1) else value,)

    initial = {"a": np.ones(SIZE, np.float32), "b": np.ones(SIZE, np.float32)}
    return Model(StepProgram((x,), first, tb.group(update, other), {}), [x.spec], initial, batch)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sees_update", [False, True])
@pytest.mark.parametrize(("devices", "per_device"), [(1, 3), (2, 1)])
def test_both_gradients_are_averaged(sees_update: bool, devices: int, per_device: int) -> None:
    model, count = adversaries(sees_update), devices * per_device
    with engine_of(model, cpu_devices(devices), per_device, tb.train.Constant(RATE), sync="ssgd") as engine:
        engine.run(Prepared(model.batch, count).open, 0, ROUNDS)
        assert len(engine.learners.replicas[0].step.exchange_segments) == 1 + sees_update
        states = [engine.learners.values.replica_values(replica) for replica in range(count)]
    a, b = (model.initial[name] for name in "ab")
    for round in range(ROUNDS):
        inputs = [own(round, replica) for replica in range(count)]
        a = a - RATE * np.mean(inputs, axis=0)
        b = b - RATE * np.mean([np.sqrt(x) * (a if sees_update else 1) for x in inputs], axis=0)
    for state in states:
        np.testing.assert_allclose(state["a"], a, rtol=1e-5)
        np.testing.assert_allclose(state["b"], b, rtol=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sees_update", [False, True])
@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
def test_a_bad_second_gradient(sees_update: bool, sync: str) -> None:
    """Nothing is written where it can be checked before; else the error does not say so."""
    model = adversaries(sees_update, bad=True)
    with engine_of(model, cpu_devices(1), 2, tb.train.Constant(RATE), sync=sync) as engine:
        with pytest.raises(
            NumericsError, match=r"a gradient of replica \d is not finite at step 2"
        ) as caught:
            engine.run(Prepared(model.batch, 2).open, 0, ROUNDS)
        after = engine.learners.values.replica_values(1)
        said = "no variable was written by that step" in str(caught.value)
        assert said is not sees_update
    with engine_of(model, cpu_devices(1), 2, tb.train.Constant(RATE), sync=sync) as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 2)
        before = engine.learners.values.replica_values(1)
    if not (sees_update and sync == "sma"):  # there b is averaged, without a step
        assert np.array_equal(after["b"], before["b"])
    if not sees_update:
        assert np.array_equal(after["a"], before["a"])


def test_corrections_that_z_gets_are_subtracted_though_a_late_gradient_is_bad() -> None:
    """With alpha = 1 / 2, z after the averaging is the mean of what the replicas were before their update."""
    model = adversaries(sees_update=True, bad=True)
    with engine_of(model, cpu_devices(1), 2, tb.train.Constant(RATE), on_nan="skip") as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 2)
        before = engine.learners.values.state_arrays()
        engine.run(Prepared(model.batch, 2).open, 2, 3)
        after = engine.learners.values.state_arrays()
    moved = after["central0/a"] - before["central0/a"]
    updates = [RATE * own(2, replica) for replica in range(2)]
    changed = [before[f"replica{i}/a"] - updates[i] - after[f"replica{i}/a"] for i in range(2)]
    np.testing.assert_allclose(moved, sum(changed), rtol=1e-4, atol=1e-6)
