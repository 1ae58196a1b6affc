"""Loops and conds without ops of the host are compiled, as parts of regions, in steps that have such ops."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb

pytestmark = pytest.mark.usefixtures("graph")

FLOATS = np.random.default_rng(3).normal(size=(3, 5, 2)).astype(np.float32)


def _on_host(x):
    """The same value, by an op of the host."""
    made = tb.py_func(lambda value: value, [x], x.dtype)
    made.set_shape(x.shape)
    return made


def _loops(explanation):
    """Names of the loops that the executor runs itself."""
    lines = [line.strip() for line in str(explanation).splitlines()]
    loops = [line.removeprefix("loop ") for line in lines if line.startswith("loop ")]
    return [line.replace(",", ":").split(":")[0] for line in loops]


def _in_both_modes(fetches, feeds, loops=()):
    """Values with compiled loops, equal to those without. loops: names of those that stay dynamic."""
    found = []
    for compiles in (True, False):
        with tb.Session(config=tb.ConfigProto(compiles_loops=compiles)) as session:
            session.run(tb.global_variables_initializer())
            explanation = session.explain(fetches, feeds)
            assert explanation.mode == "dynamic"
            if compiles:
                assert [name.rpartition("/")[0] for name in _loops(explanation)] == list(loops)
            found.append([session.run(fetches, feeds) for _ in range(2)])
    for with_plans, without in zip(*found, strict=True):
        for a, b in zip(with_plans, without, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return found[0][0]


def test_a_loop_with_its_gradient_behind_a_dequeue():
    tb.set_random_seed(1)
    queue = tb.FIFOQueue(4, [tb.float32], [[3, 5, 2]])
    data, lengths = tb.placeholder(tb.float32, [3, 5, 2]), tb.placeholder(tb.int32, [3])
    enqueue = queue.enqueue([data])
    cell = tb.nn.rnn_cell.BasicLSTMCell(2)
    outputs, _ = tb.nn.dynamic_rnn(cell, queue.dequeue(), lengths, dtype=tb.float32)
    loss = tb.reduce_sum(outputs * outputs)
    fetches = [loss, *tb.gradients(loss, tb.trainable_variables())]
    found = []
    for compiles in (True, False):
        with tb.Session(config=tb.ConfigProto(compiles_loops=compiles)) as session:
            session.run(tb.global_variables_initializer())
            assert bool(_loops(session.explain(fetches, {lengths: [0, 0, 0]}))) is not compiles
            for ends in ([1, 5, 3], [0, 2, 2]):
                session.run(enqueue, {data: FLOATS})
                found.append(session.run(fetches, {lengths: ends}))
    for a, b in zip(found[:2], found[2:], strict=True):
        for mine, other in zip(a, b, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_a_loop_over_an_array_whose_rows_come_from_before_a_host_op():
    """The array's numbers of rows, which depend on shapes alone, are computed in an earlier region."""
    tb.set_random_seed(1)
    data, lengths = tb.placeholder(tb.float32, [3, None, 2]), tb.placeholder(tb.int32, [3])
    outputs, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.GRUCell(2), data, lengths, dtype=tb.float32)
    inside = tb.range(tb.shape(data)[1])[None, :] < lengths[:, None]
    loss = tb.reduce_sum(tb.square(tb.boolean_mask(outputs, inside)))
    fetches = [loss, *tb.gradients(loss, tb.trainable_variables())]
    _in_both_modes(fetches, {data: FLOATS, lengths: [2, 5, 3]})
    _in_both_modes(fetches, {data: FLOATS[:, :3], lengths: [2, 0, 3]})


def test_loops_before_and_behind_a_host_op():
    x, n = tb.placeholder(tb.float32, [3]), tb.placeholder(tb.int32, [])
    before = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tb.sin(a) + x), [0, x])[1]
    middle = _on_host(before)
    behind = tb.while_loop(lambda a: tb.reduce_sum(a) < 9.0, lambda a: a * 1.5 + 1.0, [middle])
    chosen = tb.cond(tb.reduce_sum(behind) > 12.0, lambda: behind, lambda: before)
    _in_both_modes([before, middle, chosen], {x: [0.1, 0.2, 0.3], n: 5})


def test_a_gradient_behind_a_host_op_keeps_both_loops_dynamic():
    x, n = tb.placeholder(tb.float32, [3]), tb.placeholder(tb.int32, [])
    y = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tb.sin(a) * x), [0, x])[1]
    scale = _on_host(y)  # the gradient's loop begins with it, so no plan has both
    (gradient,) = tb.gradients(y, x, scale)
    other = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 0.5), [0, x])[1]
    loops = ("while", "gradients/while_grad")
    _in_both_modes([y, gradient, other], {x: [0.4, 0.8, 1.1], n: 4}, loops)


def test_gradients_of_two_loops_and_a_host_op_between():
    x, n = tb.placeholder(tb.float32, [3]), tb.placeholder(tb.int32, [])
    y = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tb.sin(a) * x), [0, x])[1]
    seen = tb.py_func(lambda value: np.float32(value.sum()), [y], tb.float32)
    with tb.control_dependencies([seen]):
        z = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tb.tanh(a) + y), [0, y])[1]
    (gradient,) = tb.gradients(z, x)
    _in_both_modes([z, gradient, seen], {x: [0.4, 0.8, 1.1], n: 3}, ("while", "gradients/while_grad_1"))


def test_loops_and_conds_within_a_dynamic_loop():
    x, n = tb.placeholder(tb.float32, [2]), tb.placeholder(tb.int32, [])

    def body(i, a):
        inner = tb.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, tb.tanh(b) + x), [0, a])[1]
        kept = tb.cond(tb.reduce_sum(inner) > 1.0, lambda: inner * 0.5, lambda: inner + a)
        return i + 1, _on_host(kept)

    y = tb.while_loop(lambda i, a: i < n, body, [0, x])[1]
    _in_both_modes([y], {x: [0.3, -0.2], n: 6}, ("while",))


def test_a_loop_whose_shapes_change_runs_dynamic_within_its_region():
    x, n = tb.placeholder(tb.float32, [None]), tb.placeholder(tb.int32, [])
    grown = tb.while_loop(
        lambda i, a: i < n,
        lambda i, a: (i + 1, tb.concat([a, a[:1]], 0)),
        [0, x],
        shape_invariants=[tb.TensorShape([]), tb.TensorShape([None])],
    )[1]
    steady = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 2.0), [0, x])[1]
    seen = _on_host(x)
    with tb.Session() as session:
        fetches, feeds = [grown, steady, seen], {x: [1.0, 2.0], n: 3}
        for _ in range(2):
            got = session.run(fetches, feeds)
        np.testing.assert_array_equal(got[0], [1, 2, 1, 1, 1])
        np.testing.assert_array_equal(got[1], [8, 16])
        text = str(session.explain(fetches, feeds))
        assert "loop while/while_context" in text
        assert "in parts, as" in text


def test_effects_in_a_compiled_loop_happen_once_and_in_order():
    v = tb.Variable(np.float32(1), name="v")
    n = tb.placeholder(tb.int32, [])

    def body(i, a):
        with tb.control_dependencies([tb.assign_add(v, a + 1.0)]):
            return i + 1, a + 1.0

    before = tb.identity(v)
    with tb.control_dependencies([before]):
        seen = _on_host(before)
    with tb.control_dependencies([seen]):
        loop = tb.while_loop(lambda i, a: i < n, body, [0, tb.constant(0.0)])[1]
    with tb.control_dependencies([loop]):
        after = _on_host(tb.identity(v))
    assert _in_both_modes([before, seen, loop, after], {n: 3}) == [1.0, 1.0, 3.0, 7.0]


def test_arrays_in_the_same_region_are_rows_and_others_are_lists():
    x, n = tb.placeholder(tb.float32, [4, 2]), tb.placeholder(tb.int32, [])
    squares = tb.map_fn(lambda row: row * tb.reduce_sum(row), x)
    open_size = tb.TensorArray(tb.float32, n, element_shape=[])
    filled = tb.while_loop(
        lambda i, a: i < n, lambda i, a: (i + 1, a.write(i, tb.cast(i, tb.float32) * 2.0)), [0, open_size]
    )[1]
    on_host = _on_host(squares)
    (gradient,) = tb.gradients(tb.reduce_sum(squares * squares), x)
    _in_both_modes([on_host, filled.stack(), gradient], {x: FLOATS[0, :4], n: 3})


def test_a_fetch_inside_a_branch_keeps_the_cond_dynamic():
    x = tb.placeholder(tb.float32, [])
    inside = []

    def double():
        inside.append(x * 2.0)
        return inside[0]

    y = tb.cond(x > 1.0, double, lambda: x)
    with tb.Session() as session:
        assert session.run([y, inside[0], _on_host(x)], {x: 3.0}) == [6.0, 6.0, 3.0]
        with pytest.raises(tb.errors.InvalidArgumentError, match="was not taken"):
            session.run([y, inside[0], _on_host(x)], {x: 0.5})


def test_an_error_in_a_compiled_loop_of_a_region_tells_op_and_iteration():
    x, n = tb.placeholder(tb.float32, [3]), tb.placeholder(tb.int32, [])
    y = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a + tb.gather(x, i)), [0, 0.0])[1]
    with tb.Session() as session:
        fetches = [y, _on_host(x)]
        assert session.run(fetches, {x: [1, 2, 3], n: 3})[0] == 6.0
        with pytest.raises(tb.errors.InvalidArgumentError, match=r"while/GatherV2.*in iteration 3 of loop"):
            session.run(fetches, {x: [1, 2, 3], n: 5})


def test_loops_on_several_devices_fall_back():
    x, n = tb.placeholder(tb.float32, [3]), tb.placeholder(tb.int32, [])
    with tb.device("/cpu:1"):
        there = x * 2.0
    y = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a + there), [0, x])[1]
    with tb.Session(devices=["/cpu:1"]) as session:
        got = session.run([y, _on_host(x)], {x: [1, 2, 3], n: 2})
    np.testing.assert_array_equal(got[0], [5, 10, 15])


def test_conds_with_gradients_are_compiled_unless_a_branch_has_a_host_op():
    x = tb.placeholder(tb.float32, [3])
    plain = tb.cond(tb.reduce_sum(x) > 0.0, lambda: tb.sin(x) * x, lambda: x * 3.0)
    mixed = tb.cond(tb.reduce_sum(x) > 0.0, lambda: tb.sin(x) * x, lambda: _on_host(x) * 3.0)
    fetches = [_on_host(x), plain, tb.gradients(plain, x)[0], mixed, tb.gradients(mixed, x)[0]]
    for sign in (1.0, -1.0):
        value = sign * np.array([0.5, 0.2, 0.1], np.float32)
        found = _in_both_modes(fetches, {x: value})
        slope = np.cos(value) * value + np.sin(value) if sign > 0 else np.full(3, 3.0)
        np.testing.assert_allclose(found[2], slope, rtol=1e-5)
    with tb.Session() as session:
        lines = str(session.explain(fetches, {x: value})).splitlines()
        wholes = [line.partition("; with ")[2].partition(", compiled")[0] for line in lines]
        assert [each for each in wholes if each] == ["cond cond, cond gradients/cond_grad"]


def test_a_shape_that_many_ops_compute():
    x = tb.placeholder(tb.float32, [None])
    count = tb.shape(x)[0]
    for _ in range(700):
        count = count + 0
    y = tb.fill([count], 2.0) * _on_host(x)
    with tb.Session() as session:
        np.testing.assert_array_equal(session.run(y, {x: [1, 2, 3]}), [2, 4, 6])
