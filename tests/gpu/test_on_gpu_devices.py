"""GPU streams, events and copies, on the GPU of this machine: the tests of the emulated one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorbow.devices import GpuDevice
from tests.devices import test_device_gpu as shared
from tests.gpu_rig.counted import CountedCuda, of_any_gpu

globals().update(of_any_gpu(shared))


@pytest.fixture
def device(runtime: CountedCuda) -> Iterator[GpuDevice]:
    with GpuDevice("/gpu:0", runtime) as made:
        yield made
