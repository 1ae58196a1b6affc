"""Numbers of replicas per device, also uneven ones: the same z, the same bits, and errors by words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine, Synchronisation, TrainingConfig
from scheduler.replicas.replica_counts import replica_counts
from tensorbow.devices import LaunchLog, find_races
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.programs import CLASSES, FEATURES, logistic
from tests.scheduler_rig.reference import Sma, logistic_gradient
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, flat, null_devices

NAMES = ["w", "b"]
ROUNDS = 13
FOUR = [(4,), (2, 2), (1, 1, 1, 1), (3, 1), (1, 3), (1, 2, 1)]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"tau": 3, "staleness": 1, "mu": 0.5},
    {"sync": "ssgd"},
    {"ssgd_from": 6},
]


def trained(counts: Any, dtype: Any, delays: int | None = None, **options: Any) -> dict[str, Any]:
    """Everything the replicas and z are after some rounds."""
    model, devices = logistic(dtype), cpu_devices(len(counts), delays)
    with engine_of(model, devices, counts, tb.train.Constant(0.4), **options) as engine:
        assert engine.run(Prepared(model.batch, sum(counts)).open, 0, ROUNDS) == ROUNDS
        state = {f"z/{name}": value for name, value in engine.central_values().items()}
        for replica in engine.learners.replicas:
            for name, value in engine.learners.values.replica_values(replica.index).items():
                state[f"{replica.index}/{name}"] = value
        return state


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_four_replicas_have_the_same_z_however_many_a_device_has(options: dict[str, Any]) -> None:
    results = [trained(counts, tb.float32, **options) for counts in FOUR]
    for other in results[1:]:
        assert other.keys() == results[0].keys()
        for name, value in results[0].items():
            np.testing.assert_allclose(other[name], value, rtol=0, atol=3e-6 * max(1.0, np.abs(value).max()))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", OPTIONS[:3])
@pytest.mark.parametrize("counts", FOUR)
def test_each_distribution_gives_the_same_bits_on_every_run(counts: Any, options: dict[str, Any]) -> None:
    first = trained(counts, tb.float32, **options)
    for delays in range(2):
        again = trained(counts, tb.float32, delays, launch_ahead=1 + delays, **options)
        for name, value in first.items():
            np.testing.assert_array_equal(again[name], value)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("counts", [(3, 1), (1, 2), (1, 3, 2), (2, 1, 1)])
@pytest.mark.parametrize(("tau", "staleness", "mu"), [(1, 0, 0.0), (3, 0, 0.9), (1, 2, 0.5)])
def test_uneven_distributions_are_the_reference(counts: Any, tau: int, staleness: int, mu: float) -> None:
    options = {"tau": tau, "staleness": staleness, "mu": mu}
    model = logistic()
    decay = np.concatenate([np.full(FEATURES * CLASSES, 0.05), np.zeros(CLASSES)])
    reference = Sma(
        flat(model.initial, NAMES),
        sum(counts),
        logistic_gradient(FEATURES, CLASSES),
        lambda t: 0.4,
        decay=decay,
        **options,
    )
    reference.run(model.batch, 0, ROUNDS)
    state = trained(counts, tb.float64, **options)

    def close(have: Any, want: Any) -> None:
        np.testing.assert_allclose(have, want, rtol=0, atol=1e-11 * max(1.0, float(np.abs(want).max())))

    close(flat({n: state[f"z/{n}"] for n in NAMES}, NAMES), reference.z)
    for index in range(sum(counts)):
        close(flat({n: state[f"{index}/{n}"] for n in NAMES}, NAMES), reference.w[index])


def test_batch_n_goes_to_replica_n_in_the_order_of_devices() -> None:
    with engine_of(logistic(), cpu_devices(3), [1, 3, 2]) as engine:
        replicas = engine.learners.replicas
        assert [replica.index for replica in replicas] == list(range(6))
        assert [replica.device.name.index for replica in replicas] == [0, 1, 1, 1, 2, 2]
        assert engine.learners.count == 6
        assert engine.learners.alpha == pytest.approx(1 / 6)


@pytest.mark.parametrize("options", [{}, {"tau": 2, "staleness": 1}, {"sync": "ssgd"}, {"ssgd_from": 4}])
@pytest.mark.parametrize("counts", [(3, 1), (1, 2, 1)])
def test_uneven_distributions_have_no_races(counts: Any, options: dict[str, Any]) -> None:
    log, model = LaunchLog(), logistic()
    with engine_of(model, null_devices(len(counts), log), counts, **options) as engine:
        engine.run(Prepared(model.batch, sum(counts)).open, 0, 8)
    assert find_races(log) == []


def test_counts() -> None:
    assert replica_counts(3, 2) == (3, 3)
    assert replica_counts([3, 1], 2) == (3, 1)
    for counts, devices, words in (
        (0, 2, "expected a whole number of at least 1, or one for each device, got int 0"),
        ([2, 0], 2, "expected a whole number of at least 1, or one for each device, got list"),
        ([2, True], 2, r"or one for each device, got list \[2, True\]"),
        ([2], 2, r"a count for each of 2 devices, got 1 \(2\); give 2 counts, or one number for all"),
        ([], 1, r"got 0 \(none\)"),
        (1.5, 2, "expected a whole number of at least 1, or one for each device, got float 1.5"),
        ("22", 2, "expected a whole number of at least 1, or one for each device, got str '22'"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            replica_counts(counts, devices)  # type: ignore[arg-type]
    model, devices = logistic(), cpu_devices(2)
    with pytest.raises(InvalidArgumentError, match="a count for each of 2 devices, got 3"):
        LearningEngine(model.program, model.shapes, devices, [1, 1, 1], Synchronisation())
    for device in devices:
        device.close()


def test_counts_of_a_training_config() -> None:
    two = ("cpu:0", "cpu:1")
    for given in ([3, 1], (3, 1), "3,1"):
        config = TrainingConfig(replicas_per_device=given, devices=two)  # type: ignore[arg-type]
        assert config.replicas_per_device == (3, 1)
        assert config.replicas == 4
        assert config.to_dict()["replicas_per_device"] == [3, 1]
        assert TrainingConfig.from_dict(config.to_dict()) == config
        assert not config.differences(config.to_dict())
    assert TrainingConfig(replicas_per_device="2,2", devices=two).replicas_per_device == 2  # type: ignore[arg-type]
    assert TrainingConfig(replicas_per_device="5").replicas == 5  # type: ignore[arg-type]
    for given, words in (
        ([3, 0], r"replicas_per_device: expected a whole number from 1 to 4096, .*, got \[3, 0\]"),
        ("3,1,2", "replicas_per_device: expected one number, or one for each of 2 devices, got 3,1,2"),
        (
            "3,x",
            "expected a whole number from 1 to 4096, or one for each device, as 3,1, or auto, got '3,x'",
        ),
        ([], "one for each of 2 devices, got none"),
        (2.5, "replicas_per_device: expected a whole number"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            TrainingConfig(replicas_per_device=given, devices=two)  # type: ignore[arg-type]
