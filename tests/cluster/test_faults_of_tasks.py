"""Tasks in processes of their own that are killed, stopped and started again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import UnavailableError
from tests.cluster.servers import SERVE, await_ready, begin_process, cluster_of, end, start_process
from tests.cluster_rig.two_machines import HERE, THERE, FarMachine, cut

pytestmark = pytest.mark.usefixtures("graph")


def counting():
    """A counter at the parameter task that each step, computed by worker 1, advances; and the slow part."""
    with tb.device("/job:ps/task:0"):
        step = tb.train.create_global_step()
        w = tb.Variable(np.zeros(4, np.float32), name="w")
    with tb.device("/job:worker/task:1"):
        change = tb.reduce_sum(w * 0.0) + 1.0
    return (
        step,
        w,
        tb.group(tb.assign_add(step, np.int64(1)), tb.assign_add(w, change * np.ones(4, np.float32))),
    )


@pytest.mark.slow
def test_a_session_goes_on_from_the_checkpoint_when_a_killed_task_is_back(tmp_path, caplog):
    cluster = cluster_of(ps=1, worker=2)
    with ExitStack() as stack:
        ps = begin_process(cluster, "ps", 0)
        stack.callback(end, ps)
        servers = [stack.enter_context(tb.train.Server(cluster, "worker", task)) for task in range(2)]
        await_ready(ps)
        step, w, update = counting()
        seen = []
        with tb.train.MonitoredTrainingSession(
            servers[0].target,
            checkpoint_dir=tmp_path,
            save_checkpoint_steps=2,
            hooks=[tb.train.StopAtStepHook(last_step=7)],
        ) as session:
            while not session.should_stop():
                seen.append(int(session.run([step, update])[0]))
                if len(seen) == 5:  # checkpoints of the steps 2 and 4 are there
                    end(ps)
                    ps = begin_process(cluster, "ps", 0)
                    stack.callback(end, ps)
            assert tb.get_default_session() is session._session
            assert session.run(w).tolist() == [float(session.run(step))] * 4
        assert len(seen) == 8
        assert tb.train.latest_checkpoint(tmp_path).endswith("-7.safetensors")
        assert re.search(r"/job:ps/task:0 .*; start it again: this session waits", caplog.text)
        assert "start it again: this session waits up to 7200 s" in caplog.text
        assert "make a new session" not in caplog.text


@pytest.mark.slow
def test_a_killed_task_is_named_at_once_and_the_others_serve_on():
    cluster = cluster_of(ps=1, worker=2)
    with ExitStack() as stack:
        stack.callback(end, start_process(cluster, "ps", 0))
        worker = start_process(cluster, "worker", 1)
        stack.callback(end, worker)
        server = stack.enter_context(tb.train.Server(cluster, "worker", 0))
        _, w, update = counting()
        with tb.Session(server.target, health_check_s=3600) as session:  # nobody asks whether it lives
            session.run(tb.global_variables_initializer())
            session.run(update)
            os.kill(worker.pid, signal.SIGKILL)
            with pytest.raises(UnavailableError, match=r"^/job:worker/task:1 is unavailable: .*checkpoint$"):
                session.run(update)
            assert session.run(w).tolist() == [1, 1, 1, 1]
            stack.callback(end, start_process(cluster, "worker", 1))
            with pytest.raises(UnavailableError, match=r"^/job:worker/task:1 was started anew"):
                session.run(update)
        with tb.Session(server.target) as session:
            session.run(update)
            assert session.run(w).tolist() == [2, 2, 2, 2]


@pytest.mark.slow
def test_a_task_that_hangs_is_named_within_seconds():
    cluster = cluster_of(ps=1, worker=2)
    with ExitStack() as stack:
        ps, worker = start_process(cluster, "ps", 0), start_process(cluster, "worker", 1)
        stack.callback(end, ps)
        stack.callback(end, worker)
        server = stack.enter_context(tb.train.Server(cluster, "worker", 0))
        _, w, update = counting()
        with tb.Session(server.target, health_check_s=1) as session:
            session.run(tb.global_variables_initializer())
            session.run(update)
            os.kill(worker.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
            with pytest.raises(UnavailableError, match=r"^/job:worker/task:1 .*does not answer"):
                session.run(update)
            os.kill(worker.pid, signal.SIGCONT)
            assert session.run(w).tolist() == [1, 1, 1, 1]
            session.run(update)


@pytest.mark.slow
def test_workers_of_their_own_train_asynchronously_and_one_may_die():
    """Between-graph replication: every worker has its own session on the shared parameters."""
    program = """
import json, sys
import numpy as np
import tensorbow as tb
cluster, task = tb.train.ClusterSpec(json.loads(sys.argv[1])), int(sys.argv[2])
server = tb.train.Server(cluster, "worker", task)
with tb.device(tb.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")):
    step = tb.train.get_or_create_global_step()
    w = tb.Variable(np.zeros((3, 1), np.float32), name="w")
    x = tb.placeholder(tb.float32, [None, 3])
    y = tb.placeholder(tb.float32, [None, 1])
    loss = tb.reduce_mean(tb.square(tb.matmul(x, w) - y))
    update = tb.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
draw = np.random.default_rng(task)
true = np.float32([[1], [-2], [3]])
with tb.train.MonitoredTrainingSession(server.target, task == 0) as session:
    print("ready", flush=True)
    while session.run(step) < 400:
        batch = draw.normal(size=(8, 3)).astype(np.float32)
        session.run(update, {x: batch, y: batch @ true})
    print(json.dumps(session.run(w).ravel().tolist()), flush=True)
"""
    cluster = cluster_of(ps=2, worker=3)
    with ExitStack() as stack:
        for task in range(2):
            stack.callback(end, start_process(cluster, "ps", task))
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", program, json.dumps(cluster), str(task)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for task in range(3)
        ]
        for worker in workers:
            stack.callback(end, worker)
        for worker in workers:
            await_ready(worker)
        workers[2].kill()
        for worker in workers[:2]:
            out, _ = worker.communicate(timeout=60)
            np.testing.assert_allclose(json.loads(out), [1, -2, 3], atol=0.7)  # stale gradients count
            assert worker.returncode == 0


@pytest.fixture
def far():
    """A machine beside this one, see FarMachine."""
    try:
        machine = FarMachine()
    except PermissionError as error:
        pytest.skip(str(error))
    try:
        machine.join()
        yield machine
    finally:
        machine.end()


def processes_in(far):
    """Number of processes on the second machine; its first one stays."""
    listed = subprocess.run(
        [*far.inside, "ls", "/proc"], check=True, capture_output=True, text=True, timeout=30
    )
    return sum(name.isdecimal() for name in listed.stdout.split()) - 1  # without the one that lists


CLIENT = """
import sys
import tensorbow as tb
from tests.cluster.test_faults_of_tasks import counting
_, w, update = counting()
with tb.Session(sys.argv[1], health_check_s=1) as session:
    session.run(tb.global_variables_initializer())
    session.run(update)
    print("ready", flush=True)
    while True:
        try:
            session.run(update)
        except tb.errors.UnavailableError as error:
            print(error, flush=True)
            break
"""


@pytest.mark.slow
def test_a_cut_link_is_named_within_seconds(far):
    cluster = {"ps": [f"{HERE}:2222"], "worker": [f"{HERE}:2223", f"{THERE}:2222"]}
    environment = {**os.environ, "TENSORBOW_CLUSTER_TOKEN": "the test's"}

    def begin(machine, *command):
        words = [*(far.inside_until_killed if machine else []), sys.executable, "-c", *command]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        stack.callback(end, process)
        return process

    with ExitStack() as stack:
        tasks = [
            begin(machine, SERVE, json.dumps(cluster), job, task)
            for machine, job, task in ((0, "ps", "0"), (0, "worker", "0"), (1, "worker", "1"))
        ]
        for process in tasks:
            await_ready(process)
        client = begin(0, CLIENT, f"tcp://{HERE}:2223")
        await_ready(client)
        cut()
        assert "/job:worker/task:1" in client.communicate(timeout=60)[0]
        assert processes_in(far) > 1
    for _ in range(200):
        if processes_in(far) > 1:
            time.sleep(0.05)
    assert processes_in(far) <= 1
