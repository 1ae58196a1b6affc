"""The part of a GraphDef in one name scope, without the scope in its names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import GraphDef, NodeDef
from tensorbow.graph.context_def import ContextDef
from tensorbow.graph.graph_def import operation_name
from tensorbow.ops.definition import OPS

UNBOUND = "unbound_inputs/"  # scope of placeholders in place of tensors from outside


def graph_def_in_scope(graph_def: GraphDef, scope: str) -> GraphDef:
    """The operations of a scope, and the items of collections that consist of them, without its name.

    A tensor from outside becomes a placeholder, `unbound_inputs/` and its operation's name (with the number
    of an output that is not the first); control inputs from outside are left out.

    Raises NotFoundError for a scope without operations, InvalidArgumentError where one is in a branch or loop
    that is not in the scope.
    """
    prefix = f"{scope.removesuffix('/')}/"
    nodes = {node.name: node for node in graph_def.node}
    inside = {name for name in nodes if name.startswith(prefix)}
    if not inside:
        raise NotFoundError(
            f"export_meta_graph: expected export_scope to be a scope of the graph, got {scope!r:.80}, "
            "in which it has no operation"
        )
    outside = nodes.keys() - inside
    contexts = [each for each in graph_def.context if each.name.startswith(prefix)]
    own_contexts = {each.name for each in contexts}
    placeholders: dict[str, NodeDef] = {}
    kept: list[NodeDef] = []

    def bound(item: str) -> str:
        name, _, index = item.partition(":")
        if name in inside:
            return item.removeprefix(prefix)
        label = name if index in ("", "0") else f"{name}_{index}"
        while label != name and label in nodes:  # another operation has this name, as `split_1`
            label += "_"
        label = f"{UNBOUND}{label}"
        spec = nodes[name].output[int(index or 0)]
        attributes = {"dtype": spec.dtype, "shape": spec.shape}
        placeholders.setdefault(label, NodeDef(label, "Placeholder", [], attributes, [spec]))
        return f"{label}:0"

    for node in graph_def.node:
        if node.name not in inside:
            continue
        if node.context and node.context not in own_contexts:
            raise InvalidArgumentError(
                f"export_meta_graph: {node.name} is in {node.context}, a branch or loop that is not in the "
                f"scope {scope!r:.80}; export the scope around it"
            )
        controls = [f"^{item[1:].removeprefix(prefix)}" for item in node.input if item[1:] in inside]
        inputs = [bound(item) for item in node.input if not item.startswith("^")]
        scoped = OPS[node.op].scoped if node.op in OPS else ()
        kept.append(
            replace(
                node,
                name=node.name.removeprefix(prefix),
                input=[*inputs, *controls],
                attr={k: v.removeprefix(prefix) if k in scoped else v for k, v in node.attr.items()},
                colocation=[each.removeprefix(prefix) for each in node.colocation if each in inside],
                context=node.context.removeprefix(prefix),
            )
        )
    collection = {
        key: found
        for key, items in graph_def.collection.items()
        if (found := [_stripped(each, prefix) for each in items if not _names(each, outside)])
    }
    described = [ContextDef.of_entry(n, _stripped(c.to_entry(), prefix)) for n, c in enumerate(contexts)]
    return GraphDef([*placeholders.values(), *kept], collection, described, graph_def.library)


def _names(entry: Any, names: Collection[str]) -> bool:
    """True if one of these operations is named in a JSON entry."""
    if isinstance(entry, str):
        return operation_name(entry) in names
    items = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ()
    return any(_names(each, names) for each in items)


def _stripped(entry: Any, prefix: str) -> Any:
    if isinstance(entry, str):
        return entry.removeprefix(prefix)
    if isinstance(entry, list):
        return [_stripped(each, prefix) for each in entry]
    return {k: _stripped(v, prefix) for k, v in entry.items()} if isinstance(entry, dict) else entry
