"""Replicas that nothing keeps together: each may end alone, and have step scalars of its own."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from scheduler import DatasetBatches, LearningEngine, StepProgram, Synchronisation
from tensorbow.errors import InvalidArgumentError

ROUNDS, TOO_MUCH = 24, 3e38


def engine_of(replicas, steps, on_nan="freeze", device="/cpu:0", sync="none"):
    data, _ = tb.data.load("synthetic")
    with tb.Graph().as_default():
        tb.set_random_seed(3)
        images = tb.placeholder(tb.float32, [None, *data.image_shape])
        labels = tb.placeholder(tb.int64, [None])
        outputs = tb.models.get_model("logreg")(images, labels, training=True, classes=data.classes)
        update = tb.train.MomentumOptimizer(0.05, 0.9).minimize(outputs.loss)
        program = StepProgram((images, labels), outputs.loss, update)
    options = {"steps_per_launch": steps, "on_nan": on_nan}
    engine = LearningEngine(program, 8, [device], replicas, Synchronisation(sync), **options)
    source = DatasetBatches(data, 8, replicas, 0, steps_per_launch=steps)
    source.keep_on_devices(engine.learners)
    engine.initialize()
    return engine, source


def trained(rates, steps, pieces=(ROUNDS,)):
    """Losses `[rounds, replicas]`, values of all replicas and the frozen ones."""
    engine, source = engine_of(len(rates), steps)
    losses = []
    with engine:
        for replica, rate in zip(engine.learners.replicas, rates, strict=True):
            replica.set_state({"learning_rate": rate})
        start = 0
        for stop in pieces:
            engine.run(source.open, start, stop, lambda results: losses.extend(results.losses))
            start = stop
        values = [engine.learners.values.replica_values(number) for number in range(len(rates))]
        return np.array(losses).reshape(-1, len(rates)), values, engine.frozen


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("pieces", [(ROUNDS,), (9, ROUNDS)], ids=["one run", "two runs"])
def test_a_replica_that_diverges_ends_alone(kernels, steps, pieces):
    if kernels == "reference" and steps > 1:
        pytest.skip("the reference launches one round at a time")
    losses, values, frozen = trained([0.05, TOO_MUCH, 0.03], steps, pieces)
    assert [*frozen] == [1]
    assert np.isfinite(losses[:, [0, 2]]).all()
    assert losses.shape == (ROUNDS, 3)
    _, sound, none = trained([0.05, 1e-9, 0.03], steps)
    assert not none
    for number in (0, 2):
        for name, value in sound[number].items():
            np.testing.assert_array_equal(values[number][name], value)
    # What the replica wrote last is what it has written before the step that is not finite.
    _, before, _ = trained([0.05, TOO_MUCH, 0.03], 1, (frozen[1],))
    for name, value in before[1].items():
        np.testing.assert_array_equal(values[1][name], value)


@pytest.mark.slow
def test_freezing_is_for_replicas_that_never_meet():
    with pytest.raises(InvalidArgumentError, match="on_nan: expected stop or skip where replicas meet"):
        engine_of(2, 1, sync="sma")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("steps", [1, 7])
def test_frozen_replicas_wait_until_they_are_thawed(kernels, steps):
    if kernels == "reference" and steps > 1:
        pytest.skip("the reference launches one round at a time")
    engine, source = engine_of(2, steps)
    with engine:
        first = engine.learners.values.replica_values(1)
        engine.freeze({1: 0})
        engine.run(source.open, 0, ROUNDS)
        frozen = engine.learners.values.replica_values(1)
        engine.freeze({})
        engine.run(source.open, ROUNDS, 2 * ROUNDS)
        thawed = engine.learners.values.replica_values(1)
    assert all(np.array_equal(frozen[name], value) for name, value in first.items())
    assert not any(np.array_equal(thawed[name], value) for name, value in first.items())


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 7])
def test_step_scalars_by_replica_and_round(kernels, steps):
    if kernels == "reference" and steps > 1:
        pytest.skip("the reference launches one round at a time")

    def rate(replica, round):
        return 0.01 * (replica + 1) / (1 + round)

    engine, source = engine_of(3, steps)
    with engine:
        engine.outcomes.own_states = lambda rounds: {
            "learning_rate": [[rate(replica, round) for round in rounds] for replica in range(3)]
        }
        engine.run(source.open, 0, ROUNDS)
        together = [engine.learners.values.replica_values(number) for number in range(3)]
    engine, source = engine_of(3, 1)
    with engine:
        for round in range(ROUNDS):
            for number, replica in enumerate(engine.learners.replicas):
                replica.set_state({"learning_rate": rate(number, round)})
            engine.run(source.open, round, round + 1)
        for number, values in enumerate(together):
            for name, value in engine.learners.values.replica_values(number).items():
                np.testing.assert_array_equal(values[name], value)
