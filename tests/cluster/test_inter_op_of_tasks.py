"""Ops of a task's part that take long run at the same time, as in one process."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.executor import threads_beside_caller
from tests.cluster.servers import cluster_of


class Meeting:
    """A function of an op that waits for others, and counts how many calls of it run at the same time."""

    def __init__(self, together: int):
        self.barrier = threading.Barrier(together)
        self.lock = threading.Lock()
        self.now = self.most = 0

    def __call__(self, call):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.barrier.wait(30)
        with self.lock:
            self.now -= 1
        return np.asarray(call.inputs[0] * 10)


def meeting_op(together):
    meeting = Meeting(together)
    op = tb.define_op(
        "TestMeetingOfTasks",
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        host=meeting,
        slow=True,
        replace=True,
    )
    return op, meeting


@pytest.mark.parametrize(
    ("of_server", "of_session", "together"),
    [(0, 0, 3), (3, 0, 3), (1, 0, 1), (0, 1, 1), (0, 3, 3), (1, 3, 1), (3, 1, 1)],
)
def test_independent_ops_of_a_task_run_at_the_same_time(of_server, of_session, together):
    op, meeting = meeting_op(together)
    config = tb.ConfigProto(inter_op_parallelism_threads=of_server)
    own = tb.ConfigProto(inter_op_parallelism_threads=of_session)
    cluster = cluster_of(ps=1, worker=1)
    with (
        tb.Graph().as_default(),
        tb.train.Server(cluster, "ps", 0, config=config),
        tb.train.Server(cluster, "worker", 0) as worker,
        tb.Session(worker.target, config=own) as session,
    ):
        with tb.device("/job:ps/task:0"):
            x = tb.placeholder(tb.int32, [])
            fetches = [op(x + k) for k in range(3)]
        assert session.run(fetches, {x: 1}) == [10, 20, 30]
    assert meeting.most == together


@pytest.mark.parametrize(
    ("of_server", "most"), [(2, 1), (4, 3), (0, max(8, min(threads_beside_caller(0), 16)))]
)
def test_sessions_share_the_threads_of_a_server(of_server, most):
    """Beside those of the steps, of which each has one. A server without a number has what is asked for."""
    config = tb.ConfigProto(inter_op_parallelism_threads=of_server)
    go_on, began = threading.Event(), []
    with tb.train.Server(cluster_of(ps=1), "ps", 0, config=config) as server:
        pools = [server._task._pool_of(session, 9) for session in ("one", "other")]
        assert server._task._pool_of("one", 9) is pools[0]
        while pools[len(began) % 2].run(lambda: go_on.wait(30)):
            began.append(1)
        assert not pools[1 - len(began) % 2].run(lambda: None)
        assert len(began) == most
        go_on.set()


def test_a_session_limits_its_planned_steps_and_a_run_that_waits_has_its_time_limit():
    going, go_on, most = threading.Event(), threading.Event(), [0, 0]

    def kernel(call):
        most[0] += 1
        most[1] = max(most)
        going.set()
        go_on.wait(30)
        most[0] -= 1
        return np.copyto(call.outputs[0], call.inputs[0])

    op = tb.define_op(
        "TestOneAtATimeOfTasks",
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=kernel,
        replace=True,
    )
    config = tb.ConfigProto(inter_op_parallelism_threads=1)
    cluster = cluster_of(worker=1)
    with (
        tb.Graph().as_default(),
        tb.train.Server(cluster, "worker", 0) as worker,
        tb.Session(worker.target, config=config) as session,
    ):
        x = tb.placeholder(tb.float32, [])
        y = op(x)
        threads = [threading.Thread(target=session.run, args=(y, {x: n})) for n in range(3)]
        for thread in threads:
            thread.start()
        assert going.wait(30)
        with pytest.raises(tb.errors.DeadlineExceededError, match=r"waited for other runs, as inter_op"):
            session.run(y, {x: 1.0}, options=tb.RunOptions(timeout_in_ms=20))
        go_on.set()
        for thread in threads:
            thread.join(60)
    assert most[1] == 1


@pytest.mark.parametrize("parallel", [1, 3])
def test_iterations_of_a_loop_on_a_task_overlap(parallel):
    op, meeting = meeting_op(parallel)
    array = None
    cluster = cluster_of(ps=1, worker=1)
    with (
        tb.Graph().as_default(),
        tb.train.Server(cluster, "ps", 0),
        tb.train.Server(cluster, "worker", 0) as worker,
        tb.Session(worker.target) as session,
    ):
        with tb.device("/job:ps/task:0"):
            array = tb.TensorArray(tb.int32, 6, element_shape=[])
            loop = tb.while_loop(
                lambda i, _: i < 6,
                lambda i, array: (i + 1, array.write(i, op(i))),
                [0, array],
                parallel_iterations=parallel,
            )[1].stack()
        np.testing.assert_array_equal(session.run(loop), np.arange(6) * 10)
    assert meeting.most == parallel
