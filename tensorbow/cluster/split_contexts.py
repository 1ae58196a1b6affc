"""Loops and conds of a GraphDef that span several tasks, so that no task can compile them whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tensorbow.cluster.frames import data_inputs
from tensorbow.graph import GraphDef, NodeDef
from tensorbow.graph.context_def import ContextDef
from tensorbow.graph.graph_def import operation_name


def without_split_contexts(graph: GraphDef, task_of: Callable[[NodeDef], str]) -> GraphDef:
    """The graph without the loops and conds that are on several tasks; their nodes stay, in no context.

    task_of: the task of a node, "" for one that is wherever it is read.
    """
    split = _split(graph, task_of)
    if not split:
        return graph
    nodes = [replace(node, context="") if node.context in split else node for node in graph.node]
    contexts = [
        replace(
            context,
            outer="" if context.outer in split else context.outer,
            forward="" if context.forward in split else context.forward,
        )
        for context in graph.context
        if context.name not in split
    ]
    return GraphDef(nodes, context=contexts, library=graph.library)


def _split(graph: GraphDef, task_of: Callable[[NodeDef], str]) -> set[str]:
    """The names of the contexts that are on several tasks, or read what is inside of such ones."""
    by_name = {context.name: context for context in graph.context}
    nodes = {node.name: node for node in graph.node}
    tasks: dict[str, set[str]] = {name: set() for name in by_name}

    def add(context: str, task: str) -> None:
        while context and task:
            for part in _parts(by_name[context]):
                tasks[part].add(task)
            context = by_name[context].outer

    for node in graph.node:
        add(node.context, task_of(node))
    for context in graph.context:
        for role in ("merged", "exits", "count"):
            for item in context.tensor.get(role, ()):
                add(context.name, task_of(nodes[operation_name(item)]))
    split = {name for name, found in tasks.items() if len(found) > 1}
    return _with_readers(graph.node, nodes, by_name, split, task_of)


def _with_readers(
    all_nodes: Sequence[NodeDef],
    nodes: dict[str, NodeDef],
    by_name: dict[str, ContextDef],
    split: set[str],
    task_of: Callable[[NodeDef], str],
) -> set[str]:
    """The split contexts with those that read directly what is in one, as conds of gradients do."""
    while True:
        before = len(split)
        for node in all_nodes:
            if not node.context or node.context in split or node.op in ("Enter", "Switch"):
                continue
            for item in data_inputs(node):
                source = nodes[operation_name(item)]
                elsewhere = task_of(source) not in ("", task_of(node))
                if elsewhere or source.context in split:
                    context = node.context
                    while context:
                        split.update(_parts(by_name[context]))
                        context = by_name[context].outer
        if len(split) == before:
            return split


def _parts(context: ContextDef) -> tuple[str, ...]:
    """The names of a loop, or of both branches of a cond."""
    other = str(context.attr.get("other", ""))
    return (context.name, other) if other else (context.name,)
