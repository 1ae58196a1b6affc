"""The moving average of z under Replicators and in a TensorBowSession."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError

START, FRESH = np.array([3, 1], np.float32), np.float32(1 - 0.9)
KINDS = ["one", "sma", "ssgd"]


class Program:
    """An evaluation, initialised first, and a training step behind it."""

    def __init__(self, kind):
        if kind == "one":
            self.replicator = tb.NonReplicator(ema=0.9)
        else:
            self.replicator = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], (2, 1), sync=kind, ema=0.9)
        with self.replicator.context():
            w = tb.Variable(START, name="w")
            optimizer = tb.train.GradientDescentOptimizer(tb.constant(0.1))
            optimizer = self.replicator.wrap_optimizer(optimizer)

        def step_fn(x):
            return optimizer.minimize(tb.reduce_mean(tb.square(w - x)))

        self.graph = tb.Graph()
        with self.graph.as_default():
            self.evaluate = self.replicator.run(lambda: tb.reduce_sum(w))
            self.replicator.init()
            self.train = self.replicator.run(step_fn, lambda replica_id: np.float32([replica_id, 2]))
            self.session = tb.Session()

    def step(self):
        self.session.run(self.train)
        return self.replicator.central_values()["w"]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.session.close()
        self.replicator.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_average_follows_training_steps_alone(kind):
    average = START.copy()
    with Program(kind) as program:
        assert program.replicator.ema_values()["w"].tolist() == START.tolist()
        for _ in range(4):
            average += (program.step() - average) * FRESH
            program.session.run(program.evaluate)
            assert program.replicator.ema_values()["w"].tobytes() == average.tobytes()
        assert not np.array_equal(average, program.replicator.central_values()["w"])
    assert program.replicator.ema_values()["w"].tobytes() == average.tobytes()
    assert program.replicator.ema_values().keys() == program.replicator.central_values().keys()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_saved_and_restored(kind, tmp_path):
    with Program(kind) as program:
        program.step()
        program.replicator.save(tmp_path / "state")
        program.step()
        expected = program.replicator.ema_values()["w"]
    with Program(kind) as program:
        program.replicator.restore(tmp_path / "state")
        program.step()
        assert program.replicator.ema_values()["w"].tobytes() == expected.tobytes()


@pytest.mark.slow
def test_assigned_weights_are_where_the_average_goes_on():
    with Program("sma") as program:
        program.step()
        program.replicator.load_variables({"w": [5, 6]})
        assert program.replicator.ema_values()["w"].tolist() == [5, 6]


def test_what_has_no_average_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"expected a central model .* got sync 'none' with 2"):
        tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none", ema=0.9)
    replicator = tb.MultiGpuReplicator(["/cpu:0"], 2)
    with pytest.raises(FailedPreconditionError, match="no moving average of z; give ema="):
        replicator.ema_values()
    with pytest.raises(FailedPreconditionError, match="ema_values: there are no values before init"):
        tb.MultiGpuReplicator(["/cpu:0"], 2, ema=0.9).ema_values()


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_session_of_replicas_keeps_one(replicas):
    options = {"replicas_per_device": replicas, "synchronisation": tb.Synchronisation(ema=0.9)}
    with tb.Graph().as_default():
        w = tb.Variable(START, name="w")
        train = tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_mean(tb.square(w)))
        with tb.Session("tensorbow", **options) as session:
            session.run(tb.global_variables_initializer())
            with pytest.raises(FailedPreconditionError, match="none before the first learning run"):
                session.ema_values()
            average = START.copy()
            for _ in range(3):
                session.run(train)
                average += (session.run(w) - average) * FRESH
            assert session.ema_values()["w"].tobytes() == average.tobytes()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kind", "devices"), [("sma", 4), ("ssgd", 4), ("none", 2)])
def test_replicas_with_several_parts_have_both(kind, devices):
    devices = [f"/cpu:{number}" for number in range(devices)]
    with tb.MultiGpuReplicator(devices, num_gpus_per_replica=2, sync=kind, ema=0.9) as replicator:
        with replicator.context():
            optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))
            with replicator.logical_device(0):
                a = tb.Variable(START, name="a")
                on_read = tb.VariableSynchronization.ON_READ
                count = tb.Variable(0.0, synchronization=on_read, aggregation=tb.VariableAggregation.SUM)
            with replicator.logical_device(1):
                b = tb.Variable(np.float32([2, 5, 1]), name="b")
                twice = count * 2.0

        def step_fn(x):
            with replicator.logical_device(0):
                first, counted = tb.reduce_sum(tb.square(a - x)), count.assign_add(1.0)
            with replicator.logical_device(1):
                loss = first + tb.reduce_sum(tb.square(b))
            return optimizer.minimize(loss), counted

        average = {"a": START.copy(), "b": np.float32([2, 5, 1])}
        for _ in replicator.train(step_fn, lambda replica_id: np.float32([replica_id, 2]), 3):
            z = replicator.central_values()
            for name, value in average.items():
                value += (z[name] - value) * FRESH
                assert replicator.ema_values()[name].tobytes() == value.tobytes()
        total = 3 * replicator.num_replicas
        assert replicator.read([count, twice]) == [total, 2 * total]
