"""Loops and conds that depend on data, compiled into plans: the values of the dynamic mode and of Python."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import CancelledError, DeadlineExceededError, InvalidArgumentError
from tensorbow.kernels import ReferenceBackend
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.program.control_forms import While
from tests.executor.test_random_control_flow import in_graph, in_python
from tests.scalar_rig.numpy_backend import used

BACKENDS = [ReferenceBackend, pytest.param(NativeBackend, marks=pytest.mark.slow)]


@pytest.fixture(autouse=True, params=BACKENDS, ids=["reference", "native"])
def graph(request):
    with tb.Graph().as_default() as graph, used(request.param()):
        yield graph


def both_modes(fetches, feeds, rtol=1e-5):
    """The values of a planned run, which are the same again, and those of a dynamic run."""
    with tb.Session() as planned, tb.Session(config=tb.ConfigProto(compiles_loops=False)) as dynamic:
        for session in (planned, dynamic):
            session.run(tb.global_variables_initializer())
        explanation = planned.explain(fetches, feeds)
        assert explanation.mode == "planned", explanation.plan.reason
        assert dynamic.explain(fetches, feeds).mode == "dynamic"
        found, again, expected = (s.run(fetches, feeds) for s in (planned, planned, dynamic))
    for a, b, c in zip(found, again, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=rtol, atol=1e-6)
    return found


def slope(session, y, x, value, step=1e-6):
    """The derivative of a float64 scalar, by differences."""
    found = np.zeros_like(value)
    for place in np.ndindex(*value.shape):
        moved = [value.copy(), value.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        found[place] = (session.run(y, {x: moved[0]}) - session.run(y, {x: moved[1]})) / (2 * step)
    return found


# Conds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
def test_a_cond_and_its_gradient(sign):
    x, w = tb.placeholder(tb.float64, [2, 3]), tb.Variable(np.arange(9.0).reshape(3, 3) / 9, name="w")
    y = tb.cond(tb.reduce_sum(x) > 0.0, lambda: tb.tanh(tb.matmul(x, w)), lambda: x * x - 2.0)
    total = tb.reduce_sum(y * y)
    gradients = tb.gradients(total, [x, w])
    value = sign * np.array([[0.3, 0.1, 1.2], [-0.2, 0.4, 0.1]])
    found = both_modes([total, *gradients], {x: value})
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        np.testing.assert_allclose(found[1], slope(session, total, x, value), rtol=1e-6, atol=1e-8)
    assert bool(found[2].any()) is (sign > 0)


def test_only_the_branch_that_is_taken_writes():
    x, v = tb.placeholder(tb.float32, []), tb.Variable(1.0, name="v", trainable=False)

    def doubled():
        with tb.control_dependencies([tb.assign(v, v * 2.0)]):
            return v.read_value() + 0.0

    y = tb.cond(x > 0.0, doubled, lambda: x)
    with tb.control_dependencies([y]):
        after = v.read_value()
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        assert session.explain([y, after], {x: 1.0}).mode == "planned"
        assert [session.run([y, after], {x: sign}) for sign in (1.0, -3.0, 2.0)] == [[2, 2], [-3, 2], [4, 4]]


def test_an_op_of_the_branch_not_taken_refuses_nothing():
    table, i = tb.placeholder(tb.float32, [4]), tb.placeholder(tb.int32, [])
    y = tb.cond(i < 4, lambda: tb.gather(table, i), lambda: -1.0)
    z = tb.cond(i < 5, lambda: tb.gather(table, i), lambda: -1.0)
    with tb.Session() as session:
        assert session.run(y, {table: [1, 2, 3, 4], i: 3}) == 4
        assert session.run(y, {table: [1, 2, 3, 4], i: 4}) == -1
        with pytest.raises(
            InvalidArgumentError, match=r"GatherV2 cond_1/GatherV2: indices.*= 4 is not in.*made at .*z = tb"
        ):
            session.run(z, {table: [1, 2, 3, 4], i: 4})
        assert session.run(z, {table: [1, 2, 3, 4], i: 5}) == -1


def test_branches_of_different_shapes_are_dynamic():
    x = tb.placeholder(tb.float32, [2])
    y = tb.cond(x[0] > 0.0, lambda: x, lambda: tb.concat([x, x], 0))
    with tb.Session() as session:
        explanation = session.explain(y, {x: [1, 2]})
        assert explanation.mode == "dynamic"
        assert "branches give" in explanation.plan.reason
        assert session.run(y, {x: [-1, 2]}).shape == (4,)


def test_a_case_of_three():
    x = tb.placeholder(tb.float64, [])
    y = tb.case([(x < 0.0, lambda: -x), (x < 1.0, lambda: x * x)], default=lambda: tb.sqrt(x))
    (g,) = tb.gradients(y, x)
    for value, expected in ((-2.0, (2, -1)), (0.5, (0.25, 1)), (4.0, (2, 0.25))):
        np.testing.assert_allclose(both_modes([y, g], {x: value}), expected)


# Loops --------------------------------------------------------------------------------------------------


def test_a_loop_that_depends_on_data_and_its_gradient():
    x, w = tb.placeholder(tb.float64, [2, 3]), tb.Variable(np.eye(3) * 1.2 + 0.1, name="w")
    (y,) = tb.while_loop(
        lambda a: tb.reduce_sum(a * a) < 9.0, lambda a: [tb.matmul(a, w) + x], [x], return_same_structure=True
    )
    total = tb.reduce_sum(tb.sin(y))
    gradients = tb.gradients(total, [x, w])
    value = np.array([[0.3, 0.1, 0.2], [-0.2, 0.4, 0.1]])
    found = both_modes([total, *gradients], {x: value})
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        np.testing.assert_allclose(found[1], slope(session, total, x, value), rtol=1e-5, atol=1e-7)
        text = str(session.explain([total, *gradients], {x: value}))
    assert (
        "compiled as one call; the number of iterations of loop while/while_context depends on data" in text
    )
    assert "bytes of each iteration for the gradient" in text


def test_a_stack_grows_with_a_fed_limit():
    x, n, v = (
        tb.placeholder(tb.float64, []),
        tb.placeholder(tb.int32, []),
        tb.Variable(0.999, dtype=tb.float64),
    )
    y = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tb.sin(a) * v + x), [0, x])[1]
    gradients = tb.gradients(y, [x, v])
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        for limit in (3, 200, 0, 5):
            a, dx, dv = 0.1, 1.0, 0.0
            for _ in range(limit):
                a, dx, dv = (
                    np.sin(a) * 0.999 + 0.1,
                    np.cos(a) * 0.999 * dx + 1,
                    np.sin(a) + np.cos(a) * 0.999 * dv,
                )
            found = session.run([y, *gradients], {x: 0.1, n: limit})
            np.testing.assert_allclose(found, [a, dx, dv], rtol=1e-9)


def test_second_derivatives_of_a_loop():
    x, n = tb.placeholder(tb.float64, []), tb.placeholder(tb.int32, [])
    y = tb.while_loop(
        lambda i, a: i < n, lambda i, a: (i + 1, tb.cond(a > 0.5, lambda: a * x, lambda: a + x)), [0, x]
    )
    (g,) = tb.gradients(y[1], x)
    (gg,) = tb.gradients(g, x)
    both_modes([y[1], g, gg], {x: 0.4, n: 4})


def test_arrays_in_loops_whose_number_of_iterations_is_fed():
    x, n = tb.placeholder(tb.float64, [6, 3]), tb.placeholder(tb.int32, [])
    rows, out = tb.TensorArray(tb.float64, 6).unstack(x), tb.TensorArray(tb.float64, 6)

    def body(i, out, h):
        return i + 1, out.write(i, h * rows.read(i)), tb.tanh(h + rows.read(i))

    _, out, h = tb.while_loop(lambda i, *_: i < n, body, [0, out, tb.ones([3], tb.float64)])
    total = tb.reduce_sum(out.stack() ** 2) + tb.reduce_sum(h)
    value = np.random.default_rng(0).normal(size=(6, 3))
    found = both_modes([total, *tb.gradients(total, x)], {x: value, n: 6})
    assert found[1].shape == (6, 3)
    with tb.Session() as session, pytest.raises(InvalidArgumentError, match=r"element 4 of 6 is read before"):
        session.run(total, {x: value, n: 4})
    twice = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a.write(i // 2, h)), [0, out])[1]
    with tb.Session() as session, pytest.raises(InvalidArgumentError, match=r"element 0 is written twice"):
        session.run(twice.stack(), {x: value, n: 6})
    far = tb.while_loop(
        lambda i, a: i < n, lambda i, a: (i + 1, a.write(i * 5, h)), [0, tb.TensorArray(tb.float64, 6)]
    )[1]
    with tb.Session() as session, pytest.raises(InvalidArgumentError, match=r"index 10 is not in \[0, 6\)"):
        session.run(far.stack(), {x: value, n: 3})


def test_scans_and_loops_in_each_other():
    x = tb.placeholder(tb.float64, [3, 2])
    (y,) = tb.while_loop(
        lambda a: tb.reduce_sum(a * a) < 20.0,
        lambda a: [tb.scan(lambda t, r: tb.cond(r[0] > 0.1, lambda: t + r, lambda: t * 0.5), a) * 1.5],
        [x],
        return_same_structure=True,
    )
    n = tb.placeholder(tb.int32, [])
    z = tb.map_fn(
        lambda r: tb.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, tb.sin(t) * r), [0, r])[1], y
    )
    value = np.array([[0.3, 0.1], [0.2, -0.4], [0.1, 0.2]])
    total = tb.reduce_sum(z * z) + tb.reduce_sum(y)
    found = both_modes([total, *tb.gradients(total, x)], {x: value, n: 3})
    with tb.Session() as session:
        moved = [value.copy(), value.copy()]
        moved[0][0, 0] += 1e-6
        moved[1][0, 0] -= 1e-6
        a, b = (session.run(total, {x: each, n: 3}) for each in moved)
        np.testing.assert_allclose(found[1][0, 0], (a - b) / 2e-6, rtol=1e-4)


def test_writes_of_a_loop_that_depends_on_data():
    v, x = tb.Variable(1.0, name="v", trainable=False), tb.placeholder(tb.float32, [])

    def body(seen):
        with tb.control_dependencies([tb.assign(v, v.read_value() * 2.0)]):
            return [seen + v.read_value()]

    seen = tb.while_loop(lambda s: s < x, body, [0.0])
    with tb.control_dependencies([seen]):
        last = v.read_value()
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        assert session.explain([seen, last], {x: 9.0}).mode == "planned"
        assert session.run([seen, last], {x: 9.0}) == [2 + 4 + 8, 8]
        assert session.run([seen, last], {x: 9.0}) == [16, 16]


def test_a_nan_and_a_failing_op_in_a_body():
    table, n = tb.placeholder(tb.float32, [4]), tb.placeholder(tb.float32, [])

    def body(i, a):
        inner = tb.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b + tb.gather(table, j)), [0, 0.0])[1]
        return i + 1, a + inner

    y = tb.while_loop(lambda i, a: tb.cast(i, tb.float32) < n, body, [0, 0.0])[1]
    with tb.Session() as session:
        assert session.run(y, {table: [1, 2, 3, 4], n: 4.0}) == 0 + 1 + 3 + 6
        with pytest.raises(
            InvalidArgumentError,
            match=r"while/while/GatherV2: indices.*= 4 is not.*made at .*inner = .*"
            r"in iteration 4 of loop 'while/while', in iteration 5 of loop 'while'",
        ):
            session.run(y, {table: [1, 2, 3, 4], n: 6.0})
        assert np.isnan(session.run(y, {table: [1, np.nan, 3, 4], n: 4.0}))
        assert session.run(y, {table: [1, 2, 3, 4], n: 2.0}) == 1


def test_random_numbers_differ_between_iterations_and_steps_and_not_between_runs():
    n, take = tb.placeholder(tb.int32, []), tb.placeholder(tb.bool, [])

    def body(i, numbers):
        first = tb.random_uniform([], seed=3)
        inner = tb.while_loop(
            lambda j, a: j < 2, lambda j, a: (j + 1, tb.random_normal([], seed=4)), [0, 0.0]
        )
        return i + 1, numbers.write(2 * i, first).write(2 * i + 1, inner[1])

    array = tb.TensorArray(tb.float32, 6, element_shape=[])
    drawn = tb.while_loop(lambda i, a: i < n, body, [0, array])[1].stack()
    one = tb.cond(take, lambda: tb.random_uniform([], seed=5), lambda: 2.0)
    found = []
    for _ in range(2):
        with tb.Session() as session:
            assert session.explain([drawn, one], {n: 3, take: True}).mode == "planned"
            found.append([session.run([drawn, one], {n: 3, take: True}) for _ in range(2)])
            assert session.run(one, {take: False}) == 2
    numbers = [value for step in found[0] for value in (*step[0].tolist(), step[1].item())]
    assert len(set(numbers)) == 14
    np.testing.assert_equal(found[0], found[1])


def test_dropout_in_a_loop_has_the_gradient_of_its_mask():
    x, n = tb.placeholder(tb.float64, [8]), tb.placeholder(tb.int32, [])
    y = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tb.nn.dropout(a, rate=0.3, seed=1)), [0, x])[1]
    with tb.Session() as session:
        value, gradient = session.run([y, tb.gradients(y, x)[0]], {x: np.arange(1.0, 9.0), n: 3})
    np.testing.assert_allclose(gradient, value / np.arange(1.0, 9.0), rtol=1e-6)
    assert 0 < np.count_nonzero(value) < 8


# Stopping -----------------------------------------------------------------------------------------------


def endless():
    x = tb.placeholder(tb.float32, [])
    return x, tb.while_loop(lambda a: a < 9.0, lambda a: a * 1.0, [x])


def test_a_time_limit_ends_a_loop():
    x, y = endless()
    with tb.Session() as session:
        with pytest.raises(DeadlineExceededError, match="timeout_in_ms=30"):
            session.run(y, {x: 1.0}, options=tb.RunOptions(timeout_in_ms=30))
        assert session.run(y, {x: 10.0}) == 10


def test_closing_a_session_ends_a_loop():
    x, y = endless()
    session = tb.Session()
    assert session.run(y, {x: 10.0}) == 10
    found = []

    def run():
        try:
            session.run(y, {x: 1.0})
        except CancelledError as error:
            found.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    while not session._planned.endless:
        time.sleep(0.001)
    time.sleep(0.01)
    session.close()
    thread.join(30)
    assert "the loop was stopped before its condition became false" in found[0]


# Random programs ----------------------------------------------------------------------------------------


def program_of(source, depth):
    def statement(left):
        kind = source.random()
        if left == 0 or kind < 0.45:
            return ("set", source.randrange(3), source.choice(["add", "mul", "sin"]), source.randrange(3))
        if kind < 0.75:
            return ("if", source.randrange(3), block(left - 1), block(left - 1))
        return ("repeat", source.randrange(4), source.random() < 0.7, block(left - 1))

    def block(left):
        return [statement(left) for _ in range(source.randrange(1, 4))]

    return block(depth)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(24))
def test_random_nests_and_their_gradients(seed, graph):
    """Plans give Python's numbers, and the gradients of differences."""
    source = random.Random(seed)
    program, values = program_of(source, 3), [source.uniform(-1, 1) for _ in range(3)]
    x = tb.placeholder(tb.float64, [3])
    results = in_graph(program, [x[0], x[1], x[2]], 10)
    total = results[0] * 2.0 + results[1] - results[2] * results[0]
    (gradient,) = tb.gradients(total, x)
    with tb.Session() as session:
        feeds = {x: values}
        assert session.explain([*results, gradient], feeds).mode == "planned"
        found = session.run([*results, gradient], feeds)
        np.testing.assert_allclose(found[:3], in_python(program, values), rtol=1e-9, atol=1e-12)
        differences = slope(session, total, x, np.array(values))
    np.testing.assert_allclose(found[3], differences, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("taken", [True, False])
def test_branches_read_elements_of_arrays_by_number(taken):
    """Their gradients write to the array's gradients in a branch, before and after those of a loop."""
    x, given = tb.placeholder(tb.float64, [4, 3]), tb.placeholder(tb.bool, [])
    count = tb.placeholder(tb.int32, [])
    array = tb.TensorArray(tb.float64, 4, element_shape=[3]).unstack(x)
    first = tb.cond(given, lambda: array.read(0) * 2.0, lambda: tb.zeros([3], tb.float64))
    second = tb.cond(given, lambda: array.read(1) * 3.0, lambda: array.read(2) * array.read(1))
    total = tb.while_loop(
        lambda i, s: i < count, lambda i, s: (i + 1, s * 1.5 + array.read(i)), [0, first + second]
    )[1]
    last = tb.cond(tb.reduce_sum(total) > 0.0, lambda: array.read(3) * total, lambda: total)
    loss = tb.reduce_sum(tb.square(last))
    values = np.random.default_rng(5).normal(size=(4, 3))
    feeds = {x: values, given: taken, count: 3}
    _, gradient = both_modes([loss, *tb.gradients(loss, x)], feeds)
    with tb.Session() as session:
        moved = lambda at: session.run(loss, {**feeds, x: at})  # noqa: E731
        for place in ((0, 1), (1, 2), (2, 0), (3, 1)):
            step = np.zeros((4, 3))
            step[place] = 1e-6
            found = (moved(values + step) - moved(values - step)) / 2e-6
            np.testing.assert_allclose(gradient[place], found, rtol=1e-4, atol=1e-7)


# Devices that run no blocks -----------------------------------------------------------------------------


def test_a_device_without_calls_computes_both_branches_and_chooses(monkeypatch):
    """As GPUs do: conds without effects, with their gradients; loops that depend on data stay dynamic."""
    monkeypatch.delitem(While.kernels, "cpu")
    x = tb.placeholder(tb.float64, [3])
    y = tb.cond(x[0] > 0.0, lambda: x * x, lambda: tb.cond(x[1] > 0.0, lambda: tb.sin(x), lambda: -x))
    (g,) = tb.gradients(tb.reduce_sum(y), x)
    for value in ([1.0, 2.0, 3.0], [-1.0, 2.0, 3.0], [-1.0, -2.0, 3.0]):
        both_modes([y, g], {x: value})
    v = tb.Variable(0.0, trainable=False, dtype=tb.float64)
    writes = tb.cond(x[0] > 0.0, lambda: tb.assign_add(v, 1.0), lambda: v.read_value())
    loop = tb.while_loop(lambda a: tb.reduce_sum(a) < 9.0, lambda a: a * 2.0, [x])
    lengths = tb.placeholder(tb.int32, [2])
    cell = tb.nn.rnn_cell.BasicRNNCell(2)
    outputs, _ = tb.nn.dynamic_rnn(cell, tb.ones([2, 4, 3]), lengths, dtype=tb.float32)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        text = str(session.explain(y, {x: [1.0, 2.0, 3.0]}))
        assert "both branches are computed, and one result is chosen" in text
        assert "has an effect, which no choice undoes" in session.explain(writes, {x: [1, 2, 3]}).plan.reason
        assert session.explain(loop, {x: [1, 2, 3]}).mode == "dynamic"
        assert session.explain(outputs, {lengths: [1, 3]}).mode == "planned"
        assert [np.count_nonzero(row.any(-1)) for row in session.run(outputs, {lengths: [1, 3]})] == [1, 3]
