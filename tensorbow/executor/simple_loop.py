"""A loop of the dynamic mode whose condition and body are static regions: run without frames and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorbow.errors import InternalError
from tensorbow.executor.region import RunRegion, StaticRegion
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.specs import Array


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

    def run(
        self, entered: Mapping[Operation, Any], run_region: RunRegion, check: Callable[[], None]
    ) -> list[Any]:
        """The slots after the last iteration. check: called in each iteration; raises to end the step."""
        values: list[Any] = [None] * self.slots
        for slot, value in self.constants:
            values[slot] = value
        for op, slot in self.entered.items():
            values[slot] = entered[op]
        count, results, holds = len(self.results), self.results, self.holds
        condition, body = self.condition, self.body
        while True:
            check()
            _run(condition, values, run_region)
            if not values[holds]:
                return values
            _run(body, values, run_region)
            values[:count] = [values[slot] for slot in results]


def _run(regions: Sequence[LoopRegion], values: list[Any], run_region: RunRegion) -> None:
    for each in regions:
        inputs = [values[slot] for slot in each.inputs]
        compute = each.region.small(inputs)
        outputs = compute(inputs) if compute is not None else run_region(each.region, inputs)
        values[each.first : each.last] = outputs


def simple_loop(
    ops: Sequence[Operation], regions: Sequence[StaticRegion], fed: Callable[[Tensor], bool]
) -> SimpleLoop | None:
    """A loop's form, or None if it has more in it. ops: all ops of its frame. regions: those of it, in order.

    fed: True for tensors that are fed.
    """
    loop = SimpleLoop()
    of_flow = {op for op in ops if op.definition.flow}
    if any(op.definition.is_dynamic and op not in of_flow for op in ops):
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
