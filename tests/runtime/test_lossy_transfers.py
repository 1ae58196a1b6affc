"""Transfers of float32 as its upper 16 bits: which bits arrive, how many bytes go, and how training does."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.cluster.connection import Connection
from tensorbow.devices import CpuDevice, GpuDevice
from tests.cluster.servers import servers_here
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = pytest.mark.usefixtures("graph")

LOSSY = tb.ConfigProto(lossy_transfers=True)


@pytest.fixture
def cpus():
    devices = [CpuDevice(f"/cpu:{i}") for i in range(3)]
    yield devices
    for device in devices:
        device.close()


def truncated(value):
    """Zeros in the lower 16 bits."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def odd_values():
    random = np.random.default_rng(0)
    values = random.integers(0, 1 << 32, 4096, dtype=np.uint32).view(np.float32)
    values[:6] = [np.nan, np.inf, -np.inf, -0.0, 1e-45, np.float32(1) + np.float32(2.0**-20)]
    return values


def test_exactly_the_upper_bits_arrive_on_each_device(cpus):
    x = tb.placeholder(tb.float32, [None])
    with tb.device("/cpu:1"):
        own = tb.identity(tb.where(x < 1e30, x, x), name="own")
    far = []
    for device in ("/cpu:0", "/cpu:2"):
        with tb.device(device):
            far += [tb.concat([own, own], 0), tb.concat([own, own[:3]], 0)]
    value = odd_values()
    with tb.Session(config=LOSSY, device=cpus[0], devices=cpus) as session:
        here, *there = session.run([own, *far], {x: value})
        assert here.tobytes() == value.tobytes()
        for result in there:
            assert result.tobytes() == truncated([*value, *value][: len(result)]).tobytes()
        step = session.explain(far, {x: value})
    receives = [ref for part in step.executable.parts.values() for ref in part.inputs.values()]
    assert sorted(ref.nbytes for ref in receives if ref.shape != value.shape) == [2 * 4096] * 2
    nodes = [
        name for p in step.executable.parts.values() for s in p.segments for g in s.groups for name in g.nodes
    ]
    assert [name for name in nodes if "/narrow" in name] == ["Select:0/narrow"]  # for both devices
    assert "to /device:CPU:0, the upper 16 bits of float32" in str(step)


def test_other_dtypes_scalars_and_empty_values(cpus):
    x, n = tb.placeholder(tb.float64, []), tb.placeholder(tb.float32, [None])
    with tb.device("/cpu:1"):
        wide, whole, scalar = x / 3.0, tb.cast(x, tb.int32) * 65537, tb.cast(x, tb.float32) / 3.0
        empty = tb.square(n)
    results = [wide + 0.0, whole + 0, scalar + 0.0, tb.reduce_sum(empty)]
    with tb.Session(config=LOSSY, device=cpus[0], devices=cpus) as session:
        values = session.run(results, {x: 1.0, n: []})
    assert values[:2] == [1 / 3, 65537]
    assert values[2] == truncated(np.float32(1) / np.float32(3))
    assert values[3] == 0.0


def model(hidden=8):
    """Two layers on two devices: input, loss, update."""
    x = tb.placeholder(tb.float32, [None, 5], name="x")
    random = np.random.default_rng(1)
    w = tb.Variable(random.normal(size=(5, hidden)).astype(np.float32), name="w")
    h = tb.tanh(tb.matmul(x, w))
    with tb.device("/cpu:1"):
        v = tb.Variable(random.normal(size=(hidden, 1)).astype(np.float32), name="v")
        loss = tb.reduce_mean(tb.square(tb.matmul(h, v) - tb.reduce_sum(x, 1, keepdims=True)))
    return x, loss, tb.train.MomentumOptimizer(0.05, 0.9).minimize(loss), [w, v]


def test_training_learns_as_well(cpus):
    x, loss, train, _ = model()
    batch = np.random.default_rng(2).normal(size=(32, 5)).astype(np.float32)
    losses = {}
    for lossy in (False, True):
        config = tb.ConfigProto(lossy_transfers=lossy)
        with tb.Session(config=config, device=cpus[0], devices=cpus) as session:
            session.run(tb.global_variables_initializer())
            losses[lossy] = [session.run([loss, train], {x: batch})[0] for _ in range(60)]
    exact, rounded = losses[False], losses[True]
    assert exact != rounded
    assert rounded[0] == pytest.approx(exact[0], rel=0.05)
    assert exact[-1] < 0.1 * exact[0]
    assert rounded[-1] < 0.1 * rounded[0]
    assert rounded[-1] == pytest.approx(exact[-1], rel=0.25)


def test_half_the_bytes_go_between_tasks(monkeypatch):
    sent = []
    send = Connection.send

    def counted(self, header, arrays=()):
        if "keys" in header:
            sent.append(sum(array.nbytes for array in arrays))
        return send(self, header, arrays)

    monkeypatch.setattr(Connection, "send", counted)
    value = odd_values().reshape(64, 64)
    with servers_here(worker=2) as servers:
        x = tb.placeholder(tb.float32, [64, 64])
        with tb.device("/job:worker/task:1"):
            far = tb.where(x < 1e30, x, x)
        with tb.device("/job:worker/task:0"):
            near = tb.concat([far, far], 0)
        for config, nbytes in ((None, value.nbytes), (LOSSY, value.nbytes // 2)):
            sent.clear()
            with tb.Session(servers["worker0"].target, config=config) as session:
                found = session.run(near, {x: value})
            assert sum(sent) == nbytes
            expected = value if config is None else truncated(value)
            assert found.tobytes() == np.concatenate([expected, expected]).tobytes()


@needs_compiler
def test_between_an_emulated_gpu_and_the_host():
    with emulated_runtime() as runtime:
        cpu, gpu = CpuDevice("/cpu:0"), GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27)
        x = tb.placeholder(tb.float32, [None])
        with tb.device("/gpu:0"):
            far = x * 1.5
        near = far + 0.0
        with tb.device("/gpu:0"):
            back = tb.negative(near * 1.0)
        value = np.random.default_rng(0).normal(size=500).astype(np.float32)
        with tb.Session(config=LOSSY, device=cpu, devices=[cpu, gpu]) as session:
            results = session.run([far, near, back], {x: value})
        assert results[0].tobytes() == (value * np.float32(1.5)).tobytes()
        assert results[1].tobytes() == truncated(results[0]).tobytes()
        assert results[2].tobytes() == (-results[1]).tobytes()
        for device in (cpu, gpu):
            device.close()
