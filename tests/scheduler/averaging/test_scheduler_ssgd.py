"""Synchronous SGD: k replicas of batch b are one of batch k b, to the bit equal among themselves."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from tensorbow.devices import LaunchLog, find_races
from tensorbow.errors import InvalidArgumentError, NumericsError, TensorBowError
from tests.scheduler_rig.programs import FUSE, Model, convolutional, fused, logistic, well
from tests.scheduler_rig.running import (
    Hesitant,
    Prepared,
    cpu_devices,
    engine_of,
    null_devices,
    same_bits,
    within,
)

DEVICES_AND_REPLICAS = [(1, 4), (2, 2), (4, 1), (1, 3)]


def trained(model: Model, devices: int, per_device: int, rounds: int, delays: int | None = None, **options):
    with engine_of(model, cpu_devices(devices, delays), per_device, **options) as engine:
        engine.run(Prepared(model.batch, devices * per_device).open, 0, rounds)
        return engine.central_values(), [
            engine.learners.values.replica_values(i) for i in range(engine.learners.count)
        ]


def on_big_batches(model: Model, k: int, rounds: int):
    """One replica on the batches of k replicas, joined."""

    def batch(round: int, replica: int):
        parts = [model.batch(round, i) for i in range(k)]
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))

    shapes = [tb.TensorSpec((k * s.extents[0], *s.extents[1:]), s.dtype) for s in model.shapes]
    return trained(Model(model.program, shapes, model.initial, batch), 1, 1, rounds)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "per_device"), DEVICES_AND_REPLICAS)
@pytest.mark.parametrize(("dtype", "rounds", "tolerance"), [(tb.float32, 1, 1e-6), (tb.float64, 20, 1e-10)])
def test_k_replicas_are_one_of_k_times_the_batch(devices, per_device, dtype, rounds, tolerance):
    model = logistic(dtype)
    central, replicas = trained(model, devices, per_device, rounds, sync="ssgd")
    expected = on_big_batches(model, devices * per_device, rounds)
    for name, value in expected.items():
        np.testing.assert_allclose(central[name], value, rtol=0, atol=tolerance)
    assert all(same_bits(replicas[0], other) for other in replicas)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "per_device"), [(1, 4), (2, 2)])
def test_the_same_bits_whatever_the_timing(devices, per_device):
    model = convolutional(dropout=True)
    first, _ = trained(model, devices, per_device, 6, sync="ssgd")
    for seed in range(8):
        again, _ = trained(model, devices, per_device, 6, delays=seed, sync="ssgd", launch_ahead=1 + seed % 3)
        assert same_bits(first, again)


@pytest.mark.slow
def test_one_replica_is_plain_training():
    model = convolutional(dropout=False)
    assert same_bits(trained(model, 1, 1, 5, sync="ssgd")[0], trained(model, 1, 1, 5, sync="sma")[0])


@pytest.mark.slow
def test_from_averaging_to_ssgd():
    """Up to the switch as sma; then from z, with slots at zero, as ssgd."""
    model, switch, rounds = logistic(), 6, 11
    z, _ = trained(model, 2, 2, switch, sync="sma", tau=2)
    central, replicas = trained(model, 2, 2, rounds, sync="sma", tau=2, ssgd_from=switch)
    assert all(same_bits(replicas[0], other) for other in replicas)
    later = Model(model.program, model.shapes, z, lambda t, i: model.batch(t + switch, i))
    expected, _ = trained(later, 2, 2, rounds - switch, sync="ssgd")
    assert same_bits(central, expected)


@pytest.mark.slow
def test_a_run_that_ends_at_the_switch_goes_on_alike():
    model, switch = logistic(), 4
    whole, _ = trained(model, 1, 3, 9, ssgd_from=switch)
    with engine_of(model, cpu_devices(1), 3, ssgd_from=switch) as engine:
        for start, stop in ((0, 2), (2, switch), (switch, 5), (5, 9)):
            engine.run(Prepared(model.batch, 3).open, start, stop)
        assert same_bits(engine.central_values(), whole)


@pytest.mark.parametrize("options", [{"sync": "ssgd"}, {"ssgd_from": 3}, {"ssgd_from": 4, "tau": 2}])
@pytest.mark.parametrize(("devices", "per_device"), [(1, 2), (2, 2)])
def test_no_races(options, devices, per_device):
    model, log = logistic(), LaunchLog()
    with engine_of(model, null_devices(devices, log), per_device, **options) as engine:
        engine.run(Prepared(model.batch, devices * per_device).open, 0, 8)
    assert not find_races(log)
    assert any("mean gradient" in label for label in log.labels())


def test_a_missing_wait_for_the_mean_is_a_race(monkeypatch):
    from scheduler.replicas.replica import Replica

    update = Replica.update
    monkeypatch.setattr(
        Replica, "update", lambda self, segment, round, after: update(self, segment, round, None)
    )
    model, log = logistic(), LaunchLog()
    with engine_of(model, null_devices(1, log), 2, sync="ssgd") as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 4)
    assert find_races(log)


def poisoned(model: Model, bad: tuple[int, int]):
    def batch(round: int, replica: int):
        x, *rest = model.batch(round, replica)
        return (x * x.dtype.type(np.nan) if (round, replica) == bad else x, *rest)

    return batch


def test_nan_stops_with_every_replica_intact():
    model = well()
    before, _ = trained(model, 1, 3, 3, sync="ssgd")
    with engine_of(model, cpu_devices(1), 3, sync="ssgd", launch_ahead=3) as engine:
        source = Prepared(poisoned(model, (3, 1)), 3)
        with pytest.raises(NumericsError, match="replica 1 is not finite at step 3"):
            within(lambda: engine.run(source.open, 0, 9))
        assert same_bits(engine.learners.values.replica_values(0), engine.learners.values.replica_values(2))
        assert np.array_equal(engine.learners.values.replica_values(0)["w"], before["w"])
        engine.run(Prepared(model.batch, 3).open, 3, 5)


def test_skipping_a_nan_keeps_replicas_equal():
    model = well()
    with engine_of(model, cpu_devices(2), 2, sync="ssgd", on_nan="skip") as engine:
        engine.run(Prepared(poisoned(model, (2, 3)), 4).open, 0, 6)
        values = [engine.learners.values.replica_values(i) for i in range(4)]
    assert np.isfinite(values[0]["w"]).all()
    assert all(same_bits(values[0], other) for other in values)
    assert engine.skipped_updates == 4  # the mean was not finite for any of them


@pytest.mark.usefixtures("kernels")
def test_a_loss_that_is_not_finite_skips_the_update_of_all():
    """Gradients may be finite: nobody applies their mean."""
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [2], name="x")
        w = tb.Variable(np.ones(3, np.float32), name="w")
        loss = tb.reduce_sum(w * w) + tb.stop_gradient(tb.reduce_sum(x - x))
        program = tb.StepProgram((x,), loss, tb.train.MomentumOptimizer(0.5, 0.9).minimize(loss))

    def batch(round: int, replica: int):
        return (np.full(2, np.inf if (round, replica) == (1, 1) else 1.0, np.float32),)

    options = {"synchronisation": tb.Synchronisation("ssgd"), "on_nan": "skip"}
    with tb.LearningEngine(
        program, [tb.TensorSpec((2,), tb.float32)], cpu_devices(2), 1, **options
    ) as engine:
        engine.initialize()
        engine.run(Prepared(batch, 2).open, 0, 1)
        before = engine.learners.values.replica_values(0)
        engine.run(Prepared(batch, 2).open, 1, 2)
        values = [engine.learners.values.replica_values(i) for i in range(2)]
        assert all(same_bits(before, other) for other in values)
        assert engine.skipped_updates == 2
        engine.run(Prepared(batch, 2).open, 2, 4)
        values = [engine.learners.values.replica_values(i) for i in range(2)]
        assert same_bits(*values)
        assert not same_bits(before, values[0])


@pytest.mark.parametrize(("devices", "per_device"), [(1, 3), (2, 2)])
def test_failures_never_hang_and_leave_the_engine_usable(devices, per_device):
    model, k = fused(), devices * per_device
    with engine_of(model, cpu_devices(devices), per_device, sync="ssgd") as engine:

        def burning(round: int, replica: int):
            (x,) = model.batch(round, replica)
            return (np.full_like(x, FUSE) if (round, replica) == (2, k - 1) else x,)

        with pytest.raises(TensorBowError, match="the fuse has blown"):
            within(lambda: engine.run(Prepared(burning, k).open, 0, 6))
        source = Hesitant(model.batch, k, fail_at=(3, 1))
        with pytest.raises(OSError, match="the disk is gone"):
            within(lambda: engine.run(source.open, 0, 6))
        engine.learners.values.initialize(model.initial)
        assert within(lambda: engine.run(Prepared(model.batch, k).open, 0, 3)) == 3


def test_a_stop_leaves_all_at_one_round():
    model = logistic()
    with engine_of(model, cpu_devices(2), 2, sync="ssgd") as engine:
        ended = within(
            lambda: engine.run(
                Hesitant(model.batch, 4).open,
                0,
                50,
                lambda results: engine.request_stop() if 4 in results.rounds else None,
            )
        )
        assert 5 <= ended <= 8
        expected, _ = trained(model, 2, 2, ended, sync="ssgd")
        assert same_bits(engine.central_values(), expected)


def test_a_weight_without_a_gradient_of_its_own_is_refused():
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [3])
        w = tb.Variable(np.ones(3, np.float32), name="w")
        loss = tb.reduce_sum(tb.square(w - x))
        update = w.assign_sub(0.1 * tb.gradients(loss, w)[0]).op
    model = Model(StepProgram((x,), loss, update), [tb.TensorSpec((3,), tb.float32)], {}, lambda t, i: ())
    with (
        pytest.raises(InvalidArgumentError, match=r"ssgd: AssignSub .* use sma"),
        engine_of(model, cpu_devices(1), 2, sync="ssgd"),
    ):
        pass


@pytest.mark.parametrize("options", [{"sync": "none", "ssgd_from": 3}, {"ssgd_from": 0}])
def test_impossible_switches(options):
    with pytest.raises(InvalidArgumentError, match="ssgd_from: expected"):
        tb.Synchronisation(**options)
