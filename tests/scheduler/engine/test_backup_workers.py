"""Backup workers: the first m of n gradients, with replicas that are held up (OSDI 2016, section 4.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram, Synchronisation, TrainingConfig
from scheduler.engine.results import RoundResults
from scheduler.engine.stepper import Stepper
from tensorbow.errors import InvalidArgumentError, NumericsError
from tensorbow.graph import Kernel, KernelCall
from tensorbow.ops.definition import define_op
from tests.scheduler_rig.programs import Model, well
from tests.scheduler_rig.running import PATIENCE_S, Hesitant, Prepared, cpu_devices, engine_of, within

SIZE = 7
GATES = [threading.Event() for _ in range(3)]  # the first is always open


def _wait(call: KernelCall) -> None:
    GATES[int(call.inputs[1])].wait(PATIENCE_S)
    np.copyto(call.outputs[0], call.inputs[0])


Held = define_op(
    "TestHeld",
    spec=lambda inputs, attrs: inputs[0],
    gradient=lambda op, g: [g, None],
    inputs=("value", "gate"),
    kernel=Kernel(run=_wait),
    doc="The value, when a gate is open.",
)


def held(gate: Callable[[int, int], int]) -> Model:
    """`programs.well`, whose replicas wait at a gate before their gradient, by (round, replica)."""
    plain = well(SIZE)
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [SIZE], name="x")
        number = tb.placeholder(tb.int32, [], name="gate")
        w = tb.Variable(plain.initial["w"], name="w")
        loss = tb.reduce_sum(tb.square(w - Held(x, number))) * 0.5
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    for event in GATES:
        event.clear()
    GATES[0].set()

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        return *plain.batch(round, replica), np.int32(gate(round, replica))

    shapes = [tb.TensorSpec((SIZE,), tb.float32), tb.TensorSpec((), tb.int32)]
    return Model(StepProgram((x, number), loss, update, {}), shapes, plain.initial, batch)


def trained(model: Model, told: list[RoundResults]) -> tuple[Any, Any]:
    """Weights and velocity by the mean gradients of those whose results were told."""
    w, v = model.initial["w"], np.zeros(SIZE, np.float32)
    for results in told:
        gradients = [w - model.batch(results.rounds.start, replica)[0] for replica in results.replicas]
        v = np.float32(0.9) * v + np.mean(gradients, axis=0)
        w = w - np.float32(0.1) * v
    return w, v


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "per_device"), [(1, 4), (2, 2)])
def test_rounds_step_on_the_first_gradients_and_a_late_replica_catches_up(
    devices: int, per_device: int
) -> None:
    """Replica 3 is held up in round 0 until round 9 is done, and replica 0 in round 20 until round 29 is."""
    model = held(lambda t, i: 1 if i == 3 and t < 10 else 2 if i == 0 and 20 <= t < 30 else 0)
    told, source = list[RoundResults](), Hesitant(model.batch, 4)

    def tell(results: RoundResults) -> None:
        told.append(results)
        if gate := {9: 1, 29: 2}.get(results.rounds.start):
            GATES[gate].set()

    with engine_of(model, cpu_devices(devices), per_device, sync="ssgd", backup=1) as engine:
        assert within(lambda: engine.run(source.open, 0, 40, tell)) == 40
        assert source.released >= 40 * 3
        assert [results.rounds.start for results in told] == [*range(40)]
        assert all(len(set(results.replicas)) == 3 for results in told)
        assert all(3 not in results.replicas for results in told[:10])
        assert all(0 not in results.replicas for results in told[20:30])
        assert engine.round == 40
        w, v = trained(model, told)
        for index in range(4):  # whoever was late in the end, too
            values = engine.learners.values.replica_values(index)
            np.testing.assert_allclose(values["w"], w, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(values["w/Momentum"], v, rtol=1e-5, atol=1e-6)
        for replica, loss in zip(told[0].replicas, told[0].losses, strict=True):
            expected = 0.5 * np.sum((model.initial["w"] - model.batch(0, replica)[0]) ** 2)
            assert loss == pytest.approx(expected, rel=1e-5)
        assert within(lambda: engine.run(source.open, 40, 43, tell)) == 43
        np.testing.assert_allclose(
            engine.central_values()["w"], trained(model, told)[0], rtol=1e-5, atol=1e-6
        )


def test_a_stop_and_a_gradient_that_is_not_finite() -> None:
    model, told = held(lambda t, i: 0), list[RoundResults]()
    spoilt = lambda t, i: (model.batch(t, i)[0] * (np.nan if t == 5 else 1), np.int32(0))  # noqa: E731
    with engine_of(model, cpu_devices(1), 3, sync="ssgd", backup=1) as engine:
        stop = lambda results: engine.request_stop() if results.rounds.start == 2 else None  # noqa: E731
        ended = within(lambda: engine.run(Prepared(spoilt, 3).open, 0, 9, stop))
        assert ended in (3, 4)
        w = engine.central_values()["w"]
        assert all(np.array_equal(engine.learners.values.replica_values(i)["w"], w) for i in range(3))
        with pytest.raises(NumericsError, match=r"replica \d is not finite at step 5.*its batch has NaN"):
            within(lambda: engine.run(Prepared(spoilt, 3).open, ended, 9, told.append))
        assert told[-1].rounds.start == 4


@pytest.mark.slow
def test_without_backups_the_numbers_are_those_of_all_gradients() -> None:
    model, found = well(SIZE), []
    for backup in (0, 2):
        with engine_of(model, cpu_devices(1), 3, sync="ssgd", backup=backup) as engine:
            told = list[RoundResults]()
            engine.run(Prepared(model.batch, 3).open, 0, 8, told.append)
            np.testing.assert_allclose(engine.central_values()["w"], trained(model, told)[0], 1e-5, 1e-6)
            found.append([len(results.replicas) for results in told])
    assert found == [[3] * 8, [1] * 8]


# Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sync": "sma"}, "backup: expected 0 with sync 'sma', where no round waits for gradients, got 1"),
        ({"sync": "ssgd", "ema": 0.9}, "ema: not with backup workers, of which none has done every update"),
        ({"sync": "ssgd", "dispatch": "fcfs"}, "dispatch: expected round_robin with ssgd"),
    ],
)
def test_options_that_do_not_go_with_it(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Synchronisation(backup=1, **options)


def test_where_it_cannot_be() -> None:
    model, options = well(), {"sync": "ssgd", "backup": 1}
    for devices, per_device, backup in ((1, 1, 1), (1, 2, 3), (2, 2, 4)):
        said = f"backup: expected fewer than the {devices * per_device} replicas, got {backup}; "
        with (
            pytest.raises(InvalidArgumentError, match=said),
            engine_of(model, cpu_devices(devices), per_device, sync="ssgd", backup=backup),
        ):
            pass
    with (
        engine_of(model, cpu_devices(1), 2, **options) as engine,
        Stepper(engine) as stepper,
        pytest.raises(InvalidArgumentError, match="backup: expected 0 for a stepper's step"),
    ):
        stepper.step([model.batch(0, 0), model.batch(0, 1)])
    with (
        pytest.raises(InvalidArgumentError, match="backup: expected 0 for replicas with several devices"),
        engine_of(model, cpu_devices(4), 1, devices_per_replica=2, **options),
    ):
        pass
    with pytest.raises(InvalidArgumentError, match="backup: expected 0 where the number of replicas is"):
        TrainingConfig(sync="ssgd", backup=1, replicas_per_device="auto")
