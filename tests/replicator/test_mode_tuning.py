"""Captured or fused replicas, chosen by a Replicator on emulated GPUs whose speed is made up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from replicator import multi_gpu, tuning
from replicator.base import Replicator
from scheduler.decisions import step_tuner
from tensorbow.errors import ResourceExhaustedError, UnimplementedError
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler.replicas.test_gpu_rounds_between import Alone
from tests.scheduler_rig.running import gpu_devices, same_bits

SPEEDS = {"captured": {1: 100.0, 2: 180.0}, "fused": {2: 190.0, 3: 280.0}}  # rounds per second x replicas
FURTHER = {"captured": 181.0, "fused": 281.0}  # of more replicas


class Clock:
    """Time that the steps of Replicators take, by number and mode of the replicas."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.tried: list[tuple[int, str]] = []
        train, clock = Replicator._train, self

        def timed(self: Replicator, *arguments: Any) -> Iterator[Any]:
            with closing(train(self, *arguments)) as steps:
                for result in steps:
                    clock.now += clock.seconds(self)
                    yield result

        def quick(begin: Any, most: int, window_s: float, max_s: float, modes: Any, workers: Any) -> Any:
            return tuned(begin, 4, 1e-3, 1e9, modes)

        tuned = tuning.tuned
        monkeypatch.setattr(multi_gpu, "tuned", quick)
        monkeypatch.setattr(step_tuner, "LEAST_STEPS", 1)
        monkeypatch.setattr(step_tuner, "WARM_STEPS", 1)
        monkeypatch.setattr(tuning, "perf_counter", lambda: self.now)
        monkeypatch.setattr(Replicator, "_train", timed)

    def seconds(self, replicator: Replicator) -> float:
        """Of a step."""
        count, mode = replicator.num_replicas, mode_of(replicator)
        if (count, mode) not in self.tried:
            self.tried.append((count, mode))
        return count / SPEEDS[mode].get(count, FURTHER[mode])


def mode_of(replicator: Replicator) -> str:
    """Mode of the launches of the step that is selected."""
    stepper = replicator._running.stepper
    assert stepper is not None
    program: Any = getattr(stepper.engine.learners.launcher, "_program", None)  # None: round by round
    return "fused" if program is not None and program._devices[0]._fused is not None else "captured"


def batches(replica_id: int) -> Iterator[Any]:
    draw = np.random.default_rng(replica_id)
    while True:
        yield draw.normal(size=(4, 5)).astype(np.float32)


def step_of(replicator: Replicator, alone: bool = False) -> Any:
    """alone: with an op that replicas of one kernel cannot share."""

    def step_fn(x: Any) -> Any:
        with tb.variable_scope("model", reuse=tb.AUTO_REUSE):
            w = tb.get_variable("w", [5, 3], initializer=tb.ones_initializer())
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.01, 0.9))
        loss = tb.reduce_mean(tb.square(tb.matmul(Alone(x) if alone else x, w)))
        return loss, optimizer.minimize(loss)

    return step_fn


@pytest.fixture
def gpus() -> Iterator[list[Any]]:
    with emulated_runtime() as runtime:
        devices = gpu_devices(runtime, 1)
        yield devices
        for device in devices:
            device.close(drain=False)


@pytest.mark.slow
@needs_compiler
def test_the_faster_mode_is_chosen_and_steps_that_cannot_be_fused_are_captured(
    gpus: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with tb.Graph().as_default(), tb.MultiGpuReplicator(gpus, "auto") as repl, tb.Session() as session:
        loss, update = repl.run(step_of(repl), batches)
        assert clock.tried[0] == (1, "captured")
        assert [count for count, mode in clock.tried if mode == "fused"] == [2, 3, 4]
        assert repl.num_replicas == 3
        assert "replica_mode fused" in repr(repl)
        other, second = repl.run(step_of(repl, alone=True), batches)
        repl.init(session)
        for _ in range(2):
            assert session.run([loss, update])[0].shape == (3,)
            assert mode_of(repl) == "fused"
            session.run([other, second])
            assert mode_of(repl) == "captured"
        assert "replica mode: captured, side by side; cannot be fused: TestAlone" in str(
            session.explain(other)
        )
        assert "replica mode: fused" in str(session.explain(loss))
        repl.save(tmp_path / "state")
        expected = session.run([loss, update])[0], repl.central_values()
    with tb.Graph().as_default(), tb.MultiGpuReplicator(gpus, 3) as repl, tb.Session() as session:
        loss, update = repl.run(step_of(repl), batches)  # not tuned: it takes the mode of the file
        repl.run(step_of(repl, alone=True), batches)
        repl.init(session)
        repl.restore(tmp_path / "state")
        np.testing.assert_array_equal(session.run([loss, update])[0], expected[0])
        assert mode_of(repl) == "fused"
        assert same_bits(repl.central_values(), expected[1])


@needs_compiler
@pytest.mark.slow
def test_a_step_that_cannot_be_fused_and_slow_fused_replicas_stay_captured(
    gpus: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    for alone in (True, False):
        if not alone:
            monkeypatch.setitem(FURTHER, "fused", 100.0)
            monkeypatch.setitem(SPEEDS, "fused", {})
        with tb.Graph().as_default(), tb.MultiGpuReplicator(gpus, sync="none") as repl:
            assert repl.tune(step_of(repl, alone), batches) == 2
            assert "fused" not in repr(repl)
            assert ("fused" in {mode for _, mode in clock.tried}) == (not alone)
            next(repl.train(step_of(repl, alone), batches, 1))
    clock.tried.clear()
    with tb.Graph().as_default(), tb.MultiGpuReplicator(gpus, replica_mode="fused") as repl:
        assert repl.tune(step_of(repl), batches) == 1
    assert {mode for count, mode in clock.tried if count > 1} == {"fused"}


def test_modes_that_cannot_be_had_and_the_end_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(tuning, "perf_counter", lambda: now)
    errors: dict[Any, Exception] = {}

    def begin(count: int, mode: str | None) -> Iterator[Any]:
        nonlocal now
        if (count, mode) in errors:
            raise errors[count, mode]
        while True:
            now += count / (100.0 * min(count, 3) + 10 * (mode == "fused"))
            yield None

    def tuned(max_seconds: float = 1e9) -> Any:
        return tuning.tuned(begin, 4, 0.5, max_seconds, ("captured", "fused"))

    assert (tuned().replicas, tuned().mode) == (3, "fused")
    errors[4, "fused"] = ResourceExhaustedError("full")
    assert (tuned().replicas, tuned().mode) == (3, "fused")
    for error in (ResourceExhaustedError("full"), UnimplementedError("an op does not do it")):
        errors[3, "fused"] = error
        assert (tuned().replicas, tuned().mode, tuned().complete) == (3, "captured", True)
    errors.clear()
    short = tuned(0.3)
    assert not short.complete
    errors[1, "captured"] = UnimplementedError("an op does not do it")
    with pytest.raises(UnimplementedError, match="an op does not do it"):
        tuned()
