"""Replicators on the GPU of this machine, with several device names on it, beside CPU devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import GpuDevice
from tests.gpu_rig.counted import opened_on
from tests.gpu_rig.runtimes import real_runtime
from tests.scheduler_rig.running import gpu_devices, same_bits

RUNTIME = real_runtime()
pytestmark = pytest.mark.filterwarnings("ignore:central_values")  # of independent replicas, replica 0's
ROWS = np.random.default_rng(5).normal(size=(64, 6)).astype(np.float32)
WORDS = np.random.default_rng(6).integers(0, 9, (64, 3))


@pytest.fixture
def gpus() -> Iterator[list[GpuDevice]]:
    """Four devices on one GPU."""
    with opened_on(RUNTIME)() as runtime:
        devices = gpu_devices(runtime, 4)
        yield devices
        for device in devices:
            device.close(drain=False)


def batches(replica_id: int) -> Iterator[Any]:
    draw = np.random.default_rng(replica_id)
    while True:
        picks = draw.integers(0, 64, 8)
        yield ROWS[picks], WORDS[picks]


def trained(devices: list[Any], *, steps: int = 8, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Losses `[steps, replicas]` and the central model, of a step with a collective and an embedding."""
    with tb.Graph().as_default():
        tb.set_random_seed(2)
        replicator = tb.MultiGpuReplicator(devices, **options)
        optimizer = replicator.wrap_optimizer(tb.train.AdamOptimizer(0.02))
        last = replicator.devices_per_replica - 1

        def step_fn(rows: Any, words: Any) -> Any:
            hidden = tb.layers.dense(rows, 5, use_bias=False, name="hidden")
            hidden = tb.nn.relu(tb.layers.batch_normalization(hidden, training=True, cross_replica=True))
            with replicator.logical_device(last):
                table = tb.get_variable("table", [9, 4], initializer=tb.initializers.random_normal(seed=1))
                found = tb.reduce_sum(tb.gather(table, words), 1)
                both = tb.layers.dense(tb.concat([hidden, found], 1), 3, use_bias=False, name="joint")
                both = both - tb.all_sum(tb.reduce_mean(both, 0)) / replicator.num_replicas
                loss = tb.reduce_mean(tb.square(both - tb.reduce_sum(rows, 1, keepdims=True)))
            with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
                update = optimizer.minimize(loss)
            with tb.control_dependencies([update]):
                return tb.identity(loss)

        losses = np.array([*replicator.train(step_fn, batches, steps)])
        return losses, replicator.central_values()


@pytest.mark.parametrize("sync", ["ssgd", "sma", "none"])
def test_they_train_as_on_cpu_devices(gpus: list[GpuDevice], sync: str) -> None:
    there, values = trained(gpus[:2], replicas_per_gpu=1, sync=sync)
    here, expected = trained(["/cpu:0", "/cpu:1"], replicas_per_gpu=1, sync=sync)
    np.testing.assert_allclose(there, here, rtol=2e-4, atol=2e-5)
    for name in expected:
        np.testing.assert_allclose(values[name], expected[name], rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("sync", ["ssgd", "sma"])
def test_replicas_that_span_two_devices_have_the_bits_of_whole_ones(gpus: list[GpuDevice], sync: str) -> None:
    whole, values = trained(gpus[::2], sync=sync)
    apart, others = trained(gpus, sync=sync, num_gpus_per_replica=2)
    assert whole.tobytes() == apart.tobytes()
    assert same_bits(values, others)


def test_the_moving_average_of_z_follows_it(gpus: list[GpuDevice]) -> None:
    values: list[dict[str, Any]] = []
    with tb.Graph().as_default():
        replicator = tb.MultiGpuReplicator(gpus[:2], sync="sma", ema=0.5)

        def step_fn(rows: Any, words: Any) -> Any:
            loss = tb.reduce_mean(tb.square(tb.layers.dense(rows, 1, name="out")))
            return replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1)).minimize(loss)

        for _ in replicator.train(step_fn, batches, 3):
            values.append({"z": replicator.central_values(), "ema": replicator.ema_values()})
    for before, after in itertools.pairwise(values):
        expected = 0.5 * before["ema"]["out/kernel"] + 0.5 * after["z"]["out/kernel"]
        np.testing.assert_allclose(after["ema"]["out/kernel"], expected, rtol=1e-5, atol=1e-6)


def test_a_run_goes_on_from_its_file(gpus: list[GpuDevice], tmp_path: Any) -> None:
    ends = []
    for resumes in (False, True):
        with tb.Graph().as_default(), tb.Session() as session:
            replicator = tb.MultiGpuReplicator(gpus, sync="sma", num_gpus_per_replica=2)

            def step_fn(rows: Any, words: Any, replicator: Any = replicator) -> Any:
                hidden = tb.layers.dense(rows, 5, name="hidden")
                with replicator.logical_device(1):
                    loss = tb.reduce_mean(tb.square(tb.layers.dense(hidden, 1, name="out")))
                optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))
                return loss, optimizer.minimize(loss)

            loss, _ = replicator.run(step_fn, batches)
            replicator.init(session)
            if resumes:
                replicator.restore(tmp_path / "state")
            for step in range(3 if resumes else 0, 6):
                if step == 3 and not resumes:
                    replicator.save(tmp_path / "state")
                session.run(loss)
            ends.append([replicator.replica_values(replica, slots=True) for replica in range(2)])
            replicator.shutdown()
    assert all(same_bits(*pair) for pair in zip(*ends, strict=True))


@pytest.mark.parametrize("mode", ["auto", "fused"])
def test_rows_that_the_gpu_keeps_give_the_bits_of_rows_from_the_host(
    gpus: list[GpuDevice], mode: str
) -> None:
    flags = np.arange(64) % 3 == 0
    rows = tb.data.Dataset.from_tensor_slices((ROWS, WORDS, flags)).shuffle(64, seed=1).batch(8).repeat()

    def step(*arrays: Any) -> Any:
        return [tb.identity(each) for each in arrays]

    found = []
    for where in ("always", "never"):
        with tb.Graph().as_default():
            replicator = tb.MultiGpuReplicator(gpus[:2], 2, replica_mode=mode)
            loop = replicator.train(step, lambda: rows, 12, data_on_device=where)
            replicator.init()
            stepper = replicator._running.stepper
            assert stepper is not None
            assert (stepper.engine.learners.dataset is not None) is (where == "always")
            found.append([*loop])
            replicator.shutdown()
    for kept, given, batch in zip(*found, rows, strict=False):
        for one, other, array in zip(kept, given, batch, strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(one, np.stack([array] * 4))
