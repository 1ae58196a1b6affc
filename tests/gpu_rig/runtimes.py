"""The runtimes that tests run on: the emulated one, and the real one where there is a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.errors import TensorBowError
from tests.gpu_rig.cuda_compiler import compiler
from tests.gpu_rig.emulated_cuda import EmulatedCuda

NO_COMPILER = "CUDA kernels run without a GPU on Linux with g++ only"
needs_compiler = pytest.mark.skipif(compiler() is None, reason=NO_COMPILER)


@contextmanager
def emulated_runtime(**options: object) -> Iterator[EmulatedCuda]:
    """An emulated GPU. Afterwards nothing may be left open on it, unless the test failed or broke it."""
    runtime = EmulatedCuda(**options)  # type: ignore[arg-type]
    try:
        yield runtime
        runtime.check_clean()
    finally:
        runtime.close()


def real_runtime() -> CudaRuntime:
    """The first GPU of this machine; skips the module, with the reason in one line, where there is none."""
    try:
        from tensorbow.devices.cupy_runtime import CupyRuntime

        return CupyRuntime(0)
    except TensorBowError as error:
        pytest.skip(f"no GPU: {str(error).splitlines()[0]:.150}", allow_module_level=True)
