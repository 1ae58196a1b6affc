"""Topological order of a GraphDef's nodes."""

from __future__ import annotations

import heapq
from collections.abc import Collection

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph.graph_def import GraphDef, operation_name

SHOWN = 8  # nodes of a cycle named in a message


def program_order(graph_def: GraphDef, mapped: Collection[str] = ()) -> list[int]:
    """Indices of the nodes in topological order; keeps the given order where possible.

    A node comes after its inputs, its control inputs, and the nodes it is colocated with, but the Merge of a
    loop variable before the NextIteration that it reads.

    mapped: inputs that are not nodes of the GraphDef. Raises InvalidArgumentError for two nodes of one name,
    a missing input, and a cycle, which it names. Time and memory are linear in nodes and inputs.
    """
    indices: dict[str, int] = {}
    for index, node in enumerate(graph_def.node):
        if indices.setdefault(node.name, index) != index:
            raise InvalidArgumentError(f"GraphDef: two nodes are named {node.name[:80]!r}")
    needs: list[list[int]] = []
    sorted_already = True
    for index, node in enumerate(graph_def.node):
        needed = []
        for item in node.input:
            if item in mapped:
                continue
            other = indices.get(operation_name(item))
            if other is None:
                raise InvalidArgumentError(
                    f"GraphDef: node {index} {node.name[:80]!r} ({node.op[:40]}): "
                    f"there is no node for its input {item[:80]!r}"
                )
            if not (node.op == "Merge" and graph_def.node[other].op == "NextIteration"):  # a loop's back edge
                needed.append(other)
        for name in node.colocation:
            other = indices.get(name)
            if other is None:
                raise InvalidArgumentError(
                    f"GraphDef: node {index} {node.name[:80]!r} ({node.op[:40]}): "
                    f"it is to be on the device of {name[:80]!r}, which is no node"
                )
            needed.append(other)
        sorted_already = sorted_already and all(other < index for other in needed)
        needs.append(needed)
    return list(range(len(needs))) if sorted_already else _sorted(graph_def, needs)


def _sorted(graph_def: GraphDef, needs: list[list[int]]) -> list[int]:
    waiting = [len(set(needed)) for needed in needs]
    readers: list[list[int]] = [[] for _ in needs]
    for index, needed in enumerate(needs):
        for other in set(needed):
            readers[other].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]  # sorted, so already a heap
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(needs):
        raise InvalidArgumentError(
            f"GraphDef: nodes need each other in a cycle: {_cycle(graph_def, needs, order)}"
        )
    return order


def _cycle(graph_def: GraphDef, needs: list[list[int]], order: list[int]) -> str:
    """Text of a cycle, `a -> b -> a`: each node needs the next. `order`: the nodes that are in no cycle."""
    done = set(order)
    index = next(p for p in range(len(needs)) if p not in done)
    path: list[int] = []
    seen: dict[int, int] = {}
    while index not in seen:
        seen[index] = len(path)
        path.append(index)
        index = next(other for other in needs[index] if other not in done)
    names = [graph_def.node[p].name[:80] for p in path[seen[index] :]]
    shown = names if len(names) <= SHOWN else [*names[:SHOWN], f"({len(names) - SHOWN} more)"]
    return " -> ".join([*shown, names[0]])
