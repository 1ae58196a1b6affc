"""Loops and conds that regions and sequences of a dynamic step have as wholes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tensorbow.compiler.elements import array_source
from tensorbow.compiler.wholes import Whole
from tensorbow.control_flow.contexts import Conditional
from tensorbow.executor.effects import is_slow
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.ops.control_flow import StackPop, StackPush
from tensorbow.ops.tensor_arrays import TENSOR_ARRAY_OPS, TensorArrayNew

IN_PLANS = frozenset({StackPush, StackPop, *TENSOR_ARRAY_OPS})  # ops of the host that plans have, too


def plan_has(op: Operation) -> bool:
    """True if a plan may have an op in a loop or cond."""
    return not op.has_strings and (op.definition.host is None or op.definition in IN_PLANS)


def is_quick(op: Operation) -> bool:
    """True if a sequence may have an op."""
    return not is_slow(op)


def partners_among(ops: Iterable[Operation]) -> dict[Operation, list[Operation]]:
    """All ops of the same TensorArray or stack, by each of them."""
    groups: dict[Operation | None, list[Operation]] = {}
    for op in ops:
        if op.definition is StackPop:
            groups.setdefault(op.graph.get_operation_by_name(op.attrs["push"]), []).append(op)
        elif op.definition is StackPush or op.definition is TensorArrayNew:
            groups.setdefault(op, []).append(op)
        elif op.definition in TENSOR_ARRAY_OPS:
            source = array_source(op.inputs[0])
            while source is not None and source.definition is not TensorArrayNew:  # the array of a gradient
                source = array_source(source.inputs[0])
            groups.setdefault(source, []).append(op)
    return {op: group for group in groups.values() for op in group}


@dataclass(eq=False)
class WholeUnit:
    """A loop or cond that runs as one static op, with all that is in it.

    inputs, controls: what it needs from outside. borders: the ops whose outputs leave it.
    """

    whole: Whole
    name: str
    ops: list[Operation] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    controls: list[Operation] = field(default_factory=list)
    borders: set[Operation] = field(default_factory=set)

    @property
    def kind(self) -> str:
        """Word for explanations."""
        return "cond" if isinstance(self.whole, Conditional) else "loop"

    def complete(self) -> None:
        """Finds what it needs, once it has its ops."""
        inside = set(self.ops)
        self.inputs = list(dict.fromkeys(t for op in self.ops for t in op.inputs if t.op not in inside))
        self.controls = list(
            dict.fromkeys(each for op in self.ops for each in op.control_inputs if each not in inside)
        )


Item: TypeAlias = "Operation | WholeUnit"
Excluded: TypeAlias = "Whole | Operation"  # a loop, a cond, or an op of a TensorArray


class Units:
    """Ops that run together, some of them in units: for regions of plans, or for sequences.

    items: in an order for computing all. clusters: items that have to be together, since they hand values on
    that exist there alone. hard: those of them that read what is inside of each other.
    """

    def __init__(
        self,
        ops: Sequence[Operation],
        chains: Mapping[Operation, list[Whole]],
        included: Collection[Operation],
        fed: Collection[Tensor],
        elements: Collection[Tensor | Operation],
        excluded: Collection[Excluded],
        has: Callable[[Operation], bool] | None,
        in_sequences: bool = False,
        apart: Collection[Operation] = (),
    ):
        """chains: the loops and conds around each op, the outermost first. included: all ops of the step.
        elements: fetches. excluded: what is not to be in a unit. has: True for ops that a unit may have;
        None for no units. in_sequences: units are of sequences, where ops of the host hand elements of
        arrays and what gradients take back on, if need be. apart: ops of TensorArrays and stacks with
        partners outside of `ops`.
        """
        self._ops = ops
        self._included = included
        self._excluded = set(excluded)
        self._in_sequences = in_sequences
        self._has = has
        self._apart = apart
        self.unit_of: dict[Operation, WholeUnit] = {}
        self.clusters: list[list[Item]] = []
        self.hard: set[Item] = set()
        self._static: set[Operation] = set()  # ops of TensorArrays that regions have
        self.items: list[Item] = list(ops)
        arrays = [op for op in ops if op.definition in TENSOR_ARRAY_OPS]
        if has is None or not (arrays or any(chains.values())):
            return
        wholes = {whole for chain in chains.values() for whole in chain}
        blocked = {each for each in wholes if each in self._excluded}
        blocked |= self._refused(has, chains, fed, elements)
        refused = {op for op in arrays if op in self._excluded}
        while True:
            self._make(chains, blocked)
            if not in_sequences:
                self._static = {op for op in arrays if op not in self.unit_of and op not in refused}
            groups, broken = self._joined(chains, arrays)
            broken = broken or self._order()
            if not broken:
                break
            for item in broken:
                (blocked if isinstance(item, WholeUnit) else refused).add(
                    item.whole if isinstance(item, WholeUnit) else item  # type: ignore[arg-type]
                )
        self.clusters = [group for group in groups if len(group) > 1]

    def is_dynamic(self, item: Item) -> bool:
        """True if no region, or no sequence, has it."""
        if isinstance(item, WholeUnit):
            return False
        if self._in_sequences:
            return bool(item.definition.flow) or is_slow(item)
        return item.is_dynamic and item not in self._static

    def of(self, op: Operation) -> Item:
        """The item that an op is in."""
        return self.unit_of.get(op, op)

    @staticmethod
    def left_out(items: Iterable[Item]) -> set[Excluded]:
        """Loops, conds and ops to exclude so that these items are in no unit."""
        return {each.whole if isinstance(each, WholeUnit) else each for each in items}

    def _refused(
        self,
        has: Callable[[Operation], bool],
        chains: Mapping[Operation, list[Whole]],
        fed: Collection[Tensor],
        elements: Collection[Tensor | Operation],
    ) -> set[Whole]:
        """Loops and conds with ops that no unit has, or with something inside that is fed or fetched."""
        found: set[Whole] = set()
        for op, chain in chains.items():
            if chain and not has(op):
                found.update(chain)
        for each in (*fed, *elements):
            op = each if isinstance(each, Operation) else each.op
            chain = chains.get(op, [])
            leaves = bool(chain) and each not in fed and _leaves(op, chain[-1])
            found.update(chain[:-1] if leaves else chain)
        return found

    def _make(self, chains: Mapping[Operation, list[Whole]], blocked: Collection[Whole]) -> None:
        units: dict[Whole, WholeUnit] = {}
        self.unit_of = {}
        for op, chain in chains.items():
            whole = next((each for each in chain if each not in blocked), None)
            if whole is None:
                continue
            unit = units.get(whole)
            if unit is None:
                unit = units[whole] = WholeUnit(whole, name_of(whole))
            unit.ops.append(op)
            self.unit_of[op] = unit
            if chain[-1] is whole and _leaves(op, whole):
                unit.borders.add(op)
        for unit in units.values():
            unit.complete()

    def _joined(
        self, chains: Mapping[Operation, list[Whole]], arrays: Sequence[Operation]
    ) -> tuple[list[list[Item]], list[Item]]:
        """Items that hand on what only plans have, grouped; and those with a partner that is dynamic."""
        parent: dict[Item, Item] = {}
        broken: list[Item] = []
        self.hard = set()

        def root(item: Item) -> Item:
            while parent.setdefault(item, item) is not item:
                parent[item] = item = parent[parent[item]]
            return item

        def join(one: Item, other: Item | None, hard: bool) -> None:
            dynamic = (self.is_dynamic(one), other is None or self.is_dynamic(other))
            if all(dynamic) or (any(dynamic) and self._in_sequences and not hard):
                return
            if other is None or any(dynamic):
                broken.append(one if other is None or dynamic[1] else other)
                return
            parent[root(one)] = root(other)
            if hard:
                self.hard.update((one, other))

        for op in arrays:
            for handle in op.inputs[:1] if op.definition is not TensorArrayNew else ():
                source = array_source(handle)
                join(self.of(op), self.of(source) if source in self._included and source else None, False)
        popped: set[Item] = set()  # those whose values others pop
        for op in self._ops:
            if op.definition is StackPop:
                push = self.of(op.graph.get_operation_by_name(op.attrs["push"]))
                join(self.of(op), push, False)
                if push is not self.of(op):
                    popped.add(push)
        units = dict.fromkeys(self.unit_of.values())
        for unit in units:
            if not (unit.borders or unit in popped) or self._reads_branches(unit, chains):
                broken.append(unit)
            for op in unit.ops:
                for tensor in () if op in unit.borders else op.outputs:
                    for reader in tensor.consumers():
                        other = self.of(reader) if reader in self._included else unit
                        if other is not unit:
                            join(unit, other if isinstance(other, WholeUnit) else None, True)
        broken += [self.of(op) for op in self._apart if not self.is_dynamic(self.of(op))]
        groups: dict[Item, list[Item]] = {}
        for item in dict.fromkeys((*units, *parent)):
            groups.setdefault(root(item), []).append(item)
        lost = {root(item) for item in broken}
        return list(groups.values()), [i for key in lost for i in groups.get(key, [key])]

    def _reads_branches(self, unit: WholeUnit, chains: Mapping[Operation, list[Whole]]) -> bool:
        """True if it reads what is in a dynamic branch, as conds of gradients do."""
        chain = chains[unit.ops[0]]
        outer = chain[: chain.index(unit.whole)]
        for tensor in unit.inputs:
            found, maker = chains.get(tensor.op, []), self.unit_of.get(tensor.op)
            if maker is not None:  # which may be in a dynamic branch itself
                found = found[: found.index(maker.whole)]
            elif found and _leaves(tensor.op, found[-1]):
                found = found[:-1]
            if any(each not in outer for each in found):
                return True
        return False

    def _order(self) -> list[Item]:
        """Puts the items in program order, as far as each comes after what it needs.

        Returns the units that wait for each other, if there are any.
        """
        items = dict.fromkeys(map(self.of, self._ops))
        before: dict[Item, set[Item]] = {item: set() for item in items}
        after: dict[Item, list[Item]] = {item: [] for item in items}
        for item in items:
            needed = [tensor.op for tensor in item.inputs]
            needed += item.controls if isinstance(item, WholeUnit) else item.control_inputs
            if isinstance(item, Operation) and item.definition is StackPop:
                needed.append(item.graph.get_operation_by_name(item.attrs["push"]))
            for op in needed:
                if op in self._included and not is_free(op) and op.definition.flow != "next_iteration":
                    source = self.of(op)
                    if source in before and source is not item and source not in before[item]:
                        before[item].add(source)
                        after[source].append(item)

        def place(item: Item) -> int:
            return item.ops[0].id if isinstance(item, WholeUnit) else item.id

        ready = [(place(item), item) for item in items if not before[item]]
        heapq.heapify(ready)
        self.items = []
        while ready:
            item = heapq.heappop(ready)[1]
            self.items.append(item)
            for reader in after[item]:
                before[reader].discard(item)
                if not before[reader]:
                    heapq.heappush(ready, (place(reader), reader))
        return [item for item in items if before[item] and isinstance(item, WholeUnit)]


def _leaves(op: Operation, whole: Whole) -> bool:
    """True if an op's outputs leave the loop or cond that it is part of."""
    if isinstance(whole, Conditional):
        return any(tensor.op is op for tensor in whole.merged)
    return op.definition.flow == "exit"


def name_of(whole: Whole) -> str:
    """Name of a loop or cond, for explanations."""
    if isinstance(whole, Conditional):
        pivot = whole.branches[0].pivot
        return "cond" if pivot is None else pivot.name.rpartition("/")[0]
    return whole.frame_name
