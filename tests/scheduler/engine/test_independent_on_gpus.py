"""Independent replicas of an emulated GPU freeze, and have step scalars of their own, as on CPU devices."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.devices import Device
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler.engine.test_independent_replicas import TOO_MUCH, engine_of
from tests.scheduler_rig.running import cpu_devices, gpu_devices

pytestmark = needs_compiler


def ended(device: Device, steps: int):
    engine, source = engine_of(3, steps, device=device)
    with engine:
        for replica, rate in zip(engine.learners.replicas, (0.05, TOO_MUCH, 0.03), strict=True):
            replica.set_state({"learning_rate": rate})
        engine.run(source.open, 0, 5)
        engine.outcomes.own_states = lambda rounds: {
            "learning_rate": [[0.01 * (own + 1) / (1 + round) for round in rounds] for own in range(3)]
        }
        engine.run(source.open, 5, 9)
        return engine.frozen, [engine.learners.values.replica_values(number) for number in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
def test_a_gpu_freezes_replicas_and_gives_each_its_own_scalars(steps):
    with emulated_runtime() as runtime:
        (device,) = gpu_devices(runtime, 1)
        with device:
            frozen, values = ended(device, steps)
    (device,) = cpu_devices(1)
    with device:
        expected, others = ended(device, steps)
    assert frozen == expected
    assert [*frozen] == [1]
    for own, other in zip(values, others, strict=True):
        for name, value in own.items():
            np.testing.assert_allclose(value, other[name], rtol=1e-4, atol=1e-5, err_msg=name)
