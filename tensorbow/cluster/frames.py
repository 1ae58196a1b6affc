"""Loops and branches of a step that is cut between tasks, by the names of its GraphDef."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from tensorbow.executor import Frame, OpPlaces, Units
from tensorbow.graph import NodeDef, Operation, Tensor, is_free
from tensorbow.graph.graph_def import operation_name


def data_inputs(node: NodeDef) -> list[str]:
    """The names of the tensors that a node reads."""
    return [item for item in node.input if not item.startswith("^")]


def is_constant_enter(node: NodeDef) -> bool:
    """True for an Enter whose value is the same in all iterations."""
    return node.op == "Enter" and bool(node.attr["is_constant"])


@dataclass
class LoopNodes:
    """A loop. condition: the name of its LoopCond's tensor. enters: the names of its Enters."""

    condition: str = ""
    enters: list[str] = field(default_factory=list)


class StepFrames:
    """The frames and conditions of the nodes of a step, which are those of its operations."""

    def __init__(self, needed: Sequence[Operation], fed: Collection[Tensor], name: Callable[[Tensor], str]):
        """needed: the step's operations, in program order. name: of a tensor in the GraphDef."""
        self._ops = {op.name: op for op in needed if not is_free(op)}
        ops = list(self._ops.values())
        units = Units(ops, {}, set(ops), fed, (), (), None, in_sequences=True)
        self._places = OpPlaces(units, set(ops), fed, {}, name)
        self.loops: dict[Frame, LoopNodes] = {}
        for op in ops:
            if op.definition.flow == "enter":
                self.loops.setdefault(self._places.target(op), LoopNodes()).enters.append(op.name)
            elif op.definition.flow == "loop_condition":
                self.loops[self._places.of(op).frame].condition = op.outputs[0].name

    def frame_of(self, node: NodeDef) -> Frame:
        """The frame that a node runs in; of an Enter the one around."""
        op = self._ops.get(node.name)
        return self._places.root if op is None else self._places.of(op).frame

    def entered(self, node: NodeDef) -> Frame:
        """The frame that an Enter enters."""
        return self._places.target(self._ops[node.name])

    def of(self, item: str) -> tuple[Frame, frozenset[object]]:
        """Frame and conditions of a tensor, or with ^ of a node's end."""
        op = self._ops.get(operation_name(item))
        if op is None:
            return self._places.root, frozenset()
        if item.startswith("^"):
            return self._places.of_end(op)[:2]
        return self._places.of_output(op.outputs[int(item.rpartition(":")[2])])[:2]
