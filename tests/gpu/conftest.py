"""Without a GPU this folder is one skipped file that says why; see `real_runtime` for the switch."""

from __future__ import annotations

from tests.gpu_rig.runtimes import why_no_gpu

collect_ignore_glob = ["test_on_gpu_*.py"] if why_no_gpu() else []
