"""Makes a sequence of quick ops: regions as large as may be, and between them what only the executor runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorbow.compiler import NeedsDynamicModeError
from tensorbow.compiler.wholes import Whole, chains_of, wholes_in
from tensorbow.control_flow.contexts import Conditional
from tensorbow.errors import InternalError, InvalidArgumentError
from tensorbow.executor.entry_order import Entry, EntryOrder, InnerWhole, SplitError, ops_of
from tensorbow.executor.region import StaticRegion
from tensorbow.executor.sequence import CondPart, HostPart, LoopPart, OpSequence, RegionPart, SequencePart
from tensorbow.executor.shape_arguments import determining
from tensorbow.executor.simple_loop import LoopRegion, SimpleLoop
from tensorbow.executor.stack_parts import with_joined_stacks
from tensorbow.executor.units import Excluded, Item, Units, WholeUnit, name_of, plan_has
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.ops.host_variables import HostVariable

_NO_VALUE = np.zeros(0)  # input in place of a variable's reference


def free_value(tensor: Tensor, reader: str) -> Any:
    """The value that an op outside of regions gets for a constant or a reference of a host variable.

    Raises InvalidArgumentError for the reference of another variable.
    """
    if tensor.op.definition is HostVariable:
        return _NO_VALUE
    if tensor.op.definition.name != "Const":
        raise InvalidArgumentError(
            f"{reader}: input {tensor.name} is a variable's reference; read it by tb.identity"
        )
    return tensor.op.attrs["value"]


@dataclass(frozen=True)
class StepGraph:
    """Parts common to the sequences of a plan.

    ops: all that the step needs. fed: its feeds. wanted: tensors that are fetched. wholes: its loops and
    conds with all ops of each. compiles_loops: regions may have loops and conds. partners: by op of a
    TensorArray or stack, all ops of the same one. repeated: reads of variables that each region does itself.
    """

    ops: frozenset[Operation]
    fed: frozenset[Tensor]
    wanted: frozenset[Tensor]
    wholes: Mapping[Whole, Sequence[Operation]]
    compiles_loops: bool
    partners: Mapping[Operation, Sequence[Operation]]
    repeated: frozenset[Operation] = frozenset()


def make_sequence(
    ops: Sequence[Operation],
    graph: StepGraph,
    excluded: Collection[Excluded] = (),
    inputs: Sequence[Tensor] | None = None,
    outputs: Sequence[Tensor] | None = None,
) -> tuple[Sequence[Tensor], Sequence[Tensor], OpSequence]:
    """The inputs, outputs and sequence of ops that no other op runs between.

    excluded: loops and conds that no region is to have. inputs, outputs: their order, where they are known.
    Raises InvalidArgumentError for a variable's reference as an input.
    """
    left_out = set(excluded)
    while True:
        maker = _Maker(ops, graph, left_out, inputs, outputs)
        split = maker.make()
        if split is None:
            return maker.inputs, maker.outputs, maker.sequence
        left_out |= split


class _Maker:
    """A sequence under construction."""

    def __init__(
        self,
        ops: Sequence[Operation],
        graph: StepGraph,
        excluded: set[Excluded],
        inputs: Sequence[Tensor] | None,
        outputs: Sequence[Tensor] | None,
    ):
        self._graph = graph
        self._excluded = excluded
        self._inside = set(ops)
        whole = {
            w: found for w, found in wholes_in(ops).items() if len(found) == len(graph.wholes.get(w, ()))
        }
        self._chains = chains_of(ops, whole)
        self._units = Units(
            ops,
            self._chains,
            graph.ops,
            graph.fed,
            graph.wanted,
            excluded,
            plan_has if graph.compiles_loops else None,
            apart=[op for op in ops if not all(each in self._inside for each in graph.partners.get(op, ()))],
        )
        self._order = EntryOrder(self._units, graph.fed)
        items = self._units.items
        if inputs is None:
            found = (
                tensor
                for op in ops
                for tensor in op.inputs
                if tensor in graph.fed or not (tensor.op in self._inside or is_free(tensor.op))
            )
            inputs = list(dict.fromkeys(found))
        if outputs is None:
            outputs = [t for op in ops for t in op.outputs if t not in graph.fed and self._leaves(t)]
        self.inputs, self.outputs = inputs, outputs
        self._items = items
        self._slots: dict[Tensor, int] = {tensor: slot for slot, tensor in enumerate(inputs)}
        self._template: list[Any] = [None] * len(inputs)
        self._regions: list[StaticRegion] = []
        self._last_read: dict[int, int] = {}  # by slot, the part of the outermost block that reads it last
        self._number = 0  # of the part of the outermost block that is made

    def make(self) -> set[Excluded] | None:
        """Makes `sequence`; or returns what is to be excluded before another try."""
        try:
            parts = self._block(self._items, 0)
        except SplitError as split:
            return split.excluded
        results = [self._slot(tensor) for tensor in self.outputs]
        self._free_slots(parts, {*results})
        self.sequence = OpSequence(parts, self._template, len(self.inputs), results, self._regions)
        return None

    def _leaves(self, tensor: Tensor) -> bool:
        return tensor in self._graph.wanted or self._is_read_outside(tensor, self._inside)

    def _is_read_outside(self, tensor: Tensor, inside: Collection[Operation]) -> bool:
        """True if ops that are not `inside` are given a value."""
        ops = self._graph.ops
        readers = () if tensor.op in self._graph.repeated else tensor.consumers()
        return any(reader in ops and reader not in inside for reader in readers)

    def _free_slots(self, parts: Sequence[SequencePart], kept: set[int]) -> None:
        for number, part in enumerate(parts):
            if isinstance(part, RegionPart):
                part.free = tuple(
                    slot
                    for slot in dict.fromkeys(part.inputs)
                    if self._last_read.get(slot) == number and slot not in kept
                )

    # Slots ------------------------------------------------------------------------------------

    def _new_slots(self, tensors: Sequence[Tensor]) -> int:
        first = len(self._template)
        for tensor in tensors:
            self._slots[tensor] = len(self._template)
            self._template.append(None)
        return first

    def _slot(self, tensor: Tensor) -> int:
        """The slot of a value, which has been computed."""
        found = self._slots.get(tensor)
        if found is None:
            op = tensor.op
            if is_free(op):
                readers = [r.name for r in tensor.consumers() if r in self._inside]
                value = free_value(tensor, readers[0] if readers else op.name)
                found = self._slots[tensor] = len(self._template)
                self._template.append(value)
            elif op in self._order.aliases or op.definition.flow not in ("", "merge"):
                return self._slot(op.inputs[0])
            else:
                raise InternalError(f"{tensor.name} is read before it is made")
        self._last_read[found] = self._number
        return found

    # Blocks -----------------------------------------------------------------------------------

    def _inner(self, item: Item) -> list[Whole]:
        """The loops and conds around an item that the sequence runs itself, the outermost first."""
        if isinstance(item, WholeUnit):
            chain = self._chains[item.ops[0]]
            return chain[: chain.index(item.whole)]
        return self._chains[item]

    def _block(self, items: Sequence[Item], depth: int) -> list[SequencePart]:
        """The parts of items that `depth` loops and conds are around."""
        entries: dict[Entry, None] = {}
        inner: dict[Whole, InnerWhole] = {}
        for item in items:
            chain = self._inner(item)
            if len(chain) <= depth:
                entries[item] = None
                continue
            whole = inner.get(chain[depth])
            if whole is None:
                whole = inner[chain[depth]] = InnerWhole(chain[depth])
                entries[whole] = None
            whole.items.append(item)
        ordered, levels = self._order.arranged(list(entries))
        static: dict[int, list[Entry]] = {}
        others: dict[int, list[Entry]] = {}
        for entry in ordered:
            if self._order.is_static(entry):
                static.setdefault(levels[entry], []).append(entry)
            elif not (isinstance(entry, Operation) and self._order.is_alias(entry)):
                others.setdefault(levels[entry], []).append(entry)
        parts: list[SequencePart] = []
        for level in sorted({*static, *others}):
            if level in static:
                self._mark(parts, depth)
                parts.append(self._region(static[level]))
            for entry in others.get(level, ()):
                self._mark(parts, depth)
                parts.append(self._part(entry, depth))
        self._mark(parts, depth)
        return with_joined_stacks(parts) if depth else parts

    def _mark(self, parts: Sequence[SequencePart], depth: int) -> None:
        """Notes which part of the outermost block is made next."""
        if depth == 0:
            self._number = len(parts)

    def _part(self, entry: Entry, depth: int) -> SequencePart:
        if isinstance(entry, InnerWhole):
            if isinstance(entry.whole, Conditional):
                return self._cond(entry, entry.whole, depth)
            return self._loop(entry, depth)
        if isinstance(entry, WholeUnit):
            raise InternalError(f"{entry.name} is static")
        inputs = [self._slot(tensor) for tensor in entry.inputs]
        return HostPart(entry, inputs, self._new_slots(entry.outputs))

    # Parts ------------------------------------------------------------------------------------

    def _region(self, items: Sequence[Entry]) -> RegionPart:
        units = [item for item in items if isinstance(item, WholeUnit)]
        repeated = self._graph.repeated
        own = {op for item in items for op in ops_of(item)} - repeated
        own |= {tensor.op for op in own for tensor in op.inputs if tensor.op in repeated}
        ops = sorted(own, key=lambda op: op.id)
        inside = set(ops)
        hidden = {op for unit in units for op in unit.ops if op not in unit.borders}
        fed = self._graph.fed
        inputs = list(
            dict.fromkeys(
                tensor
                for op in ops
                for tensor in op.inputs
                if tensor in fed or not (tensor.op in inside or is_free(tensor.op))
            )
        )
        wanted = {*self.outputs, *self._graph.wanted}
        outputs = [
            tensor
            for op in ops
            if op not in hidden
            for tensor in op.outputs
            if tensor not in fed and (tensor in wanted or self._is_read_outside(tensor, inside))
        ]
        read = {tensor.op for op in ops for tensor in op.inputs}
        made = {tensor.op for tensor in outputs}
        targets = [
            op
            for op in ops
            if op not in made
            and op not in hidden
            and (op not in read or op.definition.stateful or op.definition.writes)
        ]
        among = set(inputs)
        baked = {t for t in determining(ops, among.__contains__) if t in among}

        def divided(error: NeedsDynamicModeError) -> OpSequence | None:
            return self._divided(region, error)

        region = StaticRegion(ops, tuple(inputs), tuple(outputs), tuple(targets), baked, units, divided)
        self._regions.append(region)
        slots = [self._slot(tensor) for tensor in inputs]
        return RegionPart(region, slots, self._new_slots(outputs), ())

    def _divided(self, region: StaticRegion, error: NeedsDynamicModeError) -> OpSequence | None:
        """A sequence of a region that is no plan; None if it has no loop or cond that could be left out."""
        items: Sequence[Item] = [unit for unit in region.units if error.op in unit.ops] or region.units
        items = items or [op for op in region.ops if op.definition.host is not None]
        if not items:
            return None
        excluded = self._excluded | Units.left_out(items)
        return make_sequence(region.ops, self._graph, excluded, region.inputs, region.outputs)[2]

    def _cond(self, entry: InnerWhole, whole: Conditional, depth: int) -> CondPart:
        merges = {tensor.op for tensor in whole.merged}
        branches: tuple[list[Item], list[Item]] = ([], [])
        for item in entry.items:
            if item in merges:
                continue
            op = ops_of(item)[0]
            context = op.inputs[0].op.context if op.definition.flow == "exit" else op.context
            chain = context.chain() if context is not None else ()
            branches[0 if whole.branches[0] in chain else 1].append(item)
        pred = self._slot(whole.branches[0].pred)
        parts = (self._block(branches[0], depth + 1), self._block(branches[1], depth + 1))
        merged = []
        for op in (op for op in entry.items if op in merges and isinstance(op, Operation)):
            sources = [self._slot(tensor) for tensor in op.inputs]
            merged.append((self._new_slots(op.outputs), sources[0], sources[1]))
        return CondPart(name_of(whole), pred, parts, merged)

    def _loop(self, entry: InnerWhole, depth: int) -> LoopPart:
        name = entry.whole.name  # type: ignore[union-attr]
        own = [op for op in entry.items if isinstance(op, Operation) and len(self._inner(op)) == depth + 1]
        merges = [
            op
            for op in own
            if op.definition.flow == "merge"
            and any(tensor.op.definition.flow == "next_iteration" for tensor in op.inputs)
        ]
        conditions = [op for op in own if op.definition.flow == "loop_condition"]
        if not conditions:
            raise InvalidArgumentError(f"{name}: a loop without a condition; use tb.while_loop")
        condition = conditions[0]
        start = [self._slot(op.inputs[0]) for op in merges]
        outside = len(self._template)  # slots of what is there before the loop
        first = self._new_slots([op.outputs[0] for op in merges])
        flow = {op for op in own if op.definition.flow}
        rest = [item for item in entry.items if item not in flow]
        late = self._after_condition(entry.items, condition)
        parts = self._block([item for item in rest if item not in late], depth + 1)
        holds = self._slot(condition.inputs[0])
        body = self._block([item for item in rest if item in late], depth + 1)
        results = [self._slot(op.inputs[1]) for op in merges]
        simple = None
        regions = [
            [LoopRegion(p.region, p.inputs, p.first, p.last) for p in each if isinstance(p, RegionPart)]
            for each in (parts, body)
        ]
        if len(regions[0]) == len(parts) and len(regions[1]) == len(body):
            simple = SimpleLoop(regions[0], regions[1], first, first + len(merges), holds, tuple(results))
        _note_steady([*parts, *body], outside)  # the outermost loop comes last
        return LoopPart(name, start, first, parts, holds, body, results, simple)

    def _after_condition(self, items: Sequence[Item], condition: Operation) -> set[Item]:
        """Ops that run only while the condition is true."""
        of = {op: item for item in items for op in ops_of(item)}
        readers: dict[Item, set[Item]] = {}
        pending: list[Item] = []
        for op, item in of.items():
            if op.definition.flow == "switch" and op.inputs[1].op is condition and item is op:
                pending.append(item)
            for other in (*(t.op for t in op.inputs), *op.control_inputs):
                if other in of and other.definition.flow != "next_iteration":
                    readers.setdefault(of[other], set()).add(item)
        late: set[Item] = set()
        while pending:
            item = pending.pop()
            if item not in late:
                late.add(item)
                pending.extend(readers.get(item, ()))
        return late


def _note_steady(parts: Sequence[SequencePart], outside: int) -> None:
    """Notes which inputs of the regions of a loop are in slots below `outside`."""
    for part in parts:
        if isinstance(part, RegionPart):
            part.region.steady = frozenset(i for i, slot in enumerate(part.inputs) if slot < outside)
        elif isinstance(part, LoopPart):
            _note_steady([*part.condition, *part.body], outside)
        elif isinstance(part, CondPart):
            _note_steady([*part.branches[0], *part.branches[1]], outside)
