"""Memory that the workers of one machine share, for exchanges without a call of MPI.

It is a file without a name, which the others open by its number. So nothing is left behind when a worker is
killed, memory goes when nobody maps it any more, and no limit of `/dev/shm` applies.
"""

from __future__ import annotations

import ctypes
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
WHOLE = "allreduce"  # as "mpi", and two workers of one machine exchange whole vectors, not piece by piece
BY_MPI = ("mpi", WHOLE)
SMALL = 4096  # bytes
MAP_FIXED = 0x10  # of mmap, on Linux: at that address


def may_share_memory(workers: WorkerGroup) -> bool:
    """True if all workers are on one machine, and its system lets them share memory. Collective.

    TENSORBOW_EXCHANGE decides where it is set: `mpi`, `allreduce` or `shared`. Raises InvalidArgumentError
    for another choice, or different ones; FailedPreconditionError for `shared` where it cannot be.
    """
    choices = workers.all_gather(os.environ.get(EXCHANGE, ""))
    if choices[0] not in ("", *BY_MPI, "shared") or len({*choices}) > 1:
        raise InvalidArgumentError(
            f"{EXCHANGE}: expected mpi, allreduce or shared, the same on all workers, got "
            f"{', '.join(map(repr, choices))}; unset it, and workers of one machine share memory"
        )
    if choices[0] in BY_MPI:
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


class SharedPages:
    """Blocks of memory of all workers, of equal bytes, that become one: whoever writes, all have it.

    Their addresses stay. `end` gives each block memory of its own again, with what it has then.
    """

    def __init__(self, workers: WorkerGroup, addresses: Sequence[int], nbytes: int):
        """addresses: of this worker's blocks, each of which begins a page and has its last one for itself.
        nbytes: of each block. Collective; the bytes are those of worker 0's first block.

        Raises ResourceExhaustedError, on all, where one worker cannot have it; nothing has changed then.
        """
        self._addresses, self._nbytes = [*addresses], nbytes
        self._shared: list[int] = []
        file, place, problem = -1, ("", 0, 0), ""
        try:
            if workers.rank == 0:
                file = _file(nbytes)
                with mmap.mmap(file, nbytes) as memory:
                    ctypes.memmove(ctypes.addressof(ctypes.c_char.from_buffer(memory)), addresses[0], nbytes)
                place = _machine(), os.getpid(), file
        except (AttributeError, OSError, ValueError, BufferError) as error:
            problem = f"{workers.name}: {error}"
        _, process, number = workers.broadcast(place)
        try:
            if process:
                with Path(f"/proc/{process}/fd/{number}").open("r+b") as opened:
                    for address in addresses:
                        _lay_over(address, nbytes, mmap.MAP_SHARED, opened.fileno())
                        self._shared.append(address)
        except OSError as error:
            problem = f"{workers.name}: {error}"
        problems = [each for each in workers.all_gather(problem) if each]
        if file >= 0:
            os.close(file)
        if problems:
            self.end()
            raise ResourceExhaustedError(
                f"one z of all workers: expected {nbytes} bytes of memory to share; {problems[0]}; free "
                f"some, or set {EXCHANGE}=mpi"
            )

    def end(self) -> None:
        """Ends the sharing in this worker; idempotent. Nobody writes meanwhile."""
        while self._shared:
            address = self._shared.pop()
            kept = ctypes.string_at(address, self._nbytes)
            _lay_over(address, self._nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            ctypes.memmove(address, kept, self._nbytes)


def _lay_over(address: int, nbytes: int, flags: int, file: int = -1) -> None:
    """Replaces mapped pages of this process by others. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    call = library.mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    found = call(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags | MAP_FIXED, file, 0)
    if found != address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _file(nbytes: int) -> int:
    """A file without a name, of zeros, that has its memory. Raises AttributeError where that is no Linux."""
    file = os.memfd_create("tensorbow")
    try:
        os.posix_fallocate(file, 0, nbytes)
    except OSError:
        os.close(file)
        raise
    return file


def _share(workers: WorkerGroup, nbytes: int) -> tuple[list[Array], str]:
    """Memory of all workers, mapped in this process, and the first problem that one of them met."""
    file, place, problem, memory = -1, ("", 0, 0), "", list[Array]()
    try:
        file = _file(nbytes)
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
    problems = workers.all_gather(problem)  # all workers have opened their memory now
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
