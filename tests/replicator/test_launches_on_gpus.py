"""Several rounds a launch under `Replicator.train` on GPUs, emulated ones: the bits of one a launch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.replicator.test_steps_per_launch import Training
from tests.scheduler_rig.running import gpu_devices, same_bits

pytestmark = [needs_compiler, pytest.mark.filterwarnings("ignore:central_values. replicas with sync='none'")]
STEPS, LOOKED = 24, 13  # averaging restarts before round 8; rounds handed out at a look, amid a launch


@pytest.fixture
def gpus() -> Iterator[list[Any]]:
    with emulated_runtime() as runtime:
        devices = gpu_devices(runtime, 2)
        yield devices
        for device in devices:
            device.close(drain=False)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"sync": "sma"},
        {"sync": "sma", "tau": 3, "mu": 0.3, "replica_mode": "fused"},
        {"sync": "ssgd"},
        {"sync": "none"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_launches_have_the_bits_of_rounds_one_by_one(
    gpus: list[Any], launches: list[int], options: dict[str, Any], count: int, tmp_path: Path
) -> None:
    """Also where values are read and saved amid a launch, from where another Replicator goes on."""

    def training(steps_per_launch: int, steps: int) -> Training:
        return Training(steps_per_launch, steps, gpus[:count], **options)

    def resumed(steps_per_launch: int) -> tuple[Any, Any]:
        rest = training(steps_per_launch, STEPS - LOOKED)
        assert rest.replicator.restore(tmp_path / "state") == LOOKED
        return rest.rounds(), rest.replicator.central_values()

    whole = training(1, STEPS)
    expected = [whole.rounds(LOOKED), whole.values(), whole.rounds()]
    z = whole.replicator.central_values()
    assert set(launches) == {1}
    launches.clear()
    several = training(5, STEPS)
    found = [several.rounds(LOOKED), several.values()]
    assert several.replicator.save(tmp_path / "state") == LOOKED
    found.append(several.rounds())
    assert max(launches) == 5
    assert found[0] == expected[0]
    assert same_bits(found[1], expected[1])
    assert found[2] == expected[2]
    assert same_bits(several.replicator.central_values(), z)
    for steps_per_launch in (1, 5):
        rounds, values = resumed(steps_per_launch)
        assert rounds == expected[2]
        assert same_bits(values, z)


@pytest.mark.slow
def test_they_train_as_on_cpu_devices(gpus: list[Any], launches: list[int]) -> None:
    there = Training(5, STEPS, gpus[:1])
    here = Training(1, STEPS)
    on_gpu, on_cpu = ([loss for loss, *_ in each.rounds()] for each in (there, here))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-4)
    assert max(launches) == 5
