"""Steps over several devices: the values of one device, whatever the placement and the timing.

As long as the list of its cases.
"""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice, LaunchLog, NullDevice, find_races
from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from tensorbow.kernels import register_backend
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.runtime.explain import MultiDeviceExplanation


@pytest.fixture(scope="module")
def cpus():
    generator = random.Random(0)

    def late():
        if generator.random() < 0.3:
            time.sleep(generator.random() * 5e-4)

    devices = [CpuDevice(f"/cpu:{i}", delay=late) for i in range(3)]
    yield devices
    for device in devices:
        device.close()


def pipeline():
    """Values that go to and fro between two devices, and a write behind a remote read."""
    with tb.device("/cpu:1"):
        v = tb.Variable(np.ones(100), name="v")
        read = v.read_value()
    total = tb.reduce_sum(tb.square(read), name="total")
    with tb.device("/cpu:1"):
        write = v.assign_add(tb.ones([100], tb.float64) * total)
        after = tb.reduce_sum(write, name="after")
    return v, [total, after, tb.negative(after) + tb.reduce_sum(read)]


@pytest.mark.parametrize("stage", [1, 2, 4])
def test_a_missing_wait_is_found(graph, stage):
    _, fetches = pipeline()
    log = LaunchLog()
    devices = [NullDevice(f"/cpu:{i}", log=log) for i in range(2)]
    with tb.Session(device=devices[0], devices=devices) as session:
        session.load_variables({"v": np.ones(100)})
        session.run(fetches)
        assert find_races(log) == []
        step = next(s for s in session._cache._steps.values() if s.idle)
        binding = step.idle[0]
        with_waits = [n for n, entry in enumerate(binding._stages) if entry.waits]
        assert with_waits == [1, 2, 4]  # a sum of what is there runs before the last
        entry = binding._stages[stage]
        object.__setattr__(entry, "waits", ())
        session.run(fetches)
        races = find_races(log)
        assert races
        assert any(f"stage {stage}" in str(race) for race in races)


def test_a_kept_read_leaves_what_is_sent_alone(graph, cpus):
    p = tb.placeholder(tb.float64, [2])
    with tb.device("/cpu:1"):
        v = tb.Variable(np.array([10.0, 20.0]), name="v")
        e = tb.exp(p)
        read = v.read_value()
    b = e + 1.0
    with tb.control_dependencies([read.op]):
        write = v.assign([5.0, 6.0])
    with tb.Session(device=cpus[0], devices=cpus) as session:
        session.run(v.initializer)
        for values, before in (([0, 0], [10, 20]), ([0, 0], [5, 6])):
            results = session.run([b, read, write], {p: values})
            np.testing.assert_array_equal(results, [[2, 2], before, [5, 6]])


@pytest.fixture
def gated():
    """Two ops that give their input: what is behind `awaits` goes on when what is behind `opens` has run."""
    gate = threading.Event()

    def opening(call):
        call.outputs[0][...] = call.inputs[0]
        gate.set()

    def awaiting(call):
        assert gate.wait(60)
        gate.clear()
        call.outputs[0][...] = call.inputs[0]

    def op(name, run):
        return tb.define_op(
            name,
            spec=lambda inputs, attrs: inputs[0],
            gradient=tb.NOT_DIFFERENTIABLE,
            inputs=("x",),
            kernel=run,
            replace=True,
        )

    return op("TestOpens", opening), op("TestAwaits", awaiting)


@pytest.mark.parametrize("shape", [[0], [3, 0], []])
def test_a_value_behind_an_empty_one_is_read_when_it_has_arrived(graph, cpus, gated, shape):
    opens, awaits = gated
    p, q = tb.placeholder(tb.float64, [2]), tb.placeholder(tb.float64, shape)
    with tb.device("/cpu:1"):
        first = tb.exp(q)
        second = awaits(p)
    fetches = [opens(first), second + 1.0]
    with tb.Session(device=cpus[0], devices=cpus) as session:
        for number in range(3):
            _, b = session.run(fetches, {p: [number, number], q: np.zeros(shape)})
            np.testing.assert_array_equal(b, [number + 1, number + 1])


@pytest.mark.slow
def test_the_same_bits_as_on_one_device(graph, cpus):
    generator = np.random.default_rng(0)
    x = tb.placeholder(tb.float32, [16, 9], name="x")
    with tb.device("/cpu:1"):
        w = tb.Variable(generator.standard_normal((9, 7)).astype(np.float32), name="w")
        h = tb.tanh(tb.matmul(x, w))
    with tb.device("/cpu:2"):
        u = tb.Variable(generator.standard_normal((7, 3)).astype(np.float32), name="u")
        loss = tb.reduce_mean(tb.square(tb.matmul(h, u)))
    train = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    batches = generator.standard_normal((10, 16, 9)).astype(np.float32)

    def trained(session):
        with session:
            session.run(tb.global_variables_initializer())
            losses = [session.run([loss, train], {x: batch})[0] for batch in batches]
            return np.array(losses), session.run(tb.trainable_variables())

    several = [trained(tb.Session(device=cpus[0], devices=cpus)) for _ in range(2)]
    alone = trained(tb.Session(device=CpuDevice("/cpu:9"), devices=[], allow_soft_placement=True))
    for losses, weights in several:
        np.testing.assert_array_equal(losses, alone[0])
        for result, value in zip(weights, alone[1], strict=True):
            np.testing.assert_array_equal(result, value)
    assert alone[0][-1] < alone[0][0]


# Where things are --------------------------------------------------------------------------------


def test_variables_and_their_slots_lie_on_their_device(graph, cpus):
    with tb.device("/cpu:1"):
        v = tb.Variable(np.ones(3, np.float32), name="v")
    w = tb.Variable(np.ones(3, np.float32), name="w")
    train = tb.train.MomentumOptimizer(0.5, 0.9).minimize(tb.reduce_sum(v * w))
    with tb.Session(device=cpus[0], devices=cpus) as session:
        session.run(tb.global_variables_initializer())
        session.run(train)
        layouts = session._device_variables.layouts
        assert set(layouts["/device:CPU:1"].refs()) == {"v", "v/Momentum"}
        assert set(layouts["/device:CPU:0"].refs()) == {"w", "w/Momentum"}
        np.testing.assert_array_equal(session.run(v), [0.5, 0.5, 0.5])
        assert cpus[1].memory.held_nbytes > 0
        v.load([4, 5, 6], session)
        np.testing.assert_array_equal(v.eval(session), [4, 5, 6])
        with pytest.raises(InvalidArgumentError, match="variable v: expected shape"):
            session.load_variables({"w": np.zeros(3), "v": np.zeros(4)})
        np.testing.assert_array_equal(w.eval(session), [0.5, 0.5, 0.5])
        with pytest.raises(NotFoundError, match="no variable 'nobody'"):
            session.load_variables({"nobody": 1.0})
    assert not any(device.memory.partitions for device in cpus)


def test_a_variable_keeps_its_place_and_value_while_the_graph_grows(graph, cpus):
    with tb.Session(device=cpus[0], devices=cpus) as session:
        variables = []
        for number in range(6):
            with tb.device(f"/cpu:{number % 3}"):
                variables.append(tb.Variable(np.full(50, float(number)), name="v"))
            session.run(variables[-1].initializer)
            assert [value[0] for value in session.run(variables)] == list(range(number + 1))


def test_variables_without_a_value_are_named(graph, cpus):
    with tb.device("/cpu:1"):
        v = tb.Variable(1.0, name="far")
    w = tb.Variable(1.0, name="near")
    with tb.Session(device=cpus[0], devices=cpus) as session:
        with pytest.raises(FailedPreconditionError, match="without a value: far, near"):
            session.run(v + w)
        session.run(v.initializer)
        with pytest.raises(FailedPreconditionError, match="without a value: near"):
            session.run(v + w)


def test_random_ops_draw_the_same_on_several_devices(graph, cpus):
    with tb.device("/cpu:1"):
        a = tb.random_uniform([3], seed=1)
    b = tb.random_uniform([3], seed=2)
    both = a + b
    with (
        tb.Session(device=cpus[0], devices=cpus) as session,
        tb.Session(devices=[], allow_soft_placement=True) as alone,
    ):
        draws = [session.run([a, both]) for _ in range(3)]
        np.testing.assert_array_equal(draws, [alone.run([a, both]) for _ in range(3)])
    assert len({tuple(map(tuple, draw)) for draw in draws}) == 3


def test_explain_shows_devices_stages_sends_and_receives(graph, cpus):
    _, fetches = pipeline()
    with tb.Session(device=cpus[0], devices=cpus) as session:
        explanation = session.explain(fetches)
    assert isinstance(explanation, MultiDeviceExplanation)
    text = str(explanation)
    assert text.startswith("mode: planned over 2 devices: /device:CPU:0, /device:CPU:1\n")
    assert "stage 0: /device:CPU:1 segment 0, 0 kernel calls\n  send v/read_1:0 float64[100] to " in text
    assert "stage 1: /device:CPU:0 segment 0, 2 kernel calls, after stage 0" in text
    assert "\nreceive v/read_1:0 from /device:CPU:1: float64[100] slab+" in text
    assert explanation.peak_nbytes == sum(p.peak_nbytes for p in explanation.parts.values())
    assert explanation.lower_bound_nbytes <= explanation.peak_nbytes


# Failures -----------------------------------------------------------------------------------------


@pytest.fixture
def picky():
    def run(call):
        if call.inputs[0].any():
            raise ArithmeticError("it is not zero")
        call.outputs[0][...] = 1.0

    return tb.define_op(
        "TestPickyDevice",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=run,
        replace=True,
    )


def test_a_failure_names_op_and_line_and_the_session_goes_on(graph, cpus, picky):
    x = tb.placeholder(tb.float32, [3], name="x")
    with tb.device("/cpu:1"):
        bad = picky(x, name="bad")
    with tb.device("/cpu:2"):
        far = bad * 2.0
    near = tb.reduce_sum(far) + tb.reduce_sum(bad)
    with tb.Session(device=cpus[0], devices=cpus) as session:
        for _ in range(3):
            with pytest.raises(
                InvalidArgumentError,
                match=r"TestPickyDevice bad: ArithmeticError: it is not zero \(made at .*",
            ):
                session.run(near, {x: np.ones(3)})
            assert session.run(near, {x: np.zeros(3)}) == 9.0


def test_devices_that_are_not_there(graph):
    x = tb.placeholder(tb.float32, [], name="x")
    with tb.device("/gpu:*"):
        y = tb.negative(x, name="y")
    with tb.Session() as session:
        with pytest.raises(InvalidArgumentError) as error:
            session.run(y, {"x:0": 1.0})
        assert "Neg y requests device /device:GPU:*, which does not exist; there are: /cpu:0" in str(
            error.value
        )
        assert "allow_soft_placement=True" in str(error.value)
        assert "test_session_devices.py" in str(error.value)
        assert session.run(tb.constant(1.0) + 1.0) == 2.0
    with tb.Session(allow_soft_placement=True) as session:
        assert session.run(y, {"x:0": 1.0}) == -1.0
    with tb.device("/cpu:2"):
        z = tb.random_uniform([2])
    words = pytest.raises(InvalidArgumentError, match="there are: /cpu:0, /cpu:1, /cpu:3, /cpu:10;")
    with tb.Session(devices=["/cpu:3", "/cpu:10", "/cpu:1"]) as session, words:
        session.run(z)


def test_a_bad_variable_is_the_fault_of_those_who_need_it(graph):
    with tb.device("/job:worker/task:1/cpu:0"):
        v = tb.Variable(1.0, name="v")
    w = tb.Variable(2.0, name="w")
    with tb.Session() as session:
        session.run(w.initializer)
        with pytest.raises(InvalidArgumentError, match="requests device /job:worker/task:1"):
            session.run(v.initializer)
    with tb.Session(allow_soft_placement=True) as session:
        session.run(tb.global_variables_initializer())
        assert session.run(v + w) == 3.0


def test_an_op_without_a_kernel_there(graph, cpus):
    op = tb.define_op(
        "TestForeign",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=tb.Kernel(run=lambda call: None),
        replace=True,
    )
    op.kernels["tpu"] = op.kernels.pop("cpu")
    x = tb.placeholder(tb.float32, [])
    with tb.device("/cpu:1"):
        y = op(x, name="y")
    with tb.Session(device=cpus[0], devices=cpus) as session, pytest.raises(UnimplementedError) as error:
        session.run(y, {x: 1.0})
    for words in ("on /cpu:1: TestForeign y", "no kernel for cpu devices (it has: tpu)", "(made at "):
        assert words in str(error.value)


def test_two_devices_of_one_name(graph, cpus):
    with CpuDevice("/cpu:1") as other, pytest.raises(InvalidArgumentError, match="expected different ones"):
        tb.Session(device=cpus[0], devices=[*cpus, other])


# Several threads, and kernels of several kinds -------------------------------------------------------


@pytest.mark.slow
def test_threads_run_steps_over_devices_side_by_side(graph, cpus):
    x = tb.placeholder(tb.float64, [None], name="x")
    with tb.device("/cpu:1"):
        v = tb.Variable(np.zeros(3), name="v")
        squares = tb.square(x)
        add = v.assign_add(np.ones(3))
    with tb.device("/cpu:2"):
        total = tb.reduce_sum(squares)
    result = total + tb.reduce_sum(x)
    with tb.Session(device=cpus[0], devices=cpus) as session:
        session.run(v.initializer)

        def run(number):
            for size in (3, 50, 3):
                for _ in range(10):
                    value = session.run(result, {x: np.full(size, float(number))})
                    assert value == size * (number**2 + number)
                    session.run(add)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(run, range(4)))
        np.testing.assert_array_equal(session.run(v), np.full(3, 120.0))
        assert {group.device for group in session._cache.groups} == set(cpus)
    assert not any(device.memory.partitions for device in cpus)


def test_old_steps_leave_the_cache_and_give_their_memory_back(graph, cpus, monkeypatch):
    x = tb.placeholder(tb.float32, [None])
    with tb.device("/cpu:1"):
        y = tb.exp(x)
    z = tb.reduce_sum(y)
    with tb.Session(device=cpus[0], devices=cpus) as session:
        monkeypatch.setattr(session._cache, "_capacity", 2)
        for size in range(1, 8):
            assert session.run(z, {x: np.zeros(size)}) == size
        holders = [h for g in session._cache.groups for h in g.allocator.holders() if "step" in h.owner]
        assert len({h.owner.split(" /device")[0] for h in holders}) <= 2
        assert len(session._cache) == 2


class SpecialDevice(CpuDevice):
    kind = "special"


class SpecialBackend(ReferenceBackend):
    kernel_kind = "special"


def test_soft_placement_moves_an_op_to_where_its_kernel_is(graph, cpus):
    register_backend("special", SpecialBackend())
    op = tb.define_op(
        "TestSpecialKernel",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=lambda call: np.add(call.inputs[0], 1.0, out=call.outputs[0]),
        replace=True,
    )
    op.kernels["special"] = op.kernels.pop("cpu")
    x = tb.placeholder(tb.float32, [2])
    with tb.device("/cpu:1"):
        y = op(tb.negative(x), name="y")
    z = tb.negative(y)
    with SpecialDevice("/cpu:8") as special:
        with tb.Session(device=cpus[0], devices=[*cpus, special], allow_soft_placement=True) as session:
            np.testing.assert_array_equal(session.run(z, {x: [1.0, 2.0]}), [0.0, 1.0])
            text = str(session.explain(z, {x: [1.0, 2.0]}))
            assert "y: on /cpu:8, as /cpu:1 has no kernel" in text
        words = pytest.raises(
            UnimplementedError, match=r"on /cpu:1: TestSpecialKernel y: .* \(it has: special"
        )
        with tb.Session(device=cpus[0], devices=[*cpus, special]) as session, words:
            session.run(z, {x: [1.0, 2.0]})
