"""Choice and schedule of swaps: which values leave the slab, and when their copies begin and end.

Pure: byte counts and estimated seconds of units in, positions out. Each direction has one copy stream, which
does its copies in turn: those out in the order in which the values are ready, those in in the order in which
the values are read again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise


@dataclass(frozen=True, eq=False)
class Gap:
    """A value that units `last` and `next` access, and none between them."""

    nbytes: int
    last: int
    next: int


@dataclass(frozen=True, eq=False)
class PlannedSwap:
    """A gap in which a value lies in host memory. Positions: numbers of the units before which something is.

    out_ends: the copy out, which begins behind unit `last`, ends there; from there on the memory is free.
    in_begins: the copy in begins there; it ends before unit `next`.
    """

    gap: Gap
    out_ends: int
    in_begins: int


@dataclass(frozen=True)
class Timing:
    """Estimates of a segment. seconds: of each unit. copy_s: of a copy of so many bytes, either way.

    borders: units, ascending, between which copies must end, as they are launched by themselves.
    """

    seconds: Sequence[float]
    copy_s: Callable[[int], float]
    borders: Sequence[int] = ()

    def schedule(self, gaps: Sequence[Gap]) -> list[PlannedSwap]:
        """The swaps of gaps such that nothing waits for copies, as far as borders allow.

        One whose copies take longer than its gap has `out_ends` >= `in_begins`.
        """
        starts = [0.0, *accumulate(self.seconds)]  # and the end
        out_ends, in_begins = dict[Gap, int](), dict[Gap, int]()
        free_s = 0.0
        for gap in sorted(gaps, key=lambda gap: gap.last):
            free_s = max(free_s, starts[gap.last + 1]) + self.copy_s(gap.nbytes)
            out_ends[gap] = bisect_left(starts, free_s)
        free_s = starts[-1]
        for gap in sorted(gaps, key=lambda gap: gap.next, reverse=True):
            free_s = min(free_s, starts[gap.next]) - self.copy_s(gap.nbytes)
            in_begins[gap] = bisect_right(starts, free_s) - 1  # -1 where it should begin before the segment
        return [PlannedSwap(gap, out_ends[gap], in_begins[gap]) for gap in gaps]

    def latest_end(self, gap: Gap) -> int:
        """The last position at which the copy out may end."""
        place = bisect_right(self.borders, gap.last)
        return self.borders[place] if place < len(self.borders) else len(self.seconds)

    def earliest_begin(self, gap: Gap) -> int:
        """The first position at which the copy in may begin."""
        place = bisect_left(self.borders, gap.next)
        return self.borders[place - 1] + 1 if place else 0

    def is_hidden(self, swap: PlannedSwap) -> bool:
        """True if a swap of `schedule` frees memory, and its copies end before anything waits for them."""
        gap = swap.gap
        return (
            swap.out_ends < swap.in_begins
            and swap.out_ends <= self.latest_end(gap)
            and swap.in_begins >= self.earliest_begin(gap)
        )


def choose(
    live: Sequence[int], gaps: Sequence[Gap], timing: Timing, *, hidden: bool, below: int = 0
) -> list[PlannedSwap]:
    """The swaps with which the largest sum of live bytes is smallest, or not above `below`.

    live: bytes of the slab at each unit. hidden: only swaps whose copies nothing waits for, by the estimates;
    else a copy that would free too little in time is waited for.

    The values with the longest gaps over the unit of the peak go first.
    """
    starts = [0.0, *accumulate(timing.seconds)]
    left = sorted(gaps, key=lambda gap: starts[gap.next] - starts[gap.last + 1], reverse=True)
    chosen: list[PlannedSwap] = []
    best, best_peak = chosen, max(live, default=0)
    now = list(live)
    while best_peak > below:
        peak = max(now)
        at = now.index(peak)
        found: list[PlannedSwap] | None = None
        for gap in [gap for gap in left if gap.last < at < gap.next]:
            left.remove(gap)
            found = _with(chosen, gap, timing, at, hidden)
            if found is not None:
                break
        if found is None:
            break
        chosen, now = found, _without(live, found)
        if max(now) < best_peak:
            best, best_peak = chosen, max(now)
    return best if hidden else _eased(best, live, timing, max(best_peak, below))


def _with(
    chosen: Sequence[PlannedSwap], gap: Gap, timing: Timing, at: int, hidden: bool
) -> list[PlannedSwap] | None:
    """The swaps and one more; None where that frees nothing at a unit, or something would wait."""
    if not hidden:
        return [*chosen, PlannedSwap(gap, gap.last + 1, gap.next)]
    found = timing.schedule([*(swap.gap for swap in chosen), gap])
    frees = found[-1].out_ends <= at < found[-1].in_begins
    return found if frees and all(map(timing.is_hidden, found)) else None


def _without(live: Sequence[int], swaps: Sequence[PlannedSwap]) -> list[int]:
    """The live bytes with these swaps."""
    changes = [0] * (len(live) + 1)
    for swap in swaps:
        changes[swap.out_ends] -= swap.gap.nbytes
        changes[swap.in_begins] += swap.gap.nbytes
    return [nbytes + moved for nbytes, moved in zip(live, accumulate(changes), strict=False)]


def _eased(swaps: Sequence[PlannedSwap], live: Sequence[int], timing: Timing, peak: int) -> list[PlannedSwap]:
    """The swaps with copies that have more time, as far as the live bytes stay below the peak."""
    now = _without(live, swaps)
    eased: list[PlannedSwap] = []
    for swap, wished in zip(swaps, timing.schedule([swap.gap for swap in swaps]), strict=True):
        gap, end, begin = swap.gap, swap.out_ends, swap.in_begins
        latest = min(wished.out_ends, timing.latest_end(gap), begin - 1)
        while end < latest and now[end] + gap.nbytes <= peak:
            now[end] += gap.nbytes
            end += 1
        earliest = max(wished.in_begins, timing.earliest_begin(gap), end + 1)
        while begin > earliest and now[begin - 1] + gap.nbytes <= peak:
            begin -= 1
            now[begin] += gap.nbytes
        eased.append(replace(swap, out_ends=end, in_begins=begin))
    return eased


def longest_gap(nbytes: int, accesses: Sequence[int], seconds: Sequence[float]) -> Gap | None:
    """The longest time that a value is not accessed. accesses: numbers of units, ascending."""
    pairs = [(last, following) for last, following in pairwise(accesses) if following > last + 1]
    if not pairs:
        return None
    last, following = max(pairs, key=lambda pair: sum(seconds[pair[0] + 1 : pair[1]]))
    return Gap(nbytes, last, following)
