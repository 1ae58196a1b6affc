"""One run that fails, is late or is interrupted ends at once, and harms no other run of its session."""

from __future__ import annotations

import linecache
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import CancelledError, DeadlineExceededError, InvalidArgumentError
from tensorbow.executor import QuickStep
from tensorbow.runtime.run_stop import RunStop

pytestmark = pytest.mark.usefixtures("graph")


def _in_thread(call):
    """A thread that runs a call; its results come in the list."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    return thread, found


def _until(condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it does not come to pass")


def test_a_late_run_leaves_the_queue_to_the_run_that_waits_beside_it():
    queue = tb.FIFOQueue(4, [tb.float32], [[]])
    element, taken = tb.placeholder(tb.float32, []), queue.dequeue()
    enqueue = queue.enqueue([element])
    with tb.Session() as session:
        session.run(queue.size())
        thread, found = _in_thread(lambda: session.run(taken))
        _until(lambda: session._dynamic.running)
        with pytest.raises(DeadlineExceededError, match=r"timeout_in_ms=60 .*; it waited for QueueDequeue"):
            session.run(taken, options=tb.RunOptions(timeout_in_ms=60))
        session.run(enqueue, {element: 3.0})
        thread.join(30)
        assert found == [3.0]
        session.run(enqueue, {element: 4.0})  # none waits for it any more
        assert session.run(queue.size()) == 1


def test_an_interrupted_run_leaves_the_queue_to_the_others():
    queue = tb.FIFOQueue(4, [tb.float32], [[]])
    taken, enqueue = queue.dequeue(), queue.enqueue([2.5])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with tb.Session() as session:
            session.run(queue.size())
            thread, found = _in_thread(lambda: session.run(taken))
            interrupts = threading.Thread(target=_interrupt_when_waiting, args=(threading.get_ident(),))
            interrupts.start()
            with pytest.raises(KeyboardInterrupt):
                session.run(taken)
            interrupts.join()
            session.run(enqueue)
            thread.join(30)
            assert found == [2.5]
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt_when_waiting(thread):
    """Sends SIGINT once the step that a thread runs waits."""

    def waits():
        frame = sys._current_frames()[thread]
        return _is_wait(frame) and frame.f_back.f_code is QuickStep._wait.__code__

    _until(waits)
    os.kill(os.getpid(), signal.SIGINT)


def _is_wait(frame):
    return frame.f_code is threading.Condition.wait.__code__


def _interrupted_at(number, run):
    """Calls `run`, and raises KeyboardInterrupt once at a line of it; True if it was waiting by then."""
    left, waits = number, False

    def traced(frame, event, argument):
        nonlocal left, waits
        if left >= 0 and _is_wait(frame):
            left, waits = -1, True
            raise KeyboardInterrupt
        if left < 0 or not frame.f_globals["__name__"].startswith(("tensorbow.executor", "tensorbow.queues")):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if event == "line" and not line.startswith("with"):  # where such a block ends no signal is handled
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        with pytest.raises(KeyboardInterrupt):
            run()
    finally:
        sys.settrace(before)
    return waits


@pytest.mark.parametrize("make", [tb.FIFOQueue, tb.MapStagingArea])
def test_a_run_that_is_interrupted_anywhere_leaves_what_it_waits_for(make):
    if make is tb.FIFOQueue:
        made = make(4, [tb.float32], [[]])
        taken, put = made.dequeue(), made.enqueue([2.5])
    else:
        made = make([tb.float32], [[]])
        taken, put = made.get(3), made.put(3, 2.5)
    size = made.size()
    fetched = taken if make is tb.FIFOQueue else [taken, size]  # side by side they are no chain
    with tb.Session() as session:
        session.run(size)
        waits, number = False, 0
        while not waits:
            waits = _interrupted_at(number, lambda: session.run(fetched))
            session.run(put)
            assert session.run(size) == 1, number  # the interrupted run has not taken it
            assert session.run(taken) == 2.5
            number += 1
    assert number > 50


def test_a_run_is_given_up_while_a_function_waits():
    go_on = threading.Event()
    waits = tb.py_func(lambda value: (go_on.wait(30), value)[1], [np.float32(1)], tb.float32)
    with tb.Session() as session:
        try:
            with pytest.raises(DeadlineExceededError, match="timeout_in_ms=40"):
                session.run(waits, options=tb.RunOptions(timeout_in_ms=40))
        finally:
            go_on.set()
        assert session.run(waits, options=tb.RunOptions(timeout_in_ms=60_000)) == 1.0


def _endless(x, limit):
    """A compiled loop that doubles x until it reaches the limit; for x = 0 it never does."""
    return tb.while_loop(lambda a: a < limit, lambda a: a * 2.0, [x])


def test_an_error_stops_a_compiled_loop_of_its_run_and_of_no_other():
    x, limit = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, [])
    fails = tb.placeholder(tb.bool, [])

    def checked(value):
        time.sleep(0.05)
        if value:
            raise ValueError("enough")
        return value

    fetches = [_endless(x, limit), tb.py_func(checked, [fails], tb.bool)]
    with tb.Session() as session:
        assert "with loop while" in str(session.explain(fetches, {x: 1.0, limit: 8.0, fails: False}))
        assert session.run(fetches, {x: 1.0, limit: 8.0, fails: False}) == [8.0, False]
        thread, found = _in_thread(
            lambda: [session.run(fetches, {x: 1.0, limit: 1e30, fails: False})[1] for _ in range(5)]
        )
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="enough"):
                session.run(fetches, {x: 0.0, limit: 8.0, fails: True})
        thread.join(30)
        assert found == [[False] * 5]
        assert session.run(fetches, {x: 1.0, limit: 8.0, fails: False}) == [8.0, False]


def test_an_error_ends_the_wait_for_a_variable_that_another_run_writes():
    x, ends, n = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, []), tb.placeholder(tb.int32, [])
    v = tb.Variable(np.float32(0))
    written = v.assign(_endless(x, ends))  # the other run holds the variable for as long as its loop runs

    def fails(value):
        time.sleep(0.05)
        raise ValueError("enough")

    reads = tb.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a + v), [0, x])[1]
    fetches = [reads, tb.py_func(fails, [x], tb.float32)]
    session = tb.Session()
    session.run(tb.global_variables_initializer())
    assert "with loop while_1" in str(session.explain(fetches, {x: 1.0, n: 3}))
    other = []

    def hold():
        with pytest.raises(CancelledError):
            session.run(written, {x: 0.0, ends: 1.0})
        other.append("cancelled")

    thread = threading.Thread(target=hold)
    thread.start()
    _until(lambda: session._planned.endless)
    with pytest.raises(InvalidArgumentError, match="enough"):
        session.run(fetches, {x: 1.0, n: 3})
    assert thread.is_alive()
    session.close()
    thread.join(30)
    assert other == ["cancelled"]


class _Step:
    def __init__(self):
        self.told = []

    def stop(self):
        self.told.append("stop")

    def resume(self):
        self.told.append("resume")


def test_a_step_that_was_stopped_is_ready_for_another_run():
    woken: list[int] = []
    stop = RunStop(None, lambda: woken.append(1))
    one, other = _Step(), _Step()
    with stop.running(other):
        pass
    with stop.running(one):
        assert stop.left_s() is None
        stop.stop(ValueError("first"))
        stop.stop(KeyError("second"))
    assert one.told == ["stop", "stop", "resume"]
    assert other.told == []
    assert woken == [1, 1]
    with pytest.raises(ValueError, match="first"):
        stop.left_s()
    with pytest.raises(ValueError, match="first"), stop.running(other):
        pass


@pytest.mark.parametrize("threads", [0, 1])
def test_the_time_limit_of_a_session_stops_a_compiled_loop_that_was_short_before(threads):
    x = tb.placeholder(tb.float32, [])
    given = tb.py_func(lambda value: value, [x], tb.float32)
    given.set_shape([])
    ended = tb.while_loop(lambda a: a < 8.0, lambda a: a * 2.0, [given])
    config = tb.ConfigProto(operation_timeout_in_ms=200, inter_op_parallelism_threads=threads)
    with tb.Session(config=config) as session:
        for _ in range(2):
            assert session.run(ended, {x: 1.0}) == 8.0
            with pytest.raises(DeadlineExceededError, match="operation_timeout_in_ms=200"):
                session.run(ended, {x: 0.0})
