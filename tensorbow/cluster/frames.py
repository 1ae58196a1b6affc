"""Loops and branches of a GraphDef: the frame and the conditions that each value is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tensorbow.executor.op_places import condition_name
from tensorbow.graph import NodeDef
from tensorbow.graph.graph_def import operation_name

FramePath: TypeAlias = "tuple[str, ...]"  # the names of the loops around, the outermost first
Conditions: TypeAlias = "frozenset[str]"  # within the frame, see `condition_name`


def data_inputs(node: NodeDef) -> list[str]:
    """The names of the tensors that a node reads."""
    return [item for item in node.input if not item.startswith("^")]


def is_constant_enter(node: NodeDef) -> bool:
    """True for an Enter whose value is the same in all iterations."""
    return node.op == "Enter" and bool(node.attr["is_constant"])


def is_back_edge(node: NodeDef, source: NodeDef) -> bool:
    """True where a loop's Merge reads what comes back to it."""
    return node.op == "Merge" and source.op == "NextIteration"


@dataclass
class LoopFrame:
    """A loop. conditions: under which it is entered. condition: the name of its LoopCond's tensor."""

    conditions: Conditions = frozenset()
    parallel_iterations: int = 10
    condition: str = ""
    enters: list[NodeDef] = field(default_factory=list)


class Frames:
    """Frames and conditions of the nodes of a graph in program order."""

    def __init__(self, nodes: Sequence[NodeDef]):
        self._by_name = {node.name: node for node in nodes}
        self._places: dict[str, tuple[FramePath, Conditions]] = {}  # where each node runs
        self.loops: dict[FramePath, LoopFrame] = {}
        for node in nodes:
            frame, conditions = self._places[node.name] = self._place(node)
            if node.op == "Enter":
                inner = self.loops.setdefault((*frame, node.attr["frame_name"]), LoopFrame())
                inner.conditions |= conditions
                inner.parallel_iterations = int(node.attr["parallel_iterations"])
                inner.enters.append(node)
            elif node.op == "LoopCond":
                self.loops[frame].condition = f"{node.name}:0"

    def _place(self, node: NodeDef) -> tuple[FramePath, Conditions]:
        frame: FramePath = ()
        conditions: Conditions = frozenset()
        common: Conditions | None = None
        for item in node.input:
            source = self._by_name[operation_name(item)]
            if is_back_edge(node, source) or source.name not in self._places:
                continue
            if source.op in ("Const", "Variable"):
                continue
            frame, under = self.of(item)
            conditions |= under
            if not item.startswith("^"):
                common = under if common is None else common & under
        if node.op == "Merge" and common is not None:
            conditions = common
        return frame, conditions

    def frame_of(self, node: NodeDef) -> FramePath:
        """The frame that a node runs in; of an Enter the one around."""
        return self._places[node.name][0]

    def of(self, item: str) -> tuple[FramePath, Conditions]:
        """FramePath and conditions of a tensor, or with ^ of a node's end."""
        node = self._by_name[operation_name(item)]
        frame, conditions = self._places[node.name]
        if node.op == "Enter":
            return (*frame, node.attr["frame_name"]), frozenset()
        if node.op == "Exit" and frame:
            return frame[:-1], self.loops[frame].conditions
        if node.op == "Switch" and not item.startswith("^"):
            branch = int(item.rpartition(":")[2])
            return frame, conditions | {condition_name(data_inputs(node)[1], branch)}
        return frame, conditions
