"""A loop of the dynamic mode whose condition and body are static regions: run on arrays made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tensorbow.executor.region import CACHED, PreparedRegion, StaticRegion
from tensorbow.specs import Array

Moves: TypeAlias = list[tuple[Array, Array]]
"""Copies into the first of each two arrays from the second, in order."""


@dataclass(frozen=True)
class LoopRegion:
    """A region, and the slots of its inputs and outputs."""

    region: StaticRegion
    inputs: tuple[int, ...]
    first: int  # slot of its first output
    last: int


@dataclass
class SimpleLoop:
    """Regions of the condition and of the body, in order, and where each value is in the slots of a sequence.

    The variables are in the slots from `begin` to before `end`. holds: of the condition. results: of the next
    values of the variables.
    """

    condition: list[LoopRegion]
    body: list[LoopRegion]
    begin: int
    end: int
    holds: int
    results: tuple[int, ...]
    reads: tuple[int, ...] = ()  # slots of all that it reads
    _forms: dict[object, list[FixedLoop]] = field(default_factory=dict)  # by shapes; those not in use
    _without_form: set[object] = field(default_factory=set)

    def __post_init__(self) -> None:
        made = {slot for each in (*self.condition, *self.body) for slot in range(each.first, each.last)}
        read = [slot for each in (*self.condition, *self.body) for slot in each.inputs]
        more = dict.fromkeys(slot for slot in (*read, *self.results) if slot not in made)
        self.reads = tuple(dict.fromkeys((*range(self.begin, self.end), *more)))

    def _form(self, key: object, values: Sequence[Any]) -> FixedLoop | None:
        """A form for values of these shapes no other step uses; None where shapes change or are large."""
        if key in self._without_form:
            return None
        if key not in self._forms and len(self._forms) >= CACHED:
            self._forms.clear()
        try:
            return self._forms.setdefault(key, []).pop()
        except IndexError:
            form = fixed_loop(self, values)
        if form is None:
            if len(self._without_form) >= CACHED:
                self._without_form.clear()
            self._without_form.add(key)
        return form

    def run(self, values: list[Any], check: Callable[[], None], numbers: Iterator[int]) -> bool:
        """Iterates, and leaves the variables' last values in their slots; False if it has no fixed form.

        check: called in each iteration; raises to end the step. numbers: of the iterations, one is taken for
        each; the caller names it in an error.
        """
        key = tuple([np.shape(values[slot]) for slot in self.reads])
        form = self._form(key, values)
        if form is None:
            return False
        form.run(values, self.begin, check, numbers)
        self._forms.setdefault(key, []).append(form)
        return True


@dataclass
class FixedLoop:
    """A simple loop on arrays made once, for values whose shapes stay the same in all iterations.

    condition, body: prepared regions, and what is copied into their arrays before each. home: array of each
    variable, from which `begin` fills the others. invariant: copied from slots before the first iteration.
    """

    condition: list[tuple[Moves, PreparedRegion]]
    body: list[tuple[Moves, PreparedRegion]]
    holds: Array
    home: list[Array]
    begin: Moves
    end: Moves
    invariant: list[tuple[Array, int]]

    def run(self, values: list[Any], first: int, check: Callable[[], None], numbers: Iterator[int]) -> None:
        """Iterates from the slots in `values`, where it leaves the variables. first: their first slot."""
        for slot, array in enumerate(self.home, first):
            array[...] = values[slot]
        for array, slot in self.invariant:
            array[...] = values[slot]
        for into, source in self.begin:
            into[...] = source
        condition, body, end, holds = self.condition, self.body, self.end, self.holds
        for _ in numbers:
            check()
            for moves, region in condition:
                for into, source in moves:
                    into[...] = source
                region.call()
            if not holds:
                break
            for moves, region in body:
                for into, source in moves:
                    into[...] = source
                region.call()
            for into, source in end:
                into[...] = source
        values[first : first + len(self.home)] = [array.copy() for array in self.home]


def fixed_loop(loop: SimpleLoop, values: Sequence[Any]) -> FixedLoop | None:
    """The form on fixed arrays for values that have entered; None where a shape changes or is large."""
    first, last = loop.begin, loop.end
    arrays: list[Any] = [None if value is None else np.asarray(value) for value in values]
    begin: Moves = []
    end: Moves = []
    invariant: list[tuple[Array, int]] = []
    home = [np.empty_like(array) for array in arrays[first:last]]
    arrays[first:last] = home
    made: list[list[tuple[Moves, PreparedRegion]]] = []
    inner: set[int] = set()  # slots of outputs of regions
    for regions in (loop.condition, loop.body):
        made.append([])
        for each in regions:
            region = None if each.region.baked else each.region.fresh([arrays[s] for s in each.inputs])
            if region is None:
                return None
            moves: Moves = []
            for index, array in region.inputs:
                slot = each.inputs[index]
                if first <= slot < last:
                    begin.append((array, home[slot - first]))
                elif slot in inner:
                    moves.append((array, arrays[slot]))
                else:
                    invariant.append((array, slot))
            made[-1].append((moves, region))
            arrays[each.first : each.last] = region.fetched
            inner.update(range(each.first, each.last))
    if loop.holds not in inner:
        return None
    for slot in loop.results:
        if slot not in inner and not first <= slot < last:  # what comes from outside
            arrays[slot] = np.empty_like(arrays[slot])
            invariant.append((arrays[slot], slot))
    sources = [arrays[slot] for slot in loop.results]
    if any(new.shape != old.shape or new.dtype != old.dtype for new, old in zip(sources, home, strict=True)):
        return None
    targets = [*home, *(array for array, _ in begin)]
    for slot, source in enumerate(sources):
        if source is home[slot]:
            continue
        if any(np.may_share_memory(source, target) for target in targets):
            kept = np.empty_like(source)
            end.append((kept, source))
            sources[slot] = kept
    for slot, source in enumerate(sources):
        if source is not home[slot]:
            end.append((home[slot], source))
            end += [(array, source) for array, variable in begin if variable is home[slot]]
    return FixedLoop(made[0], made[1], arrays[loop.holds], home, begin, end, invariant)
