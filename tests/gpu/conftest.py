"""Fixtures: the GPU of this machine; without one this folder is skipped as one file, see `real_runtime`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorbow.devices.cuda_runtime import CudaRuntime
from tests.gpu_rig.counted import CountedCuda, OpenedGpu, opened_on
from tests.gpu_rig.runtimes import real_runtime, why_no_gpu

collect_ignore_glob = ["test_on_gpu_*.py"] if why_no_gpu() else []


@pytest.fixture(scope="module")
def real_gpu() -> CudaRuntime:
    return real_runtime()


@pytest.fixture
def opened(real_gpu: CudaRuntime) -> OpenedGpu:
    return opened_on(real_gpu)


@pytest.fixture
def runtime(opened: OpenedGpu) -> Iterator[CountedCuda]:
    with opened() as counted:
        yield counted
