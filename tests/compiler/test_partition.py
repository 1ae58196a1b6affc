"""The cut at device borders: what is sent where, what waits for what, and what no cut may change."""

import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.compiler.partition import Send
from tensorbow.devices import CpuDevice, NullDevice
from tests.program_rig.examples import given_few
from tests.program_rig.interpreter import programs


@pytest.fixture
def cpus():
    devices = [CpuDevice(f"/cpu:{i}") for i in range(3)]
    yield devices
    for device in devices:
        device.close()


@pytest.fixture
def session(cpus):
    with tb.Graph().as_default(), tb.Session(device=cpus[0], devices=cpus) as session:
        yield session


def sends_of(step):
    """(device, to, key) of every send."""
    return [
        (name, group.attrs["to"], group.attrs["key"])
        for name, part in step.parts.items()
        for segment in part.segments
        for group in segment.groups
        if group.definition is Send
    ]


def test_one_receive_per_value_and_device(session):
    x = tb.placeholder(tb.float32, [3], name="x")
    y = tb.exp(x, name="y")
    with tb.device("/cpu:1"):
        near = [tb.negative(y), y * 2.0, tb.reduce_sum(y)]
    with tb.device("/cpu:2"):
        far = [tb.add(near[0], y), y * y]
    step = session.explain([*near, *far], {x: np.zeros(3)}).executable
    assert sorted(sends_of(step)) == [
        ("/device:CPU:0", "/device:CPU:1", "y:0 from /device:CPU:0"),
        ("/device:CPU:0", "/device:CPU:2", "y:0 from /device:CPU:0"),
        ("/device:CPU:1", "/device:CPU:2", "Neg:0 from /device:CPU:1"),
    ]
    assert list(step.parts["/device:CPU:1"].inputs) == ["y:0 from /device:CPU:0"]
    values = session.run([*near, *far], {x: np.zeros(3)})
    np.testing.assert_array_equal(values[3], np.zeros(3))
    np.testing.assert_array_equal(values[4], np.ones(3))


def test_feeds_and_constants_are_sent_to_nobody(session):
    x = tb.placeholder(tb.float32, [3], name="x")
    c = tb.constant([1.0, 2.0, 3.0])
    with tb.device("/cpu:1"):
        a = x + c
    with tb.device("/cpu:2"):
        b = tb.reshape(x, [3, 1]) * 2.0
    d = x * c
    step = session.explain([a, b, d, x, c], {x: np.zeros(3)}).executable
    assert sends_of(step) == []
    assert [stage.waits for stage in step.stages] == [(), (), ()]
    for value, expected in zip(
        session.run([a, b, d, x, c], {x: [1, 1, 1]}),
        ([2, 3, 4], [[2], [2], [2]], [1, 2, 3], [1, 1, 1], [1, 2, 3]),
        strict=True,
    ):
        np.testing.assert_array_equal(value, expected)


def test_views_go_with_their_root(session):
    x = tb.placeholder(tb.float32, [4], name="x")
    with tb.device("/cpu:1"):
        y = tb.exp(x)
        z = tb.exp(tb.reshape(tb.identity(y), [2, 2]))
    with tb.device("/cpu:2"):
        view = tb.reshape(y, [4, 1])
    with tb.device("/cpu:1"):
        back = tb.negative(view)
    step = session.explain([z, back], {x: np.zeros(4)}).executable
    assert list(step.parts) == ["/device:CPU:1"]
    np.testing.assert_array_equal(session.run(back, {x: np.zeros(4)}), -np.ones((4, 1)))


def test_all_on_one_other_device_is_one_stage(session):
    with tb.device("/cpu:2"):
        v = tb.Variable(np.ones(3), name="v")
        y = tb.reduce_sum(v * 2.0)
    session.run(v.initializer)
    step = session.explain(y).executable
    assert [(stage.device, stage.waits, stage.signals) for stage in step.stages] == [
        ("/device:CPU:2", (), False)
    ]
    assert session.run(y) == 6.0


def test_equal_ops_on_two_devices_stay_two(session):
    x = tb.placeholder(tb.float32, [3])
    ys = [tb.exp(x), tb.exp(x)]
    with tb.device("/cpu:1"):
        ys += [tb.exp(x), tb.exp(x)]
    step = session.explain(ys, {x: np.zeros(3)}).executable
    assert [len(part.segments[0].groups) for part in step.parts.values()] == [1, 1]


def test_a_remote_read_is_not_changed_by_a_later_write(session):
    with tb.device("/cpu:1"):
        v = tb.Variable(np.zeros(1000), name="v")
    reads, results = [], []
    for _ in range(4):
        reads.append(v.read_value())
        results.append(v.assign_add(np.ones(1000)))
    with tb.device("/cpu:2"):
        late = [read * 1.0 for read in reads] + [result * 1.0 for result in results]
    session.run(v.initializer)
    step = session.explain(late).executable
    groups = [g for s in step.parts["/device:CPU:1"].segments for g in s.groups]
    assert not any("is copied" in group.note for group in groups)  # what is sent needs no copy
    for start in (0, 4):
        values = [value[0] for value in session.run(late)]
        assert values == [start + n for n in (0, 1, 2, 3, 1, 2, 3, 4)]


@pytest.fixture
def story():
    """An op that enters its name in a list; the one called `slow` takes its time."""
    told = []

    def run(call):
        if call.attrs["says"] == "slow":
            time.sleep(0.05)
        told.append(call.attrs["says"])

    op = tb.define_op(
        "TestTeller",
        spec=lambda inputs, attrs: (),
        gradient=tb.NOT_DIFFERENTIABLE,
        attrs={"says": ""},
        kernel=run,
        stateful=True,
        replace=True,
    )
    return told, op


@pytest.mark.parametrize("between", ["nothing", "group", "constant", "value", "merged", "fed"])
@pytest.mark.sampled(1)
def test_control_edges_are_kept_across_devices(session, story, between):
    told, teller = story
    x = tb.placeholder(tb.float32, [2], name="x")
    twin = tb.negative(x)
    with tb.device("/cpu:1"):
        first = teller(says="slow")
    if between == "group":
        first = tb.group(tb.group(first), tb.no_op())
    elif between != "nothing":
        with tb.control_dependencies([first]):
            first = {"constant": lambda: tb.constant(1.0) + 1.0, "value": lambda: tb.exp(x)}.get(
                between, lambda: tb.negative(x)
            )()
    with tb.device("/cpu:2"), tb.control_dependencies([first]):
        second = teller(says="second")
        third = teller(says="third")
    feeds = {x: np.zeros(2), first: np.zeros(2)} if between == "fed" else {x: np.zeros(2)}
    for _ in range(3):
        told.clear()
        session.run([second, third, twin], feeds)
        assert told == ["slow", "second", "third"]
    step = session.explain([second, third, twin], feeds).executable
    stops = 2 if between == "value" else 1  # one event serves both
    assert sum(len(stage.waits) for stage in step.stages) == stops


def test_waits_that_others_cover_are_left_out(session):
    x = tb.placeholder(tb.float32, [2])
    a = tb.exp(x)
    with tb.device("/cpu:1"):
        b = tb.negative(a)
    with tb.device("/cpu:2"):
        c = b + a  # b's end is after a's
    step = session.explain(c, {x: np.zeros(2)}).executable
    assert [(stage.device[-1], stage.waits) for stage in step.stages] == [("0", ()), ("1", (0,)), ("2", (1,))]


def test_work_that_needs_nothing_from_elsewhere_does_not_wait(session):
    x = tb.placeholder(tb.float32, [2])
    a = tb.exp(x)
    with tb.device("/cpu:1"):
        own = tb.negative(x)
        both = own + a
    step = session.explain(both, {x: np.zeros(2)}).executable
    assert [(stage.device[-1], stage.waits) for stage in step.stages] == [("0", ()), ("1", ()), ("1", (0,))]
    first = step.parts["/device:CPU:1"].segments[0]
    assert [group.name for group in first.groups] == ["Neg"]


def test_what_follows_a_send_is_not_waited_for(session):
    x = tb.placeholder(tb.float32, [2])
    a = tb.exp(x)
    more = tb.exp(tb.negative(a))
    with tb.device("/cpu:1"):
        b = tb.negative(a)
    step = session.explain([more, b], {x: np.zeros(2)}).executable
    assert [(s.device[-1], s.waits) for s in step.stages] == [("0", ()), ("0", ()), ("1", (0,))]


def require_order(step):
    """Asserts that every receive comes after its send, by the order of stages on a device and by waits."""
    before = []
    last = {}
    for number, stage in enumerate(step.stages):
        direct = {*stage.waits, *([last[stage.device]] if stage.device in last else [])}
        before.append(direct.union(*(before[other] for other in direct)))
        last[stage.device] = number
    sent = {}
    for number, stage in enumerate(step.stages):
        part = step.parts[stage.device]
        for key in stage.receives:
            assert key in part.inputs
            assert sent[stage.device, key] in before[number]
        for group in part.segments[stage.segment].groups:
            if group.definition is Send:
                sent[group.attrs["to"], group.attrs["key"]] = number


def test_values_that_go_to_and_fro(session):
    x = tb.placeholder(tb.float64, [], name="x")
    one, two = x, x
    for step in range(12):
        with tb.device(f"/cpu:{step % 3}"):
            one, two = tb.maximum(tb.negative(two), one + 1.0), tb.negative(one) + two
    both = [one, two]
    require_order(session.explain(both, {x: 2.0}).executable)
    with tb.Session(device="/cpu:9", devices=[], allow_soft_placement=True) as alone:
        assert session.run(both, {x: 2.0}) == alone.run(both, {x: 2.0})


NAMES = ("", "/cpu:0", "/cpu:1", "/cpu:2")


@pytest.mark.slow
@given_few(50, 300, programs(30), st.randoms(use_true_random=False))
def test_invariants_of_random_cuts(program, generator):
    devices = [NullDevice(f"/cpu:{i}") for i in range(3)]
    with tb.Graph().as_default() as graph:
        with graph.device(lambda op: generator.choice(NAMES)):
            fetches, feeds, _ = program.build()
        with tb.Session(device=devices[0], devices=devices) as session:
            step = session.explain(fetches, feeds).executable
    if not hasattr(step, "stages"):
        return
    sends = sends_of(step)
    assert max(Counter((to, key) for _, to, key in sends).values(), default=0) <= 1
    assert all(device != to for device, to, _ in sends)
    slots = [(name, key) for name, part in step.parts.items() for key in part.inputs if " from " in key]
    assert sorted(slots) == sorted((to, key) for _, to, key in sends)
    stages_of = {name: [s.segment for s in step.stages if s.device == name] for name in step.parts}
    for name, part in step.parts.items():  # every segment once, in order; results leave with the last
        assert stages_of[name] == list(range(len(part.segments)))
        assert [segment.fetches for segment in part.segments] == [False] * (len(part.segments) - 1) + [True]
    for number, stage in enumerate(step.stages):
        assert all(other < number for other in stage.waits)
        assert all(step.stages[other].device != stage.device for other in stage.waits)
        assert all(step.stages[other].signals for other in stage.waits)
    require_order(step)
