"""Runtimes for tests: the emulated one, and the real one on a machine with a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from tensorbow.devices import gpu_discovery
from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.errors import TensorBowError
from tests.gpu_rig.cuda_compiler import compiler
from tests.gpu_rig.emulated_cuda import EmulatedCuda

NO_COMPILER = "CUDA kernels run without a GPU on Linux with g++ only"
SWITCH = "TENSORBOW_TEST_GPU"
needs_compiler = pytest.mark.skipif(compiler() is None, reason=NO_COMPILER)


@contextmanager
def emulated_runtime(**options: object) -> Iterator[EmulatedCuda]:
    """Emulated GPU. Nothing may be left open on it afterwards, unless the test failed or broke it."""
    runtime = EmulatedCuda(**options)  # type: ignore[arg-type]
    try:
        yield runtime
        runtime.check_clean()
    finally:
        runtime.close()


def real_runtime() -> CudaRuntime:
    """First GPU of this machine; without one skips the module, with the reason in one line.

    TENSORBOW_TEST_GPU=emulated gives an emulated GPU instead, which checks the tests for a GPU themselves.
    """
    reason = why_no_gpu()
    if reason:
        pytest.skip(reason, allow_module_level=True)
    if os.environ.get(SWITCH) == "emulated":
        return EmulatedCuda()
    from tensorbow.devices.cupy_runtime import CupyRuntime

    return CupyRuntime(0)


@cache
def why_no_gpu() -> str:
    """Reason why there is no GPU to test, in one line; empty if there is one."""
    if os.environ.get(SWITCH) == "emulated":
        return "" if compiler() is not None else NO_COMPILER
    try:
        from tensorbow.devices.cupy_runtime import CupyRuntime

        CupyRuntime(0)
    except TensorBowError as error:
        return f"no GPU: {str(error).splitlines()[0]:.150}"
    return ""


def is_emulated(runtime: CudaRuntime) -> bool:
    """True if a runtime computes on the host, where tests should train small models."""
    return isinstance(runtime, EmulatedCuda)


def show_emulated_gpu() -> None:
    """Makes this process discover an emulated GPU, as a program discovers a real one."""
    gpu_discovery._status = gpu_discovery.GpuStatus((EmulatedCuda(),))
