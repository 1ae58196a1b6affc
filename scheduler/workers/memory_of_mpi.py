"""The folder of the memory that Open MPI's processes of one machine share.

Open MPI makes a file of 16 MiB for each worker in /dev/shm, which is memory of the machine, and removes it
at the end of a job, but not where mpirun is killed. The files are in a folder of the job that its launch
removes, or, where that was killed, too, the next one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
SETTING = "OMPI_MCA_btl_sm_backing_directory"  # environment variable of Open MPI
PREFIX, LOCK = "tensorbow-mpi-", "lock"


@contextmanager
def shared_memory_of_mpi(alone: bool) -> Iterator[Mapping[str, str]]:
    """Context that yields the setting of a job's workers, with a folder that goes with it.

    alone: all workers are on this machine; else, and without /dev/shm, there is no setting.
    """
    folder = _new_folder() if alone and SETTING not in os.environ else None
    if folder is None:
        yield {}
        return
    path, handle = folder
    try:
        yield {SETTING: str(path)}
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def _new_folder() -> tuple[Path, int] | None:
    """A new folder, and the lock by which others know that it is in use; None where it cannot be made."""
    try:
        for path in MEMORY.glob(f"{PREFIX}*"):
            _remove_forgotten(path)
        made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY))
        handle = _locked(made)
        if (made / LOCK).exists():  # no other launch has taken it for a forgotten one
            return made, handle
        os.close(handle)
        return None
    except (ImportError, OSError):
        return None


def _locked(folder: Path) -> int:
    """Locks a folder as long as this process lives. Raises OSError where another one has."""
    import fcntl

    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _remove_forgotten(folder: Path) -> None:
    """Removes the folder of a launch that was killed."""
    with suppress(OSError):
        if folder.lstat().st_uid == os.geteuid() and (folder / LOCK).exists():
            handle = _locked(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)
