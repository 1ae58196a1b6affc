"""Memory that the workers of one machine share, for exchanges without a call of MPI.

A worker's part is a file without a name, which the others open by its number. So nothing is left behind when
a worker is killed, a part goes when nobody maps it any more, and no limit of `/dev/shm` applies.
"""

from __future__ import annotations

import mmap
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scheduler.workers.group import WorkerGroup
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from tensorbow.specs import Array

EXCHANGE = "TENSORBOW_EXCHANGE"  # "mpi": never share memory; "shared": fail where that cannot be
SMALL = 4096  # bytes


def may_share_memory(workers: WorkerGroup) -> bool:
    """True if all workers are on one machine, and its system lets them share memory. Collective.

    TENSORBOW_EXCHANGE decides where it is set: `mpi` or `shared`. Raises InvalidArgumentError for another
    choice, or different ones; FailedPreconditionError for `shared` where it cannot be.
    """
    choices = workers.all_gather(os.environ.get(EXCHANGE, ""))
    if choices[0] not in ("", "mpi", "shared") or len({*choices}) > 1:
        raise InvalidArgumentError(
            f"{EXCHANGE}: expected mpi or shared, the same on all workers, got "
            f"{', '.join(map(repr, choices))}; unset it, and workers of one machine share memory"
        )
    if choices[0] == "mpi":
        return False
    problem = _share(workers, SMALL)[1]
    if problem and choices[0]:
        raise FailedPreconditionError(
            f"{EXCHANGE}: expected workers that can share memory; {problem}; unset it"
        )
    return not problem


def are_together(workers: WorkerGroup) -> bool:
    """True if no link joins the workers, on one machine, in one space of network names. Collective."""
    return len({*workers.all_gather(_network())}) == 1


def shared_memory(workers: WorkerGroup, nbytes: int) -> Sequence[Array]:
    """Memory of each worker, uint8 [nbytes], zeros at first; a worker writes only its own. Collective.

    Freed when nobody refers to it. Raises ResourceExhaustedError, on all, where one cannot have it.
    """
    memory, problem = _share(workers, nbytes)
    if problem:
        raise ResourceExhaustedError(
            f"an exchange of workers: expected {nbytes} bytes of memory to share, of each worker; {problem}; "
            f"free some, or set {EXCHANGE}=mpi"
        )
    return memory


def _share(workers: WorkerGroup, nbytes: int) -> tuple[list[Array], str]:
    """What all workers have, and the first problem that one of them met."""
    file, place, problem, memory = -1, ("", 0, 0), "", list[Array]()
    try:
        file = os.memfd_create("tensorbow")
        os.posix_fallocate(file, 0, nbytes)
        place = _machine(), os.getpid(), file
    except (AttributeError, OSError) as error:  # no Linux, or no memory
        problem = f"{workers.name}: {error}"
    places = workers.all_gather(place)
    machines = {machine for machine, *_ in places}
    if len(machines - {""}) > 1:
        problem = "they are on several machines, or in containers"
    elif "" not in machines:
        try:
            memory = [_map(process, number, nbytes, process == os.getpid()) for _, process, number in places]
        except (OSError, ValueError) as error:
            problem = f"{workers.name}: {error}"
    problems = workers.all_gather(problem)  # from here on all have opened what they can
    if file >= 0:
        os.close(file)
    return memory, next(filter(None, problems), "")


def _machine() -> str:
    """The running system and the space of its process numbers."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text()} {os.readlink('/proc/self/ns/pid')}"


def _network() -> str:
    """The running system and the space of its network's names."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text()} {os.readlink('/proc/self/ns/net')}"
    except OSError:  # no Linux
        return platform.node()


def _map(process: int, file: int, nbytes: int, own: bool) -> Array:
    with Path(f"/proc/{process}/fd/{file}").open("r+b" if own else "rb") as opened:
        access = mmap.ACCESS_WRITE if own else mmap.ACCESS_READ
        return np.frombuffer(mmap.mmap(opened.fileno(), nbytes, access=access), np.uint8)
