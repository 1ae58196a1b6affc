"""One call of the source per tensor, nothing reused: the `cuda_malloc` mode, to be compared with."""

from __future__ import annotations

from allocators.allocator import Allocator
from allocators.regions import Chunk


class DriverAllocator(Allocator):
    """Asks the source for every block and gives it back when it is freed.

    What frameworks did before they pooled memory: on a GPU each call is a `cudaMalloc` or a `cudaFree`,
    which waits for the device. It has the same interface, limit, events and errors as `BestFitAllocator`,
    so that the two can be exchanged and compared (TensorBow thesis, figure 4.2: a factor of 4). Its pool is
    always what is in use, so nothing is ever free or fragmented.
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
        """Nothing to forget: no chunk is ever free here."""

    def _check_policy(self) -> None:
        for region in self._regions:
            region.check(coalesced=False)
