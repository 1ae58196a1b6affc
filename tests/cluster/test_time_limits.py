"""Time limits of steps over tasks, and what stops loops without an end there."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.cluster.run_limit import LimitReachedError, RunLimit, TimeLimit
from tensorbow.errors import (
    AbortedError,
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    TensorBowError,
    UnavailableError,
)
from tests.cluster.servers import servers_here

pytestmark = pytest.mark.usefixtures("graph")

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
SOON = tb.RunOptions(timeout_in_ms=150)


@pytest.fixture
def servers():
    with servers_here(ps=1, worker=1) as servers:
        yield servers


def slow(kind):
    return pytest.param(kind, marks=pytest.mark.slow)


def endless(kind):
    """A variable of the parameter task, its update, and a loop there that reads it and never ends."""
    with tb.device(PS):
        w = tb.Variable(np.ones(2, np.float32), name="w")
        update = tb.assign_add(w, tb.ones([2])).op
        x = tb.placeholder(tb.float32, [2], "x")

        def body(a):
            if kind == "dynamic":
                a = tb.gather(a, tb.cast(tb.where(a > 0.0)[:, 0], tb.int32))
                a.set_shape([2])
            return a * w

        turned = tb.while_loop(lambda a: tb.reduce_sum(a) > 0.0, body, [x]) * 2.0
    if kind == "planned":  # all on one task
        return w, update, turned
    with tb.device(WORKER):
        return w, update, turned + 0.0


def run_in_thread(call):
    """Begins a call in a thread; gives the thread and a list that gets its error."""
    errors = []

    def work():
        try:
            call()
        except TensorBowError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, errors


def await_loop(servers, session, kind):
    """Waits until a step runs, and its loop does."""
    task = servers["ps0"]._task
    while not (session._waiting and (task._busy or (kind == "dynamic" and task._runs))):
        time.sleep(0.001)


def test_a_limit_ends_a_wait_for_a_queue_and_says_where(servers):
    with tb.device(PS):
        queue = tb.FIFOQueue(4, [tb.float32], [[]], name="q")
    with tb.device(WORKER):
        taken = queue.dequeue(name="take") + 1.0
        put = queue.enqueue([tb.constant(2.0)])
    with tb.Session(servers["worker0"].target) as session:
        for _ in range(2):
            with pytest.raises(DeadlineExceededError, match=r"timeout_in_ms=150 and is given up") as caught:
                session.run(taken, options=SOON)
            said = str(caught.value)
            assert "/job:ps/task:0: it waited for QueueDequeue" in said
            assert "take" in said
            assert "/job:worker/task:0: it waited for take:0 of /job:ps/task:0" in said
            assert said.endswith("variables that it had written keep their new values")
        session.run(put)
        assert session.run(taken, options=tb.RunOptions(timeout_in_ms=60_000)) == 3.0


def test_the_limit_of_a_session_counts_for_steps_without_options(servers):
    with tb.device(PS):
        taken = tb.FIFOQueue(4, [tb.float32], [[]], name="q").dequeue()
    config = tb.ConfigProto(operation_timeout_in_ms=100)
    with tb.Session(servers["worker0"].target, config=config) as session:
        with pytest.raises(DeadlineExceededError, match=r" operation_timeout_in_ms=100 .*/job:ps/task:0: it"):
            session.run(taken)
        with pytest.raises(DeadlineExceededError, match=r" timeout_in_ms=20 "):
            session.run(taken, options=tb.RunOptions(timeout_in_ms=20))
        assert session.run(tb.constant(2.0) * 3.0, options=tb.RunOptions(timeout_in_ms=60_000)) == 6.0


@pytest.mark.parametrize("kind", ["planned", "compiled", "dynamic"])
def test_a_limit_ends_a_loop_without_an_end(servers, kind):
    w, update, turned = endless(kind)
    with tb.Session(servers["worker0"].target) as session:
        session.run(w.initializer)
        with pytest.raises(
            DeadlineExceededError, match=r"=150 and is given up: .*/job:ps/task:0: it "
        ) as caught:
            session.run(turned, {"x:0": [1.0, 1.0]}, options=SOON)
        assert ("it was in while" in str(caught.value)) == (kind != "dynamic")
        session.run(update)
        assert session.run(w).tolist() == [2.0, 2.0]
        assert session.run(turned, {"x:0": [0.0, -1.0]}).tolist() == [0.0, -2.0]
        with pytest.raises(DeadlineExceededError):
            session.run(turned, {"x:0": [1.0, 1.0]}, options=SOON)


@pytest.mark.parametrize("kind", [slow("planned"), "compiled", "dynamic"])
def test_closing_a_session_ends_its_loops_at_tasks(servers, kind):
    w, update, turned = endless(kind)
    with tb.Session(servers["worker0"].target) as other:
        other.run(w.initializer)
        session = tb.Session(servers["worker0"].target)
        thread, errors = run_in_thread(lambda: session.run(turned, {"x:0": [1.0, 1.0]}))
        await_loop(servers, session, kind)
        session.close()
        thread.join(30)
        assert [type(error) for error in errors] == [CancelledError]
        other.run(update)
        assert other.run(w).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("target", [slow("ps0"), "worker0"])
def test_an_interrupt_ends_loops_at_tasks(servers, target):
    w, update, turned = endless("compiled")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with tb.Session(servers[target].target) as session:
            session.run(w.initializer)

            def interrupt():
                await_loop(servers, session, "compiled")
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=interrupt, daemon=True).start()
            with pytest.raises(KeyboardInterrupt):
                session.run(turned, {"x:0": [1.0, 1.0]})
            session.run(update)
            assert session.run(w).tolist() == [2.0, 2.0]
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("kind", ["compiled", slow("dynamic")])
def test_loops_end_when_another_task_of_their_step_stops(servers, kind):
    w, update, turned = endless(kind)
    with tb.Session(servers["ps0"].target) as session:
        session.run(w.initializer)
        thread, errors = run_in_thread(lambda: session.run(turned, {"x:0": [1.0, 1.0]}))
        await_loop(servers, session, kind)
        servers["worker0"].stop()
        thread.join(30)
        assert isinstance(errors[0], (UnavailableError, AbortedError))
        assert "/job:worker/task:0" in str(errors[0])
        session.run(update)
        assert session.run(w).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("kind", ["compiled", slow("dynamic")])
def test_a_server_stops_with_its_loops(servers, kind):
    w, _, turned = endless(kind)
    with tb.Session(servers["worker0"].target) as session:
        session.run(w.initializer)
        thread, errors = run_in_thread(lambda: session.run(turned, {"x:0": [1.0, 1.0]}))
        await_loop(servers, session, kind)
        task = servers["ps0"]._task
        servers["ps0"].stop()
        thread.join(30)
        assert isinstance(errors[0], (UnavailableError, AbortedError))
        assert not task._busy


def test_a_wait_for_variables_of_another_step_ends(servers):
    w, update, turned = endless("compiled")
    with tb.Session(servers["worker0"].target) as session, tb.Session(servers["worker0"].target) as other:
        other.run(w.initializer)
        thread, errors = run_in_thread(lambda: session.run(turned, {"x:0": [1.0, 1.0]}))
        await_loop(servers, session, "compiled")
        with pytest.raises(
            DeadlineExceededError, match="it waited for w, as another step uses such a variable"
        ):
            other.run(update, options=SOON)
        session.close()
        thread.join(30)
        assert len(errors) == 1
        other.run(update)


def slow_op(wait):
    """An op that calls a function, and then hands its input on."""

    def kernel(call):
        wait()
        call.outputs[0][...] = call.inputs[0]

    return tb.define_op(
        "TestSlowAtTask",
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=kernel,
        replace=True,
    )


@pytest.mark.parametrize("target", ["ps0", "worker0"])
def test_a_run_is_given_up_while_its_planned_op_goes_on(servers, target, monkeypatch):
    """Also on the session's own task, by the limit of the session, which leaves planned parts whole."""
    monkeypatch.setattr("tensorbow.cluster.links.GRACE_S", 0.02)
    goes_on = threading.Event()
    op = slow_op(lambda: goes_on.wait(30))
    with tb.device(PS):
        a = tb.placeholder(tb.float32, [2], "a")
        held = op(a) * 2.0
    config = tb.ConfigProto(operation_timeout_in_ms=20)
    with tb.Session(servers[target].target, config=config) as session:
        session._register([held], {a: (2,)})  # compiled at the task before the clock starts
        with pytest.raises(DeadlineExceededError, match=r"=20 and .*/job:ps/task:0 has not stopped yet; var"):
            session.run(held, {a: [1.0, 2.0]})
        goes_on.set()
    with tb.Session(servers[target].target) as session:
        assert session.run(held, {a: [1.0, 2.0]}).tolist() == [2.0, 4.0]


@pytest.mark.parametrize("target", ["ps0", "worker0"])
def test_the_limit_of_a_session_counts_for_planned_parts_on_all_tasks(servers, target, monkeypatch):
    monkeypatch.setattr("tensorbow.cluster.links.GRACE_S", 60.0)
    longer_s = [0.05]
    op = slow_op(lambda: time.sleep(longer_s[0]))
    with tb.device(PS):
        a = tb.placeholder(tb.float32, [2], "a")
        slept = op(a)
    with tb.device(WORKER):
        after = slept + 1.0
    config = tb.ConfigProto(operation_timeout_in_ms=20)
    with tb.Session(servers[target].target, config=config) as session:
        with pytest.raises(DeadlineExceededError) as caught:
            session.run(after, {a: [1.0, 2.0]})
        said = str(caught.value)
        assert "/job:ps/task:0: it computed" in said
        assert "/job:worker/task:0: it waited for /job:ps/task:0/device:CPU:0" in said
        assert not any(step.is_dynamic for step in session._steps.values())
        longer_s[0] = 0.0
        patient = tb.RunOptions(timeout_in_ms=60_000)
        assert session.run(after, {a: [1.0, 2.0]}, options=patient).tolist() == [2.0, 3.0]


def test_an_op_that_has_come_to_a_limit_of_its_own_does_not_end_the_run_at_its_limit(servers):
    def refuse():
        raise DeadlineExceededError("the printer does not answer")

    op = slow_op(refuse)
    with tb.device(PS):
        a = tb.placeholder(tb.float32, [2], "a")
        refused = op(a)
    config = tb.ConfigProto(operation_timeout_in_ms=60_000)
    for target in ("ps0", "worker0"):
        with tb.Session(servers[target].target, config=config) as session:
            with pytest.raises(DeadlineExceededError, match=r"^/job:ps/task:0: .*printer") as caught:
                session.run(refused, {a: [1.0, 2.0]})
            assert caught.value.task == PS


def test_a_step_ends_after_the_op_that_it_is_in(servers):
    calls = []

    def sleep():
        calls.append(1)
        time.sleep(0.05)

    op = slow_op(sleep)
    with tb.device(PS):
        a = tb.placeholder(tb.float32, [2], "a")
        slept = op(op(op(a)))
    with tb.Session(servers["worker0"].target) as session:
        with pytest.raises(DeadlineExceededError, match=r"/job:ps/task:0: it computed TestSlowAtTask"):
            session.run(slept, {a: [1.0, 2.0]}, options=tb.RunOptions(timeout_in_ms=25))
        assert len(calls) < 3
        assert session.run(slept, {a: [1.0, 2.0]}).tolist() == [1.0, 2.0]


def test_limits_in_messages():
    limit = TimeLimit("timeout_in_ms", 5, 0.005, True)
    assert TimeLimit.of_entry(limit.to_entry()) == limit
    assert TimeLimit.of_entry(None) is None
    for wrong in ([], ["a", 1, 2.0], "limit", [1, 2, 3, 4], ["a", 1, "2", True]):
        with pytest.raises(InvalidArgumentError, match="expected a time limit"):
            TimeLimit.of_entry(wrong)


def test_what_is_looked_at_may_end_a_run_for_all_of_its_threads():
    looks = []

    def look():
        looks.append(1)
        raise AbortedError("gone")

    limit = RunLimit(look)
    assert 0 < limit.left_s() <= 0.1
    limit._looked_s -= 1.0
    for _ in range(2):
        with pytest.raises(AbortedError, match="gone"):
            limit.check()
    assert len(looks) == 1
    with pytest.raises(LimitReachedError):
        RunLimit(lambda: None, TimeLimit("t", 0, 0.0, False)).check()
