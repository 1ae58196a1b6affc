"""Division of a device's memory: a partition for each stream group, and one for the device's own use."""

from __future__ import annotations

import threading

from allocators.errors import AllocatorError, InvalidFree, SourceExhausted
from allocators.granule import format_nbytes
from allocators.source import MemorySource


class PartitionedMemory:
    """Divides a source among named partitions; each is a source itself, for one allocator.

    The limits of the partitions may add up to more than the device has. The memory they hold may not: the sum
    over partitions of max(held, guaranteed) stays within `limit_nbytes`. Thread-safe; the lock is not held
    during calls of the source.
    """

    def __init__(self, source: MemorySource, limit_nbytes: int) -> None:
        if limit_nbytes < 0:
            raise ValueError(f"limit_nbytes must be at least 0, got {limit_nbytes}")
        self.limit_nbytes = limit_nbytes
        """Most bytes that all partitions together may hold."""
        self._source = source
        self._lock = threading.RLock()
        self._partitions: dict[str, Partition] = {}

    @property
    def partitions(self) -> dict[str, Partition]:
        """The partitions by name, in the order of their creation (a copy)."""
        with self._lock:
            return dict(self._partitions)

    @property
    def held_nbytes(self) -> int:
        """Bytes that all partitions hold together."""
        with self._lock:
            return sum(partition._held_nbytes for partition in self._partitions.values())

    def partition(
        self, name: str, limit_nbytes: int | None = None, *, guaranteed_nbytes: int = 0
    ) -> Partition:
        """Create a partition of at most `limit_nbytes` (None: the device's limit).

        `guaranteed_nbytes` are reserved for it at once; other partitions cannot take them. Raises
        `ValueError` for an existing name, inconsistent sizes, and a guarantee larger than what is left.
        """
        limit = self.limit_nbytes if limit_nbytes is None else limit_nbytes
        if not 0 <= guaranteed_nbytes <= limit <= self.limit_nbytes:
            raise ValueError(
                f"partition {name!r}: expected 0 <= guaranteed_nbytes <= limit_nbytes <= the device's "
                f"{self.limit_nbytes}, got guaranteed_nbytes={guaranteed_nbytes}, limit_nbytes={limit}"
            )
        with self._lock:
            if name in self._partitions:
                raise ValueError(f"partition {name!r} exists already")
            available = self.limit_nbytes - self._spoken_for()
            if guaranteed_nbytes > available:
                raise ValueError(
                    f"partition {name!r}: {format_nbytes(guaranteed_nbytes)} cannot be guaranteed, "
                    f"{format_nbytes(available)} of {format_nbytes(self.limit_nbytes)} are left"
                )
            made = Partition(self, name, limit, guaranteed_nbytes)
            self._partitions[name] = made
            return made

    def _spoken_for(self, but: Partition | None = None) -> int:
        """Bytes held by or guaranteed to all partitions except `but`."""
        return sum(
            max(partition._held_nbytes, partition.guaranteed_nbytes)
            for partition in self._partitions.values()
            if partition is not but
        )


class Partition:
    """A share of a device's memory with a limit that can grow. It is a `BoundedMemorySource`."""

    def __init__(
        self, memory: PartitionedMemory, name: str, limit_nbytes: int, guaranteed_nbytes: int
    ) -> None:
        self.name = name
        self.guaranteed_nbytes = guaranteed_nbytes
        """Bytes that no other partition can take."""
        self._memory = memory
        self._limit_nbytes = limit_nbytes
        self._held_nbytes = 0
        self._given: dict[int, int] = {}
        self._closed = False

    def __repr__(self) -> str:
        held, limit = format_nbytes(self._held_nbytes), format_nbytes(self._limit_nbytes)
        return f"<Partition {self.name!r}: {held} held, limit {limit}>"

    @property
    def limit_nbytes(self) -> int:
        """Most bytes that the partition may hold."""
        return self._limit_nbytes

    @property
    def held_nbytes(self) -> int:
        """Bytes that the partition holds."""
        return self._held_nbytes

    @property
    def available_nbytes(self) -> int:
        """Bytes that it could still take, within its limit and what the other partitions leave."""
        with self._memory._lock:
            left = self._memory.limit_nbytes - self._memory._spoken_for(but=self) - self._held_nbytes
            return max(0, min(self._limit_nbytes - self._held_nbytes, left))

    def grow(self, nbytes: int) -> int:
        """Raise the limit by `nbytes`; returns the new one. Raises `ValueError` beyond the device's limit."""
        if nbytes < 0:
            raise ValueError(f"partition {self.name!r} can only grow, got {nbytes} bytes")
        with self._memory._lock:
            if self._limit_nbytes + nbytes > self._memory.limit_nbytes:
                raise ValueError(
                    f"partition {self.name!r} cannot grow from {format_nbytes(self._limit_nbytes)} by "
                    f"{format_nbytes(nbytes)}: "
                    f"the device's limit is {format_nbytes(self._memory.limit_nbytes)}"
                )
            self._limit_nbytes += nbytes
            return self._limit_nbytes

    def allocate(self, nbytes: int) -> int:
        """Allocate memory from the device's source, see `MemorySource.allocate`.

        Raises `SourceExhausted` beyond the partition's limit or what the other partitions leave, any
        `MemoryError` of the source, and `AllocatorError` after `close`.
        """
        if nbytes <= 0:
            raise ValueError(f"partition {self.name!r}: a source gives at least 1 byte, asked {nbytes}")
        with self._memory._lock:
            if self._closed:
                raise AllocatorError(f"partition {self.name!r} is closed")
            if self._held_nbytes + nbytes > self._limit_nbytes:
                raise SourceExhausted(
                    f"partition {self.name!r}: asked {format_nbytes(nbytes)}, "
                    f"holds {format_nbytes(self._held_nbytes)} of its limit "
                    f"{format_nbytes(self._limit_nbytes)}; grow it"
                )
            if nbytes > self.available_nbytes:
                others = self._memory._spoken_for(but=self)
                raise SourceExhausted(
                    f"partition {self.name!r}: asked {format_nbytes(nbytes)}, within its limit, but of the "
                    f"device's {format_nbytes(self._memory.limit_nbytes)} the other partitions hold or are "
                    f"guaranteed {format_nbytes(others)}; trim() their allocators"
                )
            self._held_nbytes += nbytes
        try:
            address = self._memory._source.allocate(nbytes)
        except BaseException:
            with self._memory._lock:
                self._held_nbytes -= nbytes
            raise
        with self._memory._lock:
            self._given[address] = nbytes
        return address

    def free(self, address: int, nbytes: int) -> None:
        """Return memory to the source. Raises `InvalidFree` for an address or size it has not allocated.

        If the source fails, the bytes still count as held, so that no other partition takes them.
        """
        with self._memory._lock:
            given = self._given.get(address)
            if given != nbytes:
                was = "it has not given that" if given is None else f"it was given as {given} bytes"
                raise InvalidFree(
                    f"partition {self.name!r}: cannot free {nbytes} bytes at {address:#x}: {was}"
                )
            del self._given[address]
        self._memory._source.free(address, nbytes)
        with self._memory._lock:
            self._held_nbytes -= nbytes

    def close(self) -> None:
        """Give up name and guarantee; idempotent. Raises `AllocatorError` while it holds memory."""
        with self._memory._lock:
            if self._held_nbytes:
                raise AllocatorError(
                    f"partition {self.name!r} still holds {format_nbytes(self._held_nbytes)}: "
                    "close its allocator first"
                )
            if not self._closed:
                self._closed = True
                del self._memory._partitions[self.name]
