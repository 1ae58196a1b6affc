"""A finite loss can have gradients that are not: nothing is written then, and the step is named."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from scheduler.engine.outcomes import HOPELESS
from tensorbow.errors import NumericsError
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, same_bits


def steep(bad: dict[tuple[int, int], float]) -> Model:
    """loss = sum(sqrt(|w - x|)): finite everywhere, its gradient infinite where w = x."""
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [4], name="x")
        w = tb.Variable(np.zeros(4, np.float32), name="w")
        b = tb.Variable(np.zeros((2, 3), np.float32), name="b")
        loss = tb.reduce_sum(tb.sqrt(tb.abs(w - x)), name="loss") + tb.reduce_sum(b)
        update = tb.train.MomentumOptimizer(1e-3, 0.9).minimize(loss)

    def batch(round: int, replica: int):
        return (np.full(4, bad.get((round, replica), 5.0), np.float32),)

    initial = {"w": np.zeros(4, np.float32), "b": np.zeros((2, 3), np.float32)}
    return Model(StepProgram((x,), loss, update), [tb.TensorSpec((4,), tb.float32)], initial, batch)


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["none", "sma"])
def test_it_stops_and_names_the_gradient(sync):
    model = steep({(0, 1): 0.0})
    with engine_of(model, cpu_devices(1), 2, sync=sync) as engine:
        named = r"a gradient of replica 1 is not finite at step 0; first NaN .* result: \w+ gradients/"
        with pytest.raises(NumericsError, match=named):
            engine.run(Prepared(model.batch, 2).open, 0, 6)
        assert same_bits({"w": engine.learners.values.replica_values(1)["w"]}, {"w": model.initial["w"]})
        assert all(np.isfinite(value).all() for value in engine.learners.values.state_arrays().values())


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "optimizer",
    [
        tb.train.GradientDescentOptimizer(0.1),
        tb.train.MomentumOptimizer(0.1, 0.9),
        tb.train.RMSPropOptimizer(0.1),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_rows_of_sparse_gradients_are_checked_too(optimizer):
    graph = tb.Graph()
    with graph.as_default():
        index = tb.placeholder(tb.int32, [None])
        factor = tb.placeholder(tb.float32, [None, 3])
        table = tb.Variable(np.ones((5, 3), np.float32), name="table")
        loss = tb.reduce_sum(tb.sqrt(tb.gather(table, index) * factor))  # infinite slope at 0, times 0
        update = optimizer.minimize(loss)
        initializer = tb.global_variables_initializer()
    with tb.TensorBowSession(graph=graph, replicas_per_device=2) as session:
        session.run(initializer)
        feeds = {index: np.arange(4), factor: np.zeros((4, 3), np.float32)}
        for fetches in (update, [loss, update]):  # with a loss to look at, and without
            with pytest.raises(NumericsError, match=r"first NaN or infinite result: .*RealDiv gradients/"):
                session.run(fetches, feeds)
        feeds[factor] = np.ones((4, 3), np.float32)
        session.run(update, feeds)
        assert np.isfinite(session.run(table)).all()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", ["sma", "ssgd"])
def test_empty_variables_hide_no_gradient(sync):
    """Their gradients begin where those of the variables behind them do."""
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [4], name="x")
        empty = [tb.Variable(np.zeros((0, 3), np.float32)) for _ in range(2)]
        w = tb.Variable(np.zeros(4, np.float32), name="w")
        loss = tb.reduce_sum(tb.sqrt(tb.abs(w - x))) + tb.reduce_sum(tb.square(tb.concat(empty, 0)))
        optimizer = tb.train.GradientDescentOptimizer(0.1)
        update = optimizer.apply_gradients(optimizer.compute_gradients(loss, [empty[0], w, empty[1]]))
        initializer = tb.global_variables_initializer()
    options = {"replicas_per_device": 2, "synchronisation": tb.Synchronisation(sync)}
    with tb.TensorBowSession(graph=graph, **options) as session:
        session.run(initializer)
        with (
            pytest.warns(UserWarning, match="all 2 replicas get the same copy"),
            pytest.raises(NumericsError, match="a gradient of replica 0 is not finite"),
        ):
            session.run([loss, update], {x: np.zeros(4, np.float32)})
        np.testing.assert_array_equal(session.run(w), np.zeros(4))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{}, {"tau": 2}, {"sync": "ssgd"}, {"sync": "none"}])
def test_skipping_goes_on_with_finite_weights(options):
    model = steep({(0, 0): 0.0, (0, 1): 0.0})
    with engine_of(model, cpu_devices(1), 2, on_nan="skip", **options) as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 6)
        assert engine.skipped_updates == 2
        assert all(np.isfinite(value).all() for value in engine.learners.values.state_arrays().values())
        assert (engine.learners.values.replica_values(0)["w"] > 0).all()  # it has learned since


def test_skipping_is_not_for_ever():
    model = steep({(round, 1): 0.0 for round in range(2 * HOPELESS)})
    with (
        engine_of(model, cpu_devices(1), 2, on_nan="skip", sync="none") as engine,
        pytest.raises(NumericsError, match=rf"for {HOPELESS} steps in a row a gradient of replica 1"),
    ):
        engine.run(Prepared(model.batch, 2).open, 0, 2 * HOPELESS)


def test_large_finite_gradients_are_no_reason_to_stop():
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [4], name="x")
        w = tb.Variable(np.zeros(4, np.float32), name="w")
        loss = tb.reduce_sum(w * x)
        update = tb.train.GradientDescentOptimizer(1e-25).minimize(loss)
    program = StepProgram((x,), loss, update)
    with tb.LearningEngine(program, [tb.TensorSpec((4,), tb.float32)], replicas_per_device=1) as engine:
        engine.initialize({"w": np.zeros(4, np.float32)})
        source = Prepared(lambda round, replica: (np.full(4, 1e25, np.float32),), 1)  # squared: infinite
        engine.run(source.open, 0, 1)
        np.testing.assert_allclose(engine.learners.values.replica_values(0)["w"], np.full(4, -1.0), rtol=1e-5)
