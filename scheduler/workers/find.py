"""The group of workers that this process belongs to, by what its environment says."""

from __future__ import annotations

import os
from functools import cache

from scheduler.workers.group import LoneWorker, WorkerGroup
from scheduler.workers.job_environment import PMI_RANKS, RANKS, SIZES, told
from scheduler.workers.mpi import MpiWorkers
from scheduler.workers.own_watch import watch
from scheduler.workers.watch_client import WATCH
from tensorbow.errors import InvalidArgumentError
from tensorbow.training import TERMINAL

CHOICE = "TENSORBOW_WORKERS"  # "mpi": join the job, whatever started it; "none": train alone
OPEN_MPI = {  # what workers set for Open MPI 5 where it is not set
    # Waiting workers let others run: 40 times as fast where cores are fewer than what runs on them.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # Bytes that one worker of a machine sends another through buffers in the caches, at once: pieces of sums
    # (PIECE_NBYTES and a chunk). Else each waits for consent, and the system copies it, page by page.
    "OMPI_MCA_btl_sm_eager_limit": "81920",
}


@cache
def worker_group() -> WorkerGroup:
    """The workers of the job that this process is of; itself alone unless MPI has started it with others.

    mpi4py is imported only then. TENSORBOW_WORKERS decides where it is set: `mpi` or `none`; it is set to
    `none` for the processes that a worker starts, which are not of the job.
    Raises NotFoundError without mpi4py, FailedPreconditionError for an MPI without threads,
    InvalidArgumentError for another choice.
    """
    if not _is_started_by_mpi():
        return LoneWorker()
    for name, value in OPEN_MPI.items():
        os.environ.setdefault(name, value)
    group = MpiWorkers()
    os.environ[CHOICE] = "none"
    if group.size == 1:
        return LoneWorker()
    os.environ.setdefault(TERMINAL, "0")
    watch(group)
    return group


def leave_to_worker_0() -> bool:
    """Makes this process train alone; True for one that has to leave all work to worker 0 of its job.

    MPI is not called, unless what has started the job does not tell the workers' numbers.
    """
    if not _is_started_by_mpi():
        return False
    number = told(RANKS)
    rank = worker_group().rank if number is None else number
    os.environ[CHOICE] = "none"
    os.environ.setdefault(TERMINAL, "0")
    return rank > 0


def is_repeated() -> bool:
    """True if worker 0 of the job, which was started with the same command line, says what this one would."""
    alone = worker_group.cache_info().currsize == 0 and WATCH not in os.environ  # no watch
    return alone and _is_started_by_mpi() and bool(told(RANKS))


def _is_started_by_mpi() -> bool:
    choice = os.environ.get(CHOICE, "")
    if choice not in ("", "mpi", "none"):
        raise InvalidArgumentError(f"{CHOICE}: expected mpi or none, got {choice!r}; unset it, or choose one")
    if choice:
        return choice == "mpi"
    sizes = [os.environ[name] for name in SIZES if name in os.environ]
    return any(size != "1" for size in sizes) or (not sizes and any(name in os.environ for name in PMI_RANKS))
