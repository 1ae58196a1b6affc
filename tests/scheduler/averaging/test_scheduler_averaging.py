"""The engine against the NumPy reference of synchronous model averaging."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine, StepProgram
from tests.scheduler_rig.programs import CLASSES, FEATURES, Model, logistic, well
from tests.scheduler_rig.reference import Sma, logistic_gradient, well_gradient
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, flat, poison

RATE = 0.4
NAMES = ["w", "b"]
DECAY = np.concatenate([np.full(FEATURES * CLASSES, 0.05), np.zeros(CLASSES)])
LAYOUTS = [(1, 1), (1, 2), (2, 1), (1, 3), (1, 4), (2, 2), (4, 1), (1, 8), (2, 4), (4, 2)]
LOGISTIC = logistic()


def logistic_reference(k: int, **options: Any) -> Sma:
    start = flat(LOGISTIC.initial, NAMES)
    gradient = logistic_gradient(FEATURES, CLASSES)
    return Sma(start, k, gradient, options.pop("rate", lambda t: RATE), decay=DECAY, **options)


def compare(engine: LearningEngine, reference: Sma, round: int) -> None:
    def close(have: Any, want: Any) -> None:
        np.testing.assert_allclose(have, want, rtol=0, atol=1e-12 * max(1.0, float(np.abs(want).max())))

    learners = engine.learners
    for index in range(reference.k):
        values = learners.values.replica_values(index)
        close(flat(values, NAMES), reference.w[index])
        close(flat(values, [f"{n}/Momentum" for n in NAMES]), reference.v[index])
    z = reference.z if reference.k > 1 else reference.w[0]
    close(flat(learners.values.central_values(round), NAMES), z)
    for model in learners.central:
        slot = (round // engine.options.tau - 1) % learners.z_copies
        close(flat(model.weights(slot), NAMES), z)
        if reference.form == "u":
            u = reference.u if engine.options.mu else np.zeros(reference.u.shape)
            close(flat(model.velocity(), NAMES), u)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.0, 0.9])
@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("tau", [1, 3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("devices", "per_device"), LAYOUTS)
def test_the_engine_is_the_reference(
    devices: int, per_device: int, tau: int, staleness: int, mu: float
) -> None:
    k = devices * per_device
    options = {"tau": tau, "staleness": staleness, "mu": mu}
    schedule = tb.train.Constant(RATE)
    with engine_of(LOGISTIC, cpu_devices(devices), per_device, schedule, **options) as engine:
        poison(engine)
        source = Prepared(LOGISTIC.batch, k)
        assert engine.run(source.open, 0, 13) == 13
        for form in ("u", "z"):
            reference = logistic_reference(k, devices=devices, form=form, **options)
            reference.run(LOGISTIC.batch, 0, 13)
            compare(engine, reference, 13)
        assert source.released == 13 * k


@pytest.mark.slow
@pytest.mark.parametrize("clear_velocity", [False, True])
@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("tau", [1, 3])
@pytest.mark.parametrize(("devices", "per_device"), [(1, 2), (2, 2)])
def test_averaging_restarts_where_the_rate_jumps(
    devices: int, per_device: int, tau: int, staleness: int, clear_velocity: bool
) -> None:
    k = devices * per_device
    boundaries = [0, 4, 5, 11]  # before the first averaging, beside each other, and at the very end
    schedule = tb.train.PiecewiseConstant(boundaries, [0.5, 0.4, 0.3, 0.2, 0.1])
    options: dict[str, Any] = {
        "tau": tau,
        "staleness": staleness,
        "mu": 0.9,
        "clear_velocity": clear_velocity,
    }
    before = [boundary + 1 for boundary in boundaries]
    with engine_of(LOGISTIC, cpu_devices(devices), per_device, schedule, **options) as engine:
        engine.run(Prepared(LOGISTIC.batch, k).open, 0, 12)
        for form in ("u", "z"):
            reference = logistic_reference(
                k,
                rate=schedule,
                devices=devices,
                form=form,
                restarts_before=before,
                **options,
            )
            reference.run(LOGISTIC.batch, 0, 12)
            compare(engine, reference, 12)


@pytest.mark.slow
def test_restart_on_request_between_two_runs() -> None:
    schedule = tb.train.Constant(RATE)
    with engine_of(LOGISTIC, cpu_devices(1), 3, schedule, mu=0.9, staleness=1) as engine:
        reference = logistic_reference(3, mu=0.9, staleness=1)
        source = Prepared(LOGISTIC.batch, 3)
        engine.run(source.open, 0, 5)
        reference.run(LOGISTIC.batch, 0, 5)
        engine.restart(5)
        reference.restart()
        compare(engine, reference, 5)
        engine.run(source.open, 5, 9)
        reference.run(LOGISTIC.batch, 5, 9)
        compare(engine, reference, 9)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("devices", "per_device"), [(1, 1), (1, 4), (2, 2), (4, 2)])
@pytest.mark.parametrize(("tau", "staleness"), [(1, 0), (1, 2), (3, 1)])
def test_float32_has_the_bits_of_the_reference(
    devices: int, per_device: int, tau: int, staleness: int
) -> None:
    model, k = well(), devices * per_device
    options = {"tau": tau, "staleness": staleness, "mu": 0.7}
    with engine_of(model, cpu_devices(devices), per_device, **options) as engine:
        engine.run(Prepared(model.batch, k).open, 0, 20)
        reference = Sma(model.initial["w"], k, well_gradient, lambda t: 0.1, devices=devices, **options)
        reference.run(model.batch, 0, 20)
        for index in range(k):
            assert engine.learners.values.replica_values(index)["w"].tobytes() == reference.w[index].tobytes()
        z = reference.z if k > 1 else reference.w[0]
        assert engine.learners.values.central_values(20)["w"].tobytes() == z.tobytes()


def test_no_synchronisation_trains_replicas_alone() -> None:
    model = well()
    with engine_of(model, cpu_devices(2), 2, sync="none") as engine:
        engine.run(Prepared(model.batch, 4).open, 0, 10)
        for index in range(4):
            alone = Sma(model.initial["w"], 1, well_gradient, lambda t: 0.1)
            alone.run(lambda t, _, index=index: model.batch(t, index), 0, 10)
            assert engine.learners.values.replica_values(index)["w"].tobytes() == alone.w[0].tobytes()
        assert (
            engine.learners.values.central_values(10)["w"].tobytes()
            == engine.learners.values.replica_values(0)["w"].tobytes()
        )


def counting() -> Model:
    """A model with variables that are not averaged while training."""
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float64, [], name="x")
        w = tb.Variable(np.float64(1.0), name="w")
        kept = {
            "mean": tb.Variable(np.float64(2.0), trainable=False, name="mean", combine="mean"),
            "count": tb.Variable(np.int64(5), trainable=False, name="count", combine="sum"),
            "first": tb.Variable(np.float64(0.0), trainable=False, name="first", combine="first"),
        }
        loss = tb.square(w - x)
        update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tb.control_dependencies([update]):
            adds = [
                kept["mean"].assign_add(x),
                kept["count"].assign_add(1),
                kept["first"].assign_add(x),
            ]
            step = tb.group(*adds)
    program = StepProgram((x,), loss, step, {})
    initial = {"w": 1.0, "mean": 2.0, "count": 5, "first": 0.0}
    return Model(
        program, [tb.TensorSpec((), tb.float64)], initial, lambda t, i: (np.float64(i) + np.zeros(()),)
    )


def test_other_variables_become_the_central_models_as_they_declare() -> None:
    model = counting()
    with engine_of(model, cpu_devices(1), 3) as engine:
        engine.run(Prepared(model.batch, 3).open, 0, 4)
        values = engine.learners.values.central_values(4)
    assert values["mean"] == 2.0 + 4 * 1.0  # the mean of 0, 1 and 2, four times
    assert values["count"] == 5 + 12
    assert values["first"] == 0.0
    assert values["count"].dtype == np.int64
