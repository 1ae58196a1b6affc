"""Options of `tb.ConfigProto`: logs of placement, counts and lists of devices, memory, steps at once."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import DeviceSet
from tensorbow.devices import CpuDevice, DeviceName, GpuDevice, get_device
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError
from tensorbow.runtime.config_proto import allowed_devices
from tests.cluster.servers import servers_here
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = pytest.mark.usefixtures("graph")


def test_the_placement_is_logged_once_for_each_step(capsys):
    x = tb.placeholder(tb.float32, [2], name="x")
    v = tb.Variable(np.ones(2, np.float32), name="v")
    with tb.device("/cpu:1"):
        far = tb.exp(x, name="far")
    near = tb.add(far, v, name="near")
    with tb.Session(config=tb.ConfigProto(log_device_placement=True)) as session:
        session.load_variables({"v": [1, 1]})
        for _ in range(2):
            session.run(near, {x: [0, 0]})
        lines = capsys.readouterr().err.splitlines()
        assert lines == ["near: /device:CPU:0", "far: /device:CPU:1", "v: /device:CPU:0"]
        session.run(tb.square(x, name="own"), {x: [0, 0]})
        assert capsys.readouterr().err == "own: /device:CPU:0\n"
    with tb.Session() as session:
        session.run(far, {x: [0, 0]})
    assert capsys.readouterr().err == ""


def test_counts_of_devices():
    with tb.device("/cpu:1"):
        second = tb.constant([1.0]) + 1.0
    with tb.device("/cpu:2"):
        third = tb.constant([1.0]) + 1.0
    with tb.Session(config=tb.ConfigProto(device_count={"CPU": 2})) as session:
        assert session.run(second) == [2.0]
        with pytest.raises(InvalidArgumentError, match=r"device /device:CPU:2, which does not exist"):
            session.run(third)
        assert [d.name.short for d in session._devices.candidates()] == ["/cpu:0", "/cpu:1"]
    soft = tb.ConfigProto(device_count={"cpu": 1}, allow_soft_placement=True)
    with tb.Session(config=soft) as session:
        assert session.run(third) == [2.0]
        assert [d.name.short for d in session._devices.known()] == ["/cpu:0"]


def test_greedy_placement_uses_the_counted_devices():
    x = tb.placeholder(tb.float32, [512, 1024])
    ends = [tb.reduce_sum(tb.matmul(x, tb.transpose(x) * float(n))) for n in range(1, 3)]
    config = tb.ConfigProto(device_count={"CPU": 2})
    with tb.Session(config=config, placement="greedy") as session:
        assert len(session.explain(tb.add_n(ends), {x: np.ones((512, 1024))}).executable.parts) == 2


def test_lists_of_gpus_and_wrong_ones():
    options = tb.ConfigProto(device_count={"GPU": 3}, gpu_options=tb.GPUOptions(visible_device_list="0, 2,5"))
    assert allowed_devices(options) == {"GPU": {0, 2}}
    assert allowed_devices(tb.ConfigProto(gpu_options=tb.GPUOptions(visible_device_list="1"))) == {"GPU": {1}}
    assert allowed_devices(tb.ConfigProto()) == {}
    for wrong in ("one", "0;1", "0,,1"):
        config = tb.ConfigProto(gpu_options=tb.GPUOptions(visible_device_list=wrong))
        with pytest.raises(InvalidArgumentError, match="visible_device_list: expected numbers of GPUs"):
            tb.Session(config=config)
    for count in ({"CPU": -1}, {"CPU": "2"}, {1: 2}, {"CPU": True}):
        with pytest.raises(InvalidArgumentError, match=r"device_count: expected counts by kind"):
            tb.Session(config=tb.ConfigProto(device_count=count))


def test_a_device_set_opens_only_what_is_allowed():
    devices = DeviceSet(get_device("/cpu:0"), None, {"CPU": {0, 3}})
    assert devices.matching(DeviceName.parse("/cpu:2")) == []
    assert [d.name.short for d in devices.matching(DeviceName.parse("/cpu:3"))] == ["/cpu:3"]
    assert "/cpu:3" in str(devices)


@needs_compiler
def test_the_share_of_a_gpus_memory():
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 26) as gpu:
        x = tb.placeholder(tb.float32, [None])
        y = tb.exp(x) + tb.reverse(x, [0])
        value = np.zeros(1 << 20, np.float32)
        for fraction, fits in ((0.0, True), (0.9, True), (0.25, False)):
            config = tb.ConfigProto(gpu_options=tb.GPUOptions(per_process_gpu_memory_fraction=fraction))
            with tb.Session(device=gpu, config=config) as session:
                if fits:
                    assert session.run(y, {x: value}).shape == value.shape
                    continue
                with pytest.raises(ResourceExhaustedError, match=r"limit 16\.0 MiB"):
                    session.run(y, {x: value})
                session.trim()
                assert session.run(y, {x: [0.0]}) == [1.0]  # a smaller step has room


@pytest.mark.parametrize("most", [0, 1, 2])
def test_steps_at_the_same_time(most):
    going, peak, lock, met = set(), [0], threading.Lock(), threading.Barrier(2)

    def run(call):
        with lock:
            going.add(threading.get_ident())
            peak[0] = max(peak[0], len(going))
        if most != 1:
            met.wait(30)  # two are in here
        with lock:
            going.discard(threading.get_ident())
        call.outputs[0][...] = call.inputs[0]

    op = tb.define_op(
        "TestAtOnce",
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=run,
        replace=True,
    )
    x = tb.placeholder(tb.float32, [])
    y = op(x)
    config = tb.ConfigProto(inter_op_parallelism_threads=most)
    with CpuDevice("/cpu:9") as device, tb.Session(device=device, config=config) as session:
        threads = [threading.Thread(target=session.run, args=(y, {x: n})) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert peak[0] <= (most or 4)
    assert peak[0] >= min(most or 2, 2)


def test_sessions_on_tasks_warn_of_what_they_do_not_take():
    with servers_here(worker=1) as servers:
        config = tb.ConfigProto(log_device_placement=True, lossy_transfers=True)
        with pytest.warns(UserWarning, match="log_device_placement=True has no effect in a session on tasks"):
            tb.Session(servers["worker0"].target, config=config).close()


def test_options_without_effect():
    assert tb.GPUOptions(allocator_type="BFC").allocator_type == "BFC"
    with pytest.raises(InvalidArgumentError, match="allocator_type"):
        tb.GPUOptions(allocator_type="other")
    config = tb.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = tb.OptimizerOptions.ON_1
    with pytest.warns(UserWarning, match="graph_options have no effect"):
        tb.Session(config=config).close()
    tb.Session(config=tb.ConfigProto(graph_options=tb.GraphOptions())).close()
