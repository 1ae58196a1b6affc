"""Ops of one dynamic step that run at the same time: what may overlap, and that no bit depends on it."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.executor import InterOpPool, PoolShare

pytestmark = pytest.mark.usefixtures("graph")


class Overlap:
    """A function for `py_func` that counts how many calls of it run at the same time."""

    def __init__(self, together: int):
        """together: calls that wait for each other."""
        self.meeting = threading.Barrier(together)
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.seen: list[int] = []

    def __call__(self, value):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.seen.append(int(value))
        self.meeting.wait(30)
        with self.lock:
            self.now -= 1
        return value


def _session(threads=0):
    return tb.Session(config=tb.ConfigProto(inter_op_parallelism_threads=threads))


@pytest.mark.parametrize(("threads", "together"), [(0, 3), (3, 3), (1, 1)])
def test_independent_functions_of_a_step_run_at_the_same_time(threads, together):
    overlap = Overlap(together)
    fetches = [tb.py_func(overlap, [np.int32(k)], tb.int32) for k in range(3)]
    with _session(threads) as session:
        assert session.run(fetches) == [0, 1, 2]
    assert overlap.most == together


@pytest.mark.parametrize("parallel", [1, 2, 4])
def test_parallel_iterations_is_how_many_iterations_overlap(parallel):
    overlap = Overlap(parallel)
    array = tb.TensorArray(tb.int32, 4, element_shape=[])

    def body(i, array):
        value = tb.py_func(overlap, [i], tb.int32, stateful=False)
        value.set_shape([])
        return i + 1, array.write(i, value * 10)

    loop = tb.while_loop(lambda i, _: i < 4, body, [0, array], parallel_iterations=parallel)[1].stack()
    with _session() as session:
        np.testing.assert_array_equal(session.run(loop), [0, 10, 20, 30])
    assert overlap.most == parallel


def test_a_function_with_effects_runs_in_the_order_of_iterations():
    seen = []

    def noted(value):
        time.sleep(0.002 * (5 - value))  # the last one is the quickest
        seen.append(int(value))
        return value

    def body(i, total):
        value = tb.py_func(noted, [i], tb.int32)
        value.set_shape([])
        return i + 1, total + value

    loop = tb.while_loop(lambda i, _: i < 5, body, [0, 0], parallel_iterations=10)[1]
    with _session() as session:
        for _ in range(3):
            assert session.run(loop) == 10
    assert seen == [0, 1, 2, 3, 4] * 3


def test_the_bits_are_the_same_whatever_runs_at_the_same_time():
    chance = random.Random(0)

    def slept(value):
        time.sleep(chance.random() * 1e-3)
        return value * np.float32(1.1)

    def elsewhere(x):
        made = tb.py_func(slept, [x], tb.float32, stateful=False)
        made.set_shape(x.shape)
        return made

    x = tb.placeholder(tb.float32, [7])
    v = tb.Variable(np.ones(7, np.float32))
    noise = tb.random_normal([7], seed=3)
    n = tb.cast(tb.reduce_sum(x) * 0.0 + 5.0, tb.int32)

    def body(i, a, b):
        kept = tb.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, tb.sin(t) + b), [0, elsewhere(a)])[1]
        return i + 1, tb.cond(tb.equal(i % 2, 0), lambda: elsewhere(kept), lambda: kept * 0.7), tb.cos(a) + b

    first = tb.while_loop(lambda i, a, b: i < 6, body, [0, x, x + noise], parallel_iterations=4)
    second = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tb.tanh(a) * v), [0, elsewhere(x)])[1]
    third = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 0.3 + second), [0, elsewhere(second)])[
        1
    ]
    with tb.control_dependencies([third]):
        update = v.assign_add(third * 0.01)
    fetches = [*first[1:], second, third, tb.gradients(first[2], x)[0], update]
    found = []
    for threads in (1, 2, 0):
        with _session(threads) as session:
            session.run(tb.global_variables_initializer())
            feeds = {x: np.linspace(-1, 1, 7, dtype=np.float32)}
            found.append([[each.tobytes() for each in session.run(fetches, feeds)] for _ in range(8)])
    assert found[0] == found[1] == found[2]
    assert found[0][0] != found[0][1]  # the draws and the variable are others in each run


def test_compiled_loops_of_a_step_overlap_with_functions():
    begun = threading.Event()
    x, n = tb.placeholder(tb.float32, []), tb.placeholder(tb.int32, [])
    seen = tb.py_func(lambda value: (begun.set(), value)[1], [x], tb.float32)
    waits = tb.py_func(lambda value: (begun.wait(30), value)[1], [x], tb.float32)
    loop = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tb.sin(a) + x), [0, x])[1]
    with _session() as session:
        explanation = str(session.explain([loop, waits, seen], {x: 0.0, n: 3}))
        assert "a planned step; with loop while/while_context" in explanation
        for _ in range(3):
            begun.clear()
            found = session.run([loop, waits, seen], {x: 0.5, n: 1000})
            assert found[1:] == [0.5, 0.5]


def test_an_error_of_a_function_on_another_thread_names_the_op_and_the_iteration():
    def fails_at_two(value):
        if value == 2:
            raise ValueError("no two")
        time.sleep(0.001)
        return value

    def body(i, total):
        value = tb.py_func(fails_at_two, [i], tb.int32, stateful=False, name="picky")
        value.set_shape([])
        return i + 1, total + value

    loop = tb.while_loop(lambda i, _: i < 5, body, [0, 0])[1]
    said = r"while/picky: ValueError: no two .*made at .*test_inter_op.*in iteration 2 of loop 'while'"
    with _session() as session, pytest.raises(tb.errors.InvalidArgumentError, match=said):
        session.run(loop)


def test_a_pool_refuses_what_it_has_no_thread_for():
    pool, go_on = InterOpPool(2, "test"), threading.Event()
    ran: list[str] = []

    def work(name):
        assert go_on.wait(30)
        ran.append(name)

    assert pool.run(lambda: work("a"))
    assert pool.run(lambda: work("b"))
    assert not pool.run(lambda: work("c"))
    go_on.set()
    while len(ran) < 2 or not pool.run(lambda: work("d")):  # a thread is free soon
        time.sleep(1e-3)
    pool.close()
    assert not pool.run(lambda: work("e"))
    while len(ran) < 3:
        time.sleep(1e-3)
    assert sorted(ran) == ["a", "b", "d"]
    assert not InterOpPool(0, "none").run(lambda: work("f"))


def test_shares_of_a_pool_have_its_threads_together():
    pool, go_on = InterOpPool(2, "test"), threading.Event()
    one, other = PoolShare(pool, 1), PoolShare(pool, 9)

    def work():
        assert go_on.wait(30)

    assert one.run(work)
    assert not one.run(work)  # it has one
    assert other.run(work)
    assert not other.run(work)  # the pool has no more
    pool.allow(3)
    pool.allow(1)
    assert not one.run(work)
    assert other.run(work)
    assert not other.run(work)
    go_on.set()
    while not one.run(work):  # its thread is free soon
        time.sleep(1e-3)
    pool.close()
    assert not other.run(work)
