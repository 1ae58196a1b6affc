"""Reports of an allocator: statistics, memory by owner, the memory map as data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from allocators.granule import format_nbytes

ChunkState = Literal["in use", "waiting", "free"]

_BAR_CELLS = 64
_BAR_MARKS: dict[ChunkState, str] = {"in use": "#", "waiting": "~", "free": "."}


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of an allocator at one instant, after TensorFlow's `AllocatorStats`.

    Every `_nbytes` is in bytes. Blocks whose free waits for an event count as in use: they cannot be reused
    yet.
    """

    num_allocations: int
    """Blocks handed out since the start."""
    num_frees: int
    """Blocks freed since the start, without those that still wait for an event."""
    num_regions: int
    """Regions held from the source now."""
    in_use_nbytes: int
    """Sum of the allocated (not the requested) sizes of all blocks in use or waiting."""
    requested_nbytes: int
    """Sum of the requested sizes of the same blocks: the rest of `in_use_nbytes` is rounding."""
    waiting_nbytes: int
    """Part of `in_use_nbytes` whose free waits for an event."""
    peak_nbytes: int
    """Highest `in_use_nbytes` since the start."""
    largest_nbytes: int
    """Allocated size of the largest block ever handed out."""
    limit_nbytes: int | None
    """Bound on `pool_nbytes`; None when neither the allocator nor its source has one."""
    pool_nbytes: int
    """Memory held from the source, in use or free."""
    largest_free_nbytes: int
    """Largest block that can be handed out without asking the source."""

    @property
    def free_nbytes(self) -> int:
        """Bytes held from the source that are free."""
        return self.pool_nbytes - self.in_use_nbytes

    @property
    def fragmentation(self) -> float:
        """(free - largest free block) / free, in 0..1: 0 if the free memory is one block, or none is free."""
        free = self.free_nbytes
        return (free - self.largest_free_nbytes) / free if free else 0.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Memory of one owner: allocated bytes and number of blocks."""

    owner: str
    nbytes: int
    num_blocks: int

    def __str__(self) -> str:
        blocks = "block" if self.num_blocks == 1 else "blocks"
        return f"{self.owner or '(no owner)'} {format_nbytes(self.nbytes)} in {self.num_blocks} {blocks}"


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """One chunk of the memory map; sizes in bytes. The last three fields are unset for a free chunk."""

    region_address: int
    region_nbytes: int
    address: int
    nbytes: int
    state: ChunkState
    allocation_id: int | None = None
    requested_nbytes: int = 0
    owner: str = ""


def holders(records: Iterable[ChunkRecord]) -> tuple[Holder, ...]:
    """Memory in use by owner: most bytes first, then by name."""
    totals: dict[str, tuple[int, int]] = {}
    for record in records:
        if record.state != "free":
            nbytes, blocks = totals.get(record.owner, (0, 0))
            totals[record.owner] = (nbytes + record.nbytes, blocks + 1)
    found = [Holder(owner, nbytes, blocks) for owner, (nbytes, blocks) in totals.items()]
    return tuple(sorted(found, key=lambda holder: (-holder.nbytes, holder.owner)))


def render_map(name: str, statistics: Statistics, records: Sequence[ChunkRecord]) -> str:
    """Memory map as text: a header line, then for each region a bar and its chunks by address.

    In the bar `#` is in use, `~` waits for an event, `.` is free; a cell shows the state of most of it.
    """
    lines = [
        f"{name}: {format_nbytes(statistics.in_use_nbytes)} in use of {format_nbytes(statistics.pool_nbytes)}"
        f" held in {statistics.num_regions} regions (limit {format_nbytes(statistics.limit_nbytes)}),"
        f" peak {format_nbytes(statistics.peak_nbytes)}, waiting {format_nbytes(statistics.waiting_nbytes)},"
        f" largest free block {format_nbytes(statistics.largest_free_nbytes)},"
        f" fragmentation {statistics.fragmentation:.2f}"
    ]
    for address, group in groupby(records, key=lambda record: record.region_address):
        chunks = list(group)
        lines.append(f"region {address:#x}  {format_nbytes(chunks[0].region_nbytes)}  [{_bar(chunks)}]")
        lines.extend(_chunk_line(chunk) for chunk in chunks)
    return "\n".join(lines)


def _chunk_line(chunk: ChunkRecord) -> str:
    line = f"  {chunk.address:#x}  {chunk.nbytes:>12} B  {chunk.state}"
    if chunk.allocation_id is None:
        return line
    owner = chunk.owner or "(no owner)"
    return f"{line:<44}  id {chunk.allocation_id}  {owner}  ({chunk.requested_nbytes} B requested)"


def _bar(chunks: Sequence[ChunkRecord]) -> str:
    """Bar of one region's chunks; ties go to `in use`, then `waiting`."""
    start, length = chunks[0].region_address, chunks[0].region_nbytes
    filled: list[dict[ChunkState, float]] = [dict.fromkeys(_BAR_MARKS, 0.0) for _ in range(_BAR_CELLS)]
    for chunk in chunks:
        left = (chunk.address - start) * _BAR_CELLS / length
        right = left + chunk.nbytes * _BAR_CELLS / length
        for cell in range(int(left), min(_BAR_CELLS, int(right) + 1)):
            filled[cell][chunk.state] += max(0.0, min(right, cell + 1) - max(left, cell))
    return "".join(_BAR_MARKS[max(cell, key=lambda state: cell[state])] for cell in filled)
