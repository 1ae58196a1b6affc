"""`tb.train.SyncReplicasOptimizer`: workers of a cluster that average their gradients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from tests.cluster.servers import servers_here

STEPS, RATE, ROWS = 5, 0.25, 6
TARGETS = np.array([[1.0, -2.0, 0.5], [3.0, 4.0, -0.5]], np.float32)  # of each worker
CHOSEN = np.array([[0, 2, 2], [2, 5, 1]])


@pytest.fixture
def servers() -> Iterator[dict[str, tb.train.Server]]:
    with servers_here(ps=1, worker=2) as made:
        yield made


def program(task: int, workers: int, **options: Any) -> tuple[Any, Any, Any]:
    """The graph of a worker: a vector that goes to its targets, and rows of a table that go to 1."""
    with tb.device(tb.train.replica_device_setter(ps_tasks=1, worker_device=f"/job:worker/task:{task}")):
        step = tb.train.get_or_create_global_step()
        w = tb.get_variable("w", [3], initializer=tb.zeros_initializer())
        table = tb.get_variable("table", [ROWS, 2], initializer=tb.zeros_initializer())
        loss = 0.5 * tb.reduce_sum(tb.square(w - TARGETS[task]))
        loss += 0.5 * tb.reduce_sum(tb.square(tb.gather(table, CHOSEN[task]) - 1.0))
        plain = tb.train.GradientDescentOptimizer(RATE)
        optimizer = tb.train.SyncReplicasOptimizer(plain, workers, **options)
        return optimizer.minimize(loss, step), optimizer, [step, w, table]


def expected(steps: int) -> tuple[np.ndarray, np.ndarray]:
    w, table = np.zeros(3), np.zeros((ROWS, 2))
    for _ in range(steps):
        w = w - RATE * np.mean([w - target for target in TARGETS], 0)
        total, count = np.zeros_like(table), np.zeros(ROWS)
        for chosen in CHOSEN:
            for row in chosen:
                total[row] += table[row] - 1.0
            count[np.unique(chosen)] += 1
        table = table - RATE * total / np.maximum(count, 1)[:, None]
    return w, table


def test_workers_take_the_same_steps_of_mean_gradients(servers: dict[str, tb.train.Server]) -> None:
    results: dict[int, Any] = {}

    def work(task: int) -> None:
        with tb.Graph().as_default():
            train_op, optimizer, variables = program(task, 2)
            hook = optimizer.make_session_run_hook(task == 0, num_tokens=0)
            options: dict[str, Any] = {"is_chief": task == 0, "hooks": [hook]}
            with tb.train.MonitoredTrainingSession(servers[f"worker{task}"].target, **options) as session:
                for _ in range(STEPS):
                    session.run(train_op)
                if task == 0:
                    results[0] = session.run(variables)
                    done.set()
                assert done.wait(60)

    done = threading.Event()
    threads = [threading.Thread(target=work, args=(task,)) for task in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    step, w, table = results[0]
    assert step == STEPS
    for found, wanted in zip((w, table), expected(STEPS), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_one_worker_gives_all_gradients_of_a_step() -> None:
    """Without a cluster: two gradients of one worker make a step."""
    with tb.Graph().as_default():
        w = tb.Variable([4.0], name="w")
        step = tb.train.create_global_step()
        averages = tb.train.ExponentialMovingAverage(0.5)
        optimizer = tb.train.SyncReplicasOptimizer(
            tb.train.MomentumOptimizer(0.5, 0.5), 2, 1, averages, [w], name="sync"
        )
        train_op = optimizer.minimize(0.5 * tb.reduce_sum(tb.square(w)), step)
        hook = optimizer.make_session_run_hook(True, num_tokens=1)
        assert optimizer.get_slot_names() == ["Momentum"]
        with tb.train.MonitoredSession(hooks=[hook]) as session:
            for _ in range(4):
                session.run(train_op)
            assert session.run(step) == 2
            found = session.run([w, averages.average(w), optimizer.get_slot(w, "Momentum")])
    # v: 4, then 0.5 * 4 + 2 = 4; w: 4 - 2 = 2, then 0; the average: 0.5 * (4 + 2) = 3, then 1.5
    assert [each.tolist() for each in found] == [[0.0], [1.5], [4.0]]


def test_wrong_uses_are_refused() -> None:
    with tb.Graph().as_default():
        w = tb.Variable([1.0], name="w")
        plain = tb.train.GradientDescentOptimizer(0.1)
        optimizer = tb.train.SyncReplicasOptimizer(plain, 3, total_num_replicas=1)
        loss = tb.reduce_sum(w)
        with pytest.raises(InvalidArgumentError, match="expected global_step to be a variable, got None"):
            optimizer.minimize(loss)
        for use in (optimizer.get_chief_queue_runner, optimizer.get_init_tokens_op):
            with pytest.raises(FailedPreconditionError, match="call minimize or apply_gradients before get_"):
                use()
        optimizer.minimize(loss, tb.train.create_global_step())
        with pytest.raises(InvalidArgumentError, match="at least 2 tokens for 1 workers and replicas"):
            optimizer.get_init_tokens_op(1)
        with pytest.raises(InvalidArgumentError, match="variable_averages and variables_to_average, got one"):
            tb.train.SyncReplicasOptimizer(plain, 1, variables_to_average=[w])
        with pytest.raises(InvalidArgumentError, match="expected opt to be an optimiser of tb"):
            tb.train.SyncReplicasOptimizer(3, 1)


def test_an_error_of_the_chiefs_thread_reaches_the_worker() -> None:
    with tb.Graph().as_default():
        step = tb.train.get_or_create_global_step()
        w = tb.Variable([1.0, 2.0])
        rate = tb.check_numerics(1.0 / tb.cast(2 - step.value(), tb.float32), "rate")
        optimizer = tb.train.SyncReplicasOptimizer(tb.train.GradientDescentOptimizer(rate), 1)
        train = optimizer.minimize(tb.reduce_sum(w * w), global_step=step)
        hooks = [optimizer.make_session_run_hook(True)]

        def steps() -> None:
            with tb.train.MonitoredTrainingSession(hooks=hooks) as session:
                for _ in range(6):
                    session.run(train)

        with pytest.raises(InvalidArgumentError, match="rate"):
            steps()


class Lost(tb.train.SessionRunHook):
    """Finds a task lost in a session's fifth run."""

    def __init__(self) -> None:
        self.sessions = self.runs = 0

    def after_create_session(self, session: tb.Session) -> None:
        self.sessions += 1

    def before_run(self, run_context: tb.train.SessionRunContext) -> None:
        self.runs += 1
        if self.runs in (5, 10):
            raise UnavailableError("a task is lost")


def test_a_new_session_leaves_no_threads_of_the_old_one(servers: dict[str, tb.train.Server]) -> None:
    hook = Lost()
    with tb.Graph().as_default():
        batch = tb.train.batch([tb.constant(1.0)], 1)
        target = servers["worker0"].target
        with tb.train.MonitoredSession(hooks=[hook], target=target, max_wait_secs=30) as session:
            for _ in range(12):
                session.run(batch)
    assert hook.sessions == 3
    assert not [each for each in threading.enumerate() if "fifo_queue" in each.name]
