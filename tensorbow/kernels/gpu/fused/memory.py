"""Memory of the replicas of a device: where the others have what lies at an address of replica 0."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allocators import Allocation
from tensorbow.devices import StreamGroup
from tensorbow.errors import InternalError, UnimplementedError
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.program.plan import Region
from tensorbow.specs import Array

ALIGNMENT = 16  # of the widest access that kernels choose by the addresses of replica 0
ALL = 0  # number of the region that stands for memory shared by all replicas


@dataclass(frozen=True)
class _Span:
    start: int
    end: int
    number: int


class ReplicaMemory:
    """Addresses of all replicas by those of replica 0. Holds tables in device memory; close it.

    Memory beside the regions that all replicas use lies [replicas, bytes] in blocks from `workspace`.
    """

    def __init__(
        self, group: StreamGroup, bases: Sequence[Mapping[Region, int]], nbytes: Mapping[Region, int]
    ):
        """bases: base addresses by replica. nbytes: what is used of each region.

        Raises UnimplementedError for regions that lie differently aligned, or in one another.
        """
        self.replicas = len(bases)
        self._group = group
        self._blocks: list[Allocation] = []
        self._spans: list[_Span] = []
        self._moves: list[tuple[int, ...]] = [(0,) * self.replicas]  # by region's number, then replica
        self._table: DeviceArray | None = None
        for region, size in nbytes.items():
            if size:
                self.add([each[region] for each in bases], size, region.name)

    def add(self, addresses: Sequence[int], nbytes: int, name: str) -> None:
        """Adds a region that lies at an address for each replica; see the constructor."""
        start, moves = addresses[0], tuple(each - addresses[0] for each in addresses)
        if any(move % ALIGNMENT for move in moves):
            raise UnimplementedError(
                f"{name} of the replicas: expected addresses that differ by multiples of {ALIGNMENT} bytes"
            )
        if moves not in self._moves:
            self._moves.append(moves)
        span = _Span(start, start + nbytes, self._moves.index(moves))
        for other in self._spans:
            if span.start < other.end and other.start < span.end and span.number != other.number:
                raise UnimplementedError(f"{name} of a replica lies in another of its regions")
        bisect.insort(self._spans, span, key=lambda each: each.start)

    def region(self, array: DeviceArray) -> int:
        """Number of the region in which an array of replica 0 lies; ALL for one without elements.

        Raises UnimplementedError for memory that is in no region.
        """
        if not array.nbytes:
            return ALL
        place = bisect.bisect_right(self._spans, array.address, key=lambda span: span.start)
        for span in reversed(self._spans[:place]):
            if array.address + array.nbytes <= span.end:
                return span.number
        raise UnimplementedError(
            f"an array of {array.nbytes} bytes at {array.address:#x} lies in no region of the replicas"
        )

    def moves(self, array: DeviceArray) -> tuple[int, ...]:
        """Distance in bytes of each replica's array from that of replica 0."""
        return self._moves[self.region(array)]

    def points_into(self, value: int) -> bool:
        """True for a number that is an address of replica 0."""
        return any(span.start <= value < span.end for span in self._spans)

    def workspace(self, nbytes: int, owner: str) -> DeviceArray:
        """New uint8 memory of so many bytes for each replica; that of replica 0."""
        stride = -(-max(nbytes, 1) // 256) * 256
        address = self._allocate(stride * self.replicas, owner)
        self.add([address + stride * n for n in range(self.replicas)], nbytes, owner)
        return DeviceArray(address, (nbytes,), np.dtype(np.uint8))

    def table(self, values: Array, owner: str) -> DeviceArray:
        """Numbers in device memory."""
        address = self._allocate(values.nbytes, owner)
        self._group.device.write(address, values)
        return DeviceArray(address, values.shape, values.dtype)

    @property
    def distances(self) -> DeviceArray:
        """All moves, int64 [replicas, regions]; no region can be added afterwards that is in it."""
        if self._table is None or self._table.shape[1] < len(self._moves):
            self._table = self.table(np.array(self._moves, np.int64).T.copy(), "moves of fused replicas")
        return self._table

    def _allocate(self, nbytes: int, owner: str) -> int:
        block = self._group.allocate(nbytes, owner=owner)
        if block is None:
            raise InternalError(f"{owner}: no memory for {nbytes} bytes")
        self._blocks.append(block)
        return block.address

    def close(self) -> None:
        """Gives the memory back, while nothing uses it; idempotent."""
        blocks, self._blocks = self._blocks, []
        for block in blocks if not self._group.allocator.closed else ():
            self._group.allocator.free(block)
