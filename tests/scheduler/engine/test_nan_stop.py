"""A run that ends at a loss that is not finite: replicas have done the same rounds, the first is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from scheduler.batches.sources import gathered
from tensorbow.errors import NumericsError
from tensorbow.kernels import backends
from tensorbow.kernels.reference import ReferenceBackend
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, within

ROUNDS, RATE = 40, 0.1


def counting(bad: dict[int, int]) -> Model:
    """Each replica's `w` falls by the rate in a round; bad: by replica the round whose batch is NaN."""
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [2], name="x")
        w = tb.Variable(np.zeros(1, np.float32), name="w")
        loss = tb.reduce_sum(w) + tb.reduce_sum(x)
        update = tb.train.GradientDescentOptimizer(1.0).minimize(loss)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        return (np.full(2, np.nan if bad.get(replica) == round else 0.0, np.float32),)

    return Model(StepProgram((x,), loss, update, {}), [x.spec], {"w": np.zeros(1, np.float32)}, batch)


def ended(
    bad: dict[int, int], steps: int, devices: int, replicas: int, **options: Any
) -> tuple[str, list[int]]:
    """The error of a run, and how many rounds each replica's weights have changed in."""
    model, count = counting(bad), devices * replicas
    opened = cpu_devices(devices, delays=steps)
    rate = tb.train.Constant(RATE)
    with engine_of(
        model, opened, replicas, rate, steps_per_launch=steps, launch_ahead=3, **options
    ) as engine:
        source = Prepared(model.batch, count).open
        open_source = gathered(source, steps) if steps > 1 else source
        with pytest.raises(NumericsError) as caught:
            within(lambda: engine.run(open_source, 0, ROUNDS))
        values = [engine.learners.values.replica_values(index)["w"] for index in range(count)]
    return str(caught.value), [round(-float(value[0]) / RATE) for value in values]


@pytest.fixture(params=[("native", 1), ("native", 4), ("reference", 1)], ids=str)
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rounds of a launch."""
    kernels, steps = request.param
    if kernels == "reference":
        monkeypatch.setitem(backends._backends, "cpu", ReferenceBackend())
    return int(steps)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "replicas"), [(1, 3), (2, 2)])
def test_independent_replicas_end_at_the_same_round(steps: int, devices: int, replicas: int) -> None:
    for bad in ({1: 6}, {2: 5, 0: 7}):
        first, round = min((round, replica) for replica, round in bad.items())[::-1]
        for _ in range(8):
            error, done = ended(bad, steps, devices, replicas, sync="none")
            assert f"the loss of replica {first} is not finite at step {round};" in error
            assert done[first] == round  # nothing was written from there on
            others = {count for replica, count in enumerate(done) if replica not in bad}
            assert len(others) == 1
            assert others.pop() % steps == 0


@pytest.mark.slow
def test_between_averagings_they_do_too(steps: int) -> None:
    """A launch of several rounds has averagings in it: there all end."""
    for _ in range(8):
        error, done = ended({1: 4}, steps, 1, 3, tau=7, alpha=0.3)
        assert "the loss of replica 1 is not finite at step 4;" in error
        assert done[0] == done[2]  # both have been averaged with the same z, equally often
