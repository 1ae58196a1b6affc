"""Replicas of several processes that average together, segment by segment and in whole native rounds."""

import re
from subprocess import CompletedProcess

import pytest

from tests.cluster_rig.mpi_jobs import run_job
from tests.gpu_rig.runtimes import needs_compiler


def is_done(job: CompletedProcess[str]) -> bool:
    """True if all workers said so; lines of several may be joined, since all write to one pipe."""
    assert job.returncode == 0, job.stderr
    done = sorted(int(rank) for rank in re.findall(r"worker (\d+) is done", job.stdout))
    return len(done) > 1 and done == list(range(len(done)))


@pytest.mark.parametrize(
    ("kernels", "cases"),
    [
        ("native", "some"),
        pytest.param("native", "all", marks=pytest.mark.slow),
        pytest.param("reference", "all", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("overlap", "exchange"),
    [
        ("", ""),
        pytest.param("always", "mpi", marks=pytest.mark.slow),
        pytest.param("", "mpi", marks=pytest.mark.slow),
    ],
)
def test_two_workers_train_as_one_process_and_end_together(kernels, cases, overlap, exchange):
    if kernels == "native":
        pytest.importorskip("llvmlite", reason="native code needs llvmlite")
    program = "tests/cluster_rig/worker_training.py"
    environment = {"TENSORBOW_CPU": kernels, "TENSORBOW_OVERLAP": overlap, "TENSORBOW_EXCHANGE": exchange}
    assert is_done(run_job(2, program, kernels, cases, seconds=120, environment=environment))


@pytest.mark.slow
def test_two_workers_that_exchange_piece_by_piece_have_the_bits_of_whole_vectors():
    pytest.importorskip("llvmlite", reason="native code needs llvmlite")
    program = "tests/cluster_rig/exchanged_pieces.py"
    assert is_done(run_job(2, program, seconds=120, environment={"TENSORBOW_CPU": "native"}))


@pytest.mark.slow
def test_workers_that_share_memory_have_the_bits_of_one_process():
    pytest.importorskip("llvmlite", reason="native code needs llvmlite")
    environment = {"TENSORBOW_CPU": "native"}
    assert is_done(
        run_job(3, "tests/cluster_rig/shared_exchanges.py", "sums", seconds=120, environment=environment)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernels", "count"),
    [
        ("native", 3),
        pytest.param("native", 4, marks=pytest.mark.slow),
        pytest.param("reference", 3, marks=pytest.mark.slow),
        pytest.param("reference", 4, marks=pytest.mark.slow),
    ],
)
def test_workers_send_16_bits_of_each_element_with_equal_bits_by_memory_and_by_mpi(kernels, count):
    if kernels == "native":
        pytest.importorskip("llvmlite", reason="native code needs llvmlite")
    environment = {"TENSORBOW_CPU": kernels}
    program = "tests/cluster_rig/shared_exchanges.py"
    assert is_done(run_job(count, program, "halves", seconds=120, environment=environment))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_exchanges_that_end_later_change_no_bits_and_rounds_go_on_meanwhile(count):
    pytest.importorskip("llvmlite", reason="native code needs llvmlite")
    environment = {"TENSORBOW_CPU": "native"}
    program = "tests/cluster_rig/overlapped_exchanges.py"
    assert is_done(run_job(count, program, seconds=120, environment=environment))


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_backup_workers_of_three_processes_do_not_wait_for_the_one_that_is_held_up(kernels):
    environment = {"TENSORBOW_CPU": kernels}
    assert is_done(run_job(3, "tests/cluster_rig/worker_backups.py", seconds=120, environment=environment))


def test_backup_workers_of_two_processes_wait_neither_for_a_replica_nor_for_a_program():
    environment = {"TENSORBOW_CPU": "reference"}
    assert is_done(run_job(2, "tests/cluster_rig/worker_backups.py", environment=environment))


@pytest.mark.parametrize("cases", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_a_replicator_of_two_workers_is_as_one_of_one_process(tmp_path, cases):
    environment = {"TENSORBOW_CPU": "reference"} if cases == "some" else {}
    program = "tests/cluster_rig/worker_replicators.py"
    assert is_done(run_job(2, program, tmp_path, cases, seconds=120, environment=environment))


def test_a_replicator_of_three_workers_does_not_wait_for_its_backup(tmp_path):
    environment = {"TENSORBOW_CPU": "reference"}
    program = "tests/cluster_rig/worker_backup_replicators.py"
    assert is_done(run_job(3, program, tmp_path, seconds=120, environment=environment))


@pytest.mark.slow
def test_workers_whose_replicas_run_dynamic_steps_have_the_bits_of_planned_ones():
    assert is_done(run_job(2, "tests/cluster_rig/worker_dynamic_steps.py"))


@pytest.mark.slow
def test_workers_choose_one_number_of_replicas_together():
    assert is_done(
        run_job(2, "tests/cluster_rig/worker_tuning.py", environment={"TENSORBOW_CPU": "reference"})
    )


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("count", [2, 4])
def test_gpus_of_workers_train_as_those_of_one_process_and_send_halves_as_mpi_does(count):
    assert is_done(run_job(count, "tests/cluster_rig/worker_gpus.py", seconds=120))
