"""The life of a replicator: init, threads, shutdown, values that outlive it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice
from tensorbow.errors import FailedPreconditionError

pytestmark = pytest.mark.usefixtures("graph")


def test_shutdown_gives_memory_back_and_init_starts_anew():
    device = CpuDevice("/cpu:0")
    repl = tb.MultiGpuReplicator([device], 2)
    with repl.context():
        w = tb.Variable(np.zeros(2, np.float32), name="w")
        optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))
    out = repl.run(lambda x: optimizer.minimize(tb.reduce_sum(w * x)), lambda: np.ones(2, np.float32))
    with tb.Session() as session:
        for _ in range(2):
            repl.init(session)
            session.run(out)
            assert device.memory.held_nbytes > 0
            repl.shutdown(session)
            repl.shutdown(session)
            assert device.memory.held_nbytes == 0
    device.close()


def test_leaving_a_training_loop_early_shuts_down():
    device = CpuDevice("/cpu:0")
    repl = tb.MultiGpuReplicator([device], 2)
    loop = repl.train(lambda x: tb.reduce_sum(x), lambda: np.ones(3, np.float32))
    for step, total in enumerate(loop):
        assert total.tolist() == [3, 3]
        if step == 4:
            break
    loop.close()
    assert device.memory.held_nbytes == 0
    device.close()


@pytest.mark.slow
def test_steps_from_several_threads_are_each_done_once():
    repl = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], (2, 1))
    with repl.context():
        total = tb.Variable(0.0, trainable=False, combine="sum", name="total")
        w = tb.Variable([0.0], name="w")
        optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.5))
    count = repl.run(lambda x: total.assign_add(x), lambda: np.float32(1))
    train = repl.run(lambda: optimizer.minimize(tb.reduce_sum(w)))
    with repl, tb.Session() as session:
        repl.init(session)
        threads = [
            threading.Thread(target=lambda out=out: [session.run(out) for _ in range(15)])
            for out in (count, train) * 2
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert repl.central_values()["total"] == 90
        w_mean = np.mean([repl.replica_values(i)["w"] for i in range(3)])
        session.run(train)
        assert np.mean([repl.replica_values(i)["w"] for i in range(3)]) < w_mean


@pytest.mark.parametrize("what", ["replicator", "session"])
def test_closed_while_a_thread_is_stepping(what):
    device = CpuDevice("/cpu:0")
    repl = tb.MultiGpuReplicator([device], 2)
    stepping, errors = threading.Event(), []
    out = repl.run(lambda x: tb.reduce_sum(tb.matmul(x, x)), lambda: np.ones((64, 64), np.float32))
    session = tb.Session()
    repl.init(session)

    def loop():
        try:
            while True:
                assert session.run(out).tolist() == [64.0**3] * 2
                stepping.set()
        except FailedPreconditionError as error:
            errors.append(str(error))
            stepping.set()

    thread = threading.Thread(target=loop)
    thread.start()
    assert stepping.wait(20)
    (repl.shutdown if what == "replicator" else session.close)()
    thread.join(20)
    assert not thread.is_alive()
    (error,) = errors
    assert ("replicator.init(session)" if what == "replicator" else "the session is closed") in error
    repl.shutdown()
    session.close()
    assert device.memory.held_nbytes == 0
    device.close()


def test_a_saver_keeps_z_and_a_replicator_starts_from_it():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    with repl.context():
        w = tb.Variable(np.zeros(2, np.float32), name="w")
        saver = tb.train.Saver([w])
        optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))
    train = repl.run(lambda x: optimizer.minimize(tb.reduce_sum(w * x)), lambda: np.ones(2, np.float32))
    look = repl.run(lambda: w)
    folder = tempfile.mkdtemp()
    with repl, tb.Session() as session:
        repl.init(session)
        for _ in range(3):
            session.run(train)
    z = repl.central_values()["w"]
    assert z.any()
    with tb.Session(graph=repl.graph) as session:
        session.load_variables(repl.central_values())
        saver.save(session, f"{folder}/model", global_step=3)
    with tb.Session(graph=repl.graph) as session:
        saver.restore(session, tb.train.latest_checkpoint(folder))
        values = {"w": session.run(w)}
    with repl, tb.Session() as session:
        repl.init(session, values)
        assert session.run(look).tolist() == [z.tolist()] * 2


def test_results_after_shutdown_are_the_callers():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    out = repl.run(lambda x: x * 3.0, lambda: np.ones(2, np.float32))
    with tb.Session() as session:
        repl.init(session)
        values = session.run(out)
        repl.shutdown(session)
        repl.shutdown(session)
        values += 1
        assert values.tolist() == [[4, 4], [4, 4]]
        with pytest.raises(FailedPreconditionError, match=r"no replicas after shutdown\(\)"):
            repl.replica_values(0)


@pytest.mark.parametrize("shut_down", [False, True])
def test_values_are_those_of_a_graph_without_the_optimiser(shut_down):
    """As an inference graph makes the model: optimisers' slots and counts are left out."""
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, "none", seeds=[1, 2])

    def model(x):
        return tb.layers.dense(x, 1, name="dense")

    def step_fn(x):
        rate = tb.train.ExponentialDecay(0.1, 2, 0.8)
        return repl.wrap_optimizer(tb.train.AdamOptimizer(rate)).minimize(tb.reduce_sum(tb.square(model(x))))

    x = np.ones((2, 3), np.float32)
    losses = repl.train(step_fn, lambda: x, steps=2)
    next(losses)
    with pytest.warns(UserWarning, match="newest_values: replicas with sync='none' have no central"):
        _, central = repl.newest_values()
    slots = {"Adam/iterations", "beta1_power", "dense/kernel/m"}
    assert slots <= repl.replica_values(1, slots=True).keys()
    if shut_down:
        losses.close()
        assert slots <= repl.replica_values(1, slots=True).keys()
    with tb.Graph().as_default(), tb.Session() as session:
        predictions = model(tb.constant(x))
        found = []
        for values in (repl.replica_values(0), repl.replica_values(1), central):
            session.load_variables(values)
            found.append(session.run(predictions))
            assert np.allclose(found[-1], x @ values["dense/kernel"] + values["dense/bias"])
    assert not np.allclose(found[0], found[1])
    assert np.array_equal(found[0], found[2])


UNFINISHED = """
import numpy as np
import tensorbow as tb

repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
with repl.context():
    optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))


def step_fn(x):
    w = tb.Variable(np.zeros(2, np.float32), name="w")
    return optimizer.minimize(tb.reduce_sum(w * x))


training = repl.train(step_fn, lambda: np.ones(2, np.float32), 3)
next(training)
"""


@pytest.mark.slow
def test_a_training_that_is_left_unfinished_ends_with_the_interpreter():
    command = [sys.executable, "-W", "error", "-c", UNFINISHED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def trained_weight(tau, steps):
    """A Replicator after some steps, and its weight."""
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, tau=tau)
    with repl.context():
        w = tb.Variable(np.float32(1), name="w")
        optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))

    def step_fn():
        with tb.control_dependencies([optimizer.minimize(w * w)]):
            return tb.identity(w)

    list(repl.train(step_fn, steps=steps))
    return repl, w


def test_an_evaluation_that_begins_anew_warns():
    repl, w = trained_weight(1, 3)
    with pytest.warns(UserWarning, match="a step that trains nothing begins with the initial values"):
        (value,) = repl.train(lambda: tb.identity(w), steps=1)
    assert value.tolist() == [1, 1]


def test_a_training_that_never_averages_warns():
    with pytest.warns(UserWarning, match="train: 3 rounds, fewer than tau=4: z stays as it began"):
        repl, _ = trained_weight(4, 3)
    assert repl.central_values()["w"] == 1
