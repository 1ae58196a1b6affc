"""Choice of the transport of exchanges by kind of device and by workers."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.averaging.joined_gpus import JoinedGpus, joined_gpus
from scheduler.averaging.member_transport import MemberTransport
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.averaging.transport import InProcessTransport, Transport
from scheduler.averaging.worker_transport import WorkerTransport
from scheduler.workers.lockstep import Lockstep
from tensorbow.devices import Device
from tensorbow.errors import InvalidArgumentError


def transport_for(
    devices: Sequence[Device], name: str, options: Synchronisation, lockstep: Lockstep | None
) -> Transport | None:
    """Transport of exchanges between devices, and with other workers; None for one device alone.

    Raises as `transport_between`.
    """
    joined = None if lockstep is None else joined_gpus(lockstep, devices)
    inner = None
    if joined is not None or len(devices) > 1:
        inner = transport_between(devices, name, options.priority, joined)
    if lockstep is None:
        return inner
    if options.backup:
        return MemberTransport(lockstep.rank, lockstep.letters(), inner)
    return WorkerTransport(lockstep, inner, joined is not None)


def transport_between(
    devices: Sequence[Device], name: str, priority: int = 0, joined: JoinedGpus | None = None
) -> Transport:
    """Transport of the exchanges between replicas on these devices. priority: of its streams, on GPUs.
    joined: with those of other workers.

    Raises InvalidArgumentError for devices of several kinds, CudaError when NCCL cannot join the GPUs.
    """
    kinds = sorted({device.kind for device in devices})
    if len(kinds) > 1:
        raise InvalidArgumentError(
            f"devices: expected one kind of device for replicas, got {' and '.join(kinds)}; leave one out"
        )
    if kinds == ["gpu"]:
        from scheduler.averaging.gpu_transport import GpuTransport

        return GpuTransport(devices, name, priority, joined)
    return InProcessTransport(devices[0], name)
