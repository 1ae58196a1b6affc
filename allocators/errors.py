"""Exceptions of the allocators. Layers above translate them into the exceptions of `tensorbow.errors`."""

from __future__ import annotations

from allocators.granule import format_nbytes
from allocators.reports import Holder, Statistics

_HOLDERS_SHOWN = 5


class AllocatorError(Exception):
    """Base class of all errors of this package; raised itself for misuse of an allocator."""


class InvalidFree(AllocatorError, ValueError):  # noqa: N818 - named for what happened
    """A second free, an address that is not the start of a block, or a block of another allocator."""


class SourceExhausted(AllocatorError, MemoryError):  # noqa: N818 - named for what happened
    """A memory source has not enough memory. Allocators then request less, or raise `OutOfMemory`."""


class SourceFault(AllocatorError):  # noqa: N818 - named for what happened
    """A memory source broke its contract: it returned a null, misaligned or already used address."""


class InvariantViolation(AllocatorError):  # noqa: N818 - named for what happened
    """The bookkeeping of an allocator is inconsistent: a bug in this package."""


class OutOfMemory(AllocatorError, MemoryError):  # noqa: N818 - named for what happened
    """An allocator cannot serve a request, even after collecting frees and returning free regions.

    The message has the requested and rounded sizes, the memory in use, the limit, the largest free block, the
    fragmentation, the largest holders and a remedy; so do the attributes (sizes in bytes).
    """

    def __init__(
        self,
        allocator: str,
        asked_nbytes: int,
        rounded_nbytes: int,
        statistics: Statistics,
        holders: tuple[Holder, ...],
    ) -> None:
        super().__init__(allocator, asked_nbytes, rounded_nbytes, statistics, holders)
        self.allocator = allocator
        self.asked_nbytes = asked_nbytes
        self.rounded_nbytes = rounded_nbytes
        self.statistics = statistics
        self.holders = holders
        self.in_use_nbytes = statistics.in_use_nbytes
        self.limit_nbytes = statistics.limit_nbytes
        self.largest_free_nbytes = statistics.largest_free_nbytes
        self.fragmentation = statistics.fragmentation

    @property
    def source_refused(self) -> bool:
        """True if the limit would have allowed the request, so that the source was out of memory."""
        limit = self.statistics.limit_nbytes
        return limit is None or self.statistics.pool_nbytes + self.rounded_nbytes <= limit

    def remedy(self) -> str:
        """Advice, the most specific first."""
        statistics = self.statistics
        advice = []
        if statistics.waiting_nbytes:
            waiting = format_nbytes(statistics.waiting_nbytes)
            advice.append(f"wait for the events of other streams that hold back {waiting} already freed")
        if statistics.free_nbytes >= self.rounded_nbytes:
            advice.append(
                "enough is free but in pieces: allocate large blocks first, or plan them into a slab"
            )
        if self.source_refused:
            advice.append(
                "the device has no more although the limit is not reached: trim() or close its other users"
            )
        else:
            advice.append("raise limit_nbytes or grow the partition")
        advice.append("use a smaller batch_size or fewer replicas per device")
        return "; ".join(advice)

    def __str__(self) -> str:
        held = ", ".join(str(holder) for holder in self.holders[:_HOLDERS_SHOWN]) or "nobody"
        if len(self.holders) > _HOLDERS_SHOWN:
            held += f", and {len(self.holders) - _HOLDERS_SHOWN} more"
        return (
            f"allocator {self.allocator!r} is out of memory: "
            f"asked {format_nbytes(self.asked_nbytes)} ({self.asked_nbytes} bytes), "
            f"rounded {self.rounded_nbytes} bytes, "
            f"in use {format_nbytes(self.in_use_nbytes)}, limit {format_nbytes(self.limit_nbytes)}, "
            f"held from the source {format_nbytes(self.statistics.pool_nbytes)}, "
            f"largest free block {format_nbytes(self.largest_free_nbytes)}, "
            f"fragmentation {self.fragmentation:.2f}. "
            f"Most is held by: {held}. "
            f"What to do: {self.remedy()}."
        )
