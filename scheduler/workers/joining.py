"""Joins the processes of a job in MPI_Init, and finds those that do not come.

MPI_Init returns when all processes of the job have called it. mpi4py calls it without letting other threads
run, the watch of the job among them; so it is called here, by ctypes, which lets them run.

A job that `mpirun` has started by itself has no watch before MPI_Init has ended. So each process leaves a
mark before it, which others on its machine see: a socket with a name, which goes when the process ends. One
that waits for longer than the limit ends the job, and names the first process without a mark.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from scheduler.workers.job_environment import LOCAL_SIZES, RANKS, SIZES, told
from scheduler.workers.pulse import waiting
from scheduler.workers.watch_client import WATCH
from tensorbow.errors import AbortedError, InvalidArgumentError, NotFoundError

LIMIT = "TENSORBOW_WATCHDOG"  # environment variable: seconds, as `tensorbow launch --watchdog`
USUAL_S = 300.0
JOB = "PMIX_NAMESPACE"  # environment variable: the name of a job of Open MPI
IMPORTS_S = 3.0  # by which processes that start together may come later, beside the limit
MPI_S = 60.0  # for MPI itself, when all have come
TURN_S, MOST_TURNS = 1.0, 4  # from one process's line to the next one's


def joined_mpi() -> Any:
    """The module mpi4py.MPI, when all processes of the job have called MPI_Init.

    Raises NotFoundError without mpi4py, AbortedError if MPI does not start, InvalidArgumentError for an
    unusable TENSORBOW_WATCHDOG.
    """
    try:
        import mpi4py

        initializes = mpi4py.rc.initialize
        if mpi4py.rc.finalize is None:
            mpi4py.rc.finalize = initializes  # at the end of Python
        mpi4py.rc.initialize = False
        try:
            from mpi4py import MPI
        finally:
            mpi4py.rc.initialize = initializes
    except (ImportError, RuntimeError) as error:  # no mpi4py, or no MPI library that it can load
        raise NotFoundError(
            f"workers: this process was started by MPI, and mpi4py cannot be loaded ({error}); install "
            "it by `pip install 'tensorbow[mpi]'`, or set TENSORBOW_WORKERS=none to train alone"
        ) from error
    if MPI.Is_initialized():  # by the user's program
        return MPI
    initialize, provided = ctypes.CDLL(MPI.__file__).MPI_Init_thread, ctypes.c_int()
    with waiting(), nullcontext() if WATCH in os.environ else _limited(own_limit_s()):
        status = initialize(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(provided))
    if status:
        raise AbortedError(f"workers: MPI_Init_thread failed with code {status}; start the job again")
    for communicator in (MPI.COMM_WORLD, MPI.COMM_SELF):  # as mpi4py does: errors are exceptions
        communicator.Set_errhandler(MPI.ERRORS_RETURN)
    return MPI


def own_limit_s() -> float:
    """Seconds without progress after which a job hangs that `mpirun` has started; 0 for no limit.

    Raises InvalidArgumentError for an unusable TENSORBOW_WATCHDOG.
    """
    text = os.environ.get(LIMIT, str(USUAL_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise InvalidArgumentError(f"{LIMIT}: expected seconds, 0 for no limit, got {text!r:.40}")
    return seconds


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Context of MPI_Init, after whose limit this process ends with a line, and so the job."""
    rank = told(RANKS)
    mark = None if rank is None else _mark(rank)
    over = threading.Event()
    if limit_s:
        threading.Thread(target=_end_late, args=(limit_s, rank, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        if mark is not None:
            mark.close()


def _end_late(limit_s: float, rank: int | None, over: threading.Event) -> None:
    """Ends this process if MPI_Init is not over in time; processes take turns, so that one says it."""
    if over.wait(limit_s + IMPORTS_S + min(rank or 0, MOST_TURNS) * TURN_S):
        return
    absent = _absent()
    if absent == [] and over.wait(MPI_S):  # all have come, and MPI itself takes its time
        return
    here = f"worker {'?' if rank is None else rank} ({socket.gethostname()}, process {os.getpid()})"
    if absent == []:
        text = f"{here} hangs in MPI_Init, which all workers have called: MPI or its network does not work"
    else:
        who = f"worker {absent[0]} ({socket.gethostname()})" if absent else "a worker"
        text = (
            f"{who} hangs or has ended at step 0: it has not joined the job (tb.worker_group()), and {here} "
            f"has waited {limit_s:g} s for it in MPI_Init"
        )
    sys.stderr.write(f"tensorbow: {text}\n")
    sys.stderr.flush()
    os._exit(1)


def _place(rank: int) -> str:
    """Name of a process's mark, in Linux's space of names without files."""
    return f"\0tensorbow-{os.getuid()}-{os.environ.get(JOB, os.getppid())}-{rank}"


def _mark(rank: int) -> socket.socket | None:
    """The mark of this process, until it is closed; None where the system has none."""
    if not sys.platform.startswith("linux"):
        return None
    with suppress(OSError):
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        mark.bind(_place(rank))
        return mark
    return None


def _absent() -> list[int] | None:
    """The processes without a mark of a job on this machine alone; None where that is not known."""
    size = told(SIZES)
    if size is None or told(LOCAL_SIZES) != size or not sys.platform.startswith("linux"):
        return None
    absent = []
    for rank in range(size):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as seeker:
            if seeker.connect_ex(_place(rank)):
                absent.append(rank)
    return absent
