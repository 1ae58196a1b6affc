"""Gradients of order 2 and 3 through loops and TensorArrays, in both modes, against formulas."""

import numpy as np
import pytest

import tensorbow as tb
from tests.executor.slopes import check_slopes


@pytest.fixture(autouse=True, params=[False, True], ids=["dynamic", "compiled"])
def session(request):
    with tb.Graph().as_default(), tb.Session(config=tb.ConfigProto(compiles_loops=request.param)) as session:
        yield session


def along(y, x, weight, orders):
    """Derivatives of order 1 to `orders` of the sum of y, along a direction, in x."""
    found = []
    for _ in range(orders):
        (gradient,) = tb.gradients(y, x)
        y = tb.reduce_sum(gradient * weight)
        found.append(y)
    return found


def test_orders_of_map_fn_are_those_of_a_power(session):
    x = tb.placeholder(tb.float64, [3])
    value, y, found = np.array([1.0, 2, -3]), tb.map_fn(lambda a: a**5.0, x), []
    for _ in range(4):
        (y,) = tb.gradients(y, x)
        found.append(y)
    for got, factor, power in zip(
        session.run(found, {x: value}), (5, 20, 60, 120), (4, 3, 2, 1), strict=True
    ):
        np.testing.assert_allclose(got, factor * value**power)


LOOPS = {
    "scan": (
        lambda x: tb.scan(lambda a, b: a * b * b, x),
        lambda p: p[0] + p[0] * p[1] ** 2 * (1 + p[2] ** 2),
    ),
    "foldl": (lambda x: tb.foldl(lambda a, b: a * b * b, x), lambda p: p[0] * p[1] ** 2 * p[2] ** 2),
    "foldr": (lambda x: tb.foldr(lambda a, b: a * b * b, x), lambda p: p[2] * p[1] ** 2 * p[0] ** 2),
    "arrays": (
        lambda x: tb.TensorArray(tb.float64, 3).unstack(x * x).gather([0, 2, 2]) ** 2.0,
        lambda p: p[0] ** 4 + 2 * p[2] ** 4,
    ),
    "concat": (
        lambda x: tb.TensorArray(tb.float64, 2, infer_shape=False).split(x, [1, 2]).concat() ** 3.0,
        lambda p: p[0] ** 3 + p[1] ** 3 + p[2] ** 3,
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_derivatives_along_a_line_are_those_of_a_polynomial(session, name):
    loop, polynomial = LOOPS[name]
    x = tb.placeholder(tb.float64, [3])
    value, weight = np.array([1.5, -2.0, 0.7]), np.array([0.3, 1.1, -0.6])
    expected = polynomial([np.polynomial.Polynomial(line) for line in zip(value, weight, strict=True)])
    found = session.run(along(loop(x), x, weight, 3), {x: value})
    np.testing.assert_allclose(found, [expected.deriv(order)(0.0) for order in (1, 2, 3)])


def test_orders_of_dynamic_rnn_are_those_of_the_unrolled_network(session):
    x, cell = tb.placeholder(tb.float64, [2, None, 3]), tb.nn.rnn_cell.BasicRNNCell(2)
    outputs, _ = tb.nn.dynamic_rnn(cell, x, dtype=tb.float64)
    kernel, bias = tb.trainable_variables()
    state, unrolled = tb.zeros([2, 2], tb.float64), []
    for step in range(3):
        state = tb.tanh(tb.matmul(tb.concat([x[:, step], state], 1), kernel) + bias)
        unrolled.append(state)
    session.run(tb.global_variables_initializer())
    value = np.random.default_rng(0).standard_normal((2, 3, 3))
    weight = np.random.default_rng(1).standard_normal((5, 2))
    found = session.run(
        [
            [derivative, tb.gradients(derivative, x)[0]]
            for y in (outputs, tb.stack(unrolled, 1))
            for derivative in along(tb.square(y), kernel, weight, 2)
        ],
        {x: value},
    )
    for one, other in zip(found[:2], found[2:], strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("names", [("one", "two"), (None, None), ("gradients", "other")])
def test_calls_of_gradients_collect_apart(session, names):
    """Also in a scope whose own name begins as that of gradients."""
    x = tb.placeholder(tb.float64, [3])
    y = tb.map_fn(lambda a: a * a, x)
    with tb.name_scope("gradients_of_mine"):
        found = [tb.gradients(y * factor, x, name=n)[0] for n, factor in zip(names, (1.0, 5.0), strict=True)]
    for got, factor in zip(session.run(found, {x: [1, 2, 3]}), (2, 10), strict=True):
        np.testing.assert_array_equal(got, np.array([1, 2, 3]) * factor)


def test_second_order_slopes_of_a_nest(session):
    def first_order(x):
        def body(i, array, t):
            t = tb.cond(tb.equal(i % 2, 0), lambda: tb.sin(t) * x, lambda: t * x + 0.5)
            return i + 1, array.write(i, t), t

        array = tb.TensorArray(tb.float64, 3, element_shape=[None])
        _, array, last = tb.while_loop(
            lambda i, *_: i < 3,
            body,
            [0, array, x],
            [tb.TensorShape([]), tb.TensorShape([]), tb.TensorShape([None])],
        )
        return [tb.gradients(tb.reduce_sum(array.stack() ** 2.0) + tb.reduce_sum(last), x)[0]]

    check_slopes(session, first_order, [np.array([0.4, -0.8])])


BLOCKS = {
    "loop": lambda x: tb.while_loop(
        lambda i, a: i < 3.0, lambda i, a: (i + 1.0, a * x), [tb.constant(0.0), x]
    )[1],
    "map": lambda x: tb.map_fn(lambda v: v * v + tb.reduce_sum(x), x),
    "branches": lambda x: tb.while_loop(
        lambda i, a: i < 3.0,
        lambda i, a: (i + 1.0, tb.cond(a[0] > 0.5, lambda: a * x * 0.9, lambda: tb.sin(a) + x)),
        [tb.constant(0.0), x],
    )[1],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", BLOCKS)
@pytest.mark.parametrize("second", BLOCKS)
def test_second_order_of_loops_behind_each_other(session, first, second):
    """What leaves a loop waits for all that enters it, also for what is made after."""
    x = tb.placeholder(tb.float64, [3])
    y = BLOCKS[second](BLOCKS[first](x))
    (dy,) = tb.gradients(y, x)
    weight, at, step = np.array([0.5, -1.0, 0.25]), np.array([0.9, 0.3, -0.4]), 1e-6
    (along,) = tb.gradients(tb.reduce_sum(dy * weight), x)
    _, first_order, second_order = session.run([y, dy, along], {x: at})
    ends = [session.run(dy, {x: at + sign * step * weight}) for sign in (1, -1)]
    np.testing.assert_allclose(second_order, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6)
    assert first_order.shape == (3,)
