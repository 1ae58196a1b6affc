"""Fused replicas and their convolutions on the GPU of this machine: the tests of the emulated one."""

from __future__ import annotations

from tests.gpu_rig.counted import of_any_gpu
from tests.kernels.gpu.fused import test_gpu_fused_calls, test_gpu_fused_plan
from tests.kernels.gpu.source import test_gpu_implicit_gemm

for module in (test_gpu_fused_calls, test_gpu_fused_plan, test_gpu_implicit_gemm):
    globals().update(of_any_gpu(module))
