"""Fixtures: an emulated GPU, and a bench on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.runtimes import emulated_runtime


@pytest.fixture
def runtime() -> Iterator[EmulatedCuda]:
    with emulated_runtime() as made:
        yield made


@pytest.fixture
def opened() -> OpenedGpu:
    """Opens emulated GPUs; the tests that take it run in `tests/gpu` on the GPU of the machine."""
    return emulated_runtime


@pytest.fixture
def bench(runtime: EmulatedCuda) -> Iterator[GpuBench]:
    with GpuBench(runtime) as made:
        yield made
