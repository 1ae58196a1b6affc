"""Faults of a cluster that the thread of a queue meets, and errors of threads beside those of a block."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import AbortedError, FailedPreconditionError, UnavailableError
from tests.cluster.servers import begin_process, cluster_of, end, servers_here, start_process

pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture
def servers():
    with servers_here(ps=1, worker=1) as servers:
        yield servers


class Coordinators(tb.train.SessionRunHook):
    """Keeps the coordinator of each session, and whether the hook was told of the end."""

    def __init__(self):
        self.made, self.ended = [], False

    def after_create_session(self, session, coord):
        self.made.append((session, coord))

    def end(self, session):
        self.ended = True


def fed(name):
    """A queue at the parameter task with a runner; elements are numbers from 1 on."""
    with tb.device("/job:ps/task:0"):
        numbers = tb.Variable(np.int64(0), name="numbers")
        queue = tb.FIFOQueue(2, [tb.int64], [[]], shared_name=name)
        put = queue.enqueue([tb.assign_add(numbers, np.int64(1))])
    tb.train.add_queue_runner(tb.train.QueueRunner(queue, [put]))
    return queue


@pytest.mark.parametrize("fault", [UnavailableError, AbortedError])
@pytest.mark.parametrize("met", ["before a step", "in a step", "by the loop"])
def test_a_fault_of_a_thread_has_a_new_session_go_on(servers, fault, met):
    hook, queue = Coordinators(), fed(f"{fault.__name__} {met}")
    with tb.device("/job:ps/task:0"):
        kept = tb.FIFOQueue(2, [tb.int64], [[]], shared_name=f"kept {fault.__name__} {met}")
        take, put = kept.dequeue(), kept.enqueue([np.int64(7)])
    with tb.train.MonitoredTrainingSession(servers["worker0"].target, hooks=[hook]) as session:
        assert session.run(queue.dequeue()) >= 1
        (old, coordinator), *_ = hook.made
        if met == "in a step":  # which waits for a queue that the fault does not close

            def fail():
                while not old._waiting:
                    time.sleep(0.001)
                coordinator.request_stop(fault("as the test asks"))
                with tb.Session(servers["worker0"].target, put.graph) as other:
                    other.run(put)

            thread = threading.Thread(target=fail)
            thread.start()
            assert session.run(take) == 7
            thread.join()
        else:
            session.run(put)
            coordinator.request_stop((fault, fault("as the test asks"), None))
            if met == "by the loop":
                assert not session.should_stop()
            assert session.run(take) == 7
        assert session.run(queue.dequeue()) >= 1  # its queue is open, and filled
        assert len(hook.made) == 2
        assert tb.get_default_session() is session._session is hook.made[1][0]
        assert not session.should_stop()
    assert hook.ended


def test_a_fault_behind_the_last_step_is_no_error_and_one_behind_a_loop_of_its_own_is(servers, caplog):
    def of_thread(hook):
        hook.made[-1][1].request_stop(UnavailableError("as the test asks"))

    target, hook = servers["worker0"].target, Coordinators()
    stop, step = tb.train.StopAtStepHook(num_steps=2), tb.constant(1)
    with tb.train.MonitoredSession(target=target, hooks=[hook, stop]) as session:
        while not session.should_stop():
            session.run(step)
        of_thread(hook)
        assert session.should_stop()
    assert hook.ended
    assert len(hook.made) == 1
    assert "behind the last step: as the test asks" in caplog.text
    hook = Coordinators()

    def loop():
        with tb.train.MonitoredSession(target=target, hooks=[hook]) as session:
            session.run(step)
            of_thread(hook)

    with pytest.raises(UnavailableError, match="as the test asks"):
        loop()
    assert not hook.ended


def test_other_errors_of_threads_and_faults_in_one_process_end_the_loop(servers):
    for target, error in (("", UnavailableError), (servers["worker0"].target, ValueError)):
        hook = Coordinators()
        session = tb.train.MonitoredSession(target=target, hooks=[hook])
        hook.made[0][1].request_stop(error("as the test asks"))
        assert session.should_stop()
        assert session.run(tb.constant(3)) == 3
        with pytest.raises(error, match="as the test asks"):
            session.close()


def test_a_supervisor_raises_the_error_of_its_block_with_that_of_a_thread_as_context():
    supervisor = tb.train.Supervisor(stop_grace_secs=5)

    def block(own):
        with supervisor.managed_session():
            supervisor.coord.request_stop(ValueError("of a thread"))
            if own is not None:
                raise own

    with pytest.raises(KeyError, match="of the block") as found:
        block(KeyError("of the block"))
    assert str(found.value.__context__) == "of a thread"
    with pytest.raises(ValueError, match="of a thread"):
        block(None)
    with pytest.raises(ValueError, match="of a thread"):
        block(tb.errors.OutOfRangeError("the input"))


@pytest.mark.parametrize("by", ["monitored", "supervisor"])
def test_threads_that_do_not_end_are_waited_for_as_long_as_is_said(by):
    let_go = threading.Event()
    late = threading.Thread(target=let_go.wait, daemon=True)
    late.start()
    try:
        if by == "monitored":
            hook = Coordinators()
            with tb.train.MonitoredTrainingSession(hooks=[hook], stop_grace_period_secs=0) as session:
                hook.made[0][1].register_thread(late)
        else:
            supervisor = tb.train.Supervisor(stop_grace_secs=0)
            with supervisor.managed_session() as session:
                supervisor.coord.register_thread(late)
        with pytest.raises(FailedPreconditionError, match="closed"):
            session.run(tb.constant(1))
        assert late.is_alive()
    finally:
        let_go.set()


@pytest.mark.slow
def test_training_goes_on_when_only_a_queues_thread_has_met_the_end_of_a_task(tmp_path):
    """The main thread waits for the queue, which lies at a task that is well."""
    cluster = cluster_of(ps=1, worker=2)
    with ExitStack() as stack:
        reader = begin_process(cluster, "worker", 1)
        stack.callback(end, reader)
        stack.callback(end, start_process(cluster, "ps", 0))
        assert reader.stdout.readline() == "ready\n"
        server = stack.enter_context(tb.train.Server(cluster, "worker", 0))
        with tb.device("/job:ps/task:0"):
            step = tb.train.create_global_step()
            queue = tb.FIFOQueue(1, [tb.float32], [[]], shared_name="drawn")
        with tb.device("/job:worker/task:1"):
            drawn = tb.reduce_sum(tb.random_uniform([3]))
        tb.train.add_queue_runner(tb.train.QueueRunner(queue, [queue.enqueue([drawn])]))
        with tb.control_dependencies([queue.dequeue()]):
            update = tb.assign_add(step, np.int64(1))
        seen, hook = [], Coordinators()
        with tb.train.MonitoredTrainingSession(
            server.target,
            checkpoint_dir=tmp_path,
            save_checkpoint_steps=2,
            hooks=[hook, tb.train.StopAtStepHook(last_step=12)],
        ) as session:
            while not session.should_stop():
                seen.append(int(session.run(update)))
                if len(seen) == 5:
                    end(reader)
                    reader = begin_process(cluster, "worker", 1)
                    stack.callback(end, reader)
        assert seen[:5] == [1, 2, 3, 4, 5]
        assert seen[-1] == 12
        assert len(hook.made) > 1
