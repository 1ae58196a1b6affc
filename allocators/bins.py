"""Free chunks of a best-fit allocator, in TensorFlow's 21 bins of 256 * 2**k bytes."""

from __future__ import annotations

from bisect import bisect_left, insort

from allocators.errors import InvariantViolation
from allocators.granule import GRANULE_NBYTES

NUM_BINS = 21
_GRANULE_BITS = GRANULE_NBYTES.bit_length() - 1


def bin_index(nbytes: int) -> int:
    """Bin of a chunk of `nbytes`: the greatest k in 0..20 with 256 * 2**k <= nbytes.

    Bin k has sizes in [256 * 2**k, 256 * 2**(k+1)); the last bin all sizes from 256 MiB.
    """
    return min(NUM_BINS - 1, max(0, (nbytes >> _GRANULE_BITS).bit_length() - 1))


class FreeBins:
    """Free chunks as (nbytes, address) pairs; each bin is sorted by size, then address.

    A bit mask of the non-empty bins lets a search skip empty ones. Not thread-safe: the allocator's lock
    protects it.
    """

    __slots__ = ("_bins", "_occupied")

    def __init__(self) -> None:
        self._bins: list[list[tuple[int, int]]] = [[] for _ in range(NUM_BINS)]
        self._occupied = 0

    def insert(self, nbytes: int, address: int) -> None:
        """Add a free chunk."""
        index = bin_index(nbytes)
        insort(self._bins[index], (nbytes, address))
        self._occupied |= 1 << index

    def remove(self, nbytes: int, address: int) -> None:
        """Remove a free chunk. Raises `InvariantViolation` if it is missing."""
        index = bin_index(nbytes)
        chunks = self._bins[index]
        position = bisect_left(chunks, (nbytes, address))
        if position == len(chunks) or chunks[position] != (nbytes, address):
            raise InvariantViolation(f"free chunk {address:#x} of {nbytes} bytes is missing in bin {index}")
        del chunks[position]
        if not chunks:
            self._occupied &= ~(1 << index)

    def best_fit(self, nbytes: int) -> int | None:
        """Address of the smallest free chunk of at least `nbytes`, among equals the lowest; or None."""
        index = bin_index(nbytes)
        chunks = self._bins[index]
        position = bisect_left(chunks, (nbytes, 0))
        if position < len(chunks):
            return chunks[position][1]
        larger = self._occupied >> (index + 1)
        if not larger:
            return None
        lowest = (larger & -larger).bit_length() - 1
        return self._bins[index + 1 + lowest][0][1]

    def largest_nbytes(self) -> int:
        """Size of the largest free chunk in bytes; 0 if nothing is free."""
        return self._bins[self._occupied.bit_length() - 1][-1][0] if self._occupied else 0

    def check(self, free: set[tuple[int, int]]) -> None:
        """Raise `InvariantViolation` unless the bins have exactly the chunks in `free`, each in its bin."""
        found = [chunk for chunks in self._bins for chunk in chunks]
        if len(found) != len(free) or set(found) != free:
            raise InvariantViolation("the bins hold other chunks than those that are free")
        for index, chunks in enumerate(self._bins):
            if chunks != sorted(chunks):
                raise InvariantViolation(f"bin {index} is not sorted by size and address")
            if any(bin_index(nbytes) != index for nbytes, _ in chunks):
                raise InvariantViolation(f"bin {index} holds a chunk of another bin's size")
            if bool(self._occupied >> index & 1) != bool(chunks):
                raise InvariantViolation(f"the bit of bin {index} is wrong")
