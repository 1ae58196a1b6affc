"""Parts of GraphDefs without variables and without what training needs: TensorFlow's `tf.graph_util`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import GraphDef, NodeDef
from tensorbow.graph.graph_def import operation_name
from tensorbow.kinds import TEXT as _TEXT
from tensorbow.kinds import Kind, Names, RefusedError, checked, instance, optional, sequence
from tensorbow.specs import Array

VARIABLES, READS = ("Variable", "HostVariable"), ("ReadVariable", "ReadHostVariable")
AsGraphDef: TypeAlias = Annotated[
    GraphDef, instance(GraphDef, expected="a GraphDef, as graph.as_graph_def()")
]
SomeNames: TypeAlias = Annotated[Any, optional(sequence(_TEXT, "a list of names"))]


def _read_session(value: Any) -> Any:
    if not all(hasattr(value, name) for name in ("run", "graph", "close")):
        raise RefusedError
    return value


AsSession: TypeAlias = Annotated[Any, Kind("a session", _read_session)]


@checked
def extract_sub_graph(graph_def: AsGraphDef, dest_nodes: Names) -> GraphDef:
    """The nodes of a GraphDef that the operations of these names need; `graph_def.extract`.

    Raises NotFoundError for an unknown name.
    """
    return graph_def.extract(dest_nodes)


@checked
def convert_variables_to_constants(
    sess: AsSession,
    input_graph_def: AsGraphDef,
    output_node_names: Names,
    variable_names_whitelist: SomeNames = None,
    variable_names_blacklist: SomeNames = None,
) -> GraphDef:
    """The part of a GraphDef that outputs need, with variables as constants of their values in a session.

    sess: a session of the graph. output_node_names: of the operations to keep, and all that they need.
    variable_names_whitelist, variable_names_blacklist: names of the variables that become constants, and of
    those that do not; by default all do.

    A constant has its variable's name, and each read of it becomes an Identity of the same name.

    Raises NotFoundError for an unknown output, or a variable that the session's graph does not have;
    InvalidArgumentError where an output needs an operation that writes such a variable, or takes it as a
    whole; and FailedPreconditionError for one without a value.
    """
    part = input_graph_def.extract(output_node_names)
    chosen = {
        node.name
        for node in part.node
        if node.op in VARIABLES
        and (variable_names_whitelist is None or node.name in variable_names_whitelist)
        and node.name not in (variable_names_blacklist or ())
    }
    for node in part.node:
        taken = [name for name in map(operation_name, node.input) if name in chosen]
        if taken and node.op not in READS:
            raise InvalidArgumentError(
                f"convert_variables_to_constants: {node.name!r} ({node.op}) takes variable {taken[0]!r} "
                f"itself, not its value; choose outputs that do not need it, or put {taken[0]!r} on the "
                "blacklist"
            )
    values = _values(sess, sorted(chosen))
    nodes = []
    for node in part.node:
        if node.name in chosen:
            attributes = {"value": values[node.name]}
            node = replace(node, op="Const", attr=attributes, colocation=[])
        elif node.op in READS and operation_name(node.input[0]) in chosen:
            node = replace(node, op="Identity", attr={})
        nodes.append(node)
    return replace(part, node=nodes)


def _values(session: Any, names: Iterable[str]) -> Mapping[str, Array]:
    """The values of variables in a session, by their names."""
    fetched = {}
    for name in names:
        try:
            fetched[name] = session.graph.get_tensor_by_name(f"{name}:0")
        except (KeyError, NotFoundError):
            raise NotFoundError(
                f"convert_variables_to_constants: the session's graph has no variable {name!r}; give the "
                "session of the graph that the GraphDef was made of"
            ) from None
    values: Mapping[str, Array] = session.run(fetched) if fetched else {}
    return values


@checked
def remove_training_nodes(input_graph: AsGraphDef, protected_nodes: SomeNames = None) -> GraphDef:
    """A GraphDef without its Identity and CheckNumerics nodes: who reads one reads its input instead.

    protected_nodes: names of nodes to keep, such as outputs. Nodes with a control input, nodes that others
    have as a control input or share a device with, and nodes of loops and branches stay, too.
    """
    input_graph.check()
    kept = {*(protected_nodes or ()), *_names_in([context.to_entry() for context in input_graph.context])}
    for node in input_graph.node:
        kept |= {item[1:] for item in node.input if item.startswith("^")} | set(node.colocation)
    sources: dict[str, str] = {}
    for node in input_graph.node:
        if (
            node.op in ("Identity", "CheckNumerics")
            and len(node.input) == 1
            and not node.context
            and node.name not in kept
        ):
            sources[node.name] = node.input[0]

    def source(item: str) -> str:
        while not item.startswith("^") and operation_name(item) in sources:
            item = sources[operation_name(item)]
        return item

    nodes: list[NodeDef] = [
        replace(node, input=[source(item) for item in node.input])
        for node in input_graph.node
        if node.name not in sources
    ]
    return replace(input_graph, node=nodes)


def _names_in(entry: Any) -> set[str]:
    """Operations that entries of contexts name."""
    if isinstance(entry, str):
        return {operation_name(entry)}
    items = entry.values() if isinstance(entry, Mapping) else entry if isinstance(entry, list) else ()
    return {name for item in items for name in _names_in(item)}
