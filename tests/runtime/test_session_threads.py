"""Many threads on one session: sums are exact, readers see whole updates, the graph may grow."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.runtime.shared_lock import SharedLock

pytestmark = pytest.mark.usefixtures("session")

THREADS, ROUNDS = 8, 60


def together(*works):
    """Runs every work in a thread of its own; raises the first error."""
    barrier = threading.Barrier(len(works))

    def start(work):
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [f.result() for f in [pool.submit(start, work) for work in works]]


def own_op(kernel):
    """An op whose kernel fills an output like its input."""
    return tb.define_op(
        "TestOfThreads",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=kernel,
        replace=True,
    )


def slow_op():
    """An op that passes its input on, and waits where the first element is 1; events: begun, may go on."""
    started, go_on = threading.Event(), threading.Event()

    def wait(call):
        if call.inputs[0][0] == 1.0:
            started.set()
            assert go_on.wait(30)
        call.outputs[0][...] = call.inputs[0]

    return own_op(wait), started, go_on


def test_counters_sum_exactly(session):
    v = tb.Variable(np.zeros(1000), name="v")
    adds = [v.assign_add(np.full(1000, float(i + 1))) for i in range(THREADS)]
    session.run(v.initializer)
    together(*[lambda add=add: [session.run(add.op) for _ in range(ROUNDS)] for add in adds])
    np.testing.assert_array_equal(session.run(v), np.full(1000, ROUNDS * sum(range(THREADS + 1))))


def test_readers_see_whole_updates(session):
    a, b = tb.Variable(np.zeros(5000), name="a"), tb.Variable(np.zeros(5000), name="b")
    write = tb.group(a.assign_add(np.ones(5000)), b.assign_sub(np.ones(5000)))
    session.run(tb.global_variables_initializer())

    def read():
        for _ in range(ROUNDS):
            left, right = session.run([a, b])
            assert (left == left[0]).all()
            assert (left == -right).all()

    together(read, read, read, lambda: [session.run(write) for _ in range(ROUNDS)])


def test_many_threads_run_one_step_with_their_own_feeds(session):
    x = tb.placeholder(tb.float64, [None])
    y = tb.reduce_sum(tb.square(tb.sqrt(tb.square(x))))

    def run(number):
        for size in (100, 2000, 100):
            for _ in range(ROUNDS // 3):
                assert session.run(y, {x: np.full(size, float(number))}) == pytest.approx(size * number**2)

    together(*[lambda n=n: run(n) for n in range(THREADS)])
    assert len(session._cache.groups) <= THREADS


def test_a_failing_step_is_its_own_affair(session):
    x = tb.placeholder(tb.float32, [])

    def refuse(call):
        raise ArithmeticError("refused")

    op = own_op(refuse)
    bad, good = op(x), x + 1.0

    def fail():
        for _ in range(ROUNDS):
            with pytest.raises(InvalidArgumentError, match="refused"):
                session.run(bad, {x: 1.0})

    def succeed():
        for _ in range(ROUNDS):
            assert session.run(good, {x: 1.0}) == 2.0

    together(fail, succeed, fail, succeed)


@pytest.mark.slow
def test_the_graph_grows_while_others_run(session):
    v = tb.Variable(np.zeros(100), name="v")
    add = v.assign_add(np.ones(100))
    y = tb.reduce_sum(v)
    session.run(v.initializer)
    graph = tb.get_default_graph()

    def grow():
        with graph.as_default():
            for i in range(15):
                w = tb.Variable(np.full(50, float(i)), name="w")
                session.run(w.initializer)
                assert session.run(tb.reduce_sum(w)) == 50.0 * i

    def count():
        for _ in range(ROUNDS):
            session.run(add.op)

    def read():
        for _ in range(ROUNDS):
            assert session.run(y) % 100 == 0

    together(grow, count, count, read)
    assert session.run(y) == 100.0 * 2 * ROUNDS


@pytest.mark.slow
def test_a_step_may_leave_the_cache_while_it_runs(session, monkeypatch):
    monkeypatch.setattr(session._cache, "_capacity", 1)
    slow, started, go_on = slow_op()
    x = tb.placeholder(tb.float32, [None])
    y = slow(tb.negative(tb.negative(x))) * 3.0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.run, y, {x: np.ones(1000)})
        assert started.wait(30)
        for size in range(1, 5):  # these push it out, and take the memory it would have left
            assert session.run(tb.reduce_sum(y), {x: np.full(size * 500, 2.0)}) == size * 3000.0
        go_on.set()
        np.testing.assert_array_equal(running.result(30), np.full(1000, 3.0))
    session._cache.clear()
    holders = [holder for group in session._cache.groups for holder in group.allocator.holders()]
    assert not [holder for holder in holders if "step" in holder.owner]


def test_closing_waits_for_what_runs(session):
    slow, started, go_on = slow_op()
    x = tb.placeholder(tb.float32, [2])
    y = slow(x)
    own = tb.Session()
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(own.run, y, {x: [1.0, 2.0]})
        assert started.wait(30)
        closing = pool.submit(own.close)
        assert not closing.done()
        go_on.set()
        np.testing.assert_array_equal(running.result(30), [1.0, 2.0])
        closing.result(30)
    with pytest.raises(FailedPreconditionError, match="closed"):
        own.run(y, {x: [1.0, 2.0]})


@pytest.mark.slow
def test_an_interrupt_waits_for_the_step_and_leaves_the_session_usable(session):
    entered, ended = threading.Event(), []

    def slow(call):
        entered.set()
        time.sleep(0.3)
        call.outputs[0][...] = call.inputs[0]
        ended.append(True)

    op = own_op(slow)
    x = tb.placeholder(tb.float32, [2])
    y = op(x)

    def interrupt():
        assert entered.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            session.run(y, {x: [1.0, 2.0]})
        assert ended
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    np.testing.assert_array_equal(session.run(y, {x: [3.0, 4.0]}), [3.0, 4.0])


def test_draws_of_concurrent_runs_differ(session):
    noise = tb.random_uniform([4], seed=3)
    drawn = together(*[lambda: [tuple(session.run(noise)) for _ in range(20)] for _ in range(4)])
    flat = [draw for draws in drawn for draw in draws]
    assert len(set(flat)) == 80


def test_the_lock_lets_readers_share_and_writers_alone():
    lock, state, log = SharedLock(), {"readers": 0, "writers": 0}, []

    def read():
        for _ in range(200):
            with lock.shared:
                state["readers"] += 1
                assert not state["writers"]
                state["readers"] -= 1

    def write():
        for _ in range(200):
            with lock.exclusive:
                state["writers"] += 1
                assert state["writers"] == 1
                state["writers"] -= 1
                log.append(1)

    together(read, write, read, write)
    assert len(log) == 400


def test_readers_run_side_by_side():
    lock = SharedLock()
    inside = threading.Barrier(3)

    def read():
        with lock.shared:
            inside.wait(30)

    together(read, read, read)


def test_a_release_of_what_is_not_held_changes_nothing():
    lock, mine, another = SharedLock(), object(), object()
    lock.release(mine)
    lock.acquire_exclusive(mine)
    lock.release(another)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire_shared, another)
        time.sleep(0.02)
        assert not waiting.done()
        lock.release(mine)
        lock.release(mine)
        waiting.result(30)
        blocked = pool.submit(lock.acquire_exclusive, mine)
        time.sleep(0.02)
        assert not blocked.done()
        lock.release(another)
        blocked.result(30)


def test_uses_of_different_names_are_held_side_by_side():
    lock = SharedLock()
    holders = [object() for _ in range(6)]
    lock.acquire(holders[0], {"a"}, {"b"})
    lock.acquire(holders[1], {"a"}, {"c"})
    lock.acquire(holders[2], set(), set())
    with ThreadPoolExecutor(3) as pool:
        reads = pool.submit(lock.acquire, holders[3], {"c"}, set())
        writes = pool.submit(lock.acquire, holders[4], set(), {"a"})
        time.sleep(0.02)
        later = pool.submit(lock.acquire, holders[5], {"a"}, set())  # waits for the writer before it
        time.sleep(0.02)
        assert not any(each.done() for each in (reads, writes, later))
        lock.release(holders[1])
        reads.result(30)
        assert not writes.done()
        lock.release(holders[0])
        writes.result(30)
        time.sleep(0.02)
        assert not later.done()
        lock.release(holders[4])
        later.result(30)
        alone = pool.submit(lock.acquire_exclusive, holders[0])
        for holder in (holders[2], holders[3], holders[5]):
            time.sleep(0.01)
            assert not alone.done()
            lock.release(holder)
        alone.result(30)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_conflicting_uses_exclude_each_other_and_nobody_waits_for_ever(data):
    names = st.frozensets(st.sampled_from("abc"), max_size=2)
    plans = [data.draw(st.lists(st.tuples(names, names), min_size=1, max_size=6)) for _ in range(4)]
    lock, guard = SharedLock(), threading.Lock()
    reading, writing = dict.fromkeys("abc", 0), dict.fromkeys("abc", 0)

    def run(plan):
        for reads, writes in plan:
            mine = object()
            lock.acquire(mine, reads, writes)
            with guard:
                for name in writes:
                    assert not reading[name]
                    assert not writing[name]
                assert not any(writing[name] for name in reads)
                for name in reads - writes:
                    reading[name] += 1
                for name in writes:
                    writing[name] += 1
            with guard:
                for name in reads - writes:
                    reading[name] -= 1
                for name in writes:
                    writing[name] -= 1
            lock.release(mine)

    together(*[lambda plan=plan: run(plan) for plan in plans])


def test_a_step_runs_beside_one_that_writes_other_variables(session):
    """Training holds only what it writes: another variable is written, and a third read, meanwhile."""
    slow, started, go_on = slow_op()
    trained, counter, other = (tb.Variable(np.zeros(2, np.float32), name=name) for name in ("t", "c", "o"))
    x = tb.placeholder(tb.float32, [2])
    training = trained.assign_add(slow(x))
    counting = counter.assign_add([1.0, 2.0])
    session.run(tb.global_variables_initializer())
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(session.run, training, {x: [1.0, 1.0]})
        assert started.wait(30)
        for number in range(3):
            np.testing.assert_array_equal(session.run(counting), np.array([1.0, 2.0]) * (number + 1))
        np.testing.assert_array_equal(session.run(other), [0, 0])
        reading = pool.submit(session.run, trained)
        assert not reading.done()
        go_on.set()
        np.testing.assert_array_equal(running.result(30), [1, 1])
        np.testing.assert_array_equal(reading.result(30), [1, 1])
