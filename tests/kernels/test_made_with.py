"""Backends' descriptions of everything that the bits of their results depend on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorbow.devices import CpuDevice, GpuDevice
from tensorbow.kernels import ReferenceBackend
from tensorbow.kernels.gpu.backend import GpuBackend
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler


def test_reference_kernels_say_numpy_and_its_blas() -> None:
    with CpuDevice("/cpu:0") as device:
        facts = ReferenceBackend().made_with(device)
    assert facts["kernels"] == "reference kernels"
    assert facts["NumPy"] == np.__version__
    assert facts["BLAS"].endswith(")")


def test_native_code_says_its_processor_and_all_that_reference_kernels_say() -> None:
    pytest.importorskip("llvmlite")
    from tensorbow.kernels.native.backend import NativeBackend
    from tensorbow.kernels.native.codegen.target import host_target

    host = NativeBackend()
    less = NativeBackend(replace(host_target(), features="-avx2", vector_nbytes=16))
    with CpuDevice("/cpu:0") as device:
        mine, others = host.made_with(device), less.made_with(device)
        assert mine.keys() > ReferenceBackend().made_with(device).keys()
    assert {name for name in mine if mine[name] != others[name]} == {"kernels", "processor"}


@needs_compiler
def test_a_gpu_says_its_precision() -> None:
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime, compute="tf32") as device:
        facts = GpuBackend().made_with(device)
        assert (facts["precision"], facts["compiler"]) == ("tf32", runtime.compiler)
    assert all(isinstance(value, str) for value in facts.values())
