"""Costs of a run by op, under the names of TensorFlow's CostGraphDef."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from tensorbow.errors import NotFoundError
from tensorbow.graph import Graph, Operation, Tensor
from tensorbow.specs import DType, TensorShape
from tensorbow.timeline import OP, Tracer

_ITERATION = re.compile(r"\[[\d,]+\]$")  # of an unrolled loop, behind the name of an op


@dataclass
class CostInputInfo:
    """An input of an op: output `preceding_port` of the node with the id `preceding_node`."""

    preceding_node: int
    preceding_port: int


@dataclass
class CostOutputInfo:
    """An output of an op. size: bytes, -1 where the static shape leaves them open."""

    size: int
    shape: TensorShape
    dtype: DType


@dataclass
class CostNode:
    """An op that a run has executed; a fused op has the name of its last part.

    compute_cost: microseconds of all its executions together, `count` of them: one for each iteration of a
    loop. id: position of the op in the graph, -1 for one that the compiler has made.
    """

    name: str
    op: str
    device: str
    id: int
    compute_cost: float
    count: int
    input_info: list[CostInputInfo] = field(default_factory=list)
    output_info: list[CostOutputInfo] = field(default_factory=list)
    control_input: list[int] = field(default_factory=list)
    is_final: bool = False  # its result is fetched


@dataclass
class CostGraphDef:
    """The ops that a run has executed, the first one first. `str()` gives a table, the dearest first."""

    node: list[CostNode] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{'us':>10} {'count':>7}  {'op':<24} name"]
        for node in sorted(self.node, key=lambda node: -node.compute_cost):
            lines.append(f"{node.compute_cost:>10.1f} {node.count:>7}  {node.op:<24} {node.name}")
        return "\n".join(lines)


def cost_graph_of(graph: Graph, tracer: Tracer, fetched: Collection[Tensor | Operation]) -> CostGraphDef:
    """The costs of the ops whose spans a tracer has."""
    final = {each.op.name if isinstance(each, Tensor) else each.name for each in fetched}
    nodes: dict[tuple[str, str], CostNode] = {}
    for span in tracer.spans:
        if span.category != OP:
            continue
        kind, _, name = span.name.partition(" ")
        name = _ITERATION.sub("", name or kind)
        node = nodes.get((name, span.track.device))
        if node is None:
            node = nodes[(name, span.track.device)] = _node_of(graph, name, kind, span.track.device)
            node.is_final = name in final
        node.compute_cost += (span.end_s - span.start_s) * 1e6
        node.count += 1
    return CostGraphDef(list(nodes.values()))


def _node_of(graph: Graph, name: str, kind: str, device: str) -> CostNode:
    try:
        op = graph.get_operation_by_name(name)
    except NotFoundError:  # made by the compiler
        return CostNode(name, kind, device, -1, 0.0, 0)
    outputs = []
    for tensor in op.outputs:
        dims = tensor.spec.shape
        extents = None if dims is None or None in dims else [extent or 0 for extent in dims]
        size = -1 if extents is None else math.prod(extents) * tensor.dtype.size
        outputs.append(CostOutputInfo(size, tensor.shape, tensor.dtype))
    return CostNode(
        name,
        kind,
        device,
        op.id,
        0.0,
        0,
        [CostInputInfo(tensor.op.id, tensor.index) for tensor in op.inputs],
        outputs,
        [control.id for control in op.control_inputs],
    )
