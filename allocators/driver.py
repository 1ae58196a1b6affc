"""Allocator that calls the source for every block and reuses nothing, for comparison: `cuda_malloc` mode."""

from __future__ import annotations

from allocators.allocator import Allocator
from allocators.regions import Chunk


class DriverAllocator(Allocator):
    """Allocates every block from the source and returns it to the source when it is freed.

    Frameworks did this before they pooled memory: on a GPU each call is a `cudaMalloc` or a `cudaFree`,
    which waits for the device. Interface, limit, events and errors are those of `BestFitAllocator`, so that
    the two can be exchanged and compared (TensorBow thesis, figure 4.2: a factor of 4). All memory held is in
    use, so nothing is ever free or fragmented.
    """

    def _find(self, nbytes: int) -> Chunk | None:
        return None

    def _find_beyond(self, nbytes: int, refusals: list[MemoryError]) -> Chunk | None:
        return self._find_apart(nbytes, refusals)

    def _put_back(self, chunk: Chunk) -> None:
        self._regions.remove(chunk.region)
        self._return_to_source([chunk.region])

    def _return_free_regions(self) -> int:
        return 0

    def _largest_free_nbytes(self) -> int:
        return 0

    def _forget_free_chunks(self) -> None:
        """No effect: no chunk is ever free here."""

    def _check_policy(self) -> None:
        for region in self._regions:
            region.check(coalesced=False)
