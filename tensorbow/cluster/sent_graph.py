"""The graph of a step as a session sends it to tasks: full device names, and placeholders for feeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tensorbow.graph import GraphDef, NodeDef, Operation, Tensor
from tensorbow.graph.graph_def import graph_def_of, operation_name
from tensorbow.ops.state import VariableReference
from tensorbow.specs import Array, Dims, TensorSpec

CONTAINER = "/of-container/"  # between a container's name and a variable's


def container_of(name: str) -> str:
    """The container of a variable, from its name on tasks; "" for none."""
    return name.partition(CONTAINER)[0] if CONTAINER in name else ""


def name_on_tasks(variable: Operation) -> str:
    """The name of a variable on tasks, where containers are told apart by it."""
    container = variable.attrs["container"]
    return f"{container}{CONTAINER}{variable.name}" if container else variable.name


class SentGraph:
    """A step as tasks get it: a GraphDef with full device names, and placeholders in the place of feeds."""

    def __init__(
        self,
        needed: Sequence[Operation],
        places: Mapping[Operation, str],
        fed: Mapping[Tensor, Dims | None],
        home: str,
    ):
        renamed = {op.name: name_on_tasks(op) for op in needed if op.definition is VariableReference}
        names = {op.name for op in needed}
        self._renamed = {old: new for old, new in renamed.items() if old != new}
        self.fed: dict[Tensor, str] = {}
        nodes: list[NodeDef] = []
        for tensor, shape in fed.items():
            name = f"{tensor.op.name}/fed"
            while name in names:
                name += "_"
            names.add(name)
            self.fed[tensor] = f"{name}:0"
            spec = TensorSpec(shape, tensor.dtype)
            attr = {"dtype": tensor.dtype, "shape": shape}
            nodes.append(NodeDef(name, "Placeholder", [], attr, [spec], home, [], str(tensor.op.source)))
        self._inputs = {tensor.name: name for tensor, name in self.fed.items()}
        places_by_name = {op.name: place for op, place in places.items()}
        part = graph_def_of(needed, {})
        for node in part.node:
            kept = [self._input(item) for item in node.input]
            slot_of = node.attr.get("slot_of")
            attr = {**node.attr, "slot_of": self._renamed.get(slot_of, slot_of)} if slot_of else node.attr
            nodes.append(
                replace(
                    node,
                    name=self._renamed.get(node.name, node.name),
                    input=kept,
                    attr=attr,
                    device=places_by_name[node.name],
                    colocation=[],
                )
            )
        self.graph = GraphDef(nodes, context=part.context, library=part.library)

    def _input(self, item: str) -> str:
        if item in self._inputs:
            return self._inputs[item]
        old = operation_name(item)
        new = self._renamed.get(old)
        return item if new is None else item.replace(old, new, 1)

    def name(self, element: Tensor | Operation) -> str:
        """The name by which a task fetches an element."""
        if isinstance(element, Tensor) and element in self.fed:
            return self.fed[element]
        return self._input(element.name)


def text_of(graph: GraphDef) -> Array:
    """A graph as the bytes of a message."""
    return np.frombuffer(graph.to_json().encode(), np.uint8)
