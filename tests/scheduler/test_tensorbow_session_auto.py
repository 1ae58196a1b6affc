"""TensorBowSession with `replicas_per_device="auto"`: it trains while it finds the number of replicas."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.running import within

RNG = np.random.default_rng(3)
X = RNG.normal(size=(48, 5))
Y = X @ RNG.normal(size=(5, 3))
RATE = 0.05


class Program:
    """Linear regression by gradient descent."""

    def __init__(self, rows=None):
        self.graph = tb.Graph()
        with self.graph.as_default():
            self.x = tb.placeholder(tb.float64, [None, 5], name="x")
            self.y = tb.placeholder(tb.float64, [None, 3], name="y")
            self.w = tb.Variable(np.zeros((5, 3)), name="w")
            x = self.x if rows is None else tb.reshape(self.x, [rows, 5])
            self.loss = tb.reduce_mean(tb.square(tb.matmul(x, self.w) - self.y))
            self.steps = tb.Variable(0, trainable=False, name="steps")
            optimizer = tb.train.GradientDescentOptimizer(RATE)
            self.train = optimizer.minimize(self.loss, global_step=self.steps)
            self.init = tb.global_variables_initializer()

    def feeds(self, rows=48):
        return {self.x: X[:rows], self.y: Y[:rows]}


class Clock:
    """Clock by which each learning run takes a tenth of `seconds_of(replicas)`."""

    def __init__(self, monkeypatch, seconds_of):
        self.session = None
        self._now, self._calls, self._seconds_of = 0.0, 0, seconds_of
        monkeypatch.setattr("scheduler.session.perf_counter", self._time)

    def _time(self):
        self._calls += 1
        if self._calls % 2 == 0:
            self._now += 0.1 * self._seconds_of(self.session.num_replicas)
        return self._now


class Averaged:
    """Model averaging in NumPy, with replicas that come and go."""

    def __init__(self, w, devices):
        self.z, self.devices, self.replicas = w, devices, [w] * devices

    def resize(self, count):
        """On each device the first replicas stay, and new ones begin with z."""
        had, has = len(self.replicas) // self.devices, count // self.devices
        groups = [self.replicas[d * had :][:had] for d in range(self.devices)]
        self.replicas = [w for group in groups for w in (group + [self.z] * has)[:has]]
        if count == 1:
            self.replicas = [self.z]

    def step(self, rows):
        count, before = len(self.replicas), self.z
        size = rows // count
        for i, w in enumerate(self.replicas):
            x, y = X[i * size : (i + 1) * size], Y[i * size : (i + 1) * size]
            pull = (w - before) / count if count > 1 else 0.0
            gradient = 2 * x.T @ (x @ w - y) / y.size
            self.replicas[i] = w - RATE * gradient - pull
            self.z = self.z + pull
        if count == 1:
            self.z = self.replicas[0]


def until_decided(session, run):
    """Runs until the session has chosen its number."""

    def runs():
        while session.tuning is None:
            run()

    within(runs)


def decide(session, program):
    until_decided(session, lambda: session.run(program.train, program.feeds()))


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(("best", "chosen"), [(1, 1), (3, 3), (4, 4)])
@pytest.mark.slow
def test_training_goes_on_while_the_number_changes_until_the_fastest_is_found(
    monkeypatch, best, chosen, devices
):
    clock = Clock(monkeypatch, lambda k: 1.0 / k if k <= best * devices else 1.0)
    program, reference = Program(), Averaged(np.zeros((5, 3)), devices)
    counts, runs = [], 0
    with tb.TensorBowSession(
        graph=program.graph, devices=[f"/cpu:{i}" for i in range(devices)], replicas_per_device="auto"
    ) as session:
        clock.session = session
        session.run(program.init)
        assert (session.num_replicas, session.tuning) == (devices, None)
        reference.resize(devices)

        def run():
            nonlocal runs
            session.run([program.train, program.loss], program.feeds())
            if not counts or counts[-1] != session.num_replicas:
                counts.append(session.num_replicas)
                reference.resize(session.num_replicas)
            reference.step(48)
            runs += 1

        until_decided(session, run)
        for _ in range(3):
            run()
        assert (session.tuning.replicas, session.tuning.complete) == (chosen, True)
        assert counts[-1] == session.num_replicas == chosen * devices
        assert all(48 % count == 0 for count in counts)
        assert 2 * devices in counts
        np.testing.assert_allclose(session.run(program.w), reference.z, rtol=1e-9)
        assert session.run(program.steps) == runs
        for replica, w in enumerate(reference.replicas):
            np.testing.assert_allclose(session.replica_values(replica)["w"], w, rtol=1e-9)
        with pytest.raises(InvalidArgumentError, match="there is no replica"):
            session.replica_values(chosen * devices)


@pytest.mark.slow
def test_a_batch_that_the_number_does_not_divide_is_split_by_another(monkeypatch):
    clock = Clock(monkeypatch, lambda k: 1.0 / k)
    program, device = Program(), CpuDevice("/cpu:0")
    with tb.TensorBowSession(graph=program.graph, devices=[device], replicas_per_device="auto") as session:
        clock.session = session
        session.run(program.init)
        decide(session, program)
        session.run(program.train, program.feeds())
        assert session.num_replicas == session.tuning.replicas == 16
        w = session.run(program.w)
        session.run(program.train, program.feeds(44))  # as the last batch of an epoch
        assert session.tuning is None
        until_decided(session, lambda: session.run([program.train, program.w], program.feeds(44)))
        session.run([program.train, program.w], program.feeds(44))
        session.run(program.loss, program.feeds(7))  # not split
        assert session.num_replicas == 4
        session.run(program.train, program.feeds())
        assert session.num_replicas == 4
        assert np.abs(w - session.run(program.w)).max() > 0
    assert device.memory.held_nbytes == 0


@pytest.mark.slow
def test_numbers_that_cannot_be_had_are_left_out(monkeypatch):
    program, device = Program(), CpuDevice("/cpu:0", limit_nbytes=2066 << 10)
    clock = Clock(monkeypatch, lambda k: 1.0 / k)
    with tb.TensorBowSession(graph=program.graph, devices=[device], replicas_per_device="auto") as session:
        clock.session = session
        session.run(program.init)

        decide(session, program)
        assert 1 < session.num_replicas < 16
        assert "fit" in session.tuning.reason
        before = session.run(program.loss, program.feeds())
        session.run(program.train, program.feeds())
        assert session.run(program.loss, program.feeds()) < before
    fixed = Program(rows=48)  # a step that takes no other batch than that of one replica
    with tb.TensorBowSession(graph=fixed.graph, replicas_per_device="auto") as session:
        clock.session = session
        session.run(fixed.init)
        decide(session, fixed)
        assert session.num_replicas == 1
    unstable = tb.Synchronisation(alpha=0.5)
    with tb.TensorBowSession(
        graph=program.graph, replicas_per_device="auto", synchronisation=unstable
    ) as session:
        clock.session = session
        session.run(program.init)
        decide(session, program)
        assert session.num_replicas == 2, "alpha 0.5 is not stable with 3 replicas"


@pytest.mark.slow
def test_what_is_not_split_has_an_example_for_each_replica(monkeypatch):
    clock = Clock(monkeypatch, lambda k: 1.0 if k <= 3 else k / 3)
    with tb.Graph().as_default(), tb.Session("tensorbow", replicas_per_device="auto") as session:
        w = tb.Variable(1.0)
        train = tb.train.GradientDescentOptimizer(0.01).minimize(tb.square(w + tb.random_normal([], seed=1)))
        clock.session = session
        session.run(tb.global_variables_initializer())
        until_decided(session, lambda: session.run(train))
        assert session.num_replicas == 3


@pytest.mark.slow
def test_variables_that_are_made_meanwhile(monkeypatch):
    """The new replicas have room for them, and those without a value stay without."""
    clock = Clock(monkeypatch, lambda k: 1.0 / k)
    program = Program()
    with tb.TensorBowSession(graph=program.graph, replicas_per_device="auto") as session:
        clock.session = session
        session.run(program.init)
        while session.num_replicas < 2:
            session.run(program.train, program.feeds())
        with program.graph.as_default():
            bias = tb.Variable(np.ones(3), name="bias")
            loss = tb.reduce_mean(tb.square(tb.matmul(program.x, program.w) + bias - program.y))
            train = tb.train.MomentumOptimizer(RATE, 0.9).minimize(loss)
        with pytest.raises(tb.errors.FailedPreconditionError, match="bias"):
            session.run(train, program.feeds())
        with program.graph.as_default():
            session.run(tb.variables_initializer([bias]))
            others = [v for v in tb.global_variables() if "Momentum" in v.op.name]
            session.run(tb.variables_initializer(others))
        until_decided(session, lambda: session.run(train, program.feeds()))
        assert session.num_replicas == 16
        assert session.run(bias).shape == (3,)
        assert session.run(loss, program.feeds()) < 1


def test_what_auto_may_be():
    with pytest.raises(InvalidArgumentError, match="or 'auto', got str 'many'"):
        tb.TensorBowSession(graph=tb.Graph(), replicas_per_device="many")
    with tb.TensorBowSession(graph=tb.Graph(), replicas_per_device=3) as session:
        assert session.tuning is None
