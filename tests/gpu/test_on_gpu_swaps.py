"""Swaps to host memory on the GPU of this machine: the tests of the emulated one."""

from __future__ import annotations

import pytest

from tests.gpu_rig.counted import OpenedGpu, of_any_gpu, opened_on
from tests.gpu_rig.runtimes import real_runtime
from tests.runtime import test_swapped_steps as of_sessions
from tests.scheduler.replicas import test_swapped_replicas as of_replicas

RUNTIME = real_runtime()

small_values = of_replicas.small_values
globals().update(of_any_gpu(of_sessions) | of_any_gpu(of_replicas))


@pytest.fixture
def opened() -> OpenedGpu:
    return opened_on(RUNTIME)
