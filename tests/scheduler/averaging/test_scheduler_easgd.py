"""Elastic averaging SGD against a NumPy reference (Zhang, Choromanska, LeCun 2015, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Synchronisation, TrainingConfig
from scheduler.training.tuning.throughput_tuning import limit_before_memory
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.programs import CLASSES, FEATURES, logistic, well
from tests.scheduler_rig.reference import logistic_gradient, well_gradient
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, flat, poison, same_bits

ROUNDS = 20
BETA = 0.9
NAMES = ["w", "b"]
LAYOUTS = [(1, 1), (1, 2), (2, 1), (1, 3), (1, 4), (2, 2)]
DROPS = tb.train.PiecewiseConstant([6, 13], [0.4, 0.2, 0.1])


def elastic(
    start: Any,
    k: int,
    gradient: Callable[[Any, Any], Any],
    batch: Callable[[int, int], Any],
    rate: Callable[[int], float],
    *,
    tau: int = 1,
    alpha: float | None = None,
    momentum: float = 0.0,
) -> tuple[list[Any], Any]:
    """Equations 5 and 6, every tau rounds: the workers x_i and the centre z after all rounds."""
    moving_rate = BETA / k if alpha is None else alpha
    x, z = [start.astype(np.float64) for _ in range(k)], start.astype(np.float64)
    v = [np.zeros(start.shape) for _ in range(k)]
    for t in range(ROUNDS):
        springs = (t + 1) % tau == 0 and k > 1
        before = list(x)
        for i in range(k):
            v[i] = momentum * v[i] + gradient(x[i], batch(t, i))
            x[i] = x[i] - rate(t) * v[i] - (moving_rate * (before[i] - z) if springs else 0.0)
        if springs:
            z = z + moving_rate * np.sum([worker - z for worker in before], axis=0)
    return x, z if k > 1 else x[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tau", [1, 2, 3])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("devices", "per_device"), LAYOUTS)
def test_the_engine_is_the_paper_s_algorithm(
    devices: int, per_device: int, momentum: float, tau: int
) -> None:
    """With two drops of the rate, at which nothing restarts."""
    model, k = logistic(momentum=momentum, weight_decay=0.0), devices * per_device
    x, z = elastic(
        flat(model.initial, NAMES),
        k,
        logistic_gradient(FEATURES, CLASSES),
        model.batch,
        DROPS,
        tau=tau,
        momentum=momentum,
    )
    with engine_of(model, cpu_devices(devices), per_device, DROPS, sync="easgd", tau=tau) as engine:
        poison(engine)
        assert engine.learners.alpha == (pytest.approx(BETA / k) if k > 1 else 0)
        assert engine.run(Prepared(model.batch, k).open, 0, ROUNDS) == ROUNDS
        np.testing.assert_allclose(flat(engine.central_values(), NAMES), z, rtol=0, atol=1e-12)
        for index in range(k):
            have = flat(engine.learners.values.replica_values(index), NAMES)
            np.testing.assert_allclose(have, x[index], rtol=0, atol=1e-12)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tau", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_float32_and_a_moving_rate_of_one_s_own(k: int, tau: int) -> None:
    model = well(momentum=0.0)
    x, z = elastic(model.initial["w"], k, well_gradient, model.batch, lambda t: 0.1, tau=tau, alpha=0.07)
    with engine_of(model, cpu_devices(1), k, sync="easgd", tau=tau, alpha=0.07) as engine:
        engine.run(Prepared(model.batch, k).open, 0, ROUNDS)
        np.testing.assert_allclose(engine.central_values()["w"], z, rtol=1e-6, atol=1e-6)
        for index in range(k):
            have = engine.learners.values.replica_values(index)["w"]
            np.testing.assert_allclose(have, x[index], rtol=1e-6, atol=1e-6)


def test_it_is_sma_of_that_alpha_while_the_rate_does_not_jump() -> None:
    model, found = logistic(), []
    for sync in ("easgd", "sma"):
        options = {"sync": sync, "alpha": 0.2, "tau": 2, "staleness": 1}
        with engine_of(model, cpu_devices(1, delays=1), 3, **options) as engine:
            engine.run(Prepared(model.batch, 3).open, 0, 9)
            arrays = engine.learners.values.state_arrays()
            found.append({n: a for n, a in arrays.items() if not n.startswith("velocity/")})
    assert same_bits(*found)


@pytest.mark.slow
def test_a_checkpoint_goes_on_bit_for_bit_and_only_by_easgd() -> None:
    model = logistic(tb.float32)
    source = Prepared(model.batch, 2)
    with engine_of(model, cpu_devices(1), 2, DROPS, sync="easgd", tau=2) as engine:
        engine.run(source.open, 0, 7)
        saved = engine.learners.values.state_arrays()
        engine.run(source.open, 7, 15)
        whole = engine.learners.values.state_arrays()
    assert not any(name.startswith("velocity/") for name in saved)
    with engine_of(model, cpu_devices(1), 2, DROPS, sync="easgd", tau=2) as engine:
        engine.learners.values.load_state_arrays(saved)
        engine.run(source.open, 7, 15)
        assert same_bits(engine.learners.values.state_arrays(), whole)
    for sync, message in (("sma", "missing velocity/b"), ("none", "unexpected central0/b")):
        with (
            engine_of(model, cpu_devices(1), 2, sync=sync, tau=2) as engine,
            pytest.raises(InvalidArgumentError, match=f"{message}.*with the options it was written with"),
        ):
            engine.learners.values.load_state_arrays(saved)
    with engine_of(model, cpu_devices(1), 2, sync="sma", tau=2) as engine:
        of_sma = engine.learners.values.state_arrays()
    with (
        engine_of(model, cpu_devices(1), 2, sync="easgd", tau=2) as engine,
        pytest.raises(InvalidArgumentError, match="unexpected velocity/b"),
    ):
        engine.learners.values.load_state_arrays(of_sma)


def test_a_restart_on_request() -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 3, sync="easgd", tau=2) as engine:
        engine.run(Prepared(model.batch, 3).open, 0, 5)
        z = engine.central_values()
        assert np.any(engine.learners.values.replica_values(1)["w"] != z["w"])
        engine.restart(5)
        for index in range(3):
            assert np.array_equal(engine.learners.values.replica_values(index)["w"], z["w"])


# Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mu": 0.5}, "mu: expected 0 with sync 'easgd', whose z has no momentum, got 0.5; leave it out, or"),
        ({"ssgd_from": 3}, "ssgd_from: expected sync 'sma', which ssgd follows, got 'easgd'"),
    ],
)
def test_options_that_do_not_go_with_it(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Synchronisation("easgd", **options)
    with pytest.raises(InvalidArgumentError, match=message):
        tb.MultiGpuReplicator(["/cpu:0"], 2, sync="easgd", **options)


@pytest.mark.parametrize("k", [2, 3, 8])
def test_the_bound_of_the_moving_rate(k: int) -> None:
    edge = 2 / (k + 1)
    assert Synchronisation("easgd").alpha_for(k) == pytest.approx(BETA / k)
    assert Synchronisation("easgd", alpha=edge * 0.99).alpha_for(k) < edge
    with pytest.raises(InvalidArgumentError, match=rf"alpha: .* < {edge:.4g} for {k} .* is {BETA / k:.4g}"):
        Synchronisation("easgd", alpha=edge).alpha_for(k)
    for staleness in (1, 3):
        assert 0 < Synchronisation("easgd", staleness=staleness).alpha_for(k) <= BETA / k


def test_a_given_moving_rate_limits_the_auto_tuner() -> None:
    config = TrainingConfig(sync="easgd", alpha=0.3, replicas_per_device="auto")
    assert limit_before_memory(config, 1000, 16) == (5, "alpha is 0.3")  # 2 / (k + 1) > 0.3


@pytest.mark.slow
def test_a_tensorbow_session_and_a_replicator() -> None:
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [None, 3])
        w = tb.Variable(np.zeros(3, np.float32), name="w")
        train = tb.train.GradientDescentOptimizer(0.5).minimize(tb.reduce_mean(tb.square(w - x)))
        init = tb.global_variables_initializer()
    options = Synchronisation("easgd", tau=2)
    with tb.TensorBowSession(graph=graph, replicas_per_device=2, synchronisation=options) as session:
        session.run(init)
        for _ in range(60):
            session.run(train, {x: np.ones((4, 3), np.float32)})
        np.testing.assert_allclose(session.run(w), 1.0, atol=0.05)

    def step_fn() -> Any:
        weight = tb.Variable(np.float32(0.0), name="weight")
        loss = tb.square(weight - 1.0)
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    replicator = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], 2, sync="easgd", tau=2)
    with replicator.context():
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
    losses = [values.mean() for values in replicator.train(step_fn, steps=40)]
    assert losses[-1] < 0.01 * losses[0]
