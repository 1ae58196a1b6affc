"""Options of the averaging, and whether alpha's bound is where averaging starts to diverge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Synchronisation
from scheduler.averaging.synchronisation import alpha_bound
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.programs import logistic, well
from tests.scheduler_rig.reference import Sma, well_gradient
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of


def bound(k: int, mu: float) -> float:
    return 2 * (1 + mu) / (k + 1 + mu)


def distance(k: int, mu: float, alpha: float, rounds: int, staleness: int = 0) -> float:
    """Largest distance from z, after rounds without gradients, of replicas that all start at z + 1."""
    sma = Sma(
        np.zeros(3),
        k,
        lambda w, batch: np.zeros(3),
        lambda t: 0.1,
        alpha=alpha,
        mu=mu,
        staleness=staleness,
        momentum=0.0,
    )
    sma.w = [w + 1.0 for w in sma.w]
    sma.run(lambda t, i: (), 0, rounds)
    return max(float(np.abs(w - sma.z).max()) for w in sma.w)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("k", [2, 3, 4, 8])
def test_the_bound_is_where_averaging_without_gradients_diverges(k: int, mu: float) -> None:
    edge = bound(k, mu)
    assert distance(k, mu, edge * 0.99, 4000) < 1e-6
    assert distance(k, mu, edge * 1.01, 4000) > 1e3


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [1, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 5))])
@pytest.mark.parametrize("mu", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("k", [2, 4])
def test_staleness_lowers_the_bound(k: int, mu: float, staleness: int) -> None:
    edge = alpha_bound(k, mu, staleness)
    assert edge < alpha_bound(k, mu, staleness - 1)
    assert distance(k, mu, edge * 0.95, 8000, staleness) < 1e-2
    assert distance(k, mu, edge * 1.05, 8000, staleness) > 1e3
    options = Synchronisation(mu=mu, staleness=staleness)
    assert 0 < options.alpha_for(k) <= min(1 / k, edge / 2)
    with pytest.raises(InvalidArgumentError, match=f"alpha.* < {edge:.4g} .*staleness {staleness}"):
        Synchronisation(mu=mu, staleness=staleness, alpha=edge * 1.01).alpha_for(k)


@pytest.mark.parametrize("mu", [0.0, 0.9])
@pytest.mark.parametrize("k", [2, 4])
def test_alpha_beyond_the_bound_is_refused_with_the_bound(k: int, mu: float) -> None:
    model, edge = well(), bound(k, mu)
    for alpha in (edge, edge * 1.01, 7.0):
        with (
            pytest.raises(
                InvalidArgumentError, match=f"alpha.* < {edge:.4g} for {k} replicas.* is {1 / k:.4g}"
            ),
            engine_of(model, cpu_devices(1), k, alpha=alpha, mu=mu),
        ):
            pass


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mu", [0.0, 0.9])
def test_the_engine_just_below_the_bound(mu: float) -> None:
    model = well(rate=1e-30)
    alpha = bound(4, mu) * 0.97
    with engine_of(model, cpu_devices(1), 4, tb.train.Constant(1e-30), alpha=alpha, mu=mu) as engine:
        for replica in engine.learners.replicas:
            replica.container.write("w", replica.container.read("w") + 1)
        engine.run(Prepared(model.batch, 4).open, 0, 600)
        z = engine.learners.values.central_values(600)["w"]
        for index in range(4):
            np.testing.assert_allclose(engine.learners.values.replica_values(index)["w"], z, atol=1e-5)


@pytest.mark.parametrize("sync", ["sma", "none"])
@pytest.mark.parametrize("alpha", [None, 0.9])
def test_one_replica_has_nothing_to_bound(sync: str, alpha: float | None) -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 1, sync=sync, alpha=alpha) as engine:
        engine.run(Prepared(model.batch, 1).open, 0, 3)
        assert engine.learners.central == []
        reference = Sma(model.initial["w"], 1, well_gradient, lambda t: 0.1)
        reference.run(model.batch, 0, 3)
        assert engine.learners.values.central_values(3)["w"].tobytes() == reference.w[0].tobytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sync": "pair"}, "sync: expected one of sma, ssgd, easgd, diloco, none, got 'pair'"),
        ({"tau": 0}, "tau: expected a whole number of at least 1, got 0"),
        ({"tau": 1.5}, "tau: expected a whole number"),
        ({"staleness": -1}, "staleness: expected a whole number from 0 to 64, got -1"),
        ({"staleness": True}, "staleness: expected a whole number"),
        ({"mu": 1.0}, r"mu: expected a momentum in \[0, 1\), got 1.0"),
        ({"mu": float("nan")}, "mu: expected"),
        ({"mu": "much"}, r"mu: expected a momentum in \[0, 1\), got 'much'"),
        ({"alpha": True}, "alpha: expected a positive number, from 1.2e-38 to 3.4e.38, got True"),
        ({"alpha": 0.0}, "alpha: expected a positive number, .*, got 0.0"),
        ({"alpha": -0.1}, "alpha: expected a positive number"),
        ({"alpha": float("nan")}, "alpha: expected a positive number"),
        ({"ssgd_from": 2.5}, "ssgd_from: expected a round of at least 1, got 2.5"),
        ({"ssgd_from": 1, "sync": "none"}, "ssgd_from: expected sync 'sma', which ssgd follows, got 'none'"),
        ({"ssgd_from": 0}, "ssgd_from: expected a round of at least 1, got 0"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Synchronisation(**options)


def test_other_variables_have_to_declare_how_they_combine() -> None:
    for trainable, combine, message in (
        (True, "mean", r"w_1 is trainable, so its replicas combine by sma, not mean \(made at .*options.py"),
        (False, "sma", "not trainable, so its replicas combine by mean, sum or first, not sma"),
    ):
        model = logistic()
        with model.program.graph.as_default():
            tb.Variable(1.0, name="w", trainable=trainable, combine=combine)
        with pytest.raises(InvalidArgumentError, match=message), engine_of(model, cpu_devices(1), 2):
            pass
