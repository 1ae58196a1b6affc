"""Sums of float32 over the first GPUs of all workers, of which 16 bits of each element cross, by NCCL.

Bit for bit those of MPI's way (`MpiWorkers.all_sum` of halves): each worker gives the upper half of its sum,
and the halves are added in float32 in the order of the workers. Everything is enqueued on one stream.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from scheduler.averaging.transport import FlatVector
from scheduler.workers.mpi import MOST_GATHERED
from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.devices.nccl import NcclCommunicators, NcclRanks
from tensorbow.kernels.gpu.runtime.sums import Halves

CHUNK = 1 << 20  # elements that cross at a time
HALF, WHOLE = 2, 4  # bytes


class HalfExchange:
    """Sums over workers, each of which has one GPU here: up to three workers send all elements to all; of
    more each adds up one part of the elements, and sends its sums in full.
    """

    def __init__(self, runtime: CudaRuntime, stream: int, nccl: NcclCommunicators, ranks: NcclRanks):
        """stream: a CUDA stream of the GPU. nccl, ranks: of the workers, one rank here."""
        self._runtime, self._stream, self._nccl = runtime, stream, nccl
        self._rank, self._workers = ranks.first, ranks.total
        self._halves = Halves(runtime, stream)
        self._blocks: list[int] = []  # memory for what crosses
        self._own = self._every = self._sums = 0

    def prepared(self, vector: FlatVector) -> Callable[[], None]:
        """Call that enqueues the sum of a float32 vector of the GPU, in place."""
        if not self._blocks:
            padded = -(-CHUNK // self._workers) * self._workers
            self._own = self._allocated(padded * HALF)
            self._every = self._allocated(padded * (1 if self._parts else self._workers) * HALF)
            self._sums = self._allocated(padded * WHOLE) if self._parts else 0
        calls: list[Callable[[], object]] = []
        for start in range(0, vector.size, CHUNK):
            count = min(CHUNK, vector.size - start)
            calls += self._calls(vector.address + start * WHOLE, count)
        return partial(_call_all, calls)

    def _allocated(self, nbytes: int) -> int:
        self._runtime.make_current()
        self._blocks.append(self._runtime.allocate(nbytes))
        return self._blocks[-1]

    @property
    def _parts(self) -> bool:
        """True if each worker adds up a part of the elements."""
        return self._workers > MOST_GATHERED

    def _calls(self, address: int, count: int) -> list[Callable[[], object]]:
        nccl, halves, streams = self._nccl, self._halves, [self._stream]
        part = -(-count // self._workers)
        padded = part * self._workers
        narrow = halves.narrow(self._own, address, count, padded)
        if not self._parts:
            return [
                narrow,
                partial(nccl.all_gather, [self._own], [self._every], padded * HALF, streams),
                halves.add(address, self._every, count, padded, self._workers),
            ]
        own_sums = self._sums + self._rank * part * WHOLE  # where all-gather in place expects them
        return [
            narrow,
            partial(nccl.all_to_all, [self._own], [self._every], part * HALF, streams),
            halves.add(own_sums, self._every, part, part, self._workers),
            partial(nccl.all_gather, [own_sums], [self._sums], part * WHOLE, streams),
            halves.copy(address, self._sums, count),
        ]

    def close(self) -> None:
        """Gives the memory back, when nothing is enqueued; idempotent."""
        while self._blocks:
            self._runtime.free(self._blocks.pop())


def _call_all(calls: list[Callable[[], object]]) -> None:
    for call in calls:
        call()
