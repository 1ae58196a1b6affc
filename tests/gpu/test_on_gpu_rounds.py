"""Whole rounds as graphs, and fused replicas, on the GPU of this machine: the tests of the emulated one."""

from __future__ import annotations

from tests.gpu_rig.counted import of_any_gpu
from tests.scheduler.replicas import test_gpu_rounds as shared

globals().update(of_any_gpu(shared))
