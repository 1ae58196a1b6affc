"""Loops and conds of a pruned graph as wholes: which ops each has, and an order for computing all."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from tensorbow.control_flow.contexts import BranchContext, Conditional, LoopContext
from tensorbow.graph import ControlFlowContext, Operation
from tensorbow.ops.control_flow import StackPop


@dataclass(eq=False)
class WholeLoop:
    """A tb.while_loop. `items`: its ops, and the loops and conds in it, in an order for computing all."""

    name: str
    ops: list[Operation]  # of the loop and of all that is in it, in program order
    enters: list[Operation]
    merges: list[Operation]  # inputs: from its Enter, and from its NextIteration
    condition: Operation
    context: LoopContext
    items: list[Item] = field(default_factory=list)

    @cached_property
    def exits(self) -> list[Operation]:
        """Its Exits."""
        merged = {op.outputs[0] for op in self.merges}
        return [op for op in self.ops if op.definition.flow == "exit" and op.inputs[0].op.inputs[0] in merged]

    @cached_property
    def after_condition(self) -> set[Operation]:
        """Ops that run only while the condition is true: the body."""
        found: set[Operation] = set()
        for op in sorted(self.ops, key=lambda op: op.id):
            needed = [*(t.op for t in op.inputs), *op.control_inputs]
            switches = op.definition.flow == "switch" and op.inputs[1].op is self.condition
            if switches or any(each in found for each in needed):
                found.add(op)
        return found

    @cached_property
    def first(self) -> int:
        """Id of its first op: its place in program order."""
        return min(op.id for op in self.ops)


@dataclass(eq=False)
class WholeCond:
    """A tb.cond. `items`: by branch, its ops and what is in it, in an order for computing all."""

    whole: Conditional
    ops: list[Operation]  # of both branches, of all that is in them, and the Merges
    merges: list[Operation]  # inputs: of the branches [false, true]
    items: tuple[list[Item], list[Item]]

    @property
    def name(self) -> str:
        """Name for notes: that of the scope."""
        pivot = self.whole.branches[0].pivot
        return "cond" if pivot is None else pivot.name.rpartition("/")[0]

    @cached_property
    def first(self) -> int:
        """Id of its first op: its place in program order."""
        return min(op.id for op in self.ops)


Item: TypeAlias = "Operation | WholeLoop | WholeCond"
Whole: TypeAlias = "LoopContext | Conditional"
OpsOfWholes: TypeAlias = "Mapping[Whole, Sequence[Operation]]"  # the ops of each loop and cond that is needed


def wholes_in(ops: Sequence[Operation]) -> dict[Whole, list[Operation]]:
    """The loops and conds of pruned ops, each with all ops inside, also those of what is in it."""
    found: dict[Whole, list[Operation]] = {}
    for op in ops:
        if op.context is None:
            continue
        if op.definition.flow == "enter" and isinstance(op.context, LoopContext):
            found[op.context] = []
        elif isinstance(op.context, BranchContext) and isinstance(op.context.whole, Conditional):
            found[op.context.whole] = []
    for op in ops if found else ():
        for whole in around(op, found):
            found[whole].append(op)
    return found


def around(op: Operation, wholes: OpsOfWholes) -> list[Whole]:
    """The loops and conds that an op belongs to, the outermost first.

    An Exit belongs to the loop that it leaves, a Merge to the cond whose branches it joins.
    """
    context = op.inputs[0].op.context if op.definition.flow == "exit" else op.context
    chain = _wholes_of(context, wholes)
    if op.definition.flow == "merge":
        branch = op.inputs[0].op.context
        if isinstance(branch, BranchContext) and branch.whole in wholes and branch.outer is op.context:
            chain.append(branch.whole)  # type: ignore[arg-type]
    return chain


def chains_of(ops: Sequence[Operation], wholes: OpsOfWholes) -> dict[Operation, list[Whole]]:
    """The loops and conds around each op; see `around`."""
    return {op: around(op, wholes) if wholes else [] for op in ops}


def _wholes_of(context: ControlFlowContext | None, wholes: OpsOfWholes) -> list[Whole]:
    chain: list[Whole] = []
    for each in context.chain() if context is not None else ():
        whole = each.whole if isinstance(each, BranchContext) else each
        if whole in wholes:
            chain.append(whole)  # type: ignore[arg-type]
    return chain[::-1]


def in_order(ops: Sequence[Operation], wholes: OpsOfWholes, depth: int = 0) -> Iterator[Item]:
    """Ops and wholes `depth` deep, in program order as far as each comes after what it needs."""
    if not wholes:
        yield from ops
        return
    units: dict[Operation, Operation | Whole] = {}
    for op in ops:
        chain = around(op, wholes)
        units[op] = chain[depth] if len(chain) > depth else op
    before: dict[Operation | Whole, set[Operation | Whole]] = {u: set() for u in units.values()}
    after: dict[Operation | Whole, set[Operation | Whole]] = {u: set() for u in units.values()}
    for op, unit in units.items():
        needed = [t.op for t in op.inputs]
        needed += op.control_inputs
        if op.definition is StackPop:
            needed.append(op.graph.get_operation_by_name(op.attrs["push"]))
        for other in needed:
            source = units.get(other)
            back = other.definition.flow == "next_iteration"
            if source is not None and source is not unit and not back:
                before[unit].add(source)
                after[source].add(unit)
    whole = {each: _whole(each, wholes, depth) for each in before if not isinstance(each, Operation)}

    def place(unit: Operation | Whole) -> int:
        return unit.id if isinstance(unit, Operation) else whole[unit].first

    ready = [(place(unit), unit) for unit, needed in before.items() if not needed]
    heapq.heapify(ready)
    while ready:
        unit = heapq.heappop(ready)[1]
        yield unit if isinstance(unit, Operation) else whole[unit]
        for reader in after[unit]:
            before[reader].discard(unit)
            if not before[reader]:
                heapq.heappush(ready, (place(reader), reader))


def _whole(each: Whole, wholes: OpsOfWholes, depth: int) -> WholeLoop | WholeCond:
    return _loop(each, wholes, depth) if isinstance(each, LoopContext) else _cond(each, wholes, depth)


def _cond(whole: Conditional, wholes: OpsOfWholes, depth: int) -> WholeCond:
    ops = list(wholes[whole])
    merged = {tensor.op for tensor in whole.merged}
    merges = [op for op in ops if op in merged]
    branches: tuple[list[Operation], list[Operation]] = ([], [])
    for op in ops:
        if op not in merged:
            context = op.inputs[0].op.context if op.definition.flow == "exit" else op.context
            chain = context.chain() if context is not None else ()
            branches[0 if whole.branches[0] in chain else 1].append(op)
    items = tuple(list(in_order(each, wholes, depth + 1)) for each in branches)
    return WholeCond(whole, ops, merges, items)  # type: ignore[arg-type]


def _loop(context: LoopContext, wholes: OpsOfWholes, depth: int) -> WholeLoop:
    ops = wholes[context]
    own = [op for op in ops if len(around(op, wholes)) == depth + 1]
    enters = [op for op in own if op.definition.flow == "enter"]
    merges = [
        op
        for op in own
        if op.definition.flow == "merge" and any(t.op.definition.flow == "next_iteration" for t in op.inputs)
    ]
    condition = next(op for op in own if op.definition.flow == "loop_condition")
    loop = WholeLoop(context.frame_name, list(ops), enters, merges, condition, context)
    inside = {*enters, *merges}
    loop.items = [item for item in in_order(list(ops), wholes, depth + 1) if item not in inside]
    return loop
