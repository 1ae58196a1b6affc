"""Loops of a known number of iterations: unrolled in plans, also beside replicas."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")


def both_modes(fetches, feeds=None):
    """The values of a planned run, which equal those of a dynamic run."""
    with tb.Session() as planned, tb.Session(config=tb.ConfigProto(compiles_loops=False)) as dynamic:
        for session in (planned, dynamic):
            session.run(tb.global_variables_initializer())
        assert planned.explain(fetches, feeds).mode == "planned"
        assert dynamic.explain(fetches, feeds).mode == "dynamic"
        found, expected = planned.run(fetches, feeds), dynamic.run(fetches, feeds)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
    return found


def test_a_recurrent_loop_its_gradient_and_explanation():
    x, w = tb.placeholder(tb.float32, [2, 3]), tb.Variable(np.eye(3, dtype=np.float32) / 2, name="w")
    h = tb.while_loop(lambda i, h: i < 4, lambda i, h: (i + 1, tb.tanh(tb.matmul(h, w) + x)), [0, x])[1]
    (g,) = tb.gradients(h, w)
    both_modes([h, g], {x: [[1, 2, 3], [-1, 0, 0.5]]})
    with tb.Session() as session:
        text = str(session.explain([h, g], {x: np.ones((2, 3))}))
    assert "loop while/while_context: unrolled, 4 iterations" in text
    assert "while/MatMul[3]" in text


def test_nested_loops_with_branches_of_constant_conditions():
    x = tb.placeholder(tb.float32, [3])

    def body(i, t):
        t = tb.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, t * x), [0, t])[1]
        return i + 1, tb.cond(tb.equal(i % 2, 0), lambda: t * x + t, lambda: tb.sin(t))

    y = tb.while_loop(lambda i, t: i < 4, body, [0, x])[1]
    both_modes([y, tb.gradients(y, x)[0]], {x: [0.7, -0.3, 1.1]})


def test_a_growing_shape_is_known_in_every_iteration():
    x = tb.placeholder(tb.float32, [1, 2])
    shapes = [tb.TensorShape([]), tb.TensorShape([None, 2])]
    y = tb.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, tb.concat([a, a * 2.0], 0)), [0, x], shape_invariants=shapes
    )[1]
    assert both_modes([y], {x: [[1, 2]]})[0].shape == (8, 2)


def test_writes_in_a_loop_keep_their_order():
    v = tb.Variable(1.0, name="v", trainable=False)

    def body(i, seen):
        with tb.control_dependencies([tb.assign(v, v.read_value() * 2.0 + tb.cast(i, tb.float32))]):
            return i + 1, seen + v.read_value()

    seen = tb.while_loop(lambda i, s: i < 4, body, [0, 0.0])[1]
    with tb.control_dependencies([seen]):
        last = v.read_value()
    assert both_modes([seen, last]) == [2 + 5 + 12 + 27, 27]


def test_random_numbers_differ_between_iterations_and_steps():
    drawn = tb.while_loop(
        lambda i, a: i < 3,
        lambda i, a: (i + 1, tb.concat([a, tb.random_uniform([1], seed=3)], 0)),
        [0, tb.constant([2.0])],
        shape_invariants=[tb.TensorShape([]), tb.TensorShape([None])],
    )[1]
    with tb.Session() as session:
        assert session.explain(drawn).mode == "planned"
        assert len({*session.run(drawn), *session.run(drawn)}) == 7


def test_a_loop_too_long_to_unroll_is_left_to_the_dynamic_mode():
    x = tb.placeholder(tb.float32, [])
    v = tb.Variable(0.0, name="v", trainable=False)

    def body(i, a):
        with tb.control_dependencies([tb.assign_add(v, 1.0)]):
            return i + 1, tb.sin(a) + x

    y = tb.while_loop(lambda i, a: i < 4, body, [0, x], name="short")[1]
    z = tb.while_loop(lambda i, a: i < 5000, body, [0, x])[1]
    with tb.Session() as session:
        assert session.explain(y, {x: 1.0}).mode == "planned"
        text = str(session.explain(z, {x: 1.0}))
    assert "loop while/while_context is too long to unroll: over 4096 ops" in text


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["sma", "ssgd"])
def test_replicas_train_a_step_with_a_loop_as_its_unrolled_form(sync):
    rows = np.random.default_rng(0).standard_normal((6, 4, 3)).astype(np.float32)

    def step_of(loops):
        def step_fn(x):
            w = tb.get_variable("w", [3, 3], initializer=tb.constant_initializer(0.2))

            def cell(h):
                return tb.tanh(tb.matmul(h, w) + x)

            if loops:
                h = tb.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, cell(h)), [0, x])[1]
            else:
                h = cell(cell(cell(x)))
            loss = tb.reduce_mean(tb.square(h - 0.3))
            return loss, replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9)).minimize(loss)

        return step_fn

    results = []
    for loops in (True, False):
        with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2, sync=sync) as replicator:
            step = replicator.run(step_of(loops), lambda replica_id: iter([*rows[replica_id::2]]))
            with tb.Session() as session:
                replicator.init(session)
                results.append([session.run(step[0]) for _ in range(3)])
    np.testing.assert_allclose(*results, rtol=1e-6)
    assert np.mean(results[0][2]) < np.mean(results[0][0])


def test_steps_over_two_devices_with_a_loop():
    x = tb.placeholder(tb.float32, [3])

    def body(i, t):
        with tb.device("/cpu:1"):
            return i + 1, tb.sin(t) * x

    y = tb.while_loop(lambda i, t: i < 3, body, [0, x])[1]
    with tb.device("/cpu:1"):
        rows = tb.map_fn(lambda t: t + 1.0, y)
    with tb.device("/cpu:0"):
        z = y * 2.0
    with tb.Session(devices=["/cpu:1"]) as session:
        found, more = session.run([z, rows], {x: [1.0, 2.0, 0.5]})
    np.testing.assert_allclose(more * 2, found + 2, rtol=1e-6)
    expected = t = np.array([1.0, 2.0, 0.5])
    for _ in range(3):
        t = np.sin(t) * expected
    np.testing.assert_allclose(found, t * 2, rtol=1e-6)


def test_an_error_in_an_iteration_names_the_op_and_the_users_line():
    x = tb.placeholder(tb.float32, [None, 2])
    y = tb.while_loop(
        lambda i, a: i < 3,
        lambda i, a: (i + 1, tb.concat([a, tb.matmul(a, x)], 0)),
        [0, x],
        shape_invariants=[tb.TensorShape([]), tb.TensorShape([None, 2])],
    )[1]
    with (
        tb.Session() as session,
        pytest.raises(InvalidArgumentError, match=r"while/MatMul.*made at .*mul"),
    ):
        session.run(y, {x: np.ones((3, 2))})


# Loops of one call --------------------------------------------------------------------------------------


def test_a_loop_that_counts_to_a_fed_limit_is_one_call():
    x, n = tb.placeholder(tb.float32, [2, 3]), tb.placeholder(tb.int32, [])
    w = tb.Variable(np.arange(9, dtype=np.float32).reshape(3, 3) / 9, name="w")
    before = tb.Variable([[1.0, 2.0, 3.0]], name="before")

    def body(i, a, b):
        flat = tb.reshape(tb.tanh(tb.matmul(a, w) + before), [6])
        return i + 1, b, tb.reshape(flat, [2, 3])  # b goes where a was

    i, a, b = tb.while_loop(lambda i, a, b: i < n, body, [0, x, x * 2.0])
    for limit in (0, 1, 6):
        found = both_modes([i, a, b], {x: [[1, 2, 3], [-1, 0, 0.5]], n: limit})
        assert found[0] == limit
    with tb.Session() as session:
        text = str(session.explain(a, {x: np.ones((2, 3)), n: 1}))
    assert "loop while/while_context: compiled as one call; the number of iterations" in text


@pytest.mark.parametrize("parts", ["Less", "Greater", "LogicalAnd"])
def test_conditions_that_count(parts):
    x, n = tb.placeholder(tb.float32, []), tb.placeholder(tb.int32, [])
    if parts == "Less":
        loop = tb.while_loop(lambda i, a: tb.less_equal(i, n), lambda i, a: (2 + i, a * x), [0, x])
    elif parts == "Greater":
        loop = tb.while_loop(lambda i, a: i > 0, lambda i, a: (i - 2, a * x), [n, x])
    else:
        loop = tb.while_loop(lambda i, a: a < 7.0, lambda i, a: (i + 1, a * x), [0, x], maximum_iterations=n)
    power = {"Less": 4, "Greater": 4, "LogicalAnd": 5}[parts]
    assert both_modes([*loop], {x: 1.5, n: 5})[1] == pytest.approx(1.5**power)


def test_loops_of_one_call_in_each_other():
    x, n = tb.placeholder(tb.float32, [3]), tb.placeholder(tb.int32, [])

    def body(i, a):
        return i + 1, tb.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, tb.sin(b) + x), [0, a])[1]

    both_modes([tb.while_loop(lambda i, a: i < n, body, [0, x])[1]], {x: [0.1, 2, -1], n: 5})


def test_an_op_that_refuses_its_input_in_a_loop_of_one_call():
    table, n = tb.placeholder(tb.float32, [4]), tb.placeholder(tb.int32, [])
    y = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a + tb.gather(table, i)), [0, 0.0])[1]
    with tb.Session() as session:
        assert session.run(y, {table: [1, 2, 3, 4], n: 4}) == 10
        with pytest.raises(InvalidArgumentError, match=r"GatherV2 while/GatherV2: indices.*= 4 is not in"):
            session.run(y, {table: [1, 2, 3, 4], n: 5})
        assert session.run(y, {table: [1, 2, 3, 4], n: 2}) == 3


def test_replicas_run_a_loop_of_one_call():
    rows = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)

    def step_fn(x):
        n = tb.cast(tb.reduce_max(x), tb.int32)
        return tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a + x), [0, x])[1]

    with tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator, tb.Session() as session:
        step = replicator.run(step_fn, lambda replica_id: iter([*rows[replica_id::2]]))
        replicator.init(session)
        found = np.reshape(session.run(step), (2, 2))
    np.testing.assert_array_equal(found, [[3, 6], [15, 20]])


def test_loops_that_may_not_end_are_known():
    x = tb.placeholder(tb.float32, [])
    loops = [
        tb.while_loop(lambda a: a < 9.0, lambda a: a * 2.0, [x]),
        tb.while_loop(lambda i, a: i < 9, lambda i, a: (i + tb.cast(a, tb.int32), a), [0, x])[0],
        tb.while_loop(lambda i, a: i < 9, lambda i, a: (a, a), [0, tb.cast(x, tb.int32)])[0],
    ]
    with tb.Session() as session:
        for loop in loops:
            assert session.explain(loop, {x: 10.0}).executable.may_not_end
        assert session.run(loops[0], {x: 5.0}) == 10


# Exchanges ----------------------------------------------------------------------------------------------


def test_an_exchange_that_some_replicas_may_not_come_to_is_refused():
    x = tb.placeholder(tb.float32, [])
    shared = tb.all_sum(x)
    for build in (
        lambda: tb.cond(x > 0.0, lambda: tb.all_sum(x), lambda: x),
        lambda: tb.while_loop(lambda i, a: a < x, lambda i, a: (i + 1, tb.all_sum(a)), [0, x]),
        lambda: tb.while_loop(lambda i: tb.all_sum(i) < x, lambda i: i + 1.0, [0.0]),
        lambda: tb.while_loop(
            lambda i: i < 3.0, lambda i: tb.cond(x > i, lambda: tb.all_sum(i), lambda: i) + 1.0, [0.0]
        ),
    ):
        with pytest.raises(InvalidArgumentError, match="that replicas may take differently, by Placeholder"):
            build()
    tb.cond(shared > 0.0, lambda: tb.all_sum(x), lambda: x)  # all take the same branch


def test_replicas_meet_in_each_iteration_of_an_unrolled_loop():
    def step_fn(x):
        return tb.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tb.all_sum(a) + x), [0, x])[1]

    with tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator, tb.Session() as session:
        rows = np.array([1.0, 10.0], np.float32)
        step = replicator.run(step_fn, lambda replica_id: iter([rows[replica_id]]))
        replicator.init(session)
        found = np.ravel(session.run(step))
    expected = rows.copy()
    for _ in range(3):
        expected = expected.sum() + rows
    np.testing.assert_array_equal(found, expected)
