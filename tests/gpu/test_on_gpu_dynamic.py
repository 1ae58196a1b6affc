"""Dynamic steps on the GPU of this machine: the tests of the emulated one."""

from __future__ import annotations

from tests.gpu_rig.counted import of_any_gpu
from tests.runtime import test_gpu_dynamic_steps as shared

globals().update(of_any_gpu(shared))
