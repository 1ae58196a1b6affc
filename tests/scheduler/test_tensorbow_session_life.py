"""TensorBowSession over time: new variables, savers, threads, the end."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice
from tensorbow.errors import FailedPreconditionError, NumericsError

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


@pytest.mark.sampled(2)
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
