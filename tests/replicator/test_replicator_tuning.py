"""The number of replicas per device, chosen by measuring a Replicator's own training."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tensorbow as tb
from replicator import tuning
from tensorbow.errors import AbortedError, FailedPreconditionError, InvalidArgumentError
from tests.scheduler_rig.running import within

pytestmark = pytest.mark.filterwarnings("ignore:tune. not sure")  # on a busy machine


class Clock:
    """Clock by which each step of a training takes `seconds_of(replicas)`."""

    def __init__(self, seconds_of):
        self.now = 0.0
        self._seconds_of = seconds_of
        self.counts = []

    def training(self, replicas, mode=None, steps=None):
        self.counts.append(replicas)
        for _ in itertools.count() if steps is None else range(steps):
            self.now += self._seconds_of(replicas)
            yield None  # as a step without results does


@pytest.mark.parametrize(
    ("seconds_of", "expected"),
    [
        (lambda replicas: 0.1 if replicas <= 3 else 0.1 * replicas / 3, 3),
        (lambda replicas: 0.1 * replicas, 1),
        (lambda replicas: 0.1, 8),
    ],
)
def test_the_fastest_number_is_chosen(monkeypatch, seconds_of, expected):
    clock = Clock(seconds_of)
    monkeypatch.setattr(tuning, "perf_counter", lambda: clock.now)
    for steps in (None, 9):  # also of inputs that end within a window
        decision = within(
            lambda steps=steps: tuning.tuned(lambda n, mode: clock.training(n, mode, steps), 8, 0.5, 1e9)
        )
        assert (decision.replicas, decision.complete) == (expected, True)


def test_what_does_not_fit_and_the_end_of_the_time_limit_it(monkeypatch):
    clock = Clock(lambda replicas: 0.1)
    monkeypatch.setattr(tuning, "perf_counter", lambda: clock.now)

    def begin(replicas, mode):
        if replicas > 4:
            raise tb.errors.ResourceExhaustedError("no room")
        return clock.training(replicas)

    decision = tuning.tuned(begin, 8, 0.5, 1e9)
    assert decision.replicas == 4
    decision = tuning.tuned(clock.training, 8, 0.5, 2.0)
    assert not decision.complete
    assert "max_seconds 2 are over" in decision.reason
    with pytest.raises(tb.errors.ResourceExhaustedError, match="no room"):
        tuning.tuned(lambda replicas, mode: begin(replicas + 4, mode), 8, 0.5, 1e9)


QUICK = {"window_seconds": 0.005, "max_seconds": 5.0, "most": 3}


def step_of(repl):
    def step_fn(x):
        assert tb.num_replicas().spec.value == repl.num_replicas
        w = tb.Variable(np.ones((3, 1), np.float32), name="w")
        loss = tb.reduce_mean(tb.square(tb.matmul(x, w)))
        return repl.all_reduce(loss, "mean"), repl.wrap_optimizer(
            tb.train.GradientDescentOptimizer(0.01)
        ).minimize(loss)

    return step_fn


def own(replica_id):
    rng = np.random.default_rng(replica_id)
    for _ in range(20):
        yield rng.normal(size=(4, 3)).astype(np.float32)


def trained(repl):
    with tb.Graph().as_default():
        losses = [loss for loss, _ in repl.train(step_of(repl), own)]
    return np.array(losses), repl.central_values()["w"]


@pytest.mark.slow
def test_training_after_it_is_as_if_it_had_not_been():
    with tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], sync="sma") as repl:
        chosen = repl.tune(step_of(repl), own, **QUICK)
        assert 1 <= chosen <= 3
        assert repl.replicas_per_device == (chosen, chosen)
        losses, w = trained(repl)
    with tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], chosen, "sma") as repl:
        expected, other = trained(repl)
    np.testing.assert_array_equal(losses, expected)
    np.testing.assert_array_equal(w, other)


@pytest.mark.slow
def test_auto_tunes_at_the_first_step(monkeypatch):
    asked = []

    def tuned(begin, most, window_seconds, max_seconds, modes, workers):
        asked.append((most, modes))
        assert next(begin(2, None)) is not None
        return tuning.Decision(2, 1.0, "", True)

    monkeypatch.setattr("replicator.multi_gpu.tuned", tuned)
    with tb.MultiGpuReplicator(["/cpu:0"], "auto") as repl:
        assert (repl.num_replicas, repl.synchronisation.sync) == (1, "sma")
        losses, _ = trained(repl)
        assert losses.shape == (20, 2)
        trained(repl)
    assert asked == [(16, (None,))]
    with tb.MultiGpuReplicator(["/cpu:0"], "auto") as repl, tb.Session() as session:
        loss, _ = repl.run(step_of(repl), own)
        repl.init(session)
        assert session.run(loss).shape == (2,)


@pytest.mark.slow
def test_an_error_of_the_step_leaves_the_replicator_as_it_was():
    with tb.MultiGpuReplicator(["/cpu:0"], 2) as repl:

        def failing(replica_id):
            yield np.ones((4, 3), np.float32)
            raise OSError("torn")

        with pytest.raises(AbortedError, match="torn"):
            repl.tune(step_of(repl), failing, **QUICK)
        with pytest.raises(InvalidArgumentError, match="at least 4 batches, got 2"):
            repl.tune(step_of(repl), lambda replica_id: itertools.islice(own(replica_id), 2), **QUICK)
        assert repl.num_replicas == 2
        assert trained(repl)[0].shape == (20, 2)
        with pytest.raises(FailedPreconditionError, match="make variables in step_fn, and call tune first"):
            repl.tune(step_of(repl), own)


def test_auto_tunes_again_after_an_error(monkeypatch):
    def failing(*arguments, workers):
        raise AbortedError("torn")

    with tb.MultiGpuReplicator(["/cpu:0"], "auto") as repl:
        with monkeypatch.context() as patch:
            patch.setattr("replicator.multi_gpu.tuned", failing)
            for _ in range(2):
                with pytest.raises(AbortedError, match="torn"):
                    trained(repl)
        monkeypatch.setattr(
            "replicator.multi_gpu.tuned", lambda *arguments, workers: tuning.Decision(3, 1.0, "", True)
        )
        assert trained(repl)[0].shape == (20, 3)


def test_what_auto_is_given_for():
    with pytest.raises(InvalidArgumentError, match="or 'auto', got str 'many'"):
        tb.MultiGpuReplicator(["/cpu:0"], "many")


def test_one_replica_needs_no_tuning():
    """A program that tunes goes on when only its Replicator changes."""
    for repl, limits in ((tb.NonReplicator(), {}), (tb.MultiGpuReplicator(["/cpu:0"]), {**QUICK, "most": 1})):
        with repl:
            assert repl.tune(step_of(repl), own, **limits) == 1
            assert trained(repl)[0].shape == (20, 1)


def test_it_warns_when_the_time_was_too_short(monkeypatch):
    clock = Clock(lambda replicas: 0.1)
    monkeypatch.setattr(tuning, "perf_counter", lambda: clock.now)
    replicator = tb.MultiGpuReplicator(["/cpu:0"])
    monkeypatch.setattr(replicator, "_train", lambda loop: clock.training(1))
    with pytest.warns(UserWarning, match=r"tune: not sure: .*max_seconds 2 are over; \d replicas"):
        replicator.tune(lambda: tb.zeros([]), max_seconds=2.0)
