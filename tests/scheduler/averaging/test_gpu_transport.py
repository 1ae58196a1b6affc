"""The all-reduce between GPUs: on the device between virtual ones, by NCCL between physical ones."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.devices import Device, GpuDevice
from tests.gpu_rig.emulated_nccl import EmulatedNccl
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler.engine.test_gpu_engine import ROUNDS, trained
from tests.scheduler_rig.programs import convolutional
from tests.scheduler_rig.running import cpu_devices

pytestmark = needs_compiler


@pytest.mark.slow
@pytest.mark.parametrize("of_devices", [(0, 0, 1), (0, 1, 1), (1, 0, 1)])
def test_physical_gpus_are_joined_by_nccl_and_virtual_ones_on_the_device(
    of_devices: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second engine on the same GPUs takes the communicators that the first has made."""
    model = convolutional(dropout=False)
    _, state = trained(model, cpu_devices(3), 1)
    with emulated_runtime() as first, emulated_runtime() as second:
        second.index = 1
        used = [(first, second)[gpu] for gpu in of_devices]
        nccl = EmulatedNccl([first, second])
        nccl.show(monkeypatch)
        for engine in (1, 2):
            devices: list[Device] = [
                GpuDevice(f"/gpu:{index}", runtime, limit_nbytes=1 << 27)
                for index, runtime in enumerate(used)
            ]
            _, left = trained(model, devices, 1)
            assert len(nccl.posted) == engine * ROUNDS
            assert len(nccl.threads) == 1
            nccl.threads.clear()
            for name, value in state.items():
                np.testing.assert_allclose(left[name], value, rtol=1e-4, atol=2e-6, err_msg=name)
    assert nccl.made == [tuple(dict.fromkeys(of_devices))]
    assert nccl.ended == {"destroy": 0, "abort": 0}
