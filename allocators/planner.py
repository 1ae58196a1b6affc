"""The offline planner: packs buffers whose lifetimes are known into one slab, as low as it can."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import TypeAlias

from allocators.errors import InvariantViolation
from allocators.granule import GRANULE_NBYTES, round_up

_EFFORT = 25_000_000
"""What one plan may cost beyond its first order, in comparisons of two buffers: about a second."""
_PLACING_EFFORT = 150
"""What placing a buffer costs besides, in the same unit."""
_LARGEST_NUM_REPAIRS = 200
_MANY = 1_000
"""Buffers from which on one is placed quicker by what is taken in its steps than by all others one by one."""

_Place: TypeAlias = tuple[int, int, int, int]
"""A placed buffer: offset and end in bytes, first and last step."""
_Interval: TypeAlias = tuple[int, int]
"""Bytes of the slab: the first, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `nbytes` bytes that is live in steps `start` to `stop`, both inclusive."""

    nbytes: int
    start: int
    stop: int

    def __post_init__(self) -> None:
        if self.nbytes < 0:
            raise ValueError(f"a lifetime's nbytes must be at least 0, got {self.nbytes}")
        if self.start > self.stop:
            raise ValueError(f"a lifetime's start must not be after its stop, got {self.start}..{self.stop}")


@dataclass(frozen=True, slots=True)
class SlabPlan:
    """Where each buffer lies in the slab, in the order they were given, and how good that is."""

    offsets: tuple[int, ...]
    """Bytes from the start of the slab, multiples of `alignment`; 0 for a buffer of 0 bytes."""
    peak_nbytes: int
    """Size of the slab in bytes."""
    lower_bound_nbytes: int
    """The largest sum of live bytes in any step, each rounded up to the alignment: no plan is smaller."""
    alignment: int

    @property
    def overhead(self) -> float:
        """How far the peak is above the lower bound, as a fraction: 0.1 is ten per cent."""
        return self.peak_nbytes / self.lower_bound_nbytes - 1.0 if self.lower_bound_nbytes else 0.0

    def check(self, lifetimes: Sequence[Lifetime]) -> None:
        """Raise `InvariantViolation` if two live buffers overlap, or one is misaligned or sticks out."""
        if len(lifetimes) != len(self.offsets):
            raise InvariantViolation(f"the plan is for {len(self.offsets)} buffers, not {len(lifetimes)}")
        events: list[tuple[int, int, int]] = []
        for index, (lifetime, offset) in enumerate(zip(lifetimes, self.offsets, strict=True)):
            if offset % self.alignment or offset < 0 or offset + lifetime.nbytes > self.peak_nbytes:
                raise InvariantViolation(
                    f"buffer {index} at {offset} is misaligned or sticks out of the slab"
                )
            if lifetime.nbytes:
                events += (lifetime.start, 1, index), (lifetime.stop + 1, 0, index)
        live: list[tuple[int, int, int]] = []
        for _, begins, index in sorted(events):
            entry = (self.offsets[index], self.offsets[index] + lifetimes[index].nbytes, index)
            if not begins:
                live.remove(entry)
                continue
            insort(live, entry)
            position = live.index(entry)
            for low, high in pairwise(live[max(0, position - 1) : position + 2]):
                if low[1] > high[0]:
                    raise InvariantViolation(f"buffers {low[2]} and {high[2]} overlap while both are live")


def plan_slab(lifetimes: Sequence[Lifetime], *, alignment: int = GRANULE_NBYTES) -> SlabPlan:
    """Offsets for buffers in one slab such that no two that are live in the same step overlap.

    Buffers are placed one after the other, each in the smallest gap that fits between those already placed
    that are live with it, the lowest among equals, or else above them: greedy by size with best-fit gaps
    (Pisarchyk and Lee, 2020, "Efficient Memory Management for Deep Neural Net Inference"), tried in several
    orders. Then the best order is repaired: what sticks out at the top is placed first. It stops at once
    when the lower bound is met, and after a number of comparisons that depends on the buffers alone, so the
    same lifetimes give the same plan anywhere.

    `alignment` is in bytes and counted in the lower bound. Raises `ValueError` if it is below 1.
    """
    if alignment < 1:
        raise ValueError(f"alignment must be at least 1 byte, got {alignment}")
    items = [
        _Item(round_up(lifetime.nbytes, alignment), lifetime.start, lifetime.stop, index)
        for index, lifetime in enumerate(lifetimes)
        if lifetime.nbytes
    ]
    steps, live_nbytes = _live_nbytes(items)
    lower_bound = max(live_nbytes, default=0)
    busiest = steps[live_nbytes.index(lower_bound)] if steps else 0
    search = _Search(items, len(lifetimes), lower_bound)
    for order in _orders(items, busiest):
        search.place(order)
        if search.finished:
            break
    search.repair()
    return SlabPlan(tuple(search.offsets), search.peak, lower_bound, alignment)


@dataclass(frozen=True, slots=True)
class _Item:
    nbytes: int
    start: int
    stop: int
    index: int


def _live_nbytes(items: Iterable[_Item]) -> tuple[list[int], list[int]]:
    """The steps at which the sum of live bytes changes, and that sum from there on."""
    changes: dict[int, int] = {}
    for item in items:
        changes[item.start] = changes.get(item.start, 0) + item.nbytes
        changes[item.stop + 1] = changes.get(item.stop + 1, 0) - item.nbytes
    steps = sorted(changes)
    return steps, list(accumulate(changes[step] for step in steps))


def _orders(items: list[_Item], busiest: int) -> Iterator[list[_Item]]:
    """The orders worth trying, most promising first; `busiest` is a step with the largest live sum."""

    def crosses(item: _Item) -> bool:
        return item.start <= busiest <= item.stop

    def duration(item: _Item) -> int:
        return item.stop - item.start + 1

    yield sorted(items, key=lambda item: (-duration(item), item.start, -item.nbytes, item.index))
    yield sorted(items, key=lambda item: (-item.nbytes, item.start, item.index))
    yield sorted(items, key=lambda item: (not crosses(item), -item.nbytes, item.start, item.index))
    yield sorted(items, key=lambda item: (-item.nbytes * duration(item), item.start, item.index))
    yield sorted(items, key=lambda item: (not crosses(item), -duration(item), item.start, item.index))
    yield sorted(items, key=lambda item: (item.start, -item.stop, -item.nbytes, item.index))
    yield sorted(items, key=lambda item: (-item.stop, item.start, -item.nbytes, item.index))


class _Few:
    """What has been placed, compared with a buffer one by one: quickest for some hundreds."""

    def __init__(self) -> None:
        self._places: list[_Place] = []

    def add(self, place: _Place) -> None:
        """Enter one buffer."""
        insort(self._places, place)

    def live_with(self, item: _Item) -> list[_Interval]:
        """The bytes of all that is live with `item`, as intervals in order."""
        start, stop = item.start, item.stop
        return [place[:2] for place in self._places if place[2] <= stop and place[3] >= start]

    def effort(self, found: list[_Interval]) -> int:
        """What it cost to find these."""
        return len(self._places)


class _Bytes:
    """A set of bytes of the slab."""

    def __init__(self) -> None:
        self.borders: list[int] = []
        """Begin, end, begin, end, ... of intervals that do not touch, in order."""

    def add(self, begin: int, end: int) -> None:
        """Enter the bytes from `begin` to before `end`."""
        first, last = bisect_left(self.borders, begin), bisect_right(self.borders, end)
        self.borders[first:last] = [*([] if first % 2 else [begin]), *([] if last % 2 else [end])]


class _Many:
    """The same for thousands: a segment tree over steps, whose nodes know which bytes are taken in them.

    A buffer that is live in all steps of a node is entered in `_throughout` there, and not below; `_within`
    has what is live in any of the node's steps, as far as it is entered there or below.
    """

    def __init__(self, items: Iterable[_Item]) -> None:
        self._steps = sorted(
            {item.start for item in items}
        )  # two buffers that share a step share one of these
        self._within = [_Bytes() for _ in range(2 * len(self._steps))]
        self._throughout = [_Bytes() for _ in range(2 * len(self._steps))]

    def _nodes(self, start: int, stop: int) -> tuple[list[int], set[int]]:
        """The fewest nodes that make up the steps from `start` to `stop`, and all nodes above them."""
        left = bisect_left(self._steps, start) + len(self._steps)
        right = bisect_right(self._steps, stop) + len(self._steps)
        nodes: list[int] = []
        above: set[int] = set()
        while left < right:
            if left % 2:
                nodes.append(left)
            if right % 2:
                nodes.append(right - 1)
            left, right = (left + 1) // 2, right // 2
        for node in nodes:
            while (node := node // 2) and node not in above:
                above.add(node)
        return nodes, above

    def add(self, place: _Place) -> None:
        """Enter one buffer."""
        begin, end, start, stop = place
        nodes, above = self._nodes(start, stop)
        for node in nodes:
            self._throughout[node].add(begin, end)
        for node in (*nodes, *above):
            self._within[node].add(begin, end)

    def live_with(self, item: _Item) -> list[_Interval]:
        """The bytes of all that is live with `item`, as intervals in order."""
        nodes, above = self._nodes(item.start, item.stop)
        found = [self._within[node].borders for node in nodes]
        found += [self._throughout[node].borders for node in above]
        pairs = (zip(borders[::2], borders[1::2], strict=True) for borders in found)
        return sorted(chain.from_iterable(pairs))

    def effort(self, found: list[_Interval]) -> int:
        """What it cost to find these."""
        return 4 * len(found) + 600


class _Search:
    """The best placement found so far, and how much effort is left to find a better one."""

    def __init__(self, items: list[_Item], num_buffers: int, lower_bound: int) -> None:
        self.offsets = [0] * num_buffers
        self.peak = 0
        self._lower_bound = lower_bound
        self._best_order: list[_Item] = []
        self._effort = _EFFORT
        self._tried = False

    @property
    def finished(self) -> bool:
        """True when nothing can be won any more, or there is no effort left."""
        return self._tried and (self.peak <= self._lower_bound or self._effort <= 0)

    def place(self, order: list[_Item]) -> int | None:
        """Place in this order, keep it if it is the best yet; None, or the item that made it worse."""
        offsets = [0] * len(self.offsets)
        bound = self.peak if self._tried else None
        placed = _Few() if len(order) < _MANY else _Many(order)
        peak = 0
        for position, item in enumerate(order):
            taken = placed.live_with(item)
            self._effort -= placed.effort(taken) + _PLACING_EFFORT
            offset = _best_gap(taken, item.nbytes)
            end = offset + item.nbytes
            if end > peak:
                if bound is not None and end >= bound:
                    return position
                peak = end
            placed.add((offset, end, item.start, item.stop))
            offsets[item.index] = offset
        self._tried = True
        self.offsets, self.peak, self._best_order = offsets, peak, order
        return None

    def repair(self) -> None:
        """Place first what was placed too high, again and again, as long as that may help."""
        order = list(self._best_order)
        for _ in range(_LARGEST_NUM_REPAIRS):
            if self.finished or not order:
                return
            failed = self.place(order)
            if failed is None:
                order = list(self._best_order)
                failed = self._highest(order)
            order = list(order)
            order.insert(0, order.pop(failed))

    def _highest(self, order: list[_Item]) -> int:
        """Where in the order the buffer comes that reaches the peak."""
        ends = [self.offsets[item.index] + item.nbytes for item in order]
        return ends.index(max(ends))


def _best_gap(taken: list[_Interval], nbytes: int) -> int:
    """The offset of the smallest gap of at least `nbytes` between intervals, or where the last one ends."""
    reached, best, best_gap = 0, -1, 0
    for begin, end in taken:
        gap = begin - reached
        if gap >= nbytes and (best < 0 or gap < best_gap):
            if gap == nbytes:
                return reached
            best, best_gap = reached, gap
        if end > reached:
            reached = end
    return best if best >= 0 else reached
