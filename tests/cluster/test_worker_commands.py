"""The command line in several workers: some commands are shared by all, the others are worker 0's alone."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scheduler.workers import find, joining
from scheduler.workers.job_environment import LOCAL_SIZES, RANKS, SIZES
from scheduler.workers.mpirun import AS_ROOT
from tensorbow.training import load_arrays
from tests.cluster_rig.mpi_jobs import FAST_START, ROOT, mpirun

SWEEP = ("sweep", "logreg", "--grid", "learning_rate=0.003,0.01,0.03,0.1", "--seeds", "2", "--at-once", "4")
SWEEP = (*SWEEP, "--halving", "--keep", "2", "--checkpoint-seconds", "0")


def by_mpirun(folder: Path, workers: int, *words: str) -> subprocess.CompletedProcess[str]:
    start = [mpirun(), "-n", str(workers), "--oversubscribe", "--bind-to", "none", *FAST_START]
    environment = {**os.environ, **AS_ROOT, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*start, sys.executable, "-m", "tensorbow", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def alone(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tensorbow", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_is_not_shared_is_left_to_worker_0_without_mpi(monkeypatch):
    for name in (*SIZES, *RANKS, find.CHOICE):
        monkeypatch.delenv(name, raising=False)
    assert not find.leave_to_worker_0()
    assert not find.is_repeated()
    monkeypatch.setenv("PMI_SIZE", "3")
    monkeypatch.setenv("PMI_RANK", "2")
    for name in (find.CHOICE, find.TERMINAL):
        monkeypatch.setenv(name, "")
    assert find.is_repeated() == (find.worker_group.cache_info().currsize == 0)
    assert find.leave_to_worker_0()
    assert os.environ[find.CHOICE] == "none"
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv(find.CHOICE, "")
    assert not find.leave_to_worker_0()
    assert not find.is_repeated()


@pytest.mark.parametrize("starter", ["OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "PMI_"])
def test_each_starter_of_mpi_is_known_wherever_a_worker_asks_for_its_number(monkeypatch, starter):
    for name in (*SIZES, *RANKS, *LOCAL_SIZES):
        monkeypatch.delenv(name, raising=False)
    for name in (find.CHOICE, find.TERMINAL):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv(joining.JOB, f"test-{os.getpid()}")
    monkeypatch.setenv(f"{starter}SIZE", "3")
    monkeypatch.setenv("MPI_LOCALNRANKS" if starter == "PMI_" else f"{starter}LOCAL_SIZE", "3")
    monkeypatch.setenv(f"{starter}RANK", "1")
    with joining._limited(0.0):
        assert joining._absent() == ([0, 2] if sys.platform.startswith("linux") else None)
    assert find.leave_to_worker_0()


@pytest.mark.slow
def test_commands_of_one_process_are_worker_0s_and_say_all_once(tmp_path):
    trained = by_mpirun(tmp_path, 2, "train", "logreg", "--epochs", "1", "--output", "run")
    assert trained.returncode == 0, trained.stderr
    assert trained.stdout.count("test accuracy") == 2  # of the epoch and of the end
    done = by_mpirun(tmp_path, 2, "evaluate", "run")
    assert (done.returncode, done.stdout.count("accuracy")) == (0, 1), done.stderr
    done = by_mpirun(tmp_path, 2, "evaluate", "nowhere")
    assert done.returncode == 1
    assert done.stderr.count("tensorbow: nowhere holds no trained model") == 1, done.stderr
    done = by_mpirun(tmp_path, 2, "export", "run", "--output", "exported")
    assert done.returncode == 0, done.stderr
    done = by_mpirun(tmp_path, 2, "train", "--bogus")
    assert done.returncode == 2
    assert done.stderr.count("tensorbow: ") == 1, done.stderr


@pytest.mark.slow
def test_four_workers_of_two_replicas_train_as_one_command(tmp_path):
    words = ("train", "lenet", "--replicas-per-gpu", "2", "--epochs", "2", "--output", "run")
    done = by_mpirun(tmp_path, 4, *words)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^epoch +(\d/2)\b", done.stdout, re.M) == ["1/2", "2/2"], done.stdout
    assert os.listdir(tmp_path) == ["run"]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    newest = max(path.name[:20] for path in (tmp_path / "run").glob("checkpoint-*.safetensors"))
    parts = [f"{newest}{part}.safetensors" for part in ("", ".worker1", ".worker2", ".worker3")]
    found = [load_arrays(tmp_path / "run" / part)[0] for part in parts]
    replicas = [{name.split("/")[0] for name in part if name.startswith("replica")} for part in found]
    assert replicas == [{f"replica{2 * number}", f"replica{2 * number + 1}"} for number in range(4)]
    evaluated = alone(tmp_path, "evaluate", "run")
    accuracy = re.search(r"accuracy +(\d+\.\d+)", evaluated.stdout)
    assert accuracy is not None, evaluated
    assert float(accuracy[1]) > 50


@pytest.mark.slow
def test_workers_tune_together_and_say_so_once(tmp_path):
    words = ("tune", "logreg", "--max-replicas", "2", "--windows", "1", "--window-seconds", "0.05")
    done = by_mpirun(tmp_path, 2, *words)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"replicas per device +images/s", done.stdout)) == 1, done.stdout
    assert re.search(r"^tensorbow launch -n 2 train logreg --replicas-per-gpu [12]$", done.stdout, re.M)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_a_sweep_shared_out_to_workers_has_the_results_of_one_process_also_after_a_kill(tmp_path):
    files = ("results.csv", "curves.jsonl", "best/model.safetensors")
    assert alone(tmp_path, *SWEEP, "--epochs", "4", "--output", "one").returncode == 0
    wanted = [(tmp_path / "one" / file).read_bytes() for file in files]
    for workers in (2, 3):
        done = by_mpirun(tmp_path, workers, *SWEEP, "--epochs", "4", "--output", f"of{workers}")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("best member") == 1
        assert [(tmp_path / f"of{workers}" / file).read_bytes() for file in files] == wanted
    assert alone(tmp_path, *SWEEP, "--epochs", "80", "--output", "long").returncode == 0
    launch = (sys.executable, "-m", "tensorbow", "launch", "-n", "2", "--restarts", "3")
    job = subprocess.Popen(
        [*launch, *SWEEP, "--epochs", "80", "--output", "killed"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ends = time.monotonic() + 60
        while not (tmp_path / "killed" / "state.safetensors").exists():
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < ends
            time.sleep(0.02)
        os.kill(worker_of(1, tmp_path), signal.SIGKILL)
        _, err = job.communicate(timeout=120)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 0, err
    assert "restart 1 of 3, from the last checkpoint in " in err
    results = [(tmp_path / folder / "results.csv").read_bytes() for folder in ("long", "killed")]
    assert results[0] == results[1]


def worker_of(number: int, folder: Path) -> int:
    """The process of a worker whose job runs in a folder."""
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            environment = Path(f"/proc/{int(entry)}/environ").read_bytes().split(b"\0")
            here = os.readlink(f"/proc/{entry}/cwd") == str(folder)
            if here and f"OMPI_COMM_WORLD_RANK={number}".encode() in environment:
                return int(entry)
    raise AssertionError(f"there is no worker {number}")
