"""The op kernels on the GPU of this machine: the tests of the emulated one, with the real runtime."""

from __future__ import annotations

import pytest

from tests.gpu_rig.runtimes import real_runtime
from tests.kernels.gpu.ops import test_gpu_op_kernels as shared

RUNTIME = real_runtime()

test_agrees_with_the_reference_kernel = shared.test_agrees_with_the_reference_kernel
test_agrees_in_float64 = shared.test_agrees_in_float64
test_changes_nothing_while_the_status_is_set = shared.test_changes_nothing_while_the_status_is_set
test_declared_inplace_pairs = shared.test_declared_inplace_pairs
test_nan_and_infinity_are_the_reference_kernels = shared.test_nan_and_infinity_are_the_reference_kernels


@pytest.fixture
def runtime():
    return RUNTIME
