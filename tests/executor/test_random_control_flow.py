"""Random nests of cond and while_loop against the same program in Python, in both modes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tests.executor.random_programs import NAMES, in_graph, in_python, programs
from tests.program_rig.examples import given_few


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(programs, st.lists(st.floats(-1, 1), min_size=3, max_size=3))
def test_random_programs(program, values):
    _check(program, values)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(programs, st.lists(st.floats(-1, 1), min_size=3, max_size=3))
def test_many_random_programs(program, values):
    _check(program, values)


def _check(program, values):
    """Both modes give Python's numbers; iterations and ops at once change no bit."""
    expected = in_python(program, values)
    found = []
    for compiles, parallel, threads in ((True, 10, 0), (False, 1, 1), (False, 10, 0), (False, 10, 3)):
        with tb.Graph().as_default():
            x = [tb.placeholder(tb.float64, []) for _ in NAMES]
            results = [tb.identity(each) for each in in_graph(program, x, parallel)]
            config = tb.ConfigProto(compiles_loops=compiles, inter_op_parallelism_threads=threads)
            with tb.Session(config=config) as session:
                found.append(session.run(results, dict(zip(x, values, strict=True))))
                assert found[-1] == session.run(results, dict(zip(x, values, strict=True)))
    np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[1], expected, rtol=1e-9, atol=1e-12)
    assert found[1] == found[2] == found[3]


@pytest.mark.parametrize("how", ["host", "slow"])
@pytest.mark.parametrize("compiles", [True, False])
def test_gradient_of_a_cond_with_a_loop_in_the_branch_that_is_not_taken(how, compiles):
    """The gradient's branch reads how often the loop ran, which has no value then."""
    program = [("if", 0, [("repeat", 2, False, [("set", 0, "add", 0)])], [("set", 0, how, 0)])]
    with tb.Graph().as_default(), tb.Session(config=tb.ConfigProto(compiles_loops=compiles)) as session:
        x = [tb.placeholder(tb.float64, []) for _ in NAMES]
        slopes = tb.gradients(tb.add_n(in_graph(program, x, 10)), x)
        assert session.run(slopes, dict.fromkeys(x, 0.0)) == [-0.75, 1.0, 1.0]
        assert session.run(slopes, dict.fromkeys(x, 1.0)) == [2.25, 1.0, 1.0]


def test_iterations_at_once_give_the_same_bits_every_time():
    def run(parallel):
        with tb.Graph().as_default(), tb.Session(config=tb.ConfigProto(compiles_loops=False)) as session:
            x = tb.placeholder(tb.float32, [7])

            def body(i, a, b):
                kept = tb.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, tb.sin(t) + b), [0, a])[1]
                return i + 1, tb.cond(tb.equal(i % 2, 0), lambda: kept, lambda: kept * 0.7), b + tb.cos(a)

            loop = tb.while_loop(lambda i, a, b: i < 6, body, [0, x, x], parallel_iterations=parallel)
            fetched = [*loop[1:], tb.gradients(loop[1], x)[0]]
            value = np.linspace(-1, 1, 7, dtype=np.float32)
            return [[each.tobytes() for each in session.run(fetched, {x: value})] for _ in range(8)]

    results = [*run(1), *run(10)]
    assert all(each == results[0] for each in results)


def test_concurrent_steps_of_one_session_do_not_touch_each_other():
    x, n = tb.placeholder(tb.float64, []), tb.placeholder(tb.int32, [])

    def body(i, a):
        return i + 1, tb.cond(a > 0.0, lambda: a * x, lambda: -a + x)

    y = tb.while_loop(lambda i, a: i < n, body, [0, x])[1]
    (g,) = tb.gradients(y, x)
    found: dict[int, list[object]] = {}
    with tb.Session() as session:
        expected = {k: session.run([y, g], {x: 0.1 * k - 0.35, n: k}) for k in range(8)}

        def work(k):
            found[k] = [session.run([y, g], {x: 0.1 * k - 0.35, n: k}) for _ in range(10)]

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {k: [value] * 10 for k, value in expected.items()}


@pytest.mark.slow
@given_few(8, 300, programs, st.lists(st.floats(-1, 1), min_size=3, max_size=3))
def test_gradients_of_random_programs_are_their_slopes(program, values):
    """In float64 along a direction; at a border between branches there is no slope."""
    at, way, step = np.array(values), np.array([0.6, -0.5, 0.62]), 1e-6
    ends = [np.sum(in_python(program, at + k * step * way)) for k in (-1, 0, 1)]
    assume(abs(ends[0] - 2 * ends[1] + ends[2]) < 1e-9)
    for compiles in (True, False):
        with tb.Graph().as_default(), tb.Session(config=tb.ConfigProto(compiles_loops=compiles)) as session:
            x = [tb.placeholder(tb.float64, []) for _ in NAMES]
            total = tb.add_n(in_graph(program, x, 10))
            gradients = [0.0 if g is None else g for g in tb.gradients(total, x)]
            found = session.run(
                [tb.convert_to_tensor(g) for g in gradients], dict(zip(x, values, strict=True))
            )
        np.testing.assert_allclose(np.dot(found, way), (ends[2] - ends[0]) / (2 * step), rtol=1e-5, atol=1e-7)
