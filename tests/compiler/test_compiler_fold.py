"""Folding and feeding: constants, shapes, any edge."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import VariableLayout, compile_step
from tensorbow.errors import InvalidArgumentError
from tensorbow.kernels.reference import ReferenceBackend
from tests.program_rig.interpreter import Split

pytestmark = pytest.mark.usefixtures("session")


def kernels(session, fetches, feeds=None):
    explanation = session.explain(fetches, feeds)
    return [g.definition.name for s in explanation.executable.segments for g in s.groups]


def test_constants_are_computed_when_compiled(session):
    y = tb.reduce_sum(tb.constant([1.0, 2.0]) * 3.0)
    assert kernels(session, y) == []
    assert session.run(y) == 9.0


def test_large_constants_are_left_to_the_step(session):
    small = tb.constant(1.0)
    y = tb.broadcast_to(small, [1 << 19])
    assert kernels(session, y) == ["BroadcastTo"]
    assert session.run(tb.reduce_sum(y)) == 1 << 19


def test_a_fed_constant_is_no_constant(session):
    c = tb.constant([1.0, 2.0])
    y = c * 2.0
    np.testing.assert_array_equal(session.run([y, c], {c: [5.0, 7.0]}), [[10, 14], [5, 7]])
    np.testing.assert_array_equal(session.run(y), [2, 4])


def test_any_edge_can_be_fed(session):
    x = tb.placeholder(tb.float32, [2, None])
    h = tb.square(x)
    y = tb.reduce_sum(h) + 1.0
    assert session.run(y, {h: np.ones((2, 5))}) == 11.0
    with pytest.raises(InvalidArgumentError, match=r"placeholder .* is needed but not fed"):
        session.run([y, x], {h: np.ones((2, 5))})


def test_one_output_of_two_is_fed(session):
    x = tb.placeholder(tb.float64, [3])
    positive, negative = Split(x)
    values = session.run(
        [positive, negative, positive + negative], {x: [1.0, -2.0, 3.0], negative: [9.0, 9.0, 9.0]}
    )
    np.testing.assert_array_equal(values, [[1, 0, 3], [9, 9, 9], [10, 9, 12]])
    np.testing.assert_array_equal(
        session.run(positive + negative, {positive: [1.0] * 3, negative: [2.0] * 3}), [3] * 3
    )


def test_shapes_follow_what_is_fed(session):
    x = tb.placeholder(tb.float32, [None, 4])
    rows = tb.shape(x)[0]
    flat = tb.reshape(x, tb.shape(x)[::-1])
    doubled = tb.broadcast_to(tb.constant(2.0), tb.concat([tb.shape(x), [3]], 0))
    for count in (1, 3, 5, 3):
        feed = np.arange(count * 4.0).reshape(count, 4)
        got = session.run([flat, tb.shape(doubled), rows], {x: feed})
        np.testing.assert_array_equal(got[0], feed.reshape(4, count))
        np.testing.assert_array_equal(got[1], [count, 4, 3])
        assert got[2] == count


def test_unknown_rank(session):
    x = tb.placeholder(tb.float32)
    y = tb.reduce_mean(x) * tb.cast(tb.size(x), tb.float32)
    assert session.run(y, {x: 3.0}) == 3.0
    assert session.run(y, {x: np.ones((2, 3, 4))}) == 24.0


def test_the_same_tensor_twice_a_constant_and_a_fed_one(session):
    x, c = tb.placeholder(tb.float32, [2]), tb.constant(4)
    y = x + 1.0
    a, b, d, e, f, g = session.run([y, y, x, c, y.op, c], {x: [1.0, 2.0]})
    np.testing.assert_array_equal(a, [2, 3])
    np.testing.assert_array_equal(b, [2, 3])
    assert a is not b
    np.testing.assert_array_equal(d, [1, 2])
    assert (e, f, g) == (4, None, 4)


def test_what_changes_nothing_costs_nothing(session):
    x = tb.placeholder(tb.float32, [2, 3])
    y = tb.identity(tb.stop_gradient(tb.cast(tb.reshape(tb.broadcast_to(x, [2, 3]), [2, 3]), tb.float32)))
    assert kernels(session, y, {x: np.zeros((2, 3))}) == []


def test_shape_arguments_that_depend_on_data(session):
    x = tb.placeholder(tb.float32, [6], name="x")
    wanted = tb.placeholder(tb.int32, [2], name="wanted")
    y = tb.reshape(x, wanted, name="y")
    assert session.run(y, {x: np.zeros(6), wanted: [2, 3]}).shape == (2, 3)  # in dynamic mode
    assert session.run(y, {x: np.zeros(6), wanted: [3, 2]}).shape == (3, 2)
    feeds = {x: tb.TensorSpec([6], tb.float32), wanted: tb.TensorSpec([2], tb.int32)}
    with pytest.raises(InvalidArgumentError) as caught:
        compile_step([y], feeds, VariableLayout([]), ReferenceBackend())
    text = str(caught.value)
    assert "Reshape y: the shape argument wanted:0 depends on data" in text
    assert 'y = tb.reshape(x, wanted, name="y")' in text
    assert "\n" not in text


def test_a_failing_constant_names_op_and_line(session):
    def refuse(call):
        raise RuntimeError("no such luck")

    op = tb.define_op(
        "TestRefuse",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=refuse,
        replace=True,
    )
    bad = op(tb.constant(1.0), name="bad")
    with pytest.raises(
        InvalidArgumentError, match=r"^TestRefuse bad: RuntimeError: no such luck \(made at .*bad = op\("
    ):
        session.run(bad)


def test_a_rule_that_gives_back_its_inputs_spec_does_not_speak_of_the_value(session):
    def double(call):
        call.outputs[0][...] = call.inputs[0] * 2

    op = tb.define_op(
        "TestDouble",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=double,
        replace=True,
    )
    assert session.run(op(tb.constant(4.0))) == 8.0


def test_shapes_that_do_not_fit_once_fed(session):
    x, y = tb.placeholder(tb.float32, name="x"), tb.placeholder(tb.float32, name="y")
    total = tb.add(x, y, name="total")
    with pytest.raises(
        InvalidArgumentError, match=r"Add total: shapes \[2\] and \[3\] do not broadcast.*made at"
    ):
        session.run(total, {x: [1.0, 2.0], y: [1.0, 2.0, 3.0]})
    np.testing.assert_array_equal(session.run(total, {x: [1.0, 2.0], y: 1.0}), [2, 3])
