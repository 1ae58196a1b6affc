"""Jobs of several worker processes that `mpirun` starts on this machine, with a hard time limit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MPICH = "TENSORBOW_MPICH"  # environment variable: where the wheel mpich is installed, for jobs of tests
FAST_START = ("--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp")  # of Open MPI; for tests alone


def mpirun() -> str:
    """The program that starts jobs; skips the test where it or mpi4py is missing."""
    pytest.importorskip("mpi4py", reason="workers need the extra mpi")
    found = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip("workers need mpirun, as of the extra mpi")
    return found


def start_of(workers: int) -> list[str]:
    """The command that starts so many workers: MPICH's where TENSORBOW_MPICH says where its wheel is."""
    if folder := os.environ.get(MPICH):
        return [str(Path(folder) / "bin" / "mpiexec"), "-n", str(workers)]
    return [mpirun(), "-n", str(workers), "--oversubscribe", "--bind-to", "none", *FAST_START]


def mpich_environment() -> dict[str, str]:
    """What has mpi4py load MPICH, where that is asked for."""
    folder = os.environ.get(MPICH)
    return {"LD_LIBRARY_PATH": str(Path(folder) / "lib"), "MPI4PY_MPIABI": "mpich"} if folder else {}


def run_job(
    workers: int, *program: str | Path, seconds: float = 60, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in so many workers, and ends them all if they take longer; on a machine with more
    to do than its cores can, so many times longer.

    Its stdout is of all workers; the test fails with it, where the program fails.
    """
    command = start_of(workers)
    own = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONPATH": str(ROOT),
        **mpich_environment(),
        **(environment or {}),
    }
    process = subprocess.Popen(
        [*command, sys.executable, "-m", "mpi4py", *map(str, program)],
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            crowded = os.getloadavg()[0] / (os.cpu_count() or 1)
            out, err = process.communicate(timeout=seconds * max(0.0, crowded - 1))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"{program[0]} took longer than {seconds} s in {workers} workers:\n{out}\n{err}")
    return subprocess.CompletedProcess(program, process.returncode, out, err)
