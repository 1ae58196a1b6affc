"""Every optimiser under averaging and on the mean gradient; slots that are cleared start as they began."""

import numpy as np
import pytest

import tensorbow as tb
from scheduler import ReadyBatch
from tensorbow.optimizers import Optimizer

RANDOM = np.random.default_rng(11)
FEEDS = RANDOM.normal(size=(4, 2, 6, 3))  # [round, replica, batch, features]
START = RANDOM.normal(size=(3, 2))
OPTIMIZERS = {
    "momentum": lambda: tb.train.MomentumOptimizer(0.05, 0.9, weight_decay=0.01),
    "nesterov": lambda: tb.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "adagrad": lambda: tb.train.AdagradOptimizer(0.1),
    "adadelta": lambda: tb.train.AdadeltaOptimizer(0.5, epsilon=1e-4),
    "rmsprop": lambda: tb.train.RMSPropOptimizer(0.05, momentum=0.5),
    "centered": lambda: tb.train.RMSPropOptimizer(0.05, momentum=0.5, centered=True),
    "ftrl": lambda: tb.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adam": lambda: tb.train.AdamOptimizer(0.05, weight_decay=0.01),
}


class Given:
    """Batches that are all there at once."""

    def __init__(self, feeds):
        self.feeds = feeds

    def open(self, start, stop, on_ready, on_error):
        for round in range(start, stop):
            for replica, feed in enumerate(self.feeds[round]):
                on_ready(ReadyBatch(replica, round, (feed,), lambda: None))
        return self

    def close(self):
        """Nothing to end."""


def program_of(optimizer: Optimizer):
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float64, [None, 3], name="x")
        w = tb.Variable(START, name="w")
        loss = tb.reduce_mean(tb.square(tb.matmul(x, w) - tb.reduce_sum(x, 1, keepdims=True)))
        return tb.StepProgram((x,), loss, optimizer.minimize(loss))


def trained(make, feeds, sync, **options):
    batch = feeds.shape[2]
    synchronisation = tb.Synchronisation(sync, **options)
    with tb.LearningEngine(
        program_of(make()), batch, replicas_per_device=feeds.shape[1], synchronisation=synchronisation
    ) as engine:
        engine.initialize()
        engine.run(Given(feeds).open, 0, len(feeds))
        return engine.central_values()["w"]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_mean_gradient_of_small_batches_is_that_of_a_large_one(name):
    small = trained(OPTIMIZERS[name], FEEDS, "ssgd")
    large = trained(OPTIMIZERS[name], FEEDS.reshape(4, 1, 12, 3), "none")
    np.testing.assert_allclose(small, large, rtol=1e-10)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_replica_is_the_plain_session_bit_for_bit(name):
    feeds = FEEDS[:, :1]
    program = program_of(OPTIMIZERS[name]())
    with program.graph.as_default(), tb.Session() as session:
        session.run(tb.global_variables_initializer())
        for feed in feeds:
            session.run(program.update, {program.inputs[0]: feed[0]})
        expected = session.run(tb.trainable_variables()[0])
    np.testing.assert_array_equal(trained(OPTIMIZERS[name], feeds, "sma"), expected)


@pytest.mark.slow
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.25])
def test_momentum_at_a_changing_rate_keeps_the_plain_sessions_bits(nesterov, decay):
    rates, feeds = (0.5, 0.03, 2.0, 0.1), FEEDS[:, :1]
    schedule = tb.train.PiecewiseConstant([0, 1, 2], rates)

    def program(rate):
        return program_of(tb.train.MomentumOptimizer(rate, 0.9, use_nesterov=nesterov, weight_decay=decay))

    with tb.LearningEngine(program(0.5), 6, replicas_per_device=1, schedule=schedule) as engine:
        engine.initialize()
        engine.run(Given(feeds).open, 0, len(feeds))
        inside = engine.learners.values.replica_values(0)
    alone = program(schedule)
    with tb.Session(graph=alone.graph) as session:
        session.run(tb.variables_initializer(alone.graph.get_collection("variables")))
        for (feed,) in feeds:
            session.run(alone.update, {alone.inputs[0]: feed})
        for name in ("w", "w/Momentum"):
            np.testing.assert_array_equal(inside[name], session.run(f"{name}:0"))
    w, v = START, np.zeros_like(START)
    for rate, (feed,) in zip(rates, feeds, strict=True):
        error = feed @ w - feed.sum(1, keepdims=True)
        g = 2 * feed.T @ error / error.size + decay * w
        v = 0.9 * v + g
        w = w - rate * (0.9 * v + g if nesterov else v)
    np.testing.assert_allclose(inside["w"], w, rtol=1e-12)
    np.testing.assert_allclose(inside["w/Momentum"], v, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_averaging_pulls_by_the_weights_of_before_the_update(name):
    """z of one round: z + sum of alpha (w - z) with w = z leaves z where it is; the second moves it."""
    np.testing.assert_array_equal(trained(OPTIMIZERS[name], FEEDS[:1], "sma"), START)
    alone = [trained(OPTIMIZERS[name], FEEDS[:1, i : i + 1], "none") for i in range(2)]
    np.testing.assert_allclose(trained(OPTIMIZERS[name], FEEDS[:2], "sma"), np.mean(alone, 0), rtol=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_that_are_cleared_start_as_they_began(name):
    options = tb.Synchronisation("sma", clear_velocity=True)
    program = program_of(OPTIMIZERS[name]())
    initial = program.initial_values()
    with tb.LearningEngine(program, 6, replicas_per_device=2, synchronisation=options) as engine:
        engine.initialize({"w": START})
        first = engine.learners.values.replica_values(0)
        engine.run(Given(FEEDS).open, 0, 3)
        moved = engine.learners.values.replica_values(1)
        engine.restart(3)
        cleared = engine.learners.values.replica_values(1)
    slots = sorted(initial.keys() - {"w"})
    assert slots
    for slot in slots:
        np.testing.assert_array_equal(first[slot], initial[slot])
        assert not np.array_equal(moved[slot], initial[slot])
        np.testing.assert_array_equal(cleared[slot], initial[slot])


@pytest.mark.slow
def test_the_switch_to_the_mean_gradient_starts_adam_anew():
    """From z, with powers and means as at the beginning."""
    make = OPTIMIZERS["adam"]
    switched = trained(make, FEEDS, "sma", ssgd_from=2)
    program = program_of(make())
    options = tb.Synchronisation("ssgd")
    with tb.LearningEngine(program, 6, replicas_per_device=2, synchronisation=options) as engine:
        engine.initialize({"w": trained(make, FEEDS[:2], "sma")})
        engine.run(Given(FEEDS[2:]).open, 0, 2)
        expected = engine.central_values()["w"]
    np.testing.assert_allclose(switched, expected, rtol=1e-12)
