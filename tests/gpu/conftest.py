"""Skips this folder as one file, with the reason, on a machine without a GPU; see `real_runtime`."""

from __future__ import annotations

from tests.gpu_rig.runtimes import why_no_gpu

collect_ignore_glob = ["test_on_gpu_*.py"] if why_no_gpu() else []
