"""The all-reduce between GPUs: sums on the device between virtual GPUs, NCCL between physical ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from scheduler.averaging.all_reduce import AllReduce, FlatVector
from tensorbow.devices import Access, Device, Event, GpuDevice, Stream
from tensorbow.devices.cuda_runtime import CopyKind, CudaRuntime
from tensorbow.devices.gpu_stream import GpuStream
from tensorbow.devices.nccl import NcclCommunicators
from tensorbow.errors import InternalError
from tensorbow.kernels.gpu.runtime.sums import Adder

Communicators = Callable[[Sequence[int]], NcclCommunicators]


class GpuAllReduce(AllReduce):
    """Between GPU devices: those that share a physical GPU are summed there into the first of them, in their
    order; NCCL sums over the physical GPUs; the others get a copy.

    Everything is enqueued, on one stream for each physical GPU, by the thread that posts.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        name: str,
        communicators: Communicators = NcclCommunicators,
        priority: int = 0,
    ):
        """Raises CudaError when NCCL cannot join the GPUs."""
        self._members: dict[CudaRuntime, list[int]] = {}  # by physical GPU, the places of its devices
        self._streams: list[GpuStream] = []
        for place, device in enumerate(devices):
            if not isinstance(device, GpuDevice):
                raise InternalError(f"an all-reduce between GPUs met {device!r}")
            self._members.setdefault(device.runtime, []).append(place)
            if len(self._members) > len(self._streams):
                self._streams.append(device.new_gpu_stream(name, priority))
        self._adders = [
            Adder(runtime, stream.handle)
            for runtime, stream in zip(self._members, self._streams, strict=True)
        ]
        self._nccl: NcclCommunicators | None = None
        if len(self._members) > 1:
            self._nccl = communicators([runtime.index for runtime in self._members])
        self._vectors: list[list[FlatVector]] = []
        self._accesses: list[Access] = []

    def connect(self, vectors: Sequence[Sequence[FlatVector]]) -> None:
        """See AllReduce."""
        self._vectors = [list(device) for device in vectors]
        self._accesses = [vector.access for device in vectors for vector in device]
        for adder, places in zip(self._adders, self._members.values(), strict=True):
            leader, *others = (self._vectors[place] for place in places)
            for other in others:
                for total, vector in zip(leader, other, strict=True):
                    adder.prepare(total.address, vector.address, total.size, total.dtype)

    def post(self, ready: Sequence[Event]) -> Event:
        """See AllReduce."""
        accesses = self._accesses
        for stream, adder in zip(self._streams, self._adders, strict=True):
            for event in ready:
                stream.wait(event)
            stream.enqueue(adder.add, label="sum between virtual GPUs", reads=accesses, writes=accesses)
        if self._nccl is not None:
            self._streams[0].enqueue(self._reduce, label="NCCL all-reduce", reads=accesses, writes=accesses)
        for number, stream in enumerate(self._streams):
            stream.enqueue(partial(self._spread, number), label="copy to virtual GPUs", writes=accesses)
        first, *others = self._streams
        for other in others:
            first.wait(other.record())
        return first.record()

    def _reduce(self) -> None:
        """One NCCL call for each vector, on all GPUs' streams together."""
        leaders = [self._vectors[places[0]] for places in self._members.values()]
        handles = [stream.handle for stream in self._streams]
        for column in zip(*leaders, strict=True):
            first = column[0]
            if self._nccl is not None:
                addresses = [vector.address for vector in column]
                self._nccl.all_reduce(addresses, first.size, first.dtype.name, handles)

    def _spread(self, number: int) -> None:
        runtime, places = list(self._members.items())[number]
        leader, *others = (self._vectors[place] for place in places)
        for other in others:
            for total, vector in zip(leader, other, strict=True):
                nbytes = total.size * total.dtype.size
                handle = self._streams[number].handle
                runtime.copy(vector.address, total.address, nbytes, CopyKind.DEVICE_TO_DEVICE, handle)

    @property
    def streams(self) -> Sequence[Stream]:
        """One for each physical GPU."""
        return tuple(self._streams)

    def close(self) -> None:
        """Closes the streams, then NCCL; idempotent."""
        for stream in self._streams:
            stream.close()
        if self._nccl is not None:
            self._nccl.close()
            self._nccl = None
        self._vectors = []
