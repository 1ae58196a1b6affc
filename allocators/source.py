"""Sources of memory for allocators: the protocol, and a source of virtual addresses."""

from __future__ import annotations

import threading
from typing import Protocol, runtime_checkable

from allocators.errors import InvalidFree, SourceExhausted
from allocators.granule import GRANULE_NBYTES, format_nbytes, round_up


class MemorySource(Protocol):
    """Allocates and frees memory, as addresses and byte counts. Calls may come from any thread."""

    def allocate(self, nbytes: int) -> int:
        """Allocate `nbytes` bytes; returns their address, not null and aligned to 256.

        Raises `SourceExhausted`, or any other `MemoryError`, if there is not enough memory.
        """
        ...

    def free(self, address: int, nbytes: int) -> None:
        """Free the whole block that `allocate(nbytes)` returned at `address`."""
        ...


@runtime_checkable
class BoundedMemorySource(MemorySource, Protocol):
    """A source with a limit on the memory that its user may hold; allocators observe it."""

    @property
    def limit_nbytes(self) -> int | None:
        """Current limit in bytes (it may grow); None if there is none."""
        ...


class VirtualSource:
    """Source of virtual addresses without memory, for tests, the null device and dry runs.

    Addresses are consecutive and never reused, so a stale one is never valid. Thread-safe.
    """

    def __init__(self, limit_nbytes: int | None = None, *, first_address: int = 1 << 40) -> None:
        if limit_nbytes is not None and limit_nbytes < 0:
            raise ValueError(f"limit_nbytes must be at least 0 or None, got {limit_nbytes}")
        if first_address <= 0 or first_address % GRANULE_NBYTES:
            raise ValueError(f"first_address must be a positive multiple of 256, got {first_address:#x}")
        self._limit_nbytes = limit_nbytes
        self._next_address = first_address
        self._given: dict[int, int] = {}
        self._lock = threading.Lock()
        self.held_nbytes = 0
        """Bytes allocated and not yet freed."""
        self.num_allocate_calls = 0
        """Number of calls of `allocate`, refused ones included."""
        self.num_free_calls = 0

    @property
    def limit_nbytes(self) -> int | None:
        """Most bytes that may be allocated at a time; None for no limit."""
        return self._limit_nbytes

    @property
    def blocks(self) -> dict[int, int]:
        """Allocated blocks: address -> bytes (a copy)."""
        with self._lock:
            return dict(self._given)

    def allocate(self, nbytes: int) -> int:
        """Return the next address. Raises `SourceExhausted` beyond the limit, `ValueError` below 1 byte."""
        if nbytes <= 0:
            raise ValueError(f"a source gives at least 1 byte, asked {nbytes}")
        with self._lock:
            self.num_allocate_calls += 1
            if self._limit_nbytes is not None and self.held_nbytes + nbytes > self._limit_nbytes:
                raise SourceExhausted(
                    f"virtual source: asked {format_nbytes(nbytes)}, {format_nbytes(self.held_nbytes)} of "
                    f"{format_nbytes(self._limit_nbytes)} given"
                )
            address = self._next_address
            self._next_address += round_up(nbytes)
            self._given[address] = nbytes
            self.held_nbytes += nbytes
            return address

    def free(self, address: int, nbytes: int) -> None:
        """Free one whole block. Raises `InvalidFree` for any other address or size."""
        with self._lock:
            given = self._given.get(address)
            if given is None:
                raise InvalidFree(f"virtual source: {address:#x} is not the start of anything given now")
            if given != nbytes:
                raise InvalidFree(f"virtual source: {address:#x} was given as {given} bytes, not {nbytes}")
            del self._given[address]
            self.held_nbytes -= nbytes
            self.num_free_calls += 1
