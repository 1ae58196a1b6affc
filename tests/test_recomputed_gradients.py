"""`tb.recompute_grad`: the gradients of a function, without its intermediate values kept."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError


@pytest.fixture(autouse=True)
def graph():
    with tb.Graph().as_default() as graph:
        tb.set_random_seed(5)
        yield graph


def block(h, number, width=32, rate=0.0):
    w = tb.get_variable(f"w{number}", initializer=np.eye(width, dtype=np.float32) * 0.9)
    h = tb.sin(tb.tanh(tb.matmul(h, w))) + h
    if rate:
        h = tb.nn.dropout(h, rate=rate)
    return tb.exp(h * 0.1), tb.reduce_sum(h)


def network(wraps, rate=0.0):
    x = tb.placeholder(tb.float32, [256, 32])
    h, total = x, tb.constant(0.0)
    for number in range(6):
        f = lambda h, number=number: block(h, number, rate=rate)  # noqa: E731
        h, more = (tb.recompute_grad(f) if wraps else f)(h)
        total += more * 1e-3
    loss = tb.reduce_mean(tb.square(h)) + total
    variables = tb.trainable_variables()
    return x, loss, tb.gradients(loss, [x, *variables])


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_the_bits_of_gradients_stay_and_the_peak_falls(rate):
    results, peaks = [], []
    for wraps in (False, True):
        with tb.Graph().as_default():
            tb.set_random_seed(5)
            x, loss, found = network(wraps, rate)
            value = np.random.default_rng(0).normal(size=(256, 32)).astype(np.float32)
            with tb.Session() as session:
                session.run(tb.global_variables_initializer())
                results.append(session.run([loss, *found], {x: value}))
                peaks.append(session.explain([loss, *found], {x: value}).peak_nbytes)
    if not rate:  # seeds of random ops count the ops before them
        for one, other in zip(*results, strict=True):
            assert one.tobytes() == other.tobytes()
    assert peaks[1] < 0.8 * peaks[0]


def test_dropout_draws_once():
    @tb.recompute_grad
    def dropped(x):
        return tb.square(tb.nn.dropout(tb.exp(x), rate=0.5))

    x = tb.placeholder(tb.float32, [1000])
    y = dropped(x)
    (dx,) = tb.gradients(y, x)
    with tb.Session() as session:
        value, slope = session.run([y, dx], {x: np.zeros(1000)})
    np.testing.assert_allclose(slope, 2 * value, rtol=1e-6)
    assert set(np.unique(value)) == {0.0, 4.0}


def test_nests_and_second_derivatives():
    f = tb.recompute_grad(lambda a, b: {"sum": tb.sin(a) * b, "list": [tb.exp(a)]})
    a, b = tb.constant([0.5, 1.0]), tb.constant([2.0, 3.0])
    made = f(a, b)
    da, db = tb.gradients([made["sum"], made["list"][0]], [a, b])
    (second,) = tb.gradients(da, a)
    (nothing,) = tb.gradients(made["list"], b)
    with tb.Session() as session:
        found = session.run([made, da, db, second, nothing])
    x, y = np.array([0.5, 1.0]), np.array([2.0, 3.0])
    np.testing.assert_allclose(found[0]["sum"], np.sin(x) * y, rtol=1e-6)
    np.testing.assert_allclose(found[1], np.cos(x) * y + np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(found[2], np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(found[3], -np.sin(x) * y + np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(found[4], [0.0, 0.0])  # of a block each result has a gradient


def test_a_function_without_anything_to_repeat():
    x = tb.constant([1.0, 2.0])
    (dx,) = tb.gradients(tb.recompute_grad(lambda x: x)(x), x)
    with tb.Session() as session:
        np.testing.assert_array_equal(session.run(dx), [1.0, 1.0])


def test_control_flow_is_refused():
    x = tb.placeholder(tb.float32, [])

    @tb.recompute_grad
    def looped(x):
        return tb.while_loop(lambda y: y < 10.0, lambda y: y * 2.0, [x])

    with pytest.raises(InvalidArgumentError, match=r"recompute_grad: .* is control flow"):
        looped(x)
