"""Dynamic steps on the GPU of this machine: the tests of the emulated one."""

from __future__ import annotations

import pytest

from tests.gpu_rig.counted import OpenedGpu, of_any_gpu, opened_on
from tests.gpu_rig.runtimes import real_runtime
from tests.runtime import test_gpu_dynamic_steps as shared

RUNTIME = real_runtime()

globals().update(of_any_gpu(shared))


@pytest.fixture
def opened() -> OpenedGpu:
    return opened_on(RUNTIME)
