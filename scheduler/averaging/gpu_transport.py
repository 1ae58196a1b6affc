"""Exchanges between GPUs: on the device between virtual ones, by NCCL between physical ones and workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from scheduler.averaging.half_exchange import HalfExchange
from scheduler.averaging.joined_gpus import JoinedGpus
from scheduler.averaging.transport import DeviceExchange, FlatVector, Transport
from tensorbow.devices import Access, Device, Event, GpuDevice, Stream
from tensorbow.devices.cuda_runtime import CopyKind, CudaRuntime
from tensorbow.devices.gpu_stream import GpuStream
from tensorbow.devices.nccl import NcclCommunicators
from tensorbow.errors import InternalError
from tensorbow.kernels.gpu.runtime.sums import Adder
from tensorbow.specs import float32

NcclPart: TypeAlias = tuple[int, int, int]  # the rank that has some elements, the first, and how many


class GpuTransport(Transport):
    """Transport between GPU devices: those that share a physical GPU are joined there in the first of
    them, in their order; NCCL joins the physical GPUs; the others get a copy.

    Everything is enqueued, on one stream for each physical GPU, by the thread that posts. With `joined` NCCL
    joins the GPUs of all workers, whose ranks go by worker; with `halves`, too, the first GPU of each worker
    exchanges 16 bits of the elements of the worker's sums.
    """

    def __init__(
        self, devices: Sequence[Device], name: str, priority: int = 0, joined: JoinedGpus | None = None
    ):
        """joined: collective then. Raises CudaError when NCCL cannot join the GPUs."""
        self._joined = joined
        self._members: dict[CudaRuntime, list[int]] = {}  # by physical GPU, the indices of its devices
        self._streams: list[GpuStream] = []
        for device_index, device in enumerate(devices):
            if not isinstance(device, GpuDevice):
                raise InternalError(f"an exchange between GPUs met {device!r}")
            self._members.setdefault(device.runtime, []).append(device_index)
            if len(self._members) > len(self._streams):
                self._streams.append(device.new_gpu_stream(name, priority))
        self._nccl: NcclCommunicators | None = None
        indices = [runtime.index for runtime in self._members]
        if joined is not None:
            self._nccl = NcclCommunicators(indices, joined.ranks, [*self._members])
        elif len(self._members) > 1:
            self._nccl = NcclCommunicators.taken(indices)
        self._half: HalfExchange | None = None  # between workers
        self._own: list[NcclCommunicators] = []  # that `_half` needs besides
        self._of_worker: NcclCommunicators | None = None  # of them, between this worker's GPUs
        self._exchanges: list[_GpuExchange] = []

    def connect(self, exchanges: Sequence[Sequence[DeviceExchange]]) -> None:
        """See Transport; collective with `joined`."""
        own = [[self._parts_of(crossing) for crossing in crossings] for crossings in exchanges]
        every = [own] if self._joined is None else self._joined.gathered(own)
        if self.halves and self._half is None and self._joined is not None:
            self._join_halves(self._joined)
        half = self._half if self.halves else None
        self._exchanges = [
            _GpuExchange(
                crossings,
                [[part for worker in every for part in worker[n][m]] for m in range(len(crossings))],
                self._members,
                self._streams,
                self._nccl,
                half,
                self._of_worker,
            )
            for n, crossings in enumerate(exchanges)
        ]

    def _join_halves(self, joined: JoinedGpus) -> None:
        """Joins the first GPUs of the workers; collective."""
        (runtime, *others), ranks, nccl = self._members, joined.firsts(), self._nccl
        if ranks is not None:
            nccl = NcclCommunicators([runtime.index], ranks, [runtime])
            self._own.append(nccl)
        if others:
            self._of_worker = NcclCommunicators.taken([each.index for each in self._members])
            self._own.append(self._of_worker)
        if nccl is None:
            raise InternalError("an exchange of halves between workers without NCCL")
        self._half = HalfExchange(runtime, self._streams[0].handle, nccl, ranks or joined.ranks)

    def _parts_of(self, crossing: DeviceExchange) -> list[NcclPart]:
        """Parts that this worker's GPUs own, and NCCL's ranks that have them."""
        first = 0 if self._joined is None else self._joined.ranks.first
        homes = {device: n for n, devices in enumerate(self._members.values(), first) for device in devices}
        return [(homes[owner], elements.start, len(elements)) for owner, elements in crossing.parts()]

    def post(self, exchange: int, ready: Sequence[Event]) -> Event:
        """See Transport."""
        return self._exchanges[exchange].post(ready)

    @property
    def streams(self) -> Sequence[Stream]:
        """One for each physical GPU."""
        return tuple(self._streams)

    def close(self) -> None:
        """Closes the streams, then gives NCCL's communicators back; idempotent."""
        for stream in self._streams:
            stream.close()
        self._exchanges = []
        if self._half is not None:
            self._half.close()
            self._half = self._of_worker = None
        while self._own:
            self._own.pop().give_back()
        if self._nccl is not None:
            self._nccl.give_back()
            self._nccl = None


class _GpuExchange:
    """Prepared work of one exchange segment between GPUs."""

    def __init__(
        self,
        crossings: Sequence[DeviceExchange],
        parts: Sequence[Sequence[NcclPart]],
        members: dict[CudaRuntime, list[int]],
        streams: Sequence[GpuStream],
        nccl: NcclCommunicators | None,
        half: HalfExchange | None,
        of_worker: NcclCommunicators | None,
    ):
        """half: of sums of float32 between workers; with `of_worker` between its GPUs, if it has several."""
        self._crossings, self._parts, self._streams, self._nccl = crossings, parts, streams, nccl
        self._of_worker = of_worker
        self._members = [*members.items()]
        self._leaders = [device_indices[0] for device_indices in members.values()]
        self._halves: dict[int, Callable[[], None]] = {}  # by crossing
        for number, crossing in enumerate(crossings):
            first = crossing.vectors[self._leaders[0]]
            if half is not None and crossing.owned is None and first.dtype is float32:
                self._halves[number] = half.prepared(first)
        vectors = [vector for crossing in crossings for vector in crossing.vectors]
        self._accesses: list[Access] = [vector.access for vector in vectors]
        self._adders = [Adder(runtime, s.handle) for runtime, s in zip(members, streams, strict=True)]
        for adder, (leader, *others) in zip(self._adders, members.values(), strict=True):
            for other in others:
                for crossing in crossings:
                    if crossing.owned is None:
                        total, vector = crossing.vectors[leader], crossing.vectors[other]
                        adder.prepare(total.address, vector.address, total.size, total.dtype)

    def post(self, ready: Sequence[Event]) -> Event:
        """See Transport."""
        accesses = self._accesses
        for number, stream in enumerate(self._streams):
            for event in ready:
                stream.wait(event)
            join = partial(self._join, number)
            stream.enqueue(join, label="join virtual GPUs", reads=accesses, writes=accesses)
        if self._nccl is not None:
            self._streams[0].enqueue(self._between, label="NCCL", reads=accesses, writes=accesses)
        for number, stream in enumerate(self._streams):
            stream.enqueue(
                partial(self._copy_to_others, number), label="copy to virtual GPUs", writes=accesses
            )
        first, *others = self._streams
        for other in others:
            first.wait(other.record())
        return first.record()

    def _join(self, number: int) -> None:
        """Sums into the leader of a physical GPU; copies the values of its other devices there."""
        self._adders[number].add()
        leader, *others = self._members[number][1]
        for crossing in self._crossings:
            for owner, elements in crossing.parts():
                if owner in others:
                    self._copy(number, crossing.vectors[leader], crossing.vectors[owner], elements)

    def _between(self) -> None:
        """One NCCL call for each sum, or part that a device owns, on all GPUs' streams together."""
        handles, nccl = [stream.handle for stream in self._streams], self._nccl
        if nccl is None:
            raise InternalError("an exchange between physical GPUs without NCCL")
        for number, (crossing, parts) in enumerate(zip(self._crossings, self._parts, strict=True)):
            column = [crossing.vectors[leader] for leader in self._leaders]
            first = column[0]
            addresses = [vector.address for vector in column]
            if number in self._halves:
                if self._of_worker is not None:
                    self._of_worker.all_reduce(addresses, first.size, first.dtype.name, handles)
                self._halves[number]()
                if self._of_worker is not None:
                    self._of_worker.broadcast(addresses, first.size * first.dtype.size, 0, handles)
            elif crossing.owned is None:
                nccl.all_reduce(addresses, first.size, first.dtype.name, handles)
            for root, begin, count in parts:
                itemsize = first.dtype.size
                addresses = [vector.address + begin * itemsize for vector in column]
                nccl.broadcast(addresses, count * itemsize, root, handles)

    def _copy_to_others(self, number: int) -> None:
        leader, *others = self._members[number][1]
        for other in others:
            for crossing in self._crossings:
                total = crossing.vectors[leader]
                self._copy(number, crossing.vectors[other], total, range(total.size))

    def _copy(self, number: int, target: FlatVector, source: FlatVector, elements: range) -> None:
        """Enqueues a copy of some elements on a physical GPU's stream."""
        begin, itemsize = elements.start * source.dtype.size, source.dtype.size
        self._members[number][0].copy(
            target.address + begin,
            source.address + begin,
            len(elements) * itemsize,
            CopyKind.DEVICE_TO_DEVICE,
            self._streams[number].handle,
        )
