"""Short steps in the caller's thread: the same results, errors, order and interrupts as on the stream's."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.runtime import single_device_step

pytestmark = pytest.mark.usefixtures("session")

THREADS, ROUNDS = 4, 100
FEED = {"fed:0": [1.0, 2.0]}


def fed():
    return tb.placeholder(tb.float32, [2], name="fed")


def op_of(name, kernel):
    return tb.define_op(
        name,
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=kernel,
        replace=True,
    )


def watched(name, seconds=0.0):
    """An op that notes which thread runs it, and the list of them."""
    threads = []

    def kernel(call):
        threads.append(threading.get_ident())
        time.sleep(seconds)
        call.outputs[0][...] = call.inputs[0]

    return op_of(name, kernel), threads


def test_a_short_step_runs_in_the_callers_thread_after_its_first_time(session):
    op, threads = watched("TestShortHere")
    y = op(fed())
    for _ in range(50):
        np.testing.assert_array_equal(session.run(y, FEED), [1.0, 2.0])
    assert threads[0] != threading.get_ident()
    assert threading.get_ident() in threads
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: [session.run(y, FEED) for _ in range(50)]).result()
        (caller,) = {pool.submit(threading.get_ident).result()}
    assert caller in threads


def test_a_long_step_stays_on_the_streams_thread(session):
    op, threads = watched("TestLongHere", 2 * single_device_step.LONGEST_HERE_S)
    y = op(fed())
    for _ in range(5):
        session.run(y, FEED)
    assert threading.get_ident() not in threads


def test_what_an_interrupt_would_cut_off_half_way_stays_on_the_streams_thread(session, reference_kernels):
    """A step that writes by several calls of Python: whole on its own thread, whatever comes."""
    op, threads = watched("TestWriterHere")
    v = tb.Variable(np.zeros(2, np.float32), name="v")
    write = v.assign(op(v + 1.0))
    session.run(v.initializer)
    for number in range(1, 6):
        np.testing.assert_array_equal(session.run(write), [number, number])
    assert threading.get_ident() not in threads


def test_results_are_those_of_the_streams_thread(session, monkeypatch):
    x = tb.placeholder(tb.float32, [None])
    v = tb.Variable(np.arange(3, dtype=np.float32), name="v")
    noise = tb.random_normal([3], seed=5)
    update = v.assign_add(x * noise)

    def values():
        session.run(v.initializer)
        session.random_state.counters.clear()
        fed = np.array([1.0, 2.0, 3.0], np.float32)
        return [session.run([update, v, noise], {x: fed}) for _ in range(6)]

    here = values()
    monkeypatch.setattr(single_device_step, "LONGEST_HERE_S", 0.0)
    there = values()
    for mine, others in zip(here, there, strict=True):
        for a, b in zip(mine, others, strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_error_says_the_same_and_the_session_goes_on(session, monkeypatch):
    x = tb.placeholder(tb.float32, [])

    def kernel(call):
        if call.inputs[0] < 0:
            raise ArithmeticError(f"refused {float(call.inputs[0])}")
        call.outputs[0][...] = call.inputs[0]

    y = op_of("TestRefusalHere", kernel)(x)

    def message():
        with pytest.raises(InvalidArgumentError, match=r"TestRefusalHere.*refused -1.0") as caught:
            session.run(y, {x: -1.0})
        assert session.run(y, {x: 2.0}) == 2.0
        assert session.run(y, {x: 3.0}) == 3.0
        return str(caught.value), getattr(caught.value, "__notes__", None)

    session.run(y, {x: 1.0})
    here = [message() for _ in range(3)]
    monkeypatch.setattr(single_device_step, "LONGEST_HERE_S", 0.0)
    assert set(map(repr, here)) == {repr(message())}


def test_the_callers_numpy_settings_do_not_reach_a_step(session):
    x = tb.placeholder(tb.float64, [2])
    y = tb.log(x) / (x - x)
    with np.errstate(all="raise"):
        for _ in range(5):
            assert not np.isfinite(session.run(y, {x: [0.0, 1.0]})).any()


@pytest.mark.slow
def test_sessions_of_many_threads_on_one_device():
    """Each thread has a session of its own, and all share another one."""
    with tb.Graph().as_default() as graph:
        v = tb.Variable(np.zeros(50), name="v")
        add = v.assign_add(np.ones(50))
        total = tb.reduce_sum(v)
        with tb.Session() as common:
            common.run(v.initializer)

            def work():
                with tb.Session(graph=graph) as own:
                    own.run(v.initializer)
                    for number in range(1, ROUNDS + 1):
                        own.run(add.op)
                        common.run(add.op)
                        assert own.run(total) == 50 * number
                        assert common.run(total) % 50 == 0

            with ThreadPoolExecutor(THREADS) as pool:
                for running in [pool.submit(work) for _ in range(THREADS)]:
                    running.result()
            assert common.run(total) == 50 * THREADS * ROUNDS
            assert not common._cache._busy


def test_a_step_may_run_sessions_itself(session):
    inner = tb.constant([3.0, 4.0]) * 2.0
    other = tb.Session()

    def kernel(call):
        call.outputs[0][...] = session.run(inner) + other.run(inner) + call.inputs[0]

    y = op_of("TestNestedHere", kernel)(fed())
    for _ in range(5):
        np.testing.assert_array_equal(session.run(y, FEED), [13.0, 18.0])
    other.close()


def test_a_trace_shows_every_step_on_its_stream(session):
    y = fed() + 1.0
    session.run(y, FEED)
    tracer = tb.profiler.Tracer()
    tracer.start()
    try:
        for _ in range(5):
            session.run(y, FEED)
    finally:
        tracer.stop()
    (group,) = session._cache.groups
    runs = [(span.track, span.name) for span in tracer.spans if span.category == "work"]
    assert runs == [(group.compute.track, session._name)] * 5


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="interrupts at a time come with setitimer")
def test_an_interrupt_anywhere_leaves_the_session_usable(session):
    v = tb.Variable(np.zeros(8), name="v")
    add, twice = v.assign_add(np.ones(8)).op, v * 2.0
    session.run(v.initializer)
    for _ in range(3):
        session.run(add)
        session.run(twice)
    chance, fired = random.Random(7), [False]
    ended, begun, interrupts = 3, 3, 0

    def interrupt(number, frame):
        fired[0] = True
        raise KeyboardInterrupt

    def attempt():
        nonlocal ended, begun
        fired[0] = False
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 1e-4))
        while not fired[0]:
            begun += 1
            session.run(add)
            ended += 1
            session.run(twice)

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # an interrupt among the collector's callbacks is lost, whosever they are
    try:
        for _ in range(1500):
            try:
                attempt()
            except KeyboardInterrupt:
                interrupts += 1
            assert not session._cache._busy
            assert not session._variables.lock._held
            assert not session._variables.lock._waiting
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    assert interrupts == 1500
    value = session.run(v)
    assert ended <= value[0] <= begun  # a step that was begun may or may not have come to its update
    np.testing.assert_array_equal(value, np.full(8, value[0]))
    assert len(session._cache.groups) == 1


def test_an_interrupt_in_a_kernel_comes_out_and_leaves_nothing_behind(session):
    chance = iter([False, False, True, False])

    def kernel(call):
        if next(chance):
            raise KeyboardInterrupt
        call.outputs[0][...] = call.inputs[0]

    y = op_of("TestInterruptedHere", kernel)(fed())
    session.run(y, FEED)
    session.run(y, FEED)
    with pytest.raises(KeyboardInterrupt):
        session.run(y, FEED)
    np.testing.assert_array_equal(session.run(y, FEED), [1.0, 2.0])
