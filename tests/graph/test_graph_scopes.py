"""Control dependencies and device scopes."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")


def controls(op):
    return [c.name for c in op.control_inputs]


def test_ops_made_inside_come_after():
    a, b = tb.no_op("a"), tb.constant(1.0, name="b")
    with tb.control_dependencies([a, b]):
        assert controls(tb.no_op("c")) == ["a", "b"]
    assert controls(tb.no_op("d")) == []


def test_scopes_add_up_and_none_clears_them():
    a, b, c = tb.no_op("a"), tb.no_op("b"), tb.no_op("c")
    with tb.control_dependencies([a]), tb.control_dependencies([b, a]):
        assert controls(tb.no_op()) == ["a", "b"]
        with tb.control_dependencies(None):
            assert controls(tb.no_op()) == []
            with tb.control_dependencies([c]):
                assert controls(tb.no_op()) == ["c"]
        assert controls(tb.no_op()) == ["a", "b"]


def test_what_is_an_input_is_no_control_input():
    a = tb.constant(1.0, name="a")
    with tb.control_dependencies([a]):
        assert controls(tb.negative(a).op) == []


def test_what_reads_a_constant_or_waits_for_one_waits_for_what_it_waits_for():
    first = tb.no_op("first")
    with tb.control_dependencies([first]):
        one = tb.constant(1.0)
    with tb.control_dependencies([one]):
        two, last = tb.constant(2.0), tb.no_op("last")
    for op in (tb.identity(one).op, tb.identity(two).op, last):
        assert first in op.control_inputs
    assert tb.identity(tb.constant(3.0)).op.control_inputs == ()


def test_an_order_through_a_constant_holds_for_ops_of_the_host():
    queue = tb.FIFOQueue(4, [tb.float32], [[]])
    with tb.control_dependencies([tb.py_func(lambda: None, [], [])]):
        put = queue.enqueue([5.0])
    with tb.control_dependencies([put]):
        token = tb.constant(1.0)
    with tb.control_dependencies([token]):
        size = queue.size()
    with tb.Session() as session:
        assert session.run(size) == 1


def test_a_variable_stands_for_its_op():
    v = tb.Variable(1.0, name="v")
    with tb.control_dependencies([v]):
        assert controls(tb.no_op()) == ["v"]


def test_what_is_no_element_is_refused(graph):
    with (
        pytest.raises(
            InvalidArgumentError,
            match="expected inputs to be tensors, operations, variables or their names, got int 3",
        ),
        tb.control_dependencies([3]),
    ):
        pass
    other = tb.Graph()
    with other.as_default():
        foreign = tb.no_op("foreign")
    with (
        pytest.raises(InvalidArgumentError, match="not an element of this graph"),
        tb.control_dependencies([foreign]),
    ):
        pass


def test_a_variables_read_inside_sees_the_write():
    v = tb.Variable(1.0, name="v")
    before = v + 0.0
    add = v.assign_add(10.0)
    with tb.control_dependencies([add]):
        inside = tb.identity(v)
        old = tb.identity(before)
    with tb.Session() as session:
        session.run(v.initializer)
        assert session.run([inside, old, before]) == [11.0, 1.0, 1.0]
        assert session.run(v) == 11.0


def test_a_variable_made_inside_is_free_of_them():
    count = tb.Variable(0.0, name="count")
    with tb.control_dependencies([count.assign_add(1.0)]):
        v = tb.Variable(5.0, name="v")
        y = v * 2.0
    with tb.Session() as session:
        session.run([count.initializer, v.initializer])
        assert session.run([v, count]) == [5.0, 0.0]
        assert session.run(y) == 10.0
        assert session.run(count) == 1.0


def test_no_op_and_group_run_what_they_depend_on():
    a, b = tb.Variable(0.0), tb.Variable(0.0)
    both = tb.group(a.assign_add(1.0), [b.assign_add(2.0).op], name="both")
    with tb.control_dependencies([both]):
        later = tb.no_op("later")
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        assert session.run(later) is None
        assert session.run([a, b]) == [1.0, 2.0]


def test_a_control_edge_to_an_op_whose_output_is_fed_still_runs_it():
    v = tb.Variable(0.0)
    add = v.assign_add(1.0)
    with tb.control_dependencies([add]):
        y = tb.identity(tb.constant(3.0))
    with tb.Session() as session:
        session.run(v.initializer)
        assert session.run(y, {add: np.float32(7.0)}) == 3.0
        assert session.run(v) == 1.0
        session.run(add.op, {add: np.float32(7.0)})
        assert session.run(v) == 2.0


@pytest.mark.parametrize(
    ("scopes", "merged"),
    [
        (["/gpu:1"], "/device:GPU:1"),
        (["/job:worker/task:1", "/gpu:0"], "/job:worker/task:1/device:GPU:0"),
        (["/gpu:1", "/gpu:*"], "/device:GPU:1"),
        (["/gpu:1", "/cpu:*"], "/device:CPU:*"),
        (["/gpu:1", None], ""),
        (["/gpu:1", None, "/cpu:0"], "/device:CPU:0"),
        (["/cpu:0", ""], "/device:CPU:0"),
    ],
)
def test_device_scopes_merge(graph, scopes, merged):
    from contextlib import ExitStack

    with ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(tb.device(scope))
        assert tb.no_op().device == merged
    assert tb.no_op().device == ""


def test_a_function_chooses_by_op():
    with tb.device(lambda op: "/cpu:1" if op.type == "Add" else ""):
        x = tb.constant(1.0)
        assert (x.device, (x + x).device) == ("", "/device:CPU:1")


def test_a_device_that_is_none_is_refused_where_it_is_written():
    with pytest.raises(InvalidArgumentError, match="device name"), tb.device("/gpu:one"):
        pass
