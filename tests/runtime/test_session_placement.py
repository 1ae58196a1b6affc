"""Sessions that place by costs: the bits of one device, requests, memory limits, and measured costs."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler.placement import CostModel
from tensorbow.devices import CpuDevice, GpuDevice
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError
from tensorbow.runtime.explain import Explanation, MultiDeviceExplanation
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = pytest.mark.usefixtures("graph")

WIDTH = 640  # the product of 64 rows takes longer than a transfer


@pytest.fixture
def cpus():
    devices = [CpuDevice(f"/cpu:{i}") for i in range(2)]
    yield devices
    for device in devices:
        device.close()


def branches(count, layers=2):
    """Independent branches of products, joined at the end: input, and result."""
    x = tb.placeholder(tb.float32, [None, WIDTH], name="x")
    ends = []
    for branch in range(count):
        h = x
        for layer in range(layers):
            h = tb.matmul(h, weight(f"w{branch}{layer}"), name=f"product{branch}{layer}")
        ends.append(tb.reduce_sum(h))
    return x, tb.add_n(ends)


def value_of(name):
    value = np.random.default_rng(sum(map(ord, name))).normal(size=(WIDTH, WIDTH)) / WIDTH**0.5
    return value.astype(np.float32)


def weight(name):
    return tb.Variable(value_of(name), name=name)


def rows(count=64):
    return np.random.default_rng(0).normal(size=(count, WIDTH)).astype(np.float32)


def devices_of(step):
    """Short names of the devices of a step, by op."""
    return {
        name: device[-1]
        for device, part in step.executable.parts.items()
        for segment in part.segments
        for group in segment.groups
        for name in group.nodes
    }


def test_branches_are_spread_with_the_bits_of_one_device(cpus):
    x, total = branches(2)
    train = tb.train.MomentumOptimizer(1e-3, 0.9).minimize(total)
    results = {}
    for placement in ("simple", "greedy"):
        with tb.Session(device=cpus[0], devices=cpus, placement=placement) as session:
            session.run(tb.global_variables_initializer())
            results[placement] = [session.run([total, train], {x: rows()})[0] for _ in range(3)]
            step = session.explain([total, train], {x: rows()})
    assert results["simple"] == results["greedy"]
    assert isinstance(step, MultiDeviceExplanation)
    where = devices_of(step)
    assert where["product00"] == where["product01"] != where["product10"] == where["product11"]
    text = str(step)
    assert "placement: greedy, by estimated costs: " in text
    assert "as much as may be on /device:CPU:0: " in text


def test_a_chain_and_light_work_stay_at_home(cpus):
    x, total = branches(1, layers=3)
    with tb.Session(device=cpus[0], devices=cpus, placement="greedy") as session:
        session.run(tb.global_variables_initializer())
        chain = session.explain(total, {x: rows()})
        light = session.explain([tb.exp(x), tb.sin(x)], {x: rows(1)})
    for step in (chain, light):
        assert isinstance(step, Explanation)
        assert "placement: greedy" in str(step)
        assert "0 values of 0 bytes sent" in str(step)


def test_requests_are_kept(cpus):
    x = tb.placeholder(tb.float32, [None, WIDTH])
    with tb.device("/cpu:1"):
        v = weight("v")
        first = tb.matmul(x, v, name="first")
    with tb.colocate_with(first):
        second = tb.exp(first, name="second")
    twin = tb.matmul(x, v.read_value(), name="twin")  # equal, but free
    with tb.Session(device=cpus[0], devices=cpus, placement="greedy") as session:
        session.run(v.initializer)
        where = devices_of(session.explain([first, second, twin], {x: rows(2)}))
        assert where["first"] == where["second"] == "1"
        assert session.run(first, {x: rows(2)}).tobytes() == session.run(twin, {x: rows(2)}).tobytes()


def test_a_memory_limit_splits_a_model(graph):
    """Three layers of 6.5 MB with their gradients, on devices of 60 MiB: one has no room, two have."""
    width, names = 1280, ["a", "b", "c"]
    values = {name: np.full((width, width), 2.0 ** -(n + 8), np.float32) for n, name in enumerate(names)}
    x = h = tb.placeholder(tb.float32, [None, width])
    for name in names:
        h = tb.matmul(h, tb.Variable(values[name], name=name), name=f"product_{name}")
    total = tb.reduce_sum(h)
    train = tb.train.GradientDescentOptimizer(1e-9).minimize(total)
    fed = np.random.default_rng(0).normal(size=(2, width)).astype(np.float32)
    results = []

    def losses(session):
        session.load_variables(values)
        return [session.run([total, train], {x: fed})[0] for _ in range(2)]

    for limit, count in ((1 << 30, 1), (60 << 20, 1), (60 << 20, 2)):
        devices = [CpuDevice(f"/cpu:{i}", limit_nbytes=limit) for i in range(count)]
        with tb.Session(graph=graph, device=devices[0], devices=devices, placement="greedy") as session:
            if (limit, count) == (60 << 20, 1):
                with pytest.raises(ResourceExhaustedError):
                    losses(session)
            else:
                results.append(losses(session))
            if count == 2:
                step = session.explain([total, train], {x: fed})
        for device in devices:
            device.close()
    assert results[0] == results[1]
    assert results[0][0] != results[0][1]
    where = devices_of(step)
    assert {where[f"product_{name}"] for name in names} == {"0", "1"}


def test_measured_times_place_again(cpus):
    x, total = branches(2)
    with tb.Session(device=cpus[0], devices=cpus, placement="greedy") as session:
        session.run(tb.global_variables_initializer())
        expected = session.run(total, {x: rows()})
        with pytest.raises(InvalidArgumentError, match="got none; run it with"):
            session.place_again(tb.RunMetadata())
        metadata = tb.RunMetadata()
        options = tb.RunOptions(trace_level=tb.RunOptions.FULL_TRACE)
        session.run(total, {x: rows()}, options, metadata)
        calls = sum(len(stats.node_stats) for stats in metadata.step_stats.dev_stats)
        assert 4 < session.place_again(metadata) <= calls  # sends are not taken
        text = str(session.explain(total, {x: rows()}))
        assert "placement: greedy, 7 of 7 by measured costs: " in text
        assert session.run(total, {x: rows()}) == expected
        variables = [f"w{branch}{layer}" for branch in range(2) for layer in range(2)]
        assert session._device_variables.of(variables[0]) is not session._device_variables.of(variables[3])


def test_ops_that_took_no_time_are_not_sent_away(cpus):
    x = tb.placeholder(tb.float32, [64, WIDTH])
    ends = [tb.reduce_sum(tb.matmul(x, tb.transpose(x) * float(n))) for n in range(1, 3)]
    total = tb.add_n(ends)
    with tb.Session(device=cpus[0], devices=cpus, placement="greedy") as session:
        metadata = tb.RunMetadata()
        options = tb.RunOptions(trace_level=tb.RunOptions.FULL_TRACE)
        expected = session.run(total, {x: rows()}, options, metadata)
        tracer = metadata.step_stats.tracer
        for factor, kind in ((1e4, MultiDeviceExplanation), (1e-9, Explanation)):
            spans = tracer.spans
            tracer.spans = [s._replace(end_s=s.start_s + factor * (s.end_s - s.start_s)) for s in spans]
            session._greedy.model = CostModel()
            assert session.place_again(metadata)
            assert isinstance(session.explain(total, {x: rows()}), kind)
            assert session.run(total, {x: rows()}) == expected
            session.run(total, {x: rows()}, options, metadata)
            tracer = metadata.step_stats.tracer


def test_the_graphs_of_a_run_are_those_of_its_devices(cpus):
    x, total = branches(2)
    with tb.Session(device=cpus[0], devices=cpus, placement="greedy") as session:
        session.run(tb.global_variables_initializer())
        metadata = tb.RunMetadata()
        session.run(total, {x: rows()}, tb.RunOptions(output_partition_graphs=True), metadata)
        where = devices_of(session.explain(total, {x: rows()}))
    found = {node.name: node.device[-1] for graph in metadata.partition_graphs for node in graph.node}
    products = [name for name in where if name.startswith("product")]
    assert {name: found[name] for name in products} == {name: where[name] for name in products}
    assert {found[name] for name in products} == {"0", "1"}


def test_only_greedy_sessions_place_again(cpus):
    with (
        tb.Session(device=cpus[0]) as session,
        pytest.raises(InvalidArgumentError, match=r'tb\.Session\(placement="greedy"\)'),
    ):
        session.place_again(tb.RunMetadata())


def test_loops_that_stay_whole_and_later_variables(cpus):
    with tb.Session(device=cpus[0], devices=cpus, placement="greedy") as session:
        limit = tb.placeholder(tb.int32, [])
        count = tb.while_loop(lambda i: i < limit, lambda i: i + 1, [tb.constant(0)])
        assert session.run(count, {limit: 7}) == 7
        a = tb.Variable(np.float32(2.0))
        session.run(a.initializer)
        b = tb.Variable(np.float32(3.0))
        session.run(b.initializer)
        assert session.run(a * b) == 6.0


@needs_compiler
def test_heavy_work_goes_to_a_gpu_and_host_ops_do_not():
    with emulated_runtime() as runtime:
        cpu, gpu = CpuDevice("/cpu:0"), GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27)
        x = tb.placeholder(tb.float32, [None, 32])
        product = tb.matmul(tb.tile(x, [64, 64]), tb.tile(tb.transpose(x), [64, 64]), name="product")
        total = tb.reduce_sum(tb.square(product))
        value = np.ones((2, 32), np.float32)
        with tb.Session(device=cpu, devices=[cpu, gpu], placement="greedy") as session:
            step = session.explain(total, {x: value})
            assert "/device:GPU:0" in str(step.executable.notes)
            assert next(d for d, p in step.executable.parts.items() if "product" in str(p.segments)) == (
                "/device:GPU:0"
            )
            assert session.run(total, {x: value}) == 128**2 * 2048.0**2
        for device in (cpu, gpu):
            device.close()
