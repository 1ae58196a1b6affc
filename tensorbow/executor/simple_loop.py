"""A loop of the dynamic mode whose condition and body are static regions: run without frames and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from tensorbow.errors import InternalError
from tensorbow.executor.region import CACHED, PreparedRegion, RunRegion, StaticRegion
from tensorbow.executor.step_spans import Tell, TimedCalls
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.specs import Array
from tensorbow.timeline import OP, WORK

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
    """Regions of the condition and of the body, in order, and where each value is in a list of slots."""

    condition: list[LoopRegion] = field(default_factory=list)
    body: list[LoopRegion] = field(default_factory=list)
    slots: int = 0
    constants: list[tuple[int, Array]] = field(default_factory=list)
    entered: dict[Operation, int] = field(default_factory=dict)  # slot of the value of each Enter
    holds: int = 0
    results: tuple[int, ...] = ()  # next values of the variables, which are in the first slots
    exits: dict[Operation, int] = field(default_factory=dict)
    _forms: dict[object, list[FixedLoop]] = field(default_factory=dict)  # by shapes; those not in use
    _without_form: set[object] = field(default_factory=set)

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

    def run(
        self,
        entered: Mapping[Operation, Any],
        run_region: RunRegion,
        check: Callable[[], None],
        numbers: Iterator[int],
        teller: Callable[[int], Tell] | None = None,
    ) -> list[Any]:
        """The slots after the last iteration.

        check: called in each iteration; raises to end the step. numbers: of the iterations, one is taken for
        each; the caller names it in an error. teller: takes an iteration's number, gives what takes spans.
        """
        values: list[Any] = [None] * self.slots
        for slot, value in self.constants:
            values[slot] = value
        for op, slot in self.entered.items():
            values[slot] = entered[op]
        key = tuple([np.shape(entered[op]) for op in self.entered])
        form = self._form(key, values) if teller is None else None
        if form is not None:
            form.run(values, check, numbers)
            self._forms.setdefault(key, []).append(form)
            return values
        count, results, holds = len(self.results), self.results, self.holds
        condition, body = self.condition, self.body
        run = _run
        for number in numbers:
            check()
            if teller is not None:
                run = partial(_run_timed, teller(number))
            run(condition, values, run_region)
            if not values[holds]:
                break
            run(body, values, run_region)
            values[:count] = [values[slot] for slot in results]
        return values


def _run(regions: Sequence[LoopRegion], values: list[Any], run_region: RunRegion) -> None:
    for each in regions:
        inputs = [values[slot] for slot in each.inputs]
        form = each.region.small(inputs)
        outputs = form.compute(inputs) if form is not None else run_region(each.region, inputs)
        values[each.first : each.last] = outputs


def _run_timed(tell: Tell, regions: Sequence[LoopRegion], values: list[Any], run_region: RunRegion) -> None:
    for each in regions:
        inputs = [values[slot] for slot in each.inputs]
        values[each.first : each.last] = run_timed(each.region, inputs, run_region, tell)


def run_timed(
    region: StaticRegion, inputs: Sequence[Array], run_region: RunRegion, tell: Tell
) -> Sequence[Array]:
    """A region's outputs; tells its span, and those of its ops if it runs as NumPy calls."""
    began_s, form = perf_counter(), region.small(inputs)
    try:
        return (
            run_region(region, inputs) if form is None else form.compute_timed(inputs, TimedCalls(tell, OP))
        )
    finally:
        tell(f"Region {region.ops[0].name}", WORK, began_s, perf_counter())


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

    def run(self, values: list[Any], check: Callable[[], None], numbers: Iterator[int]) -> None:
        """Iterates from the slots in `values`, where it leaves the variables and the last condition."""
        for slot, array in enumerate(self.home):
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
        values[: len(self.home)] = [array.copy() for array in self.home]


def fixed_loop(loop: SimpleLoop, values: Sequence[Any]) -> FixedLoop | None:
    """The form on fixed arrays for values that have entered; None where a shape changes or is large."""
    count = len(loop.results)
    arrays: list[Any] = [None if value is None else np.asarray(value) for value in values]
    begin: Moves = []
    end: Moves = []
    invariant: list[tuple[Array, int]] = []
    home = [np.empty_like(array) for array in arrays[:count]]
    arrays[:count] = home
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
                if slot < count:
                    begin.append((array, home[slot]))
                elif slot in inner:
                    moves.append((array, arrays[slot]))
                else:
                    invariant.append((array, slot))
            made[-1].append((moves, region))
            arrays[each.first : each.last] = region.fetched
            inner.update(range(each.first, each.last))
    if any(slot >= count for slot in loop.exits.values()) or loop.holds not in inner:
        return None
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


def simple_loop(
    ops: Sequence[Operation], regions: Sequence[StaticRegion], fed: Callable[[Tensor], bool]
) -> SimpleLoop | None:
    """A loop's form, or None if it has more in it. ops: all ops of its frame. regions: those of it, in order.

    fed: True for tensors that are fed.
    """
    loop = SimpleLoop()
    of_flow = {op for op in ops if op.definition.flow}
    if any(op.has_strings or (op.definition.is_dynamic and op not in of_flow) for op in ops):
        return None
    merges = [op for op in ops if op.definition.flow == "merge"]
    conditions = [op for op in ops if op.definition.flow == "loop_condition"]
    if len(conditions) != 1 or any(op.inputs[-1].op.definition.flow != "next_iteration" for op in merges):
        return None
    slots: dict[Tensor, int] = {}

    def slot_of(tensor: Tensor) -> int:
        op = tensor.op
        if tensor not in slots:
            if is_free(op) and op.definition.name == "Const":
                slots[tensor] = _new(loop)
                loop.constants.append((slots[tensor], op.attrs["value"]))
            elif op in of_flow and op.definition.flow in ("switch", "loop_condition", "next_iteration"):
                slots[tensor] = slot_of(op.inputs[0])
            elif op.definition.flow == "enter":
                slots[tensor] = loop.entered[op] = _new(loop)
            else:
                raise InternalError(f"{tensor.name} is made outside the loop")
        return slots[tensor]

    for op in merges:
        slots[op.outputs[0]] = loop.entered[op.inputs[0].op] = _new(loop)
    in_body: set[Operation] = set()  # ops that run only while the condition is true
    for op in sorted(ops, key=lambda op: op.id):
        if op.definition.flow == "switch":
            if op.inputs[1].op is not conditions[0] or op.inputs[0].op not in merges:
                return None  # of a cond in the loop
            in_body.add(op)
        elif any(each in in_body for each in (*(t.op for t in op.inputs), *op.control_inputs)):
            in_body.add(op)
    for region in regions:
        if any(map(fed, region.inputs)):
            return None
        inputs = tuple(slot_of(tensor) for tensor in region.inputs)
        first = loop.slots
        for tensor in region.outputs:
            slots[tensor] = _new(loop)
        each = LoopRegion(region, inputs, first, loop.slots)
        (loop.condition if in_body.isdisjoint(region.ops) else loop.body).append(each)
    loop.holds = slot_of(conditions[0].inputs[0])
    loop.results = tuple(slot_of(op.inputs[-1]) for op in merges)
    for op in ops:
        if op.definition.flow == "exit":
            loop.exits[op] = slot_of(op.inputs[0])
    return loop


def _new(loop: SimpleLoop) -> int:
    loop.slots += 1
    return loop.slots - 1
