"""Base class of allocators: blocks, frees, statistics, memory map, closing."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import deque
from contextlib import ExitStack
from itertools import count
from typing import TypeAlias

from allocators.deferral import Completion, Guard, WaitingFrees
from allocators.errors import AllocatorError, InvalidFree, InvariantViolation, OutOfMemory
from allocators.granule import format_nbytes, round_down, round_up
from allocators.regions import Allocation, Chunk, PoolRegion, RegionTable
from allocators.reports import ChunkRecord, Holder, Statistics, holders, render_map
from allocators.source import BoundedMemorySource, MemorySource

_Free: TypeAlias = "tuple[Allocation | int, Completion | None]"

_allocation_ids = count(1)


class Allocator(ABC):
    """Hands out blocks of memory from an injected source; subclasses choose the policy.

    It does integer bookkeeping only and never accesses the memory. One allocator serves one stream group, so
    blocks are reused in stream order. Thread-safe by one lock; `free` may even be called by a finaliser that
    runs inside another call.
    """

    def __init__(self, source: MemorySource, *, name: str, limit_nbytes: int | None = None) -> None:
        if limit_nbytes is not None and limit_nbytes < 0:
            raise ValueError(
                f"allocator {name!r}: limit_nbytes must be at least 0 or None, got {limit_nbytes}"
            )
        self.name = name
        self._source = source
        self._bounded_source = source if isinstance(source, BoundedMemorySource) else None
        self._own_limit_nbytes = limit_nbytes
        self._guard: Guard[_Free] = Guard(lambda item: self._free(*item))
        self._regions = RegionTable()
        self._live: dict[int, Chunk] = {}
        self._waiting = WaitingFrees()
        self._discarded: dict[int, int] = {}
        self._closed = False
        self._num_allocations = self._num_frees = 0
        self._in_use_nbytes = self._requested_nbytes = self._waiting_nbytes = 0
        self._peak_nbytes = self._largest_nbytes = 0

    def __repr__(self) -> str:
        in_use, pool = format_nbytes(self._in_use_nbytes), format_nbytes(self._regions.nbytes)
        return f"<{type(self).__name__} {self.name!r}: {in_use} in use of {pool}>"

    # ---- the policy -------------------------------------------------------------------------------------

    @abstractmethod
    def _find(self, nbytes: int) -> Chunk | None:
        """Remove and return a free chunk for `nbytes` (whole granules) of the regions held; None without."""

    @abstractmethod
    def _find_beyond(self, nbytes: int, refusals: list[MemoryError]) -> Chunk | None:
        """Like `_find`, with new memory from the source. Errors of the source are added to `refusals`."""

    @abstractmethod
    def _put_back(self, chunk: Chunk) -> None:
        """Take back a chunk whose allocation has just been removed."""

    @abstractmethod
    def _return_free_regions(self) -> int:
        """Return all wholly free regions to the source; the result is their size in bytes."""

    @abstractmethod
    def _largest_free_nbytes(self) -> int:
        """Size in bytes of the largest free chunk held."""

    @abstractmethod
    def _forget_free_chunks(self) -> None:
        """Drop the index of free chunks, because all regions are returned."""

    @abstractmethod
    def _check_policy(self) -> None:
        """Check the invariants of the subclass, as part of `check_invariants`."""

    # ---- blocks -----------------------------------------------------------------------------------------

    @property
    def limit_nbytes(self) -> int | None:
        """Most bytes to hold: the smaller of the allocator's and the source's limit; None without limits."""
        own = self._own_limit_nbytes
        given = self._bounded_source.limit_nbytes if self._bounded_source is not None else None
        return given if own is None else own if given is None else min(own, given)

    @property
    def closed(self) -> bool:
        """True if `close()` has been called."""
        return self._closed

    def allocate(self, nbytes: int, *, owner: str = "", apart: bool = False) -> Allocation | None:
        """Allocate a block of at least `nbytes` bytes, aligned to 256; None for 0 bytes.

        `owner`: name of the holder in memory maps and out-of-memory errors. `apart`: allocate a region of its
        own, if the source can, so that `trim` can return all of it after the free. Frees whose event is done
        are collected first. Raises `OutOfMemory` if no memory is left, `ValueError` for a negative size,
        `AllocatorError` after `close()`.
        """
        requested = operator.index(nbytes)
        if requested < 0:
            raise ValueError(f"allocator {self.name!r}: nbytes must be at least 0, got {requested}")
        with self._guard:
            if self._closed:
                raise AllocatorError(f"allocator {self.name!r} is closed: nothing can be allocated from it")
            if requested == 0:
                return None
            if self._waiting:
                self._collect()
            rounded = round_up(requested)
            refusals: list[MemoryError] = []
            chunk = self._find_apart(rounded, refusals) if apart else None
            if chunk is None:
                chunk = self._find(rounded)
            if chunk is None:
                chunk = self._find_beyond(rounded, refusals)
                if chunk is None:
                    raise self._out_of_memory(requested, rounded) from (refusals[-1] if refusals else None)
            block = Allocation(next(_allocation_ids), chunk.address, requested, chunk.nbytes, owner)
            chunk.allocation = block
            self._num_allocations += 1
            self._requested_nbytes += requested
            self._in_use_nbytes += chunk.nbytes
            self._peak_nbytes = max(self._peak_nbytes, self._in_use_nbytes)
            self._largest_nbytes = max(self._largest_nbytes, chunk.nbytes)
            self._live[chunk.address] = chunk
            return block

    def free(self, block: Allocation | int | None, *, after: Completion | None = None) -> None:
        """Free a block, given by its allocation or its address; None, the block of 0 bytes, is ignored.

        `after`: event of another stream that still uses the block. The memory is reused only when the event
        is done, which `allocate` and `trim` check. Raises `InvalidFree` for a second free and for anything
        but the start of a block of this allocator. Prefer the allocation: its id detects a second free even
        if the address is in use again.
        """
        if block is None:
            return
        target = block if isinstance(block, Allocation) else operator.index(block)
        if self._guard.postpone((target, after), self._check_postponed):
            return
        with self._guard:
            self._free(target, after)

    def trim(self) -> int:
        """Collect finished frees and return wholly free regions to the source; the result is their bytes."""
        with self._guard:
            self._collect()
            return self._return_free_regions()

    def close(self, *, discard: bool = False) -> None:
        """Return all memory to the source; idempotent.

        Raises `AllocatorError`, without effect, if blocks are in use or wait for an event. `discard` drops
        them instead: the caller has synchronised, so they are unused. Each of them may still be freed once,
        without effect, because finalisers may run late.
        """
        with self._guard:
            if self._closed:
                return
            self._collect()
            if self._in_use_nbytes and not discard:
                held = ", ".join(str(holder) for holder in self._holders()[:5])
                raise AllocatorError(
                    f"allocator {self.name!r} cannot be closed: "
                    f"{format_nbytes(self._in_use_nbytes)} are in use "
                    f"({format_nbytes(self._waiting_nbytes)} of it wait for an event), held by {held}; "
                    "free them, or synchronise and close(discard=True)"
                )
            self._closed = True
            self._discarded = {
                address: chunk.allocation.id
                for address, chunk in self._live.items()
                if chunk.allocation is not None
            }
            self._live.clear()
            self._waiting.clear()
            self._in_use_nbytes = self._requested_nbytes = self._waiting_nbytes = 0
            self._forget_free_chunks()
            self._return_to_source(self._regions.clear())

    def owns(self, address: int) -> bool:
        """True if `address` lies in a region that this allocator holds, in use or free."""
        with self._guard:
            return self._regions.containing(operator.index(address)) is not None

    # ---- reports ----------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Current statistics."""
        with self._guard:
            return self._statistics()

    def memory_map(self) -> list[ChunkRecord]:
        """Every chunk held, by address."""
        with self._guard:
            return self._records()

    def holders(self) -> tuple[Holder, ...]:
        """Owners of memory in use, most bytes first."""
        with self._guard:
            return self._holders()

    def render_map(self) -> str:
        """The memory map as text, see `allocators.reports.render_map`."""
        with self._guard:
            return render_map(self.name, self._statistics(), self._records())

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if the bookkeeping is inconsistent. Visits every chunk."""
        with self._guard:
            self._regions.check()
            chunks = [chunk for region in self._regions for chunk in region.chunks()]
            in_use = {chunk.address: chunk for chunk in chunks if chunk.state == "in use"}
            waiting = {chunk.address: chunk for chunk in chunks if chunk.state == "waiting"}
            if in_use != self._live or any(chunk.waiting for chunk in chunks if chunk.state == "free"):
                raise InvariantViolation(f"allocator {self.name!r}: the live blocks are not those of the map")
            held_back = list(self._waiting.chunks())
            if len(held_back) != len(waiting) or any(waiting.get(c.address) is not c for c in held_back):
                raise InvariantViolation(
                    f"allocator {self.name!r}: the waiting blocks are not those of the map"
                )
            blocks = [chunk.allocation for chunk in chunks if chunk.allocation is not None]
            sums = (
                sum(block.allocated_nbytes for block in blocks),
                sum(block.requested_nbytes for block in blocks),
                sum(chunk.nbytes for chunk in held_back),
            )
            if sums != (self._in_use_nbytes, self._requested_nbytes, self._waiting_nbytes):
                raise InvariantViolation(f"allocator {self.name!r}: the counters are not the map's sums")
            if not self._closed and self._num_allocations - self._num_frees != len(blocks):
                raise InvariantViolation(f"allocator {self.name!r}: blocks were lost or counted twice")
            if self._in_use_nbytes > self._peak_nbytes or len({block.id for block in blocks}) != len(blocks):
                raise InvariantViolation(f"allocator {self.name!r}: the peak or the ids are wrong")
            if self._own_limit_nbytes is not None and self._regions.nbytes > self._own_limit_nbytes:
                raise InvariantViolation(f"allocator {self.name!r} holds more than its limit")
            self._check_policy()

    # ---- inside the lock --------------------------------------------------------------------------------

    def _room_nbytes(self) -> int | None:
        """Bytes that the limit still allows to take from the source, in whole granules; None: unlimited."""
        limit = self.limit_nbytes
        return None if limit is None else max(0, round_down(limit - self._regions.nbytes))

    def _find_apart(self, nbytes: int, refusals: list[MemoryError]) -> Chunk | None:
        """Chunk that is a whole new region; None beyond the limit, or if the source refuses."""
        room = self._room_nbytes()
        if room is not None and room < nbytes:
            return None
        region = self._reserve(nbytes, refusals)
        return None if region is None else region.first

    def _reserve(self, nbytes: int, refusals: list[MemoryError]) -> PoolRegion | None:
        """New region from the source; None if it refuses, with its error added to `refusals`."""
        try:
            address = self._source.allocate(nbytes)
        except MemoryError as refusal:
            refusals.append(refusal)
            return None
        return self._regions.add(operator.index(address), nbytes)

    def _return_to_source(self, regions: list[PoolRegion]) -> None:
        """Return regions; if the source fails on one, the others are returned before its error is raised."""
        with ExitStack() as stack:
            for region in reversed(regions):
                stack.callback(self._source.free, region.address, region.nbytes)

    def _free(self, target: Allocation | int, after: Completion | None) -> None:
        address = target.address if isinstance(target, Allocation) else target
        discarded = self._discarded.get(address)
        if discarded is not None and (not isinstance(target, Allocation) or target.id == discarded):
            del self._discarded[address]
            return
        chunk = self._live_chunk(target)
        event = None if after is None or after.done() else after
        del self._live[address]
        if event is None:
            self._release(chunk)
        else:
            chunk.waiting = True
            self._waiting_nbytes += chunk.nbytes
            self._waiting.add(event, chunk)

    def _release(self, chunk: Chunk) -> None:
        block = chunk.allocation
        if block is None:
            raise InvariantViolation(f"chunk {chunk.address:#x} is free already")
        chunk.allocation = None
        self._num_frees += 1
        self._in_use_nbytes -= chunk.nbytes
        self._requested_nbytes -= block.requested_nbytes
        self._put_back(chunk)

    def _collect(self) -> None:
        for chunk in self._waiting.ready():
            chunk.waiting = False
            self._waiting_nbytes -= chunk.nbytes
            self._release(chunk)

    def _live_chunk(self, target: Allocation | int) -> Chunk:
        """Chunk in use that `target` names. Raises `InvalidFree`, which says what is there instead."""
        address = target.address if isinstance(target, Allocation) else target
        chunk = self._live.get(address)
        if chunk is not None and (
            not isinstance(target, Allocation) or chunk.allocation is target or chunk.allocation == target
        ):
            return chunk
        name = f"{address:#x}"
        if isinstance(target, Allocation):
            name += f" (allocation {target.id}, {target.owner or 'no owner'})"
        raise InvalidFree(f"allocator {self.name!r}: cannot free {name}: {self._regions.describe(address)}")

    def _check_postponed(self, item: _Free, postponed: deque[_Free]) -> None:
        """Raise `InvalidFree` for a postponed free now, in its caller, instead of when it is replayed."""
        target = item[0]
        address = target.address if isinstance(target, Allocation) else target
        if not self._closed:
            self._live_chunk(target)
        for other, _ in postponed:
            if address == (other.address if isinstance(other, Allocation) else other):
                raise InvalidFree(f"allocator {self.name!r}: cannot free {address:#x}: freed before")

    def _statistics(self) -> Statistics:
        return Statistics(
            num_allocations=self._num_allocations,
            num_frees=self._num_frees,
            num_regions=len(self._regions),
            in_use_nbytes=self._in_use_nbytes,
            requested_nbytes=self._requested_nbytes,
            waiting_nbytes=self._waiting_nbytes,
            peak_nbytes=self._peak_nbytes,
            largest_nbytes=self._largest_nbytes,
            limit_nbytes=self.limit_nbytes,
            pool_nbytes=self._regions.nbytes,
            largest_free_nbytes=self._largest_free_nbytes(),
        )

    def _records(self) -> list[ChunkRecord]:
        return [record for region in self._regions for record in region.records()]

    def _holders(self) -> tuple[Holder, ...]:
        return holders(self._records())

    def _out_of_memory(self, requested: int, rounded: int) -> OutOfMemory:
        return OutOfMemory(self.name, requested, rounded, self._statistics(), self._holders())
