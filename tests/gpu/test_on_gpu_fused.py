"""Fused replicas and their convolutions on the GPU of this machine: the tests of the emulated one."""

from __future__ import annotations

import pytest

from tests.gpu_rig.counted import OpenedGpu, of_any_gpu, opened_on
from tests.gpu_rig.runtimes import real_runtime
from tests.kernels.gpu.fused import test_gpu_fused_calls, test_gpu_fused_plan
from tests.kernels.gpu.source import test_gpu_implicit_gemm

RUNTIME = real_runtime()

for module in (test_gpu_fused_calls, test_gpu_fused_plan, test_gpu_implicit_gemm):
    globals().update(of_any_gpu(module))


@pytest.fixture
def opened() -> OpenedGpu:
    return opened_on(RUNTIME)
