"""Device and pinned memory of the emulated runtime: host memory full of NaN, between guards."""

from __future__ import annotations

import bisect
import ctypes
import threading
from collections import deque
from dataclasses import dataclass

import numpy as np

from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import ResourceExhaustedError
from tests.gpu_rig.garbage import COLLECTOR

POISON = 0xFF
GUARD = 256
QUARANTINED_NBYTES = 64 << 20


@dataclass(frozen=True)
class Block:
    """Allocated memory with its guards."""

    address: int
    nbytes: int
    pinned: bool
    owner: object
    whole: np.ndarray

    @property
    def end(self) -> int:
        return self.address + self.nbytes

    def damaged(self) -> bool:
        """True if memory before or after the block was overwritten."""
        start = self.address - self.whole.ctypes.data
        before, behind = self.whole[:start], self.whole[start + self.nbytes :]
        return bool((before != POISON).any() or (behind != POISON).any())


class Memory:
    """All blocks of one process: addresses are unique among the runtimes, as with unified addressing.

    Freed blocks are kept for a while and filled with NaN, so that a late read finds NaN and no address is
    reused.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, Block] = {}
        self._starts: list[int] = []
        self._freed: deque[Block] = deque()
        self._freed_nbytes = 0

    def allocate(self, nbytes: int, owner: object, pinned: bool, limit: int | None = None) -> int:
        """Allocates memory aligned to 256 bytes. limit: of all bytes of the owner's blocks of this kind."""
        if nbytes <= 0:
            raise CudaError(f"allocate: {nbytes} bytes", "cudaErrorInvalidValue")
        with COLLECTOR, self._lock:
            used = sum(b.nbytes for b in self._blocks.values() if b.owner is owner and b.pinned == pinned)
            if limit is not None and used + nbytes > limit:
                raise ResourceExhaustedError(
                    f"cudaMalloc: {nbytes} bytes asked, {limit - used} of {limit} free "
                    "(cudaErrorMemoryAllocation)"
                )
            whole = np.full(nbytes + 3 * GUARD, POISON, np.uint8)
            address = -(-(whole.ctypes.data + GUARD) // GUARD) * GUARD
            self._blocks[address] = Block(address, nbytes, pinned, owner, whole)
            bisect.insort(self._starts, address)
            return address

    def free(self, address: int, owner: object, pinned: bool) -> None:
        """Frees a block. Raises CudaError if it is not allocated, or was written outside its bounds."""
        with COLLECTOR, self._lock:
            block = self._blocks.get(address)
            if block is None or block.pinned != pinned or block.owner is not owner:
                kind = "pinned" if pinned else "device"
                raise CudaError(
                    f"free: {address:#x} is no {kind} memory of this GPU", "cudaErrorInvalidValue"
                )
            del self._blocks[address]
            self._starts.remove(address)
            damaged = block.damaged()
            block.whole[...] = POISON
            self._freed.append(block)
            self._freed_nbytes += block.nbytes
            while self._freed_nbytes > QUARANTINED_NBYTES:
                self._freed_nbytes -= self._freed.popleft().nbytes
        if damaged:
            raise CudaError(
                f"memory outside the block of {block.nbytes} bytes at {address:#x} was written",
                "cudaErrorIllegalAddress",
                sticky=True,
            )

    def block_of(self, address: int) -> Block | None:
        """Block of an address; the address after the last byte counts, for arrays without elements."""
        with COLLECTOR, self._lock:
            at = bisect.bisect_right(self._starts, address) - 1
            if at < 0:
                return None
            block = self._blocks[self._starts[at]]
            return block if address <= block.end else None

    def check(self, address: int, nbytes: int, what: str, pinned: bool | None, owner: object = None) -> None:
        """Raises CudaError unless the range lies in one block.

        pinned: kind of memory, None for either; owner: the GPU that it must be of, None for any.
        """
        block = self.block_of(address)
        kind = {True: "pinned host memory", False: "device memory", None: "memory"}[pinned]
        if block is None or (pinned is not None and block.pinned != pinned):
            raise CudaError(f"{what}: {address:#x} is not in allocated {kind}", "cudaErrorInvalidValue")
        if owner is not None and block.owner is not owner:
            raise CudaError(f"{what}: {address:#x} is of another GPU", "cudaErrorInvalidValue")
        if address + nbytes > block.end:
            raise CudaError(
                f"{what}: {nbytes} bytes at {address:#x} leave the block of {block.nbytes} bytes at "
                f"{block.address:#x}",
                "cudaErrorInvalidValue",
            )

    def damaged(self, owner: object) -> list[Block]:
        """Blocks of an owner whose guards were overwritten."""
        with COLLECTOR, self._lock:
            mine = [b for b in self._blocks.values() if b.owner is owner]
        return [b for b in mine if b.damaged()]

    def live(self, owner: object, pinned: bool) -> list[Block]:
        """Blocks that an owner has not freed."""
        with COLLECTOR, self._lock:
            return [b for b in self._blocks.values() if b.owner is owner and b.pinned == pinned]

    def release(self, owner: object) -> None:
        """Forgets all of an owner's blocks."""
        with COLLECTOR, self._lock:
            self._blocks = {a: b for a, b in self._blocks.items() if b.owner is not owner}
            self._starts = sorted(self._blocks)


MEMORY = Memory()


def host_array(address: int, nbytes: int) -> np.ndarray:
    """View of the bytes at an address."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), np.uint8)
