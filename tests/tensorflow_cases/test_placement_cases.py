"""Devices: TensorFlow 1's cases of device scopes and colocation in `ops_test`, and of its placer."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, TensorBowError


def devices_of(graph):
    return [op.device for op in graph.get_operations()]


# Device scopes: DeviceTest ------------------------------------------------------------------------------


def test_no_device(graph):  # testNoDevice
    assert tb.constant(1).op.device == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/device:CPU:1", "/device:CPU:1"),
        ("/cpu:1", "/device:CPU:1"),
        ("/gpu:0", "/device:GPU:0"),
        ("cpu:2", "/device:CPU:2"),
        ("/job:worker/task:2/device:CPU:0", "/job:worker/task:2/device:CPU:0"),
        ("/job:worker/replica:0/task:2/cpu:0", "/job:worker/task:2/device:CPU:0"),
    ],
)
def test_names_of_devices(graph, name, expected):  # testDevicePartialString, testDeviceFull
    with tb.device(name):
        assert tb.constant(1).op.device.replace("/replica:0", "") == expected


@pytest.mark.parametrize("name", ["/device:CPU:x", "/cpu:-1", "/job:a/job:b", "cpu::1", "/job:/cpu:0"])
def test_names_that_are_none(graph, name):
    with pytest.raises((TensorBowError, ValueError)), tb.device(name):
        tb.constant(1)


def test_scopes_within_scopes(graph):  # testNesting, testNestingString
    tb.constant(0)
    with tb.device("/cpu:1"):
        tb.constant(1)
        with tb.device("/cpu:2"):
            tb.constant(2)
        tb.constant(3)
    tb.constant(4)
    assert devices_of(graph) == ["", "/device:CPU:1", "/device:CPU:2", "/device:CPU:1", ""]


def test_an_inner_kind_overrides(graph):  # testNestingOverrideGpuCpu
    with tb.device("/cpu:0"):
        tb.constant(1)
        with tb.device("/gpu:0"):
            tb.constant(2)
    assert devices_of(graph) == ["/device:CPU:0", "/device:GPU:0"]


def test_job_and_kind_are_merged(graph):  # testNestingWithMergeDeviceFunction
    with tb.device("/job:worker/task:1"):
        with tb.device("/cpu:0"):
            tb.constant(1)
        tb.constant(2)
    assert devices_of(graph) == ["/job:worker/task:1/device:CPU:0", "/job:worker/task:1"]


def test_functions_choose_devices(graph):  # testNestingWithDeviceFunction, DeviceFunctionsTest
    with tb.device(lambda op: "/cpu:2" if op.type == "MatMul" else "/cpu:1"):
        a = tb.constant([[1.0]])
        product = tb.matmul(a, a)
    assert (a.op.device, product.op.device) == ("/device:CPU:1", "/device:CPU:2")


def test_an_inner_scope_overrides_a_function(graph):
    with tb.device(lambda op: "/cpu:2"):
        with tb.device("/cpu:1"):
            assert tb.constant(1).op.device == "/device:CPU:1"
        assert tb.constant(1).op.device == "/device:CPU:2"


def test_none_clears_the_scopes_around(graph):  # testNoneClearsDefault, testNoneIgnoresOuterDeviceFunction
    for outer in ("/cpu:1", lambda op: "/cpu:1"):
        with tb.device(outer):
            with tb.device(None):
                assert tb.constant(1).op.device == ""
            assert tb.constant(1).op.device == "/device:CPU:1"


def test_a_function_that_gives_none(graph):
    with tb.device(lambda op: None):
        assert tb.constant(1).op.device == ""


def test_scopes_are_of_their_graph(graph):
    with tb.device("/cpu:1"):
        with tb.Graph().as_default():
            assert tb.constant(1).op.device == ""
        assert tb.constant(1).op.device == "/device:CPU:1"


def test_a_variable_is_placed_with_its_operations(graph):
    with tb.device("/cpu:1"):
        v = tb.Variable([1.0, 2.0])
    assert v.device == "/device:CPU:1"
    assert {v.initializer.device, v.value().op.device} == {"/device:CPU:1"}


def test_get_variable_is_placed_too(graph):  # testGetVarWithDevice
    seen = []

    def device(op):
        seen.append(op.type)
        return "/cpu:1"

    with tb.device(device):
        v = tb.get_variable("v", [2])
    assert v.device == "/device:CPU:1"
    assert "Variable" in seen


# Colocation: ColocationGroupTest ------------------------------------------------------------------------


def test_a_follower_has_the_device_of_its_leader(graph):  # testBasic, testColocationDeviceInteraction
    with tb.device("/cpu:1"):
        a = tb.constant(2.0)
    with tb.device("/cpu:0"), tb.colocate_with(a.op):
        b = tb.constant(3.0)
    assert b.op.colocation == (a.op,)
    assert b.op.device == "/device:CPU:1"
    assert tb.constant(1).op.colocation == ()


def test_colocation_with_tensors_and_variables(graph):  # testColocateVariables
    with tb.device("/cpu:1"):
        v = tb.Variable(1.0)
        t = tb.constant(1.0)
    for leader in (v, t, t.op):
        with tb.colocate_with(leader):
            assert tb.constant(2.0).op.device == "/device:CPU:1"


def test_an_inner_device_does_not_move_a_follower(graph):  # testInconsistentDeviceWithinColocate
    with tb.device("/cpu:1"):
        a = tb.constant(1.0)
    with tb.colocate_with(a), tb.device("/cpu:2"):
        b = tb.constant(2.0)
    with tb.Session() as session:
        assert session.run(a + b) == 3.0
    assert b.op.device == "/device:CPU:1"


@pytest.mark.parametrize("imported", [False, True])
def test_a_device_inside_is_that_of_a_leader_without_one(graph, imported):
    with tb.device("/cpu:2"):
        outside = tb.constant([1.0])
    with tb.device(None):
        v = tb.Variable([1.0], name="v")
    with tb.device("/cpu:3"), tb.colocate_with(v), tb.device("/cpu:1"):
        sum_ = tb.add(v.read_value(), outside, name="sum")
    with tb.colocate_with(sum_):
        other = tb.negative(outside)
    assert [each.op.device for each in (sum_, other)] == ["/device:CPU:1"] * 2
    assert v.op.device == ""
    if imported:
        graph_def = graph.as_graph_def()
        graph = tb.Graph()
        with graph.as_default():
            names = ["sum:0", "v/Assign"]
            sum_, initializer = tb.import_graph_def(graph_def, return_elements=names, name="")
    else:
        initializer = v.initializer
    with tb.Session(devices=[f"/cpu:{n}" for n in range(4)], graph=graph) as session:
        session.run(initializer)
        assert session.run(sum_).tolist() == [2.0]
        where = placed(session, sum_)
    assert {where[name] for name in ("sum", "v")} == {"/device:CPU:1"}


def test_followers_of_followers(graph):  # testNestedColocateWith, testMultiColocationGroups
    with tb.device("/cpu:1"):
        a = tb.constant(1.0)
    with tb.colocate_with(a):
        b = tb.constant(2.0)
    with tb.colocate_with(b):
        c = tb.constant(3.0)
    with tb.colocate_with(a), tb.colocate_with(b):
        d = tb.constant(4.0)
    assert {each.op.device for each in (b, c, d)} == {"/device:CPU:1"}


def test_a_chain_may_be_ignored(graph):  # testColocationIgnoreStack
    with tb.device("/cpu:1"):
        a = tb.constant(1.0)
    with tb.device("/cpu:2"):
        b = tb.constant(2.0)
    with tb.colocate_with(a), tb.colocate_with(b, ignore_existing=True):
        c = tb.constant(3.0)
    assert c.op.colocation == (b.op,)
    assert c.op.device == "/device:CPU:2"


def test_colocation_may_be_reset(graph):  # testColocateWithReset, testColocateWithInitialNoneThenNested
    with tb.device("/cpu:1"):
        a = tb.constant(1.0)
    with tb.colocate_with(a):
        with tb.colocate_with(None, ignore_existing=True):
            b = tb.constant(2.0)
        c = tb.constant(3.0)
    assert (b.op.colocation, b.op.device) == ((), "")
    assert c.op.colocation == (a.op,)


def test_colocation_ignores_the_scopes_around_the_leader(graph):  # testLocationOverrides
    with tb.device("/cpu:2"):
        a = tb.constant(1.0)
        with tb.device("/cpu:1"), tb.colocate_with(a):
            b = tb.constant(2.0)
        c = tb.constant(3.0)
    assert {each.op.device for each in (a, b, c)} == {"/device:CPU:2"}


@pytest.mark.parametrize("leader", [3, "missing", object()], ids=["number", "name", "object"])
def test_what_cannot_be_a_leader(graph, leader):
    with pytest.raises((TensorBowError, TypeError, ValueError)), tb.colocate_with(leader):
        tb.constant(1)


def test_slots_lie_with_their_variables(graph):
    with tb.device("/cpu:1"):
        v = tb.Variable([1.0, 2.0])
    step = tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_sum(v * v))
    with tb.Session(devices=["/cpu:1"]) as session:
        session.run(tb.global_variables_initializer())
        where = placed(session, step)
    assert {where[each.op.name] for each in tb.global_variables()} == {"/device:CPU:1"}


def test_gradients_lie_with_their_operations(graph):  # testColocateGradients
    with tb.device("/cpu:1"):
        x = tb.placeholder(tb.float32, [2])
        y = tb.reduce_sum(x * x)
    (slope,) = tb.gradients(y, x)  # as with TensorFlow's colocate_gradients_with_ops
    with tb.Session(devices=["/cpu:1"]) as session:
        np.testing.assert_array_equal(session.run(slope, {x: [1.0, 2.0]}), [2, 4])
    assert {each.device for each in slope.op.inputs} == {"/device:CPU:1"}


# Placement: placer_test ---------------------------------------------------------------------------------


def placed(session, fetches, feeds=None):
    """Devices by name of op, as a run's metadata says."""
    metadata = tb.RunMetadata()
    session.run(fetches, feeds, tb.RunOptions(output_partition_graphs=True), metadata)
    return {
        node.name: node.device
        for graph in metadata.partition_graphs
        for node in graph.node
        if node.op[0] != "_"
    }


def test_without_requests_everything_is_on_the_sessions_device(graph):  # TestNoConstraints
    x = tb.placeholder(tb.float32, [], name="x")
    y = tb.exp(x, name="y")
    with tb.Session() as session:
        assert placed(session, y, {x: 0.0})["y"] == "/device:CPU:0"
    with tb.Session(device="/cpu:1") as session:
        assert placed(session, y, {x: 0.0})["y"] == "/device:CPU:1"


def test_requests_are_kept(graph):  # TestPartialSpec
    x = tb.placeholder(tb.float32, [], name="x")
    with tb.device("/cpu:1"):
        y = tb.exp(x, name="y")
    z = tb.add(y, x, name="z")
    with tb.Session(devices=["/cpu:1"]) as session:
        where = placed(session, z, {x: 0.0})
    assert (where["y"], where["z"]) == ("/device:CPU:1", "/device:CPU:0")


def test_a_write_is_where_its_variable_is(graph):  # TestColocationGroupWithReferenceConnections
    with tb.device("/cpu:1"):
        v = tb.Variable(1.0, name="v")
    with tb.device(None):
        add = v.assign_add(tb.constant(1.0))
    with tb.Session(devices=["/cpu:1"]) as session:
        session.run(v.initializer)
        assert placed(session, add)[add.op.name] == "/device:CPU:1"
        assert session.run(v) == 2.0  # `placed` has run it once
        assert session.run(add) == 3.0


def test_a_chain_of_followers_is_placed_together(graph):  # TestColocatedChain, TestMultipleColocationGroups
    x = tb.placeholder(tb.float32, [], name="x")
    with tb.device("/cpu:1"):
        a = tb.exp(x, name="a")
    with tb.colocate_with(a):
        b = tb.exp(x, name="b")
    with tb.colocate_with(b):
        c = tb.exp(b, name="c")
    with tb.Session(devices=["/cpu:1"]) as session:
        where = placed(session, [a, b, c], {x: 0.0})
    assert {where[name] for name in "abc"} == {"/device:CPU:1"}


def test_requests_of_a_group_that_contradict_each_other(graph):  # TestInvalidMultipleColocationGroups
    with tb.device("/cpu:1"):
        a = tb.exp(tb.placeholder(tb.float32, []), name="a")
    with tb.device("/cpu:2"):
        b = tb.exp(tb.placeholder(tb.float32, []), name="b")
    with tb.colocate_with(a), tb.colocate_with(b):
        c = tb.add(tb.exp(a), b, name="c")
    with (
        tb.Session(devices=["/cpu:1", "/cpu:2"]) as session,
        pytest.raises(InvalidArgumentError, match="/device:CPU"),
    ):
        session.run(c, {op.outputs[0]: 0.0 for op in graph.get_operations() if op.type == "Placeholder"})


@pytest.mark.parametrize("name", ["/gpu:99", "/job:elsewhere/cpu:0"])
def test_a_device_that_is_not_there(graph, name):  # TestUnknownDevice, TestNonexistentGpuNoAllowSoftPlacement
    with tb.device(name):
        y = tb.exp(tb.constant(0.0))
    with tb.Session() as session, pytest.raises(TensorBowError, match=name[-2:]):
        session.run(y)


def test_soft_placement_of_a_device_that_is_not_there(graph):  # TestNonexistentGpuAllowSoftPlacement
    with tb.device("/gpu:99"):
        v = tb.Variable(2.0)
        y = tb.exp(tb.constant(0.0)) + v
    for options in ({"allow_soft_placement": True}, {"config": tb.ConfigProto(allow_soft_placement=True)}):
        with tb.Session(**options) as session:
            session.run(v.initializer)
            assert session.run(y) == 3.0


def test_values_cross_devices(graph):
    with tb.device("/cpu:1"):
        a = tb.constant([[1.0, 2.0]])
        b = a * 2.0
    with tb.device("/cpu:2"):
        c = tb.matmul(b, a, transpose_b=True)
    with tb.device("/cpu:1"):
        d = c + tb.reduce_sum(a)
    with tb.Session() as session:
        assert session.run(d) == [[13.0]]


def test_control_edges_cross_devices(graph):
    with tb.device("/cpu:1"):
        v = tb.Variable(0)
        write = v.assign(5)
    with tb.device("/cpu:2"), tb.control_dependencies([write]):
        done = tb.constant(1) + 1
    with tb.Session() as session:
        session.run(v.initializer)
        assert session.run(done) == 2
        assert session.run(v) == 5
