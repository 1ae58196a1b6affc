"""Best-fit allocator with coalescing, after TensorFlow's `BFCAllocator`; every stream group has one."""

from __future__ import annotations

from allocators.allocator import Allocator
from allocators.bins import FreeBins
from allocators.errors import InvariantViolation
from allocators.granule import GRANULE_NBYTES, MIB, round_down, round_up
from allocators.regions import Chunk, PoolRegion
from allocators.source import MemorySource

FIRST_REGION_NBYTES = 2 * MIB
LARGEST_WASTE_NBYTES = 128 * MIB


class BestFitAllocator(Allocator):
    """Serves requests from chunks of the source's regions, with best fit and coalescing.

    As in TensorFlow's BFC allocator (`tensorflow/core/common_runtime/bfc_allocator`), sizes are rounded up to
    256-byte granules; free chunks are kept in 21 bins of 256 * 2**k bytes; the smallest chunk that fits is
    used, among equals the one with the lowest address; it is split if the rest is at least the request, or
    128 MiB; a freed chunk merges with free neighbours in its region. Every call costs a search by bisection.

    Nothing is held before the first request. With `allow_growth`, regions start at 2 MiB and double, always
    large enough for the request; without, the first request reserves the whole limit in one region. If the
    source refuses a region, smaller ones are requested in steps of a tenth, down to the request itself, and
    the doubling continues from the granted size. Wholly free regions are returned by `trim()`, and before
    `OutOfMemory` is raised if that can help.

    `limit_nbytes` bounds the memory held; a limit of the source applies too. Raises `ValueError` without
    growth and without any limit.
    """

    def __init__(
        self,
        source: MemorySource,
        *,
        name: str,
        limit_nbytes: int | None = None,
        allow_growth: bool = True,
        first_region_nbytes: int = FIRST_REGION_NBYTES,
        largest_waste_nbytes: int = LARGEST_WASTE_NBYTES,
    ) -> None:
        super().__init__(source, name=name, limit_nbytes=limit_nbytes)
        if not allow_growth and self.limit_nbytes is None:
            raise ValueError(
                f"allocator {name!r}: without growth the whole limit is reserved at the first request, "
                "so limit_nbytes, or a source with a limit, is needed"
            )
        if first_region_nbytes <= 0 or largest_waste_nbytes <= 0:
            raise ValueError(
                f"allocator {name!r}: first_region_nbytes and largest_waste_nbytes must be above 0"
            )
        self._allow_growth = allow_growth
        self._first_region_nbytes = round_up(first_region_nbytes)
        self._largest_waste_nbytes = largest_waste_nbytes
        self._next_region_nbytes = self._first_region_nbytes
        self._bins = FreeBins()
        self._free_chunks: dict[int, Chunk] = {}

    def trim(self) -> int:
        """Collect finished frees and return wholly free regions to the source; the result is their bytes.

        The size of the next region is reset to what it would be after the regions that remain.
        """
        with self._guard:
            self._collect()
            returned = self._return_free_regions()
            if returned:
                self._next_region_nbytes = self._first_region_nbytes
                while self._next_region_nbytes <= self._regions.nbytes:
                    self._next_region_nbytes *= 2
            return returned

    # ---- chunks -----------------------------------------------------------------------------------------

    def _find(self, nbytes: int) -> Chunk | None:
        address = self._bins.best_fit(nbytes)
        if address is None:
            return None
        chunk = self._free_chunks[address]
        self._take_out(chunk)
        rest = chunk.nbytes - nbytes
        if rest >= nbytes or rest >= self._largest_waste_nbytes:
            self._put_in(chunk.split(nbytes))
        return chunk

    def _put_back(self, chunk: Chunk) -> None:
        following, previous = chunk.following, chunk.previous
        if following is not None and following.allocation is None:
            self._take_out(following)
            chunk.absorb_following()
        if previous is not None and previous.allocation is None:
            self._take_out(previous)
            previous.absorb_following()
            chunk = previous
        self._put_in(chunk)

    def _put_in(self, chunk: Chunk) -> None:
        self._free_chunks[chunk.address] = chunk
        self._bins.insert(chunk.nbytes, chunk.address)

    def _take_out(self, chunk: Chunk) -> None:
        del self._free_chunks[chunk.address]
        self._bins.remove(chunk.nbytes, chunk.address)

    # ---- regions ----------------------------------------------------------------------------------------

    def _find_beyond(self, nbytes: int, refusals: list[MemoryError]) -> Chunk | None:
        if self._extend(nbytes, refusals):
            return self._find(nbytes)
        room = self._room_nbytes()
        idle = sum(region.nbytes for region in self._regions if region.wholly_free)
        if idle and (room is None or idle + room >= nbytes):
            self._return_free_regions()
            if self._extend(nbytes, refusals):
                return self._find(nbytes)
        return None

    def _extend(self, nbytes: int, refusals: list[MemoryError]) -> bool:
        """Add a region with at least `nbytes`, as large as growth, limit and source allow."""
        room = self._room_nbytes()
        if room is not None and room < nbytes:
            return False
        if room is not None and not self._allow_growth:
            wanted = size = room
        else:
            wanted = self._next_region_nbytes
            while wanted < nbytes:
                wanted *= 2
            size = wanted if room is None else min(wanted, room)
        region = self._reserve(size, refusals)
        refused = region is None
        while region is None and size > nbytes:
            size = max(nbytes, round_down(size * 9 // 10))
            region = self._reserve(size, refusals)
        if region is None:
            return False
        if self._allow_growth:
            if refused:
                self._next_region_nbytes = max(size, self._first_region_nbytes)
            else:
                self._next_region_nbytes = wanted * 2 if wanted == self._next_region_nbytes else wanted
        self._put_in(region.first)
        return True

    def _return_free_regions(self) -> int:
        idle: list[PoolRegion] = [region for region in self._regions if region.wholly_free]
        for region in idle:
            self._take_out(region.first)
            self._regions.remove(region)
        self._return_to_source(idle)
        return sum(region.nbytes for region in idle)

    def _forget_free_chunks(self) -> None:
        self._bins = FreeBins()
        self._free_chunks.clear()

    # ---- reports ----------------------------------------------------------------------------------------

    def _largest_free_nbytes(self) -> int:
        return self._bins.largest_nbytes()

    def _check_policy(self) -> None:
        chunks = [chunk for region in self._regions for chunk in region.chunks()]
        free = {chunk.address: chunk for chunk in chunks if chunk.state == "free"}
        if free != self._free_chunks:
            raise InvariantViolation(f"allocator {self.name!r}: the free chunks are not those of the map")
        self._bins.check({(chunk.nbytes, chunk.address) for chunk in free.values()})
        for region in self._regions:
            region.check()
        if self._next_region_nbytes % GRANULE_NBYTES:
            raise InvariantViolation(
                f"allocator {self.name!r}: the next region is no whole number of granules"
            )
