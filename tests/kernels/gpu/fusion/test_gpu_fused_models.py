"""Models whose kernels are fused, packed and batched on an emulated GPU: the CPU's results, equal bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensorbow.devices import Device
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, gpu_devices, poison, same_bits

pytestmark = needs_compiler


def trained(
    model: Model, devices: list[Device], rounds: int = 2, **options: Any
) -> tuple[list[float], dict[str, Any]]:
    losses: list[float] = []
    with engine_of(model, devices, 2, **options) as engine:
        if devices[0].kind == "gpu":
            poison(engine)
        engine.run(Prepared(model.batch, 2).open, 0, rounds, lambda results: losses.extend(results.losses))
        return losses, engine.learners.values.state_arrays()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "batch_size"), [("lenet", 4), ("resnet8", 2)])
def test_it_agrees_with_the_cpu(name: str, batch_size: int) -> None:
    model = classifier(name, batch_size)
    losses, state = trained(model, cpu_devices(1))
    with emulated_runtime() as runtime:
        found, left = trained(model, gpu_devices(runtime, 1))
    with emulated_runtime(backwards=True) as runtime:
        again, same = trained(model, gpu_devices(runtime, 1))
    assert again == found
    assert same_bits(left, same)
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    assert left.keys() == state.keys()
    for name, value in state.items():
        scale = max(np.abs(value).max(initial=0), 1e-3)
        np.testing.assert_allclose(left[name], value, rtol=1e-3, atol=1e-4 * scale, err_msg=name)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_changes_no_variable() -> None:
    """Neither weights nor moving averages, whose updates run in one launch behind the check."""
    model = classifier("resnet8", 2)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        images, labels = model.batch(round, replica)
        return (images * np.float32(np.nan) if round else images), labels

    spoiled = replace(model, batch=batch)
    with emulated_runtime() as runtime:
        _, before = trained(spoiled, gpu_devices(runtime, 1), 1, sync="none", on_nan="skip")
    with emulated_runtime() as runtime:
        losses, after = trained(spoiled, gpu_devices(runtime, 1), 3, sync="none", on_nan="skip")
    assert np.isnan(losses[2:]).all()
    changed = [name for name in before if before[name].tobytes() != after[name].tobytes()]
    assert not changed
    assert any("moving_mean" in name for name in before)
