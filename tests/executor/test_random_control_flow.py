"""Random nests of cond and while_loop against the same program in Python, in both modes.

A program is a list of statements on three numbers; each is an assignment, a branch or a loop of more of them.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb

NAMES = range(3)
assignments = st.tuples(
    st.just("set"), st.sampled_from(NAMES), st.sampled_from(["add", "mul", "sin"]), st.sampled_from(NAMES)
)


def _more(inner):
    block = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("if"), st.sampled_from(NAMES), block, block),
        st.tuples(st.just("repeat"), st.integers(0, 4), st.booleans(), block),
    )


programs = st.lists(st.recursive(assignments, _more, max_leaves=8), min_size=1, max_size=4)


def in_python(program, values):
    values = list(values)
    for kind, *rest in program:
        if kind == "set":
            target, how, source = rest
            a, b = values[target], values[source]
            values[target] = {"add": a * 0.5 + b, "mul": a * b * 0.3, "sin": np.sin(a + b)}[how]
        elif kind == "if":
            place, true, false = rest
            values = in_python(true if values[place] > 0.25 else false, values)
        else:
            count, by_value, block = rest
            limit = count + (values[0] > 0.5 if by_value else 0)
            for _ in range(int(limit)):
                values = in_python(block, values)
    return values


def in_graph(program, values, parallel):
    values = list(values)
    for kind, *rest in program:
        if kind == "set":
            target, how, source = rest
            a, b = values[target], values[source]
            if how == "add":
                values[target] = a * 0.5 + b
            else:
                values[target] = a * b * 0.3 if how == "mul" else tb.sin(a + b)
        elif kind == "if":
            place, true, false = rest
            before = tuple(values)
            values = list(
                tb.cond(
                    values[place] > 0.25,
                    lambda true=true, before=before: in_graph(true, before, parallel),
                    lambda false=false, before=before: in_graph(false, before, parallel),
                )
            )
        else:
            count, by_value, block = rest
            limit = count + tb.cast(values[0] > 0.5, tb.int32) if by_value else count
            values = tb.while_loop(
                lambda i, *now, limit=limit: i < limit,
                lambda i, *now, block=block: [i + 1, *in_graph(block, now, parallel)],
                [0, *values],
                parallel_iterations=parallel,
            )[1:]
    return values


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
    """Both modes give Python's numbers; iterations at once change no bit."""
    expected = in_python(program, values)
    found = []
    for compiles, parallel in ((True, 10), (False, 1), (False, 10)):
        with tb.Graph().as_default():
            x = [tb.placeholder(tb.float64, []) for _ in NAMES]
            results = [tb.identity(each) for each in in_graph(program, x, parallel)]
            config = tb.ConfigProto(compiles_loops=compiles)
            with tb.Session(config=config) as session:
                found.append(session.run(results, dict(zip(x, values, strict=True))))
                assert found[-1] == session.run(results, dict(zip(x, values, strict=True)))
    np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[1], expected, rtol=1e-9, atol=1e-12)
    assert found[1] == found[2]


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
