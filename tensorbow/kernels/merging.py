"""Merges updates by one rule with the same scalars that are neighbours in the flat buffers into one pass.

Variables, their gradients and their slots have the same gapless layout, so a step's update of a hundred
variables takes two launches: decayed weights and other weights. An update is left alone if its gradient is
elsewhere, or if moving it would reorder it with another call. The bits stay the same: each element
is computed as before.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tensorbow.program.plan import Group, Ref, Region


def merge_updates(groups: Sequence[Group]) -> list[Group]:
    """The calls of a segment; neighbouring updates are merged at the index of their last member.

    Only kernels without scratch are merged: maps.
    """
    runs = [run for candidates in _by_rule(groups) for run in _runs(groups, candidates) if len(run) > 1]
    last = {max(run): run for run in runs}
    merged = {index for run in runs for index in run}
    return [
        _merged([groups[member] for member in last[index]]) if index in last else group
        for index, group in enumerate(groups)
        if index in last or index not in merged
    ]


def _by_rule(groups: Sequence[Group]) -> Iterable[list[int]]:
    """Indices of updates that differ only in their addresses, sorted by address."""
    found: dict[object, list[int]] = {}
    for index, group in enumerate(groups):
        update = group.definition.update
        if update is None or group.scratch or not group.kernel.pointwise:
            continue
        arrays, scalars = _parts(group)
        if any(math.prod(ref.shape) != math.prod(arrays[0].shape) for ref in arrays):
            continue
        attrs = tuple(sorted(group.attrs.items()))
        dtypes = tuple(ref.dtype for ref in arrays)
        key = (group.definition, attrs, dtypes, scalars, group.state, group.predicated, len(group.outputs))
        found.setdefault(key, []).append(index)
    return [sorted(indices, key=lambda i: groups[i].inputs[0].offset) for indices in found.values()]


def _parts(group: Group) -> tuple[tuple[Ref, ...], tuple[Ref, ...]]:
    """The arrays of an update, ending with the gradient, and its scalars."""
    update = group.definition.update
    count = 0 if update is None else update[1] + 1
    return group.inputs[:count], group.inputs[count:]


def _runs(groups: Sequence[Group], indices: Sequence[int]) -> list[list[int]]:
    """Runs of updates that are contiguous in memory and can all move to the run's last index."""
    neighbours: list[list[int]] = []
    for index in indices:
        if neighbours and _follows(groups[neighbours[-1][-1]], groups[index]):
            neighbours[-1].append(index)
        else:
            neighbours.append([index])
    runs: list[list[int]] = []
    for row in neighbours:
        if _free(groups, row):
            runs.append(row)
            continue
        runs.append(row[:1])
        for index in row[1:]:
            if _free(groups, [*runs[-1], index]):
                runs[-1].append(index)
            else:
                runs.append([index])
    return runs


def _follows(before: Group, after: Group) -> bool:
    """True if each array begins where the other's ends."""
    pairs = zip(_parts(before)[0], _parts(after)[0], strict=True)
    return all(a.region == b.region and a.offset + a.nbytes == b.offset for a, b in pairs)


def _free(groups: Sequence[Group], run: Sequence[int]) -> bool:
    """True if every call of a run can be made at the last one's index, regarding the calls between."""
    of_run = set(run)
    read, written = _Bytes(), _Bytes()  # by later calls that are not of the run
    for index in range(max(run) - 1, min(run) - 1, -1):
        group = groups[index]
        if index not in of_run:
            read.add(group.reads)
            written.add(group.writes)
        elif read.touch(group.writes) or written.touch((*group.reads, *group.writes)):
            return False
    return True


class _Bytes:
    """A set of bytes by region, as ordered disjoint intervals."""

    def __init__(self) -> None:
        self._borders: dict[Region, list[int]] = {}  # begin, end, begin, end, ...

    def add(self, refs: Iterable[Ref]) -> None:
        """Adds arrays' bytes to the set."""
        for ref in refs:
            borders = self._borders.setdefault(ref.region, [])
            begin, end = ref.offset, ref.offset + ref.nbytes
            first, last = bisect_left(borders, begin), bisect_right(borders, end)
            borders[first:last] = [*([] if first % 2 else [begin]), *([] if last % 2 else [end])]

    def touch(self, refs: Iterable[Ref]) -> bool:
        """True if the set contains a byte of these arrays."""
        for ref in refs:
            borders = self._borders.get(ref.region, [])
            first = bisect_right(borders, ref.offset)
            if first % 2 or first < bisect_left(borders, ref.offset + ref.nbytes):
                return True
        return False


def cut(group: Group, size: int, first: int, end: int) -> Group:
    """A call on a part of its flat arrays."""

    def part(ref: Ref) -> Ref:
        if math.prod(ref.shape) != size:
            return ref
        return replace(ref, offset=ref.offset + first * ref.dtype.size, shape=(end - first,))

    def parts(refs: Sequence[Ref]) -> tuple[Ref, ...]:
        return tuple(map(part, refs))

    return replace(
        group,
        inputs=parts(group.inputs),
        outputs=parts(group.outputs),
        reads=parts(group.reads),
        writes=parts(group.writes),
    )


def touch(first: Iterable[Ref], second: Sequence[Ref]) -> bool:
    """True if two sets of arrays share a byte."""
    return any(
        a.region == b.region and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
        for a in first
        for b in second
    )


def _merged(updates: Sequence[Group]) -> Group:
    """One call on flat vectors; `updates` in address order."""
    first = updates[0]
    arrays, scalars = _parts(first)
    size = sum(math.prod(_parts(update)[0][0].shape) for update in updates)
    flat = tuple(replace(ref, shape=(size,)) for ref in arrays)
    return replace(
        first,
        name=f"{first.name} to {updates[-1].name}",
        inputs=(*flat, *scalars),
        outputs=tuple(replace(ref, shape=(size,)) for ref in first.outputs),
        reads=tuple(dict.fromkeys(ref for update in updates for ref in update.reads)),
        writes=tuple(dict.fromkeys(ref for update in updates for ref in update.writes)),
        note=f"{len(updates)} updates in one pass: {', '.join(update.name for update in updates)}",
    )
