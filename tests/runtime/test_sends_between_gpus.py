"""Values sent between two GPUs go from device to device, never through memory of the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import Device, GpuDevice
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.emulated_nccl import EmulatedNccl
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler
WIDTH = 300  # of what is sent: 4 rows of 1200 bytes


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EmulatedCuda]]:
    with emulated_runtime() as first, emulated_runtime() as second:
        second.index = 1
        EmulatedNccl([first, second]).show(monkeypatch)
        yield [first, second]


def opened(gpus: list[EmulatedCuda]) -> list[Device]:
    return [GpuDevice(f"/gpu:{n}", gpu, limit_nbytes=1 << 27) for n, gpu in enumerate(gpus)]


def large_copies(gpus: list[EmulatedCuda]) -> Counter[str]:
    """Copies of what is sent, by kind."""
    found: Counter[str] = Counter()
    for gpu in gpus:
        for call in gpu.log:
            if call.kind == "copy":
                kind, nbytes = call.name.split()
                found[kind] += int(nbytes) == 4 * WIDTH * 4
    return found


def test_a_session_sends_from_gpu_to_gpu(gpus: list[EmulatedCuda]) -> None:
    devices = opened(gpus)
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [4, 7])
        with tb.device("/gpu:0"):
            hidden = tb.matmul(x, np.arange(7 * WIDTH, dtype=np.float32).reshape(7, WIDTH) / 1e4)
        with tb.device("/gpu:1"):
            squares = tb.square(hidden)
        with tb.device("/gpu:0"):
            total = tb.reduce_sum(squares + hidden)
    with tb.Session(graph=graph, device=devices[0], devices=devices) as session:
        for seed in range(4):
            value = np.random.default_rng(seed).normal(size=(4, 7)).astype(np.float32)
            product = value @ (np.arange(7 * WIDTH, dtype=np.float32).reshape(7, WIDTH) / 1e4)
            expected = (product.astype(np.float64) ** 2 + product).sum()
            assert session.run(total, {x: value}) == pytest.approx(expected, rel=1e-4)
    found = large_copies(gpus)
    assert found["PEER"] == found["DEVICE_TO_DEVICE"] == 2 * 4
    assert not found["DEVICE_TO_HOST"] + found["HOST_TO_DEVICE"]
    for device in devices:
        device.close()


@pytest.mark.slow
def test_so_do_the_parts_of_a_replica(gpus: list[EmulatedCuda]) -> None:
    def losses(devices: list[Any]) -> Any:
        with tb.Graph().as_default():
            tb.set_random_seed(1)
            replicator = tb.MultiGpuReplicator(devices, num_gpus_per_replica=2, sync="none")

            def step(x: tb.Tensor) -> tb.Tensor:
                hidden = tb.layers.dense(x, WIDTH, name="hidden")
                with replicator.logical_device(1):
                    loss = tb.reduce_mean(tb.square(tb.layers.dense(tb.nn.relu(hidden), 1, name="out") - 1.0))
                update = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.01)).minimize(loss)
                with tb.control_dependencies([update]):
                    return tb.identity(loss)

            def input_fn(replica_id: int) -> Iterator[Any]:
                draw = np.random.default_rng(replica_id)
                while True:
                    yield draw.normal(size=(4, 7)).astype(np.float32)

            return np.array([*replicator.train(step, input_fn, 5)])

    devices = opened(gpus)
    here, there = losses(["/cpu:0", "/cpu:1"]), losses(devices)
    np.testing.assert_allclose(there, here, rtol=1e-4)
    found = large_copies(gpus)
    assert found["PEER"] >= 2 * 5  # the activations, and their gradient back
    assert not found["DEVICE_TO_HOST"] + found["HOST_TO_DEVICE"]
    for device in devices:
        device.close()
