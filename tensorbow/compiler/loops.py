"""Loops of a pruned graph as wholes: which ops each has, and the order in which all can be unrolled."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tensorbow.control_flow.contexts import LoopContext
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.ops.control_flow import StackPop
from tensorbow.specs import Array


@dataclass(eq=False)
class WholeLoop:
    """A tb.while_loop. `items`: its ops and the loops in it, in an order in which all can be computed."""

    name: str
    ops: list[Operation]  # of the loop and of all loops in it, in program order
    enters: list[Operation]
    merges: list[Operation]  # inputs: from its Enter, and from its NextIteration
    condition: Operation
    items: list[Operation | WholeLoop] = field(default_factory=list)

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


OpsOfLoops = Mapping[LoopContext, Sequence[Operation]]  # the ops of each loop that is needed


def loops_in(ops: Sequence[Operation]) -> dict[LoopContext, list[Operation]]:
    """The loops that pruned ops enter, each with all ops inside, also those of loops in it."""
    entered: dict[LoopContext, list[Operation]] = {}
    for op in ops:
        if op.definition.flow == "enter" and isinstance(op.context, LoopContext):
            entered[op.context] = []
    for op in ops if entered else ():
        for loop in loops_of(op, entered):
            entered[loop].append(op)
    return entered


def loops_of(op: Operation, loops: OpsOfLoops) -> list[LoopContext]:
    """The loops that an op belongs to, the outermost first; an Exit belongs to the loop that it leaves."""
    context = op.inputs[0].op.context if op.definition.flow == "exit" else op.context
    if context is None:
        return []
    chain = [each for each in context.chain() if isinstance(each, LoopContext) and each in loops]
    return chain[::-1]


def in_order(ops: Sequence[Operation], loops: OpsOfLoops, depth: int = 0) -> Iterator[Operation | WholeLoop]:
    """Ops and loops `depth` loops deep, in program order as far as each comes after what it needs."""
    if not loops:
        yield from ops
        return
    units: dict[Operation, Operation | LoopContext] = {}
    for op in ops:
        around = loops_of(op, loops)
        units[op] = around[depth] if len(around) > depth else op
    before: dict[Operation | LoopContext, set[Operation | LoopContext]] = {u: set() for u in units.values()}
    after: dict[Operation | LoopContext, set[Operation | LoopContext]] = {u: set() for u in units.values()}
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
    whole = {loop: _loop(loop, loops, depth) for loop in before if isinstance(loop, LoopContext)}

    def place(unit: Operation | LoopContext) -> int:
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


def _loop(context: LoopContext, loops: OpsOfLoops, depth: int) -> WholeLoop:
    ops = loops[context]
    own = [op for op in ops if len(loops_of(op, loops)) == depth + 1]
    enters = [op for op in own if op.definition.flow == "enter"]
    merges = [
        op
        for op in own
        if op.definition.flow == "merge" and any(t.op.definition.flow == "next_iteration" for t in op.inputs)
    ]
    condition = next(op for op in own if op.definition.flow == "loop_condition")
    loop = WholeLoop(context.frame_name, list(ops), enters, merges, condition)
    inside = {*enters, *merges}
    loop.items = [item for item in in_order(list(ops), loops, depth + 1) if item not in inside]
    return loop


COMPARISONS = {"Less": 1, "LessEqual": 1, "Greater": -1, "GreaterEqual": -1}
UNKNOWN = -1  # number of iterations of a loop that counts to a limit


def limit_of(loop: WholeLoop) -> int | None:
    """The most iterations of a loop that counts to a limit; UNKNOWN if the limit is not constant.

    None for a loop that does not: it may never end. The condition compares a whole number, to which the body
    adds a constant, with what does not change in the loop; it may ask more, by logical_and.
    """
    found: int | None = None
    pending = [loop.condition.inputs[0]]
    while pending:
        op = _beyond_identities(pending.pop()).op
        if op.type == "LogicalAnd":
            pending.extend(op.inputs)
        elif op.type in COMPARISONS:
            sign = COMPARISONS[op.type]
            left, right = op.inputs
            for counter, limit, way in ((left, right, sign), (right, left, -sign)):
                count = _count(loop, counter, limit, way)
                if count is not None and (found is None or found == UNKNOWN or 0 <= count < found):
                    found = count
    return found


def _count(loop: WholeLoop, counter: Tensor, limit: Tensor, way: int) -> int | None:
    """Iterations until a counter reaches a limit; None if it is no counter, or goes the other way."""
    merge = _beyond_identities(counter).op
    if merge not in loop.merges or counter.dtype.is_floating or not _is_constant(loop, limit):
        return None
    following = _beyond_identities(merge.inputs[1].op.inputs[0]).op
    if following.type not in ("Add", "Sub"):
        return None
    operands = list(following.inputs)
    if following.type == "Add" and _known(operands[0]) is not None:
        operands.reverse()
    step = _known(operands[1])
    switch = _beyond_identities(operands[0]).op
    if step is None or switch.definition.flow != "switch" or switch.inputs[0].op is not merge:
        return None
    each = (int(step) if following.type == "Add" else -int(step)) * way
    if each <= 0:
        return None
    start, end = _known(merge.inputs[0].op.inputs[0]), _known(limit)
    if start is None or end is None:
        return UNKNOWN
    return max(0, -(-(int(end) - int(start)) * way // each) + 1)


def _is_constant(loop: WholeLoop, tensor: Tensor) -> bool:
    op = _beyond_identities(tensor).op
    return is_free(op) or (
        op.definition.flow == "enter" and bool(op.attrs["is_constant"]) and op in loop.enters
    )


def _known(tensor: Tensor) -> Array | None:
    op = _beyond_identities(tensor).op
    if op.definition.flow == "enter":
        op = _beyond_identities(op.inputs[0]).op
    return op.attrs["value"] if op.definition.name == "Const" and op.attrs["value"].ndim == 0 else None


def _beyond_identities(tensor: Tensor) -> Tensor:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor
