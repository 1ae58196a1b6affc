"""TensorBowSession over time: new variables, savers, threads, the end."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice
from tensorbow.errors import FailedPreconditionError, NumericsError
from tensorbow.ops.definition import OPS
from tests.scheduler_rig.running import within

X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


class Line:
    """A linear model with momentum; `add` gives it a bias and Adam later on."""

    def __init__(self):
        self.graph = tb.Graph()
        with self.graph.as_default():
            self.x = tb.placeholder(tb.float32, [None, 3], name="x")
            self.w = tb.Variable(np.zeros((3, 1), np.float32), name="w")
            self.error = tb.matmul(tb.nn.dropout(self.x, rate=0.2, seed=3), self.w) - 1.0
            self.loss = tb.reduce_mean(tb.square(self.error))
            self.train = tb.train.MomentumOptimizer(0.1, 0.9).minimize(self.loss)
            self.init = tb.global_variables_initializer()

    def add(self):
        with self.graph.as_default():
            before = set(tb.global_variables())
            bias = tb.Variable([2.0], name="bias")
            adam = tb.train.AdamOptimizer(0.1).minimize(tb.reduce_mean(tb.square(self.error + bias)))
            return bias, adam, tb.variables_initializer([v for v in tb.global_variables() if v not in before])

    def feeds(self, round=0):
        return {self.x: np.roll(X, round, axis=0)}


SYNCS = [{}, {"tau": 3, "mu": 0.2}, {"staleness": 1}, {"sync": "ssgd"}, {"sync": "none"}]


@pytest.mark.slow
@pytest.mark.parametrize("synchronisation", SYNCS)
def test_variables_that_are_made_later_do_not_disturb_what_is_trained(synchronisation):
    results = []
    for grows in (False, True):
        program = Line()
        options = {"devices": ["/cpu:0", "/cpu:1"], "replicas_per_device": (1, 3)}
        options["synchronisation"] = tb.Synchronisation(**synchronisation)
        with tb.TensorBowSession(graph=program.graph, **options) as session:
            session.run(program.init)
            for round in range(4):
                session.run(program.train, program.feeds(round))
            if grows:
                bias, adam, init = program.add()
                session.run(init)
                assert session.run(bias) == 2
                # A step of the first optimiser, compiled when the replicas have room for the second one.
                fetches = [program.train, tb.identity(bias)]
            else:
                fetches = [program.train]
            for round in range(4, 8):
                session.run(fetches, program.feeds(round))
            values = [session.run(program.w), *(session.replica_values(i)["w"] for i in range(4))]
            results.append(values + [session.replica_values(i, slots=True)["w/Momentum"] for i in range(4)])
            if grows:
                assert [session.replica_values(i)["bias"] for i in range(4)] == [2] * 4
                for _ in range(6):
                    session.run([adam, program.train], program.feeds())
                assert session.run(bias) != 2
                session.run(program.train, program.feeds())
    for plain, grown in zip(*results, strict=True):
        assert plain.tobytes() == grown.tobytes()


@pytest.mark.slow
def test_the_memory_of_the_smaller_replicas_is_given_back():
    device = CpuDevice("/cpu:0")
    program = Line()
    with tb.TensorBowSession(graph=program.graph, devices=[device], replicas_per_device=3) as session:
        session.run(program.init)
        session.run(program.train, program.feeds(0) | {program.x: X[:9]})
        before = device.memory.held_nbytes
        _, adam, init = program.add()
        session.run(init)
        session.run(adam, {program.x: X[:9]})
        assert device.memory.held_nbytes < 3 * before
    gc.collect()
    assert device.memory.held_nbytes == 0
    device.close()


def test_a_saver_keeps_z_and_brings_it_back_to_every_replica(tmp_path):
    program = Line()
    with program.graph.as_default():
        saver = tb.train.Saver()
    with tb.TensorBowSession(graph=program.graph, replicas_per_device=2) as session:
        session.run(program.init)
        for round in range(3):
            session.run(program.train, program.feeds(round))
        path = saver.save(session, tmp_path / "model")
        z = session.run(program.w)
        session.run(program.train, program.feeds())
        assert session.run(program.w).tobytes() != z.tobytes()
        saver.restore(session, path)
        assert all(session.replica_values(i)["w"].tobytes() == z.tobytes() for i in range(2))
    with tb.Session(graph=program.graph) as plain:
        saver.restore(plain, path)
        assert plain.run(program.w).tobytes() == z.tobytes()


def test_a_monitored_session_trains_replicas():
    program = Line()
    losses = []
    with tb.train.MonitoredSession(
        hooks=[tb.train.StopAtStepHook(6)], target="tensorbow", graph=program.graph, replicas_per_device=2
    ) as session:
        while not session.should_stop():
            losses.append(session.run([program.loss, program.train], program.feeds())[0])
    assert len(losses) == 6
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_runs_from_several_threads_take_turns():
    program = Line()
    with program.graph.as_default():
        steps = tb.Variable(0, trainable=False, name="steps")
        with tb.control_dependencies([program.train]):
            count = steps.assign_add(1)
    with tb.TensorBowSession(graph=program.graph, replicas_per_device=2) as session:
        session.run(program.init)
        session.run(steps.initializer)
        step = session.make_callable(count, [program.x])
        threads = [threading.Thread(target=lambda: [step(X) for _ in range(10)]) for _ in range(3)]
        looking = threading.Thread(
            target=lambda: [session.run(program.loss, program.feeds()) for _ in range(10)]
        )
        for thread in (*threads, looking):
            thread.start()
        for thread in (*threads, looking):
            thread.join()
        assert session.run(steps) == 30


class Gate:
    """An op that passes its input on, while the gate is open."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def op(self, name):
        return tb.define_op(
            name,
            inputs=("x",),
            spec=lambda inputs, attrs: inputs[0],
            kernel=self._pass,
            gradient=lambda op, g: [g],
        )

    def _pass(self, call):
        self.reached.set()
        assert self.opened.wait(20)
        np.copyto(call.outputs[0], call.inputs[0])


@pytest.fixture
def gate():
    gate = Gate()
    yield gate, gate.op("TestGate")
    OPS.pop("TestGate")


def in_thread(work):
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    return thread, results


def test_training_goes_on_beside_an_evaluation(gate):
    gate, passes = gate
    with tb.Graph().as_default() as graph:
        x, w = tb.placeholder(tb.float32, [None, 3]), tb.Variable(np.zeros((3, 1), np.float32))
        loss = tb.reduce_mean(tb.square(tb.matmul(x, w) - 1.0))
        train, looked = tb.train.GradientDescentOptimizer(0.1).minimize(loss), tb.reduce_sum(passes(w + 1.0))
        init = tb.global_variables_initializer()
    with tb.TensorBowSession(graph=graph, replicas_per_device=2) as session:
        session.run(init)
        evaluation, results = in_thread(lambda: session.run(looked))
        assert gate.reached.wait(20)
        for _ in range(3):
            within(lambda: session.run(train, {x: X}), 10)
        assert (evaluation.is_alive(), results) == (True, [])
        gate.opened.set()
        evaluation.join(20)
        assert results == [3.0]
        assert session.run(looked) != 3.0


def test_an_evaluation_waits_for_one_step_alone(gate):
    gate, passes = gate
    with tb.Graph().as_default() as graph:
        x, w = tb.placeholder(tb.float32, [None, 3]), tb.Variable(np.zeros((3, 1), np.float32))
        steps = tb.Variable(0, trainable=False)
        loss = tb.reduce_mean(tb.square(tb.matmul(passes(x), w) - 1.0))
        train = tb.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=steps)
        init = tb.global_variables_initializer()
    with tb.TensorBowSession(graph=graph, replicas_per_device=2) as session:
        session.run(init)
        training, _ = in_thread(lambda: [session.run(train, {x: X}) for _ in range(50)])
        assert gate.reached.wait(20)
        evaluation, seen = in_thread(lambda: session.run(steps))
        while session._door.acquire(blocking=False):  # until the evaluation waits
            session._door.release()
            time.sleep(1e-3)
        gate.opened.set()
        for thread in (training, evaluation):
            thread.join(20)
        assert seen == [1]
        assert session.run(steps) == 50


def test_a_batch_that_is_not_finite_stops_its_run_alone():
    program = Line()
    bad = X.copy()
    bad[9] = np.nan  # of replica 1
    with tb.TensorBowSession(graph=program.graph, replicas_per_device=2) as session:
        session.run(program.init)
        session.run(program.train, program.feeds())
        with pytest.raises(
            NumericsError, match=r"a gradient of replica 1 is not finite at step 1; .*no variable"
        ):
            session.run(program.train, {program.x: bad})
        session.run(program.train, program.feeds())
        assert np.isfinite(session.run(program.w)).all()


@pytest.mark.slow
def test_closed_while_a_thread_is_learning():
    device = CpuDevice("/cpu:0")
    program = Line()
    session = tb.TensorBowSession(graph=program.graph, devices=[device], replicas_per_device=2)
    session.run(program.init)
    learning, errors = threading.Event(), []

    def loop():
        try:
            while True:
                session.run(program.train, program.feeds())
                learning.set()
        except FailedPreconditionError as error:
            errors.append(str(error))

    thread = threading.Thread(target=loop)
    thread.start()
    assert learning.wait(20)
    session.close()
    session.close()
    thread.join(20)
    assert not thread.is_alive()
    assert errors == ["the session is closed; make a new one"]
    gc.collect()
    assert device.memory.held_nbytes == 0
    device.close()
