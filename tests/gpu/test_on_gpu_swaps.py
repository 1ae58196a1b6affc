"""Swaps to host memory on the GPU of this machine: the tests of the emulated one."""

from __future__ import annotations

from tests.gpu_rig.counted import of_any_gpu
from tests.runtime import test_swapped_steps as of_sessions
from tests.scheduler.replicas import test_swapped_replicas as of_replicas

small_values = of_replicas.small_values
globals().update(of_any_gpu(of_sessions) | of_any_gpu(of_replicas))
