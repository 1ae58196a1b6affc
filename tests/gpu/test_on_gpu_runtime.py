"""The promises of a CUDA runtime, asked of the GPU of this machine."""

from __future__ import annotations

import pytest

from tests.gpu_rig.runtimes import real_runtime
from tests.kernels.gpu.runtime import test_cuda_runtime as shared

RUNTIME = real_runtime()

globals().update({name: test for name, test in vars(shared).items() if name.startswith("test_")})


@pytest.fixture
def runtime():
    return RUNTIME
