"""A bench on an emulated GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_kernels import GpuBench


@pytest.fixture
def bench(runtime: EmulatedCuda) -> Iterator[GpuBench]:
    with GpuBench(runtime) as made:
        yield made
