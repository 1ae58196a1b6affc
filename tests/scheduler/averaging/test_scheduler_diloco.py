"""DiLoCo against a NumPy reference (Douillard et al., 2023, algorithm 1), with and without overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Synchronisation, TrainingConfig
from scheduler.training.running.notices import ignored_options
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.programs import CLASSES, FEATURES, logistic, well
from tests.scheduler_rig.reference import logistic_gradient
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, flat, poison, same_bits

ROUNDS = 20
NAMES = ["w", "b"]
LAYOUTS = [(1, 1), (1, 2), (2, 1), (1, 3), (2, 2)]
DROPS = tb.train.PiecewiseConstant([6, 13], [0.4, 0.2, 0.1])


def outer(
    start: Any,
    k: int,
    gradient: Callable[[Any, Any], Any],
    batch: Callable[[int, int], Any],
    *,
    tau: int,
    staleness: int,
    rate: float = 0.7,
    nesterov: float = 0.6,
    ema: float = 0.0,
) -> tuple[list[Any], Any, Any]:
    """Replicas, z and its moving average after all rounds.

    With staleness 1 a replica starts a period from the z before, plus its progress in the one that has ended.
    """
    x, z = [start.astype(np.float64) for _ in range(k)], start.astype(np.float64)
    v, u, began, average = [np.zeros(start.shape) for _ in range(k)], np.zeros(start.shape), list(x), z
    for t in range(ROUNDS):
        for i in range(k):
            v[i] = 0.9 * v[i] + gradient(x[i], batch(t, i))
            x[i] = x[i] - DROPS(t) * v[i]
        if k > 1 and (t + 1) % tau == 0:
            progress = [x[i] - began[i] for i in range(k)]
            pseudo_gradient = -np.mean(progress, axis=0)
            u = nesterov * u + pseudo_gradient
            before, z = z, z - rate * (pseudo_gradient + nesterov * u)
            x = [before + progress[i] if staleness else z for i in range(k)]
            began = list(x)
            average = ema * average + (1 - ema) * z
    return x, z if k > 1 else x[0], average


@pytest.mark.sampled(1)
@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("tau", [1, 4, 7])
@pytest.mark.parametrize(("devices", "per_device"), LAYOUTS)
def test_the_engine_is_the_paper_s_algorithm(devices: int, per_device: int, tau: int, staleness: int) -> None:
    """With two drops of the rate, at which nothing restarts."""
    model, k = logistic(weight_decay=0.0), devices * per_device
    gradient = logistic_gradient(FEATURES, CLASSES)
    start = flat(model.initial, NAMES)
    x, z, average = outer(start, k, gradient, model.batch, tau=tau, staleness=staleness, ema=0.5)
    options = {"sync": "diloco", "tau": tau, "staleness": staleness} | ({"ema": 0.5} if k > 1 else {})
    with engine_of(model, cpu_devices(devices), per_device, DROPS, **options) as engine:
        poison(engine)
        assert engine.run(Prepared(model.batch, k).open, 0, ROUNDS) == ROUNDS
        np.testing.assert_allclose(flat(engine.central_values(), NAMES), z, rtol=0, atol=1e-12)
        if k > 1:
            np.testing.assert_allclose(flat(engine.ema_values(), NAMES), average, rtol=0, atol=1e-12)
        for index in range(k):
            have = flat(engine.learners.values.replica_values(index), NAMES)
            np.testing.assert_allclose(have, x[index], rtol=0, atol=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{"staleness": 0}, {"staleness": 1}], ids=str)
def test_first_come_tasks_end_a_period_in_an_outer_step(options: dict[str, Any]) -> None:
    """Of two rounds of two batches, which any replica may take, the second device being slow."""
    model, rounds, results = well(momentum=0.0), 12, []
    devices = cpu_devices(2, delays=5)
    how = {"sync": "diloco", "tau": 2, "dispatch": "fcfs", **options}
    with engine_of(model, devices, 1, **how) as engine:
        engine.run(Prepared(model.batch, 2).open, 0, rounds, results.extend)
        z, values = engine.central_values()["w"], engine.learners.values
        have = [values.replica_values(index)["w"] for index in range(2)]
    w, began = [model.initial["w"]] * 2, [model.initial["w"]] * 2
    expected, u = model.initial["w"], np.zeros(7, np.float32)
    for number, result in enumerate(results):
        i = result.replica
        w[i] = w[i] - 0.1 * (w[i] - model.batch(result.round, result.batch_number)[0])
        if number % 4 == 3:
            progress = [w[n] - began[n] for n in range(2)]
            mean = (progress[0] + progress[1]) / 2
            u = 0.6 * u + mean
            before, expected = expected, expected + 0.7 * (mean + 0.6 * u)
            began = w = [before + p if options["staleness"] else expected for p in progress]
            w = [*w]
    np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-6)
    for index in range(2):
        np.testing.assert_allclose(have[index], w[index], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 1])
def test_a_replica_that_skips_the_last_update_of_a_period_hands_its_progress_in_later(staleness: int) -> None:
    """z, after all, ends at the mean of the replicas, as if the outer step went all the way."""
    model = well(momentum=0.0)
    spoilt = lambda t, i: tuple(x * (np.nan if (t, i) == (3, 0) else 1) for x in model.batch(t, i))  # noqa: E731
    options = {"tau": 2, "staleness": staleness, "outer_momentum": 0.0, "outer_learning_rate": 1.0}
    with engine_of(model, cpu_devices(1), 2, sync="diloco", on_nan="skip", **options) as engine:
        values, found = engine.learners.values, []
        for stop in (3, 4, 8):
            engine.run(Prepared(spoilt, 2).open, engine.round, stop)
            found.append([values.replica_values(i)["w"] for i in range(2)])
        before, missed, _ = found
        assert np.array_equal(missed[0], before[0])  # neither its update nor z's
        assert engine.skipped_updates == 1
        z = engine.central_values()["w"]
    if not staleness:
        x, expected = [missed[0], missed[1]], missed[1]
        for start in (4, 6):
            for t in (start, start + 1):
                x = [x[i] - 0.1 * (x[i] - model.batch(t, i)[0]) for i in range(2)]
            expected = (x[0] + x[1]) / 2
            x = [expected, expected]
        np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-6)
    assert np.isfinite(z).all()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("staleness", [0, 1])
def test_a_checkpoint_goes_on_bit_for_bit(staleness: int) -> None:
    model, options = logistic(tb.float32), {"sync": "diloco", "tau": 3, "staleness": staleness}
    source = Prepared(model.batch, 2)
    with engine_of(model, cpu_devices(1), 2, DROPS, **options) as engine:
        engine.run(source.open, 0, 7)
        saved = engine.learners.values.state_arrays()
        engine.run(source.open, 7, 15)
        whole = engine.learners.values.state_arrays()
    assert {"velocity/w", "central0/b"} <= saved.keys()
    assert np.any(saved["velocity/w"])
    assert ("replica1/w/outer_progress" in saved) == bool(staleness)
    with engine_of(model, cpu_devices(1), 2, DROPS, **options) as engine:
        engine.learners.values.load_state_arrays(saved)
        engine.run(source.open, 7, 15)
        assert same_bits(engine.learners.values.state_arrays(), whole)


@pytest.mark.slow
def test_values_that_are_set_and_restarts_leave_no_progress_behind() -> None:
    """A replica that starts from z is one of a new engine with that z."""
    model, options = logistic(momentum=0.0), {"sync": "diloco", "tau": 2, "staleness": 1}
    source = Prepared(model.batch, 2)

    def on_from(begin: Callable[[Any], Any]) -> dict[str, Any]:
        with engine_of(model, cpu_devices(1), 2, **options) as engine:
            begin(engine)
            engine.run(source.open, 6, 12)
            return {n: a for n, a in engine.learners.values.state_arrays().items() if "velocity" not in n}

    z: dict[str, Any] = {}

    def restarted(engine: Any) -> None:
        engine.run(source.open, 0, 6)
        engine.restart(6)
        z.update(engine.central_values())

    first = on_from(restarted)
    assert same_bits(first, on_from(lambda engine: engine.learners.values.initialize(z)))
    given = {name: np.ones_like(value) for name, value in z.items()}

    def assigned(engine: Any) -> None:
        engine.run(source.open, 0, 6)
        engine.learners.values.assign(given)
        for model in engine.learners.central:
            model.write_velocity({name: np.zeros_like(value) for name, value in given.items()})

    assert same_bits(on_from(assigned), on_from(lambda engine: engine.learners.values.initialize(given)))


def test_a_new_replica_brings_no_progress() -> None:
    model = well(momentum=0.0)
    options = {"sync": "diloco", "tau": 2, "staleness": 1, "outer_momentum": 0.0}
    with engine_of(model, cpu_devices(1), 2, **options) as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 6)
        engine.resize(3)
        began = engine.learners.values.state_arrays()
        np.testing.assert_array_equal(began["replica2/w"], engine.central_values()["w"])
        engine.run(Prepared(model.batch, 3).open, 6, 8)
        z = engine.central_values()["w"]
    mean = np.zeros(7)
    for i in range(3):
        w = start = began[f"replica{i}/w"]
        for t in (6, 7):
            w = w - 0.1 * (w - model.batch(t, i)[0])
        mean += (w - start) / 3
    np.testing.assert_allclose(z, began["replica2/w"] + 0.7 * mean, rtol=1e-5, atol=1e-6)


# Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.1}, "alpha: not for sync 'diloco', got 0.1; replicas go on from z itself; leave it out"),
        ({"mu": 0.5}, "mu: not for sync 'diloco', got 0.5; give outer_momentum"),
        ({"staleness": 2}, "staleness: expected 0 or 1 with sync 'diloco', where one exchange is under way"),
        ({"ssgd_from": 3}, "ssgd_from: expected sync 'sma', which ssgd follows, got 'diloco'"),
        ({"outer_momentum": 1.0}, r"outer_momentum: expected a momentum in \[0, 1\), got 1.0"),
    ],
)
def test_options_that_do_not_go_with_it(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Synchronisation("diloco", **options)


def test_its_defaults_and_notices() -> None:
    given = Synchronisation(), Synchronisation("diloco"), Synchronisation("diloco", 7)
    assert [options.tau for options in given] == [1, 100, 7]
    assert TrainingConfig(sync="diloco").synchronisation == Synchronisation("diloco")
    assert ignored_options(TrainingConfig(sync="diloco")) == []
    alone = TrainingConfig(
        sync="diloco",
        replicas_per_device=1,
        outer_momentum=0.5,
        outer_learning_rate=0.5,
        exchange_dtype="bfloat16",
    )
    assert [line.split()[0] for line in ignored_options(alone)] == [
        "--outer-learning-rate",
        "--outer-momentum",
        "--exchange-dtype",
    ]


@pytest.mark.parametrize("sync", ["sma", "ssgd", "easgd", "none"])
@pytest.mark.parametrize(
    "option", [{"outer_momentum": 0.5}, {"outer_learning_rate": 0.5}, {"exchange_dtype": "bfloat16"}]
)
def test_its_options_are_refused_elsewhere(sync: str, option: dict[str, Any]) -> None:
    (name, value), *_ = option.items()
    message = f"{name}: expected sync 'diloco', which has outer steps, got {value} with sync '{sync}'"
    with pytest.raises(InvalidArgumentError, match=message):
        Synchronisation(sync, **option)


@pytest.mark.slow
def test_a_tensorbow_session_and_a_replicator() -> None:
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [None, 3])
        w = tb.Variable(np.zeros(3, np.float32), name="w")
        train = tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_mean(tb.square(w - x)))
        init = tb.global_variables_initializer()
    options = Synchronisation("diloco", tau=5, staleness=1, outer_momentum=0.5)
    with tb.TensorBowSession(graph=graph, replicas_per_device=2, synchronisation=options) as session:
        session.run(init)
        for _ in range(200):
            session.run(train, {x: np.ones((4, 3), np.float32)})
        np.testing.assert_allclose(session.run(w), 1.0, atol=0.02)
        said = session.explain(train, {x: np.ones((4, 3), np.float32)})
    assert "diloco, an outer step every 5 rounds, learning rate 0.7, Nesterov momentum 0.5" in str(said)

    def step_fn() -> Any:
        weight = tb.Variable(np.float32(0.0), name="weight")
        loss = tb.square(weight - 1.0)
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    replicator = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], 2, sync="diloco", tau=5, outer_momentum=0.5)
    with replicator.context():
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.05))
    losses = [values.mean() for values in replicator.train(step_fn, steps=60)]
    assert losses[-1] < 0.01 * losses[0]


# Exchange of 16 bits --------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("staleness", [0, 1])
def test_replicas_hand_in_bfloat16_and_z_moves_along_it(staleness: int) -> None:
    """Of the first two periods; with staleness 1 what the first one cuts off is in the second one."""
    model = well(300, momentum=0.0)
    half = {"tau": 2, "outer_learning_rate": 1.0, "outer_momentum": 0.0, "exchange_dtype": "bfloat16"}
    with engine_of(model, cpu_devices(1), 2, sync="diloco", staleness=staleness, **half) as engine:
        w, z, lacked = [model.initial["w"]] * 2, model.initial["w"], [np.float32(0)] * 2
        for start in (0, 2):
            engine.run(Prepared(model.batch, 2).open, start, start + 2)
            for t in (start, start + 1):
                w = [w[i] - np.float32(0.1) * (w[i] - model.batch(t, i)[0]) for i in range(2)]
            before = z if start else model.initial["w"]
            base = before if not staleness else (model.initial["w"] if start else before)
            progress = [(w[i] - lacked[i]) - base for i in range(2)]
            sent = [(p.view(np.uint32) >> 16 << 16).view(np.float32) for p in progress]
            assert all(
                np.all(np.abs(p - s) <= np.abs(p) * 2.0**-7) for p, s in zip(progress, sent, strict=True)
            )
            z = before + (sent[0] + sent[1]) * np.float32(0.5)
            w = [before + p for p in progress] if staleness else [z, z]
            lacked = sent if staleness else lacked
            np.testing.assert_allclose(engine.central_values()["w"], z, rtol=0, atol=1e-6)
        assert np.any(sent[0] != progress[0])


@pytest.mark.parametrize("staleness", [0, 1])
def test_with_the_default_momentum_z_settles_within_a_few_outer_steps(staleness):
    """20, on a well whose bottom replicas nearly reach in each; with 0.9 a fifth of the way would remain."""
    model, tau = well(momentum=0.0), 8
    still = lambda t, i: tuple(np.zeros_like(x) for x in model.batch(t, i))  # noqa: E731
    with engine_of(model, cpu_devices(1), 2, sync="diloco", tau=tau, staleness=staleness) as engine:
        engine.run(Prepared(still, 2).open, 0, 20 * tau)
        z = engine.central_values()["w"]
    assert abs(z).max() < 0.02 * abs(model.initial["w"]).max()
