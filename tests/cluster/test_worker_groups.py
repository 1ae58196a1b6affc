"""Groups of workers: who is in one, and what its members tell each other."""

import ctypes
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import tensorbow as tb
from scheduler.workers.find import worker_group
from scheduler.workers.group import LoneWorker
from scheduler.workers.joint_calls import JointCalls
from scheduler.workers.overlapped_sums import NATIVE_SIGNATURE, OverlappedSums
from scheduler.workers.watch_client import is_told
from tensorbow.errors import AbortedError, DataLossError, InvalidArgumentError
from tests.cluster_rig.mpi_jobs import ROOT, run_job


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    worker_group.cache_clear()
    for name in ("TENSORBOW_WORKERS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    yield monkeypatch
    worker_group.cache_clear()


def test_a_process_started_by_itself_is_alone(environment):
    group = worker_group()
    assert isinstance(group, LoneWorker)
    assert (group.rank, group.size) == (0, 1)
    assert group.all_gather("own") == ["own"]
    worker_group.cache_clear()
    environment.setenv("OMPI_COMM_WORLD_SIZE", "4")
    environment.setenv("TENSORBOW_WORKERS", "none")
    assert isinstance(worker_group(), LoneWorker)


def test_another_choice_is_refused(environment):
    environment.setenv("TENSORBOW_WORKERS", "ray")
    with pytest.raises(InvalidArgumentError, match=r"TENSORBOW_WORKERS: expected mpi or none, got 'ray'"):
        worker_group()


class Threads(LoneWorker):
    """Worker of a group whose members are threads."""

    def __init__(self, rank: int, values: list[object], barrier: threading.Barrier):
        super().__init__()
        self.rank, self.size, self._values, self._barrier = rank, len(values), values, barrier

    def all_gather(self, value):
        self._values[self.rank] = value
        self._barrier.wait(10)
        return list(self._values)


def test_an_error_of_one_worker_is_shown_by_that_one_and_told_to_the_others():
    values, barrier = [None] * 3, threading.Barrier(3)

    def ends(rank):
        def function():
            if rank:
                raise DataLossError(f"of {rank}")

        with pytest.raises(DataLossError) as caught:
            JointCalls(Threads(rank, values, barrier)).by_all(function)
        return str(caught.value), is_told(caught.value)

    with ThreadPoolExecutor(3) as pool:
        assert [*pool.map(ends, range(3))] == [("of 1", True), ("of 1", False), ("of 1", True)]


def test_a_replicator_says_which_worker_it_is():
    class Told(LoneWorker):
        rank, size = 1, 3

        def all_gather(self, value):
            return [value] * self.size

    replicator = tb.MultiWorkerReplicator(["/cpu:0"], replicas_per_gpu=2, workers=Told())
    assert repr(replicator) == "<tb.MultiWorkerReplicator 2 on /cpu:0 of worker 1 of 3; sync sma>"


@pytest.mark.slow
def test_without_mpi4py_a_worker_says_what_to_install():
    program = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "from scheduler.workers.find import worker_group\n"
        "try: worker_group()\n"
        "except LookupError as error: print(error)"
    )
    command = [sys.executable, "-c", program]
    environment = {"PMI_SIZE": "2", "PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert "pip install 'tensorbow[mpi]'" in said.stdout


@pytest.mark.slow
def test_calls_of_a_group_and_how_a_worker_ends_the_job():
    job = run_job(3, "tests/cluster_rig/group_calls.py")
    assert "Traceback" not in job.stderr, job.stderr
    assert job.returncode
    assert "tensorbow: worker 1 of 3" in job.stderr
    assert "as the test asked" in job.stderr


def test_the_end_of_a_sum_may_be_awaited_again():
    """As by a worker that learns, between waiting and using the sum, that another one has failed."""
    counted = [0]

    def add():
        counted[0] += 1

    def fail():
        raise AbortedError("as the test asks")

    sums = OverlappedSums()
    try:
        for function, status in ((add, 0), (fail, 1)):
            begin, wait = (NATIVE_SIGNATURE(call[0]) for call in sums.calls([function]))
            for _ in range(2):
                arguments = [ctypes.c_int64()] * (len(NATIVE_SIGNATURE._argtypes_))
                assert begin(*arguments) == 0
                assert [wait(*arguments) for _ in range(3)] == [status] * 3
    finally:
        sums.close()
    assert counted == [2]
