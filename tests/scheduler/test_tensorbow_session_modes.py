"""Captured or fused replicas, chosen by a TensorBowSession on an emulated GPU whose speed is made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler.decisions import step_tuner
from tensorbow.devices import GpuDevice
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler.replicas.test_gpu_rounds_between import Alone

pytestmark = needs_compiler
X = np.random.default_rng(3).normal(size=(12, 5)).astype(np.float32)


class Clock:
    """Clock by which a learning run takes 1 / (replicas, but at most `most` of their mode) seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **most: int) -> None:
        self.most, self.tried = most, list[tuple[int, str]]()
        self._now, self._calls = 0.0, 0
        self.session: Any = None
        monkeypatch.setattr("scheduler.session.perf_counter", self._time)
        monkeypatch.setattr(step_tuner, "LEAST_STEPS", 1)
        monkeypatch.setattr(step_tuner, "WARM_STEPS", 1)

    def _time(self) -> float:
        self._calls += 1
        if self._calls % 2 == 0:
            mode = "fused" if self.session._stepper.engine.options.fused else "captured"
            count = self.session.num_replicas
            if (count, mode) not in self.tried:
                self.tried.append((count, mode))
            self._now += 0.5 / min(count, self.most[mode])
        return self._now


def program(alone: bool) -> tuple[Any, Any, Any, Any]:
    """x, the loss and two training steps; alone: the first one has an op that cannot be fused."""
    x = tb.placeholder(tb.float32, [None, 5])
    w = tb.Variable(np.ones((5, 3), np.float32), name="w")
    optimizer = tb.train.GradientDescentOptimizer(0.01)
    plain, other = (tb.reduce_mean(tb.square(tb.matmul(each, w))) for each in (x, Alone(x)))
    steps = [optimizer.minimize(other), optimizer.minimize(plain)]
    return x, plain, *(steps if alone else steps[::-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alone", "most", "chosen"),
    [
        (False, {"captured": 2, "fused": 4}, (4, "fused")),
        pytest.param(False, {"captured": 3, "fused": 2}, (3, "captured"), marks=pytest.mark.slow),
        pytest.param(True, {"captured": 2, "fused": 4}, (2, "captured"), marks=pytest.mark.slow),
    ],
)
def test_the_faster_mode_is_chosen_where_the_step_can_be_fused(
    monkeypatch: pytest.MonkeyPatch, alone: bool, most: dict[str, int], chosen: tuple[int, str]
) -> None:
    clock = Clock(monkeypatch, **most)
    with emulated_runtime() as runtime, tb.Graph().as_default() as graph:
        x, loss, train, other = program(alone)
        device = GpuDevice("/gpu:0", runtime, limit_nbytes=runtime.properties.memory_nbytes // 2)
        feeds = {x: X}
        session = clock.session = tb.TensorBowSession(
            graph=graph, devices=[device], replicas_per_device="auto"
        )
        with session:
            session.run(tb.global_variables_initializer())
            while session.tuning is None:
                session.run(train, feeds)
            before = session.run(loss, feeds)
            assert (session.tuning.replicas, session.tuning.mode) == chosen
            assert ("fused" in {mode for _, mode in clock.tried}) == (not alone)
            for step, mode in ((train, chosen[1]), (other, "captured"), (train, chosen[1])):
                session.run(step, feeds)
                assert f"replica mode: {mode}" in str(session.explain(step, feeds))
            assert session._stepper.engine.options.fused == (chosen[1] == "fused")
            with graph.as_default():  # replicas with room for further variables share the GPU in the same way
                scale = tb.Variable(np.float32(1.0), name="scale")
                further = tb.train.GradientDescentOptimizer(0.01).minimize(loss * scale)
            session.run(scale.initializer)
            session.run(further, feeds)
            session.run(train, feeds)
            assert session._stepper.engine.options.fused == (chosen[1] == "fused")
            assert session.run(loss, feeds) < before
        device.close(drain=False)
