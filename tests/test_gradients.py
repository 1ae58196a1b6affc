"""Graphs built by `gradients`: paths, stops, weights, higher order."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE

pytestmark = pytest.mark.usefixtures("graph")

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


def value(fetches, feeds=None):
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        return session.run(fetches, feeds)


def test_several_paths_add_up():
    x = tb.placeholder(tb.float64, [2, 3])
    y = x * x + 3.0 * x + tb.tanh(x) * x
    (grad,) = tb.gradients(y, x)
    expected = 2 * X + 3 + np.tanh(X) + X / np.cosh(X) ** 2
    np.testing.assert_allclose(value(grad, {x: X}), expected)


def test_shape_and_dtype_are_those_of_x():
    row, matrix = tb.placeholder(tb.float32, [3]), tb.placeholder(tb.float32, [2, 3])
    by_row, by_matrix = tb.gradients(row * matrix, [row, matrix])
    assert (by_row.shape, by_matrix.shape, by_row.dtype) == ([3], [2, 3], tb.float32)
    feeds = {row: [1.0, 2.0, 3.0], matrix: X}
    got = value([by_row, by_matrix], feeds)
    np.testing.assert_allclose(got[0], X.sum(0))
    np.testing.assert_allclose(got[1], [[1, 2, 3], [1, 2, 3]])


def test_none_where_there_is_no_path():
    x, y = tb.placeholder(tb.float64, [2]), tb.placeholder(tb.float64, [2])
    n = tb.placeholder(tb.int32, [2])
    through_integers = tb.cast(tb.cast(x, tb.int32), tb.float64)
    assert tb.gradients(x * 2.0, [y]) == [None]
    assert tb.gradients(through_integers, [x]) == [None]
    assert tb.gradients(tb.stop_gradient(x), [x]) == [None]
    assert tb.gradients(tb.cast(n, tb.float64) * x, [n])[0] is None
    assert tb.gradients(tb.cast(tb.argmax(x, 0), tb.float64), [x]) == [None]


def test_an_x_may_be_anything_on_the_way():
    x = tb.placeholder(tb.float64, [2, 3])
    h = tb.square(x)
    y = tb.reduce_sum(h * h)
    by_h, by_x = tb.gradients(y, [h, x])
    got = value([by_h, by_x], {x: X})
    np.testing.assert_allclose(got[0], 2 * X**2)
    np.testing.assert_allclose(got[1], 4 * X**3)


def test_y_among_the_xs():
    x = tb.placeholder(tb.float64, [2, 3])
    y = 3.0 * x
    by_y, by_x = tb.gradients(y, [y, x])
    got = value([by_y, by_x], {x: X})
    np.testing.assert_allclose(got[0], np.ones((2, 3)))
    np.testing.assert_allclose(got[1], np.full((2, 3), 3.0))
    h = y * 2.0
    by_y, by_h = tb.gradients([h, y], [y, h])
    np.testing.assert_allclose(value(by_y, {x: X}), np.full((2, 3), 3.0))
    np.testing.assert_allclose(value(by_h, {x: X}), np.ones((2, 3)))


def test_several_ys_and_the_same_twice():
    x = tb.placeholder(tb.float64, [2, 3])
    y = 2.0 * x
    (grad,) = tb.gradients([y, y, tb.square(x)], [x])
    np.testing.assert_allclose(value(grad, {x: X}), 4 + 2 * X)


def test_grad_ys_weigh():
    x = tb.placeholder(tb.float64, [2, 3])
    weights = np.arange(6.0).reshape(2, 3)
    (grad,) = tb.gradients([tb.square(x), x], [x], grad_ys=[weights, None])
    np.testing.assert_allclose(value(grad, {x: X}), 2 * X * weights + 1)
    with pytest.raises(InvalidArgumentError, match=r"grad_ys: float64\[2\] does not fit"):
        tb.gradients(x, [x], grad_ys=[np.zeros(2)])
    with pytest.raises(InvalidArgumentError, match="grad_ys: 2 for 1 ys"):
        tb.gradients(x, [x], grad_ys=[x, x])


def test_stop_gradients_as_tensorflow_documents_them():
    a = tb.placeholder(tb.float64, [])
    b = 2.0 * a
    total = tb.gradients(a + b, [a, b])
    partial = tb.gradients(a + b, [a, b], stop_gradients=[a, b])
    assert value([total, partial], {a: 0.0}) == [[3.0, 1.0], [1.0, 1.0]]


def test_stop_gradients_stops_what_lies_behind():
    x = tb.placeholder(tb.float64, [])
    h = tb.square(x)
    y = h * x
    (grad,) = tb.gradients(y, [x], stop_gradients=h)
    assert value(grad, {x: 3.0}) == 9.0
    assert tb.gradients(tb.exp(h), [x], stop_gradients=[h]) == [None]


def test_second_and_third_order():
    x = tb.placeholder(tb.float64, [2, 3])
    first = tb.gradients(x * x * x * x, x)[0]
    second = tb.gradients(first, x)[0]
    third = tb.gradients(second, x)[0]
    got = value([first, second, third], {x: X})
    np.testing.assert_allclose(got[0], 4 * X**3)
    np.testing.assert_allclose(got[1], 12 * X**2)
    np.testing.assert_allclose(got[2], 24 * X)


def test_a_hessian_vector_product():
    x = tb.placeholder(tb.float64, [3])
    y = tb.reduce_sum(tb.exp(x)) * tb.reduce_sum(tb.square(x))
    (grad,) = tb.gradients(y, [x])
    direction = np.array([1.0, -2.0, 0.5])
    (product,) = tb.gradients(tb.reduce_sum(grad * direction), [x])
    at, step = np.array([0.3, -0.2, 0.1]), 1e-6
    with tb.Session() as session:
        ahead = session.run(grad, {x: at + step * direction})
        behind = session.run(grad, {x: at - step * direction})
        np.testing.assert_allclose(session.run(product, {x: at}), (ahead - behind) / (2 * step), rtol=1e-6)


def test_gradients_of_variables_gather_all_reads():
    v = tb.Variable(np.array([1.0, 2.0]), name="v")
    y = v * v
    with tb.control_dependencies([y]):
        z = v * 3.0
    (grad,) = tb.gradients([y, z], [v])
    np.testing.assert_allclose(value(grad), [5.0, 7.0])


def test_unknown_shapes_are_resolved_when_fed():
    x = tb.placeholder(tb.float64)
    b = tb.Variable(np.zeros(3))
    (grad,) = tb.gradients(tb.reduce_mean(x + b), [b])
    np.testing.assert_allclose(value(grad, {x: np.ones((4, 5, 3))}), np.full(3, 1 / 3))


def test_what_cannot_be_differentiated():
    x = tb.placeholder(tb.float64, [2])
    with pytest.raises(InvalidArgumentError, match="dtype int32 is not differentiable"):
        tb.gradients(tb.cast(x, tb.int32), [x])
    with pytest.raises(InvalidArgumentError, match="ys is empty"):
        tb.gradients([], [x])
    with pytest.raises(InvalidArgumentError, match="expected xs to be tensors or variables, got float"):
        tb.gradients(x, [1.0])
    with tb.Graph().as_default():
        other = tb.placeholder(tb.float64, [2])
        with pytest.raises(InvalidArgumentError, match="different graphs"):
            tb.gradients(x, [other])


def test_a_wrong_gradient_rule_is_found_while_building():
    def double(call):
        call.outputs[0][...] = call.inputs[0] * 2

    too_many = tb.define_op(
        "TestTooMany",
        spec=lambda i, a: i[0],
        gradient=lambda op, g: [g, g],
        inputs=("x",),
        kernel=double,
        replace=True,
    )
    misshapen = tb.define_op(
        "TestMisshapen",
        spec=lambda i, a: i[0],
        gradient=lambda op, g: [tb.reduce_sum(g)],
        inputs=("x",),
        kernel=double,
        replace=True,
    )
    constant = tb.define_op(
        "TestNoGradient",
        spec=lambda i, a: i[0],
        gradient=NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=double,
        replace=True,
    )
    x = tb.placeholder(tb.float64, [2])
    with pytest.raises(InvalidArgumentError, match=r"must return a list of 1 .* got 2 results"):
        tb.gradients(too_many(x), [x])
    with pytest.raises(InvalidArgumentError, match=r"gradient of TestMisshapen .* got float64\[\]"):
        tb.gradients(misshapen(x), [x])
    assert tb.gradients(constant(x), [x]) == [None]


def test_hessians_of_quadratic_forms():
    a = np.array([[2.0, 1, 0], [0, 3, -1], [4, 0, 5]])
    x, w = tb.placeholder(tb.float64, [3]), tb.placeholder(tb.float64, [2, 2])
    z, s = tb.placeholder(tb.float64, [2]), tb.placeholder(tb.float64, [])
    quadratic = tb.reduce_sum(x * tb.reduce_sum(a * x, 1)) * s**3.0
    of_x, of_w, of_z, of_s = tb.hessians(
        [quadratic, tb.reduce_sum(w**3.0) + 2.0 * tb.reduce_sum(z)], [x, w, z, s]
    )
    at = {x: [1, 2, -1], w: [[1, 2], [3, 4]], z: [1, 1], s: 2.0}
    with tb.Session() as session:
        found = session.run([of_x, of_w, of_z, of_s], at)
    np.testing.assert_allclose(found[0], (a + a.T) * 8)
    np.testing.assert_allclose(found[1].reshape(4, 4), np.diag([6.0, 12, 18, 24]))
    np.testing.assert_array_equal(found[2], np.zeros((2, 2)))
    value = np.array([1.0, 2, -1])
    np.testing.assert_allclose(found[3], value @ a @ value * 6 * 2.0)
    with pytest.raises(InvalidArgumentError, match=r"hessians: x .* expected a known shape"):
        tb.hessians(tb.reduce_sum(quadratic), tb.placeholder(tb.float64, [None]))


def test_zeros_for_what_a_result_does_not_depend_on():
    x, other = tb.constant([1.0, 2.0]), tb.constant([[3.0]])
    assert tb.gradients(x * x, [other]) == [None]
    found = tb.gradients(x * x, [x, other], unconnected_gradients="zero")
    assert [each.tolist() for each in value(found)] == [[2.0, 4.0], [[0.0]]]
