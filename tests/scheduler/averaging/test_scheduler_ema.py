"""The exponential moving average of z, against the recurrence in NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine, Synchronisation, gathered
from tensorbow.devices import LaunchLog, find_races
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tests.scheduler_rig.programs import Model, logistic, well
from tests.scheduler_rig.running import (
    Hesitant,
    Prepared,
    cpu_devices,
    engine_of,
    null_devices,
    poison,
    same_bits,
    within,
)

DECAY, ROUNDS = 0.9, 9
WAYS: list[dict[str, Any]] = [
    {},
    {"mu": 0.7, "staleness": 2, "tau": 2},
    {"sync": "easgd", "tau": 3},
    {"sync": "ssgd"},
    {"ssgd_from": 4, "tau": 2, "staleness": 1},
]
LAYOUTS = [(1, 3), (2, [2, 1])]


def run(engine: LearningEngine, model: Model, start: int, stop: int, steps: int = 1) -> None:
    opened = Prepared(model.batch, engine.learners.count).open
    within(lambda: engine.run(opened if steps == 1 else gathered(opened, steps), start, stop))


def recurrence(model: Model, devices: int, per_device: Any, **options: Any) -> dict[str, Any]:
    """The moving average of the central models that training without it gives, round by round."""
    fresh, tau, on_mean = np.float32(1 - DECAY), options.get("tau", 1), options.get("ssgd_from", ROUNDS)
    average = {name: value.copy() for name, value in model.initial.items()}
    with engine_of(model, cpu_devices(devices), per_device, **options) as engine:
        averages = engine.learners.averages
        for round in range(ROUNDS):
            run(engine, model, round, round + 1)
            if not averages or round >= on_mean or (round + 1) % tau == 0:
                z = engine.central_values(round + 1)
                for name in average:
                    average[name] += (z[name] - average[name]) * fresh
        return average


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "per_device", "options"),
    [*((*layout, way) for layout in LAYOUTS for way in WAYS), (1, 1, {}), (1, 1, {"sync": "none"})],
    ids=str,
)
def test_the_average_is_the_recurrence(kernels: str, devices: int, per_device: Any, options: Any) -> None:
    model = well()
    expected = recurrence(model, devices, per_device, **options)
    with engine_of(model, cpu_devices(devices), per_device, **options) as engine:
        run(engine, model, 0, ROUNDS)
        plain = engine.learners.values.state_arrays()
    for steps in (1, 4) if kernels == "native" else (1,):
        how = {**options, "ema": DECAY, "steps_per_launch": steps}
        with engine_of(model, cpu_devices(devices), per_device, **how) as engine:
            poison(engine)
            run(engine, model, 0, ROUNDS, steps)
            assert engine.learners.launches_rounds is (kernels == "native")
            average, arrays = engine.ema_values(), engine.learners.values.state_arrays()
        assert same_bits({name: average[name] for name in expected}, expected)
        assert not same_bits({"w": average["w"]}, {"w": plain["replica0/w"]})
        kept = {name: value for name, value in arrays.items() if not name.startswith("ema/")}
        assert same_bits(kept, plain), "training is as without it"


@pytest.mark.parametrize(
    ("per_device", "options"), [(2, {"mu": 0.5}), (2, {"sync": "ssgd"}), (1, {})], ids=str
)
@pytest.mark.sampled(1)
def test_a_checkpoint_has_the_average(kernels: str, per_device: int, options: Any) -> None:
    model = logistic(tb.float32)
    how = {**options, "ema": DECAY}
    with engine_of(model, cpu_devices(1), per_device, **how) as engine:
        run(engine, model, 0, 4)
        saved = engine.learners.values.state_arrays()
        run(engine, model, 4, ROUNDS)
        expected = engine.learners.values.state_arrays()
    assert {"ema/w", "ema/b"} <= saved.keys()
    with engine_of(model, cpu_devices(1), per_device, **how) as engine:
        engine.learners.values.load_state_arrays(saved)
        run(engine, model, 4, ROUNDS)
        assert same_bits(engine.learners.values.state_arrays(), expected)


@pytest.mark.slow
def test_other_numbers_of_replicas_go_on_with_the_average() -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 1, ema=DECAY) as engine:
        run(engine, model, 0, 3)
        for count in (3, 1):
            before = engine.learners.values.state_arrays()
            engine.resize(count, 3)
            after = engine.learners.values.state_arrays()
            assert after["ema/w"].tobytes() == before["ema/w"].tobytes()
        run(engine, model, 3, 4)
        assert engine.learners.values.state_arrays()["ema/w"].tobytes() != before["ema/w"].tobytes()


def test_first_come_first_served_averages_each_period() -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 2, ema=DECAY, dispatch="fcfs") as engine:
        run(engine, model, 0, 1)
        z, average = engine.central_values(), engine.ema_values()
    fresh = np.float32(1 - DECAY)
    expected = model.initial["w"] + (z["w"] - model.initial["w"]) * fresh
    assert average["w"].tobytes() == expected.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"sync": "ssgd"}, {"mu": 0.4, "staleness": 1}], ids=str)
def test_bits_do_not_depend_on_timing(options: Any) -> None:
    model, bits = well(), []
    for seed in range(3):
        with engine_of(model, cpu_devices(2, seed), 2, ema=DECAY, **options) as engine:
            within(partial(engine.run, Hesitant(model.batch, 4, seed).open, 0, ROUNDS))
            bits.append(engine.learners.values.state_arrays())
    assert all(same_bits(bits[0], other) for other in bits)


@pytest.mark.parametrize(("per_device", "options"), [(2, {}), (2, {"sync": "ssgd"}), (1, {})], ids=str)
def test_no_accesses_race(per_device: int, options: Any) -> None:
    model, log = well(), LaunchLog()
    with engine_of(model, null_devices(2, log), per_device, ema=DECAY, **options) as engine:
        run(engine, model, 0, 4)
    assert find_races(log) == []


def test_an_average_without_a_central_model_is_refused() -> None:
    model = well()
    refused = {
        "sync 'none' with 2 independent replicas; leave it out": (2, {"sync": "none"}),
        "ema: expected dispatch round_robin for one replica": (1, {"dispatch": "fcfs"}),
    }
    for message, (count, options) in refused.items():
        with (
            pytest.raises(InvalidArgumentError, match=message),
            engine_of(model, cpu_devices(1), count, ema=DECAY, **options),
        ):
            pass
    for decay in (0, 1, -0.5, float("nan")):
        with pytest.raises(InvalidArgumentError, match=r"ema: expected a decay in \(0, 1\)"):
            Synchronisation(ema=decay)
    with engine_of(model, cpu_devices(1), 2) as engine:  # noqa: SIM117
        with pytest.raises(FailedPreconditionError, match="there is no moving average of z; train with"):
            engine.ema_values()
