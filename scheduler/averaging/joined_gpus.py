"""Ranks by which NCCL joins the GPUs of all workers; MPI carries its id."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scheduler.workers.lockstep import Lockstep
from scheduler.workers.shared_memory import BY_MPI, EXCHANGE
from tensorbow.devices import Device, GpuDevice
from tensorbow.devices.nccl import NcclRanks, nccl_id, nccl_is_there


@dataclass(frozen=True)
class JoinedGpus:
    """Ranks by which NCCL joins the GPUs of all workers.

    gathered: what each worker gives, by rank; collective. firsts: ranks of the first GPU of each worker, None
    where no worker has another; collective.
    """

    ranks: NcclRanks
    gathered: Callable[[Any], list[Any]]
    firsts: Callable[[], NcclRanks | None]


def joined_gpus(lockstep: Lockstep, devices: Sequence[Device]) -> JoinedGpus | None:
    """Finds how NCCL joins the GPUs of all workers; collective.

    None where some worker has other devices, NCCL is missing, a GPU is of two workers, which NCCL refuses, or
    TENSORBOW_EXCHANGE is mpi or allreduce: then workers exchange through the memory of their hosts.
    """
    told = lockstep.all_gather("GPUs of workers", _gpus_of(devices))
    gpus = [gpu for own in told for gpu in own]
    if not all(told) or len({*gpus}) < len(gpus):
        return None
    ranks = _ranks(lockstep, sum(map(len, told[: lockstep.rank])), len(gpus))
    each_has_one = len(gpus) == lockstep.size

    def firsts() -> NcclRanks | None:
        return None if each_has_one else _ranks(lockstep, lockstep.rank, lockstep.size)

    return JoinedGpus(ranks, partial(lockstep.all_gather, "parts of exchanges"), firsts)


def _ranks(lockstep: Lockstep, first: int, total: int) -> NcclRanks:
    """Ranks of GPUs that find each other by an id of worker 0; collective."""
    unique_id = lockstep.broadcast("the id of NCCL", nccl_id() if lockstep.rank == 0 else None)
    return NcclRanks(first, total, unique_id)


def _gpus_of(devices: Sequence[Device]) -> list[tuple[str, str]]:
    """Host and bus id of each physical GPU; none where they cannot be joined."""
    runtimes = dict.fromkeys(device.runtime for device in devices if isinstance(device, GpuDevice))
    if os.environ.get(EXCHANGE) in BY_MPI or not all(isinstance(device, GpuDevice) for device in devices):
        return []
    if not nccl_is_there():
        return []
    found = [(socket.gethostname(), runtime.properties.pci_bus_id) for runtime in runtimes]
    return found if all(bus_id for _, bus_id in found) else []
