"""Replicas of several processes that average together, segment by segment and in whole native rounds."""

import pytest

from tests.cluster_rig.mpi_jobs import run_job

PROGRAM = "tests/cluster_rig/worker_training.py"


@pytest.mark.parametrize("cases", ["some", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_two_workers_train_as_one_process_and_end_together(kernels, cases):
    if kernels == "native":
        pytest.importorskip("llvmlite", reason="native code needs llvmlite")
    job = run_job(2, PROGRAM, kernels, cases, seconds=120, environment={"TENSORBOW_CPU": kernels})
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.split("\n"))[-2:] == ["worker 0 is done", "worker 1 is done"]
