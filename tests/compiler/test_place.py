"""Placement of operations: scopes, variables, colocation, soft placement."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.compiler import DeviceSet, Placer
from tensorbow.compiler.place import lines_of
from tensorbow.devices import CpuDevice, DeviceName, NullDevice
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture
def devices():
    cpus = [CpuDevice(f"/cpu:{i}") for i in range(3)]
    null = NullDevice("/gpu:0")
    yield DeviceSet(cpus[0], [*cpus, null])
    for device in (*cpus, null):
        device.close()


def placed(devices, *items, soft=False, fixed=None):
    """The short names of the devices of tensors, variables or operations."""
    placer = Placer(devices, soft=soft, fixed=fixed or {})
    graph = tb.get_default_graph()
    elements = [graph.as_graph_element(item) for item in items]
    ops = [getattr(element, "op", element) for element in elements]
    placement = placer.place(graph.get_operations())
    return [placement[op].name.short for op in ops]


def error_of(devices, **options):
    with pytest.raises(InvalidArgumentError) as error:
        Placer(devices, fixed={}, **options).place(tb.get_default_graph().get_operations())
    return str(error.value)


def test_scopes_full_and_partial(devices):
    x = tb.placeholder(tb.float32, [2])
    with tb.device("/cpu:2"):
        a = tb.negative(x)
        with tb.device("/gpu"):
            b = tb.negative(x)
        with tb.device(None):
            c = tb.negative(x)
    with tb.device("/cpu:*"):
        d = tb.negative(x)
    with tb.device(lambda op: "/cpu:1" if op.type == "Exp" else ""):
        e, f = tb.exp(x), tb.negative(x)
    assert placed(devices, x, a, b, c, d, e, f) == [
        "/cpu:0", "/cpu:2", "/gpu:0", "/cpu:0", "/cpu:0", "/cpu:1", "/cpu:0"
    ]  # fmt: skip


def test_what_touches_a_variable_goes_with_it(devices):
    with tb.device("/cpu:1"):
        v = tb.Variable(np.ones(2), name="v")
    with tb.device("/cpu:2"):
        write, read = v.assign_add(np.ones(2)), v.read_value()
        away = read * 2.0
    assert placed(devices, v, v.initializer, write, read, away) == ["/cpu:1"] * 4 + ["/cpu:2"]
    placer = Placer(devices, fixed={})
    placer.place(tb.get_default_graph().get_operations())
    reason = "on /cpu:1, with v, not on /device:CPU:2"
    assert [placer.notes[op] for op in (write.op, read.op)] == [reason, reason]
    assert lines_of(placer.notes) == [f"AssignAdd, v/read_1: {reason}"]
    notes = dict.fromkeys(tb.get_default_graph().get_operations(), "elsewhere")
    assert lines_of(notes)[0].endswith(f" and {len(notes) - 8} more: elsewhere")


def test_slots_lie_with_their_variable(devices):
    with tb.device("/cpu:1"):
        v = tb.Variable(np.ones(2, np.float32), name="v")
    with tb.device("/cpu:2"):
        tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_sum(v * v))
    slot = next(v for v in tb.global_variables() if "Momentum" in v.name)
    assert slot.device == "/device:CPU:1"
    is_initialized = tb.is_variable_initialized(slot)
    with tb.colocate_with(slot):
        beside = tb.constant(1.0)
    assert placed(devices, slot, slot.initializer, is_initialized, beside) == ["/cpu:1"] * 4


def test_a_variable_that_has_a_place_keeps_it(devices):
    v = tb.Variable(1.0, name="v")
    third = devices.known()[2]
    assert placed(devices, v, v.assign(2.0), v.initializer, fixed={v.op: third}) == ["/cpu:2"] * 3


def test_colocation_beats_scopes(devices, graph):
    x = tb.placeholder(tb.float32, [2])
    with tb.device("/cpu:1"):
        a = tb.negative(x)
    with tb.colocate_with(a):
        b = tb.negative(x)
        with tb.device("/cpu:2"):
            c = tb.negative(x)
            with tb.colocate_with(None, ignore_existing=True):
                d = tb.negative(x)
            with graph.colocate_with(x, ignore_existing=True):
                e = tb.negative(x)
        with tb.colocate_with(a):
            f = tb.negative(x)
    g = tb.negative(x)
    assert placed(devices, b, c, d, e, f, g) == ["/cpu:1", "/cpu:1", "/cpu:2", "/cpu:0", "/cpu:1", "/cpu:0"]
    assert b.op.colocation == f.op.colocation == (a.op,)
    assert b.device == a.device
    with pytest.raises(InvalidArgumentError, match="ignore_existing=True"), tb.colocate_with(None):
        pass


def test_a_new_variable_beside_another(devices):
    with tb.device("/cpu:1"):
        v = tb.Variable(1.0, name="v")
    with tb.colocate_with(v):
        w = tb.Variable(2.0, name="w")
    assert placed(devices, w, w.initializer, w + 1.0) == ["/cpu:1", "/cpu:1", "/cpu:0"]


def test_two_places_at_once(devices):
    x = tb.placeholder(tb.float32, [])
    with tb.device("/cpu:1"):
        a = tb.negative(x, name="a")
    with tb.device("/cpu:2"):
        b = tb.negative(x, name="b")
    with tb.colocate_with(a), tb.colocate_with(b):
        tb.negative(x, name="c")
    text = error_of(devices)
    assert text.startswith(
        "Neg c must be where a is, on /cpu:1, and where b is, on /cpu:2: "
        "a (/device:CPU:1), b (/device:CPU:2), c (/device:CPU:2) share a device; "
    )
    assert 'tb.negative(x, name="c")' in text


def test_a_group_is_where_all_of_its_requests_allow(devices):
    """The later request of a member places those that were made before, with none or a wider one."""
    x = tb.placeholder(tb.float32, [])
    a = tb.negative(x, name="a")
    with tb.device("/cpu:*"):
        b = tb.negative(x, name="b")
    with tb.device("/cpu:2"):
        c = tb.negative(x, name="c")
    with tb.colocate_with(c), tb.colocate_with(b), tb.colocate_with(a):
        d = tb.negative(x, name="d")
    assert placed(devices, a, b, c, d, x) == ["/cpu:2"] * 4 + ["/cpu:0"]
    assert placed(devices, a, b, c, d, soft=True) == ["/cpu:2"] * 4


def test_a_variable_without_a_request_goes_where_its_group_is():
    with tb.device("/cpu:1"):
        v = tb.Variable(1.0, name="v")
    w = tb.Variable(2.0, name="w")
    with tb.colocate_with(v), tb.colocate_with(w):
        joined = tb.constant(1.0) + tb.constant(2.0)
    with tb.Session(devices=["/cpu:1"]) as session:
        session.run(tb.global_variables_initializer())
        assert session.run([v, w, joined]) == [1.0, 2.0, 3.0]
        assert {op.name: d.name.short for op, d in session._device_variables.placement.items()} == {
            "v": "/cpu:1",
            "w": "/cpu:1",
        }


@given(
    st.lists(st.sampled_from(["", "/cpu:*", "/cpu:1", "/cpu:2", "/gpu:0", "/gpu"]), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=6),
)
def test_groups_are_those_of_a_plain_search(requests, pairs):
    """Devices agree with a search for connected operations, which intersects the sets of devices."""
    names = ["/cpu:0", "/cpu:1", "/cpu:2", "/gpu:0"]
    allowed = {
        "": names, "/cpu:*": names[:3], "/cpu:1": ["/cpu:1"], "/cpu:2": ["/cpu:2"], "/gpu:0": ["/gpu:0"],
        "/gpu": ["/gpu:0"],
    }  # fmt: skip
    given_devices = [*(CpuDevice(name) for name in names[:3]), NullDevice("/gpu:0")]
    try:
        with tb.Graph().as_default() as graph:
            x = tb.placeholder(tb.float32, [])
            ops = []
            for request in requests:
                with tb.device(request or None):
                    ops.append(tb.negative(x))
            joined = {i: {i} for i in range(len(ops))}
            for first, second in pairs:
                first, second = first % len(ops), second % len(ops)
                with tb.colocate_with(ops[first]), tb.colocate_with(ops[second]):
                    tb.negative(x)
                both = joined[first] | joined[second]
                joined.update(dict.fromkeys(both, both))
            sets = {
                i: [n for n in names if all(n in allowed[requests[m]] for m in members)]
                for i, members in joined.items()
            }
            placer = Placer(DeviceSet(given_devices[0], given_devices), fixed={})
            if all(sets.values()):
                placement = placer.place(graph.get_operations())
                assert [placement[t.op].name.short for t in ops] == [sets[i][0] for i in range(len(ops))]
            else:
                with pytest.raises(InvalidArgumentError, match="must be where"):
                    placer.place(graph.get_operations())
    finally:
        for device in given_devices:
            device.close()


@pytest.mark.parametrize("spec", ["/gpu:1", "/tpu:*", "/job:ps", "/job:ps/task:3/cpu:0", "/task:0", "/cpu:3"])
def test_a_wish_that_nothing_satisfies(devices, spec):
    x = tb.placeholder(tb.float32, [])
    with tb.device(spec):
        y = tb.negative(x, name="y")
    text = error_of(devices)
    assert text.startswith(
        f"Neg y requests device {DeviceName.parse(spec)}, which does not exist; there are: "
    )
    assert "there are: /cpu:0, /cpu:1, /cpu:2, /gpu:0; " in text
    assert "(made at " in text
    assert placed(devices, y, soft=True) == ["/cpu:0"]


def test_a_bad_wish_is_an_error_even_where_it_does_not_decide(devices):
    v = tb.Variable(1.0)
    with tb.device("/cpu:77"):
        v.read_value()
    assert "requests device /device:CPU:77" in error_of(devices)


def test_soft_placement_looks_for_a_kernel(devices):
    op = tb.define_op(
        "TestPlaceForeign",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=tb.Kernel(run=lambda call: None),
        replace=True,
    )
    x = tb.placeholder(tb.float32, [])
    with tb.device("/gpu:0"):
        y = op(x)
    assert placed(devices, y, soft=True) == ["/gpu:0"]  # null devices take what the CPU has
    del op.kernels["cpu"]
    assert placed(devices, y) == placed(devices, y, soft=True) == ["/gpu:0"]


def test_devices_of_the_process_open_when_they_are_named():
    with CpuDevice("/cpu:0") as home:
        devices = DeviceSet(home)
        assert devices.known() == [home]
        (other,) = devices.matching(DeviceName.parse("/cpu:6"))
        assert devices.known() == [home, other]
        assert devices.matching(DeviceName.parse("/cpu")) == [home, other]
        (null,) = devices.matching(DeviceName.parse("/null:2"))
        assert devices.matching(DeviceName.parse("/null:*")) == [null]
        assert devices.matching(DeviceName.parse("/gpu:0")) == []
        other.close()


def test_long_chains_of_colocation(devices):
    with tb.device("/cpu:1"):
        op = tb.placeholder(tb.float32, [])
    for _ in range(2000):
        with tb.colocate_with(op):
            op = tb.negative(op)
    placer = Placer(devices, fixed={})
    assert placer.place([op.op])[op.op].name.short == "/cpu:1"


def test_colocation_groups():
    leader = tb.constant(1.0, name="leader")
    with tb.colocate_with(leader):
        follower = tb.constant(2.0)
    assert follower.op.colocation_groups() == [b"loc:@leader"]
    assert leader.op.colocation_groups() == [b"loc:@leader"]
