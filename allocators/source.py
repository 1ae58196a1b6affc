"""Where allocators get memory from: the protocol of a source, and a source of made-up addresses."""

from __future__ import annotations

import threading
from typing import Protocol, runtime_checkable

from allocators.errors import InvalidFree, SourceExhausted
from allocators.granule import GRANULE_NBYTES, format_nbytes, round_up


class MemorySource(Protocol):
    """Gives and takes back memory as addresses and byte counts. Calls may come from any thread."""

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` new bytes, not null, aligned to 256.

        Raises `SourceExhausted`, or any other `MemoryError`, when it cannot.
        """
        ...

    def free(self, address: int, nbytes: int) -> None:
        """Take back what `allocate(nbytes)` gave at `address`, whole."""
        ...


@runtime_checkable
class BoundedMemorySource(MemorySource, Protocol):
    """A source that knows how much one user may hold of it at most; allocators adopt this bound."""

    @property
    def limit_nbytes(self) -> int | None:
        """The bound in bytes now (it may grow); None when there is none."""
        ...


class VirtualSource:
    """Addresses without memory behind them: for tests, the null device and dry runs.

    Addresses follow one another without gaps and are never given twice, so a stale one never looks valid.
    Thread-safe. It checks its own misuse: taking back what it did not give raises `InvalidFree`.
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
        """Bytes given and not yet taken back."""
        self.num_allocate_calls = 0
        """Calls of `allocate`, refused ones too: what a driver would have been bothered with."""
        self.num_free_calls = 0

    @property
    def limit_nbytes(self) -> int | None:
        """Most bytes it gives at a time; None for no limit."""
        return self._limit_nbytes

    @property
    def blocks(self) -> dict[int, int]:
        """What is given now: address -> bytes (a copy)."""
        with self._lock:
            return dict(self._given)

    def allocate(self, nbytes: int) -> int:
        """The next addresses. Raises `SourceExhausted` beyond the limit, `ValueError` for no bytes."""
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
        """Take one block back, whole. Raises `InvalidFree` for any other address or size."""
        with self._lock:
            given = self._given.get(address)
            if given is None:
                raise InvalidFree(f"virtual source: {address:#x} is not the start of anything given now")
            if given != nbytes:
                raise InvalidFree(f"virtual source: {address:#x} was given as {given} bytes, not {nbytes}")
            del self._given[address]
            self.held_nbytes -= nbytes
            self.num_free_calls += 1
