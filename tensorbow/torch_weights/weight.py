"""Variables of a graph, whether or not it has their `tb.Variable`: imported parts of graphs have none."""

from __future__ import annotations

from dataclasses import dataclass

from tensorbow.graph import GLOBAL_VARIABLES, Graph, Operation
from tensorbow.ops.state import VariableReference
from tensorbow.specs import DType, TensorShape


@dataclass(frozen=True)
class GraphWeight:
    """A variable, by the operation that refers to it."""

    op: Operation

    @property
    def graph(self) -> Graph:
        """The graph it is part of."""
        return self.op.graph

    @property
    def shape(self) -> TensorShape:
        """Its shape."""
        return self.op.outputs[0].shape

    @property
    def dtype(self) -> DType:
        """Its dtype."""
        return self.op.outputs[0].dtype


def weights_of(graph: Graph) -> list[GraphWeight]:
    """The variables of a graph that are no slots of an optimiser, in order of creation.

    In a graph with a collection of variables these, otherwise all.
    """
    operations = [variable.op for variable in graph.get_collection(GLOBAL_VARIABLES)]
    if not operations:
        operations = [op for op in graph.get_operations() if op.definition is VariableReference]
    return [GraphWeight(op) for op in operations if op.attrs["role"] != "slots"]
