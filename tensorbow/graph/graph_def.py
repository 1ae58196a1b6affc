"""GraphDef: a graph as data, written to and read from JSON (TensorFlow white paper, section 2).

Equal graphs give equal texts. Nodes are in program order, one per line:

    {"name": "y", "op": "MatMul", "input": ["x:0", "w/read:0", "^init"], "device": "/device:CPU:0",
     "attr": {"transpose_a": false}, "output": [["float32", [null, 10]]], "source": 3}

`output` holds dtype and static shape of the results, `source` the index of the user's line in the list at
the end. Nodes in a branch or loop have its name as `context`; see `context_def`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tensorbow.errors import InvalidArgumentError, NotFoundError, TensorBowError
from tensorbow.graph.attribute_json import decode_attribute, encode_attribute
from tensorbow.graph.collection_items import encode_item
from tensorbow.graph.context_def import ContextDef, context_defs_of, is_texts, used_contexts
from tensorbow.graph.function_def import CALL, FunctionDef, library_of, used_functions
from tensorbow.graph.operation import Operation
from tensorbow.graph.protobuf.reading import read_message
from tensorbow.graph.protobuf.writing import graph_message
from tensorbow.kinds import ITEMS, read_as, refuse
from tensorbow.specs import TensorSpec
from tensorbow.strict_json import parse_json

FORMAT, VERSION = "tensorbow-graph", 1
MAXIMUM_NODES = 1 << 18  # 262,144; larger graphs are refused before memory is allocated
MAXIMUM_CHARACTERS = 1 << 28  # of the text: 268,435,456
MAXIMUM_VALUES = 1 << 24  # numbers, texts, lists and objects of the text: 16,777,216, at most about 1 GiB
LONGEST_REASON = 300  # characters of an error's reason in a message
GRADIENT = "_gradient_op_type"  # attribute of any op: the registered gradient that replaces its own
PUSH = "push"  # attribute of StackPop: the StackPush whose values it takes back
LONGEST_LINE = 1000  # characters of a user's line


@dataclass(eq=False)
class NodeDef:
    """One operation. `input` names tensors as `"op:index"`, followed by control inputs as `"^op"`."""

    name: str
    op: str
    input: list[str] = field(default_factory=list)
    attr: dict[str, Any] = field(default_factory=dict)
    output: list[TensorSpec] = field(default_factory=list)
    device: str = ""
    colocation: list[str] = field(default_factory=list)  # operations that share this one's device
    source: str = ""  # the user's line that created it, for error messages
    context: str = ""  # the branch or loop that it is in


@dataclass(eq=False)
class GraphDef:
    """A graph as data: `node` in program order, `collection` as JSON values by name, branches and loops, and
    `library`, the functions that nodes call, each after those that it calls.
    """

    node: list[NodeDef] = field(default_factory=list)
    collection: dict[str, list[Any]] = field(default_factory=dict)
    context: list[ContextDef] = field(default_factory=list)
    library: list[FunctionDef] = field(default_factory=list)

    def to_json(self) -> str:
        """The graph as JSON text; equal graphs give equal texts.

        Raises InvalidArgumentError for an attribute or collection that cannot be written, an invalid node,
        or more than `MAXIMUM_NODES` nodes.
        """
        self.check()
        sources: dict[str, int] = {}
        lines = [_compact(_node_entry(node, sources)) for node in self.node]
        head = f'{{"format": {_compact(FORMAT)}, "version": {VERSION},'
        nodes = ",\n".join(lines)
        try:
            collection = _compact({name: self.collection[name] for name in sorted(self.collection)})
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"GraphDef: a collection is no JSON: {_reason(error)}") from None
        library = ",\n".join(_compact(_function_entry(each, sources)) for each in self.library)
        functions = f'\n"library": [\n{library}\n],' if library else ""
        contexts = [_compact(context.to_entry()) for context in self.context]
        context = '\n"context": [\n' + ",\n".join(contexts) + "\n]," if contexts else ""
        return (
            f'{head}\n"node": [\n{nodes}\n],{functions}{context}\n"collection": {collection},\n'
            f'"source": {_lines(sources)}}}\n'
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> GraphDef:
        """The graph of a text that `to_json` wrote. Its consistency is checked when it is imported.

        Raises InvalidArgumentError, naming the node, for invalid text, or more than
        `MAXIMUM_CHARACTERS` of it, `MAXIMUM_VALUES` values, or `MAXIMUM_NODES` nodes.
        """
        content = _parse(text)
        sources = content.get("source", [])
        if not is_texts(sources):
            raise InvalidArgumentError("GraphDef: source must be a list of texts")
        entries = content.get("node")
        if not isinstance(entries, list):
            raise InvalidArgumentError("GraphDef: node must be a list")
        _require_size(len(entries), "GraphDef")
        collection = content.get("collection", {})
        _require_lists(collection)
        nodes = [_node_of(index, entry, sources) for index, entry in enumerate(entries)]
        library = _library_of(content.get("library", []), sources)
        _require_size(len(nodes) + sum(len(each.node) for each in library), "GraphDef")
        return cls(nodes, collection, _contexts_of(content.get("context", [])), library)

    def SerializeToString(self) -> bytes:  # noqa: N802 - TensorFlow's name
        """The graph as a protocol buffer that TensorFlow's readers of GraphDefs take.

        Raises FailedPreconditionError without protobuf, and what `to_json` raises.
        """
        self.check()
        blob: bytes = graph_message(
            self.node, self.collection, self._context_entries(), self.library
        ).SerializeToString(deterministic=True)
        return blob

    @classmethod
    def FromString(cls, data: bytes) -> GraphDef:  # noqa: N802 - TensorFlow's name
        """The graph of a protocol buffer of `SerializeToString`, or of TensorFlow (ops of the same meaning).

        Raises InvalidArgumentError, naming the node, for other bytes, more than `MAXIMUM_CHARACTERS` of them
        or `MAXIMUM_NODES` nodes, functions, or another data_format than NHWC; FailedPreconditionError without
        protobuf.
        """
        if not isinstance(data, bytes):
            raise refuse("GraphDef.FromString", "data", "bytes of a GraphDef", data)
        if len(data) > MAXIMUM_CHARACTERS:
            raise InvalidArgumentError(
                f"GraphDef: {len(data):,} bytes; at most {MAXIMUM_CHARACTERS:,} are supported"
            )
        nodes, collection, contexts, functions = read_message(data, NodeDef, MAXIMUM_NODES)
        _require_lists(collection)
        library = [FunctionDef(*each) for each in functions]
        graph = cls(nodes, collection, _contexts_of(contexts), library)
        graph.check()
        return graph

    def ParseFromString(self, data: bytes) -> int:  # noqa: N802 - TensorFlow's name
        """Replaces the content by that of a protocol buffer; returns its bytes. Raises as `FromString`."""
        read = type(self).FromString(data)
        self.node, self.collection, self.context = read.node, read.collection, read.context
        self.library = read.library
        return len(data)

    @classmethod
    def from_file_content(cls, content: bytes) -> GraphDef:
        """The graph of JSON text, which begins with `{`, or of a protocol buffer. Raises as their readers."""
        if not isinstance(content, bytes):
            raise refuse("GraphDef.from_file_content", "content", "the bytes of a file", content)
        return cls.from_json(content) if content[:1] in (b"{", b"") else cls.FromString(content)

    def _context_entries(self) -> list[Any]:
        return [context.to_entry() for context in self.context]

    def check(self) -> None:
        """Raises InvalidArgumentError for nodes and contexts, or fields, of another type than declared."""
        if not isinstance(self.node, (list, tuple)):
            raise InvalidArgumentError(f"GraphDef: node must be a list, got {type(self.node).__name__}")
        _require_size(len(self.node), "GraphDef")
        _require_lists(self.collection)
        if not isinstance(self.context, list) or not all(isinstance(c, ContextDef) for c in self.context):
            raise InvalidArgumentError("GraphDef: context must be a list of ContextDefs")
        for context in self.context:
            context.check()
        if not isinstance(self.library, list) or not all(isinstance(f, FunctionDef) for f in self.library):
            raise InvalidArgumentError("GraphDef: library must be a list of FunctionDefs")
        for function in self.library:
            function.check()
        self._check_nodes(self.node)
        for function in self.library:
            self._check_nodes(function.node)

    def _check_nodes(self, nodes: Sequence[Any]) -> None:
        for index, node in enumerate(nodes):
            if not isinstance(node, NodeDef):
                raise InvalidArgumentError(
                    f"GraphDef: node {index} must be a NodeDef, got {type(node).__name__}"
                )
            wrong = [key for key, sound in _FIELDS.items() if not sound(getattr(node, key))]
            if wrong:
                raise InvalidArgumentError(
                    f"GraphDef: node {index} {node.name!r:.80}: {wrong[0]} must not be "
                    f"{getattr(node, wrong[0])!r:.80}"
                )

    def extract(self, names: Iterable[str]) -> GraphDef:
        """The part of the graph that these operations (or tensors) need, without collections.

        Of the branches and loops it has what gradients and more operations in them need.

        Raises NotFoundError for an unknown name, InvalidArgumentError for an item that is no name.
        """
        self.check()
        by_name = {node.name: node for node in self.node}
        contexts = {context.name: context for context in self.context}
        wanted: set[str] = set()
        pending = []
        for name in read_as(ITEMS, names, "GraphDef.extract", "names"):
            if not isinstance(name, str):
                raise refuse("GraphDef.extract", "names", "a list of names", name)
            pending.append(operation_name(name))
        while pending:
            name = pending.pop()
            if name in wanted:
                continue
            if name not in by_name:
                raise NotFoundError(f"GraphDef: there is no node {name!r}")
            wanted.add(name)
            node = by_name[name]
            pending.extend(operation_name(item) for item in node.input)
            if isinstance(node.attr.get(PUSH), str):  # it takes back what that one keeps
                pending.append(node.attr[PUSH])
            context = contexts.pop(node.context, None)
            while context is not None:
                pending += [context.pivot] if context.pivot else []
                context = contexts.pop(context.outer, None)
        nodes = [node for node in self.node if node.name in wanted]
        return GraphDef(
            [replace(node, colocation=[c for c in node.colocation if c in wanted]) for node in nodes],
            context=used_contexts(self.context, nodes),
            library=used_functions(self.library, nodes),
        )

    def __eq__(self, other: object) -> bool:
        return self.to_json() == other.to_json() if isinstance(other, GraphDef) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<tb.GraphDef of {len(self.node)} nodes>"


def graph_def_of(operations: Sequence[Operation], collections: dict[str, list[Any]]) -> GraphDef:
    """The operations of a graph as data. Raises InvalidArgumentError for more than `MAXIMUM_NODES`."""
    _require_size(len(operations), "the graph")
    library, names = library_of(operations, _node_def)
    nodes = []
    for op in operations:
        node = _node_def(op)
        if node.op == CALL:
            node.attr["f"] = names[node.attr["f"]]
        nodes.append(node)
    collection = {}
    for name, items in collections.items():
        entries = [entry for entry in map(encode_item, items) if entry is not None]
        if isinstance(name, str) and entries:
            collection[name] = entries
    return GraphDef(nodes, collection, context_defs_of(operations), library)


def _node_def(op: Operation) -> NodeDef:
    override = op.gradient_override
    return NodeDef(
        name=op.name,
        op=op.type,
        input=[*(t.name for t in op.inputs), *(f"^{c.name}" for c in op.control_inputs)],
        attr={**op.attrs, GRADIENT: override} if isinstance(override, str) else dict(op.attrs),
        output=[TensorSpec(t.spec.shape, t.spec.dtype) for t in op.outputs],
        device=op.device,
        colocation=[other.name for other in op.colocation],
        source=str(op.source)[:LONGEST_LINE],
        context="" if op.context is None else op.context.name,
    )


def operation_name(item: str) -> str:
    """The operation's name in `"op"`, `"op:0"` or `"^op"`. An index has at most nine digits."""
    if item.startswith("^"):
        return item[1:]
    head, colon, index = item.rpartition(":")
    return head if colon and len(index) < 10 and index.isascii() and index.isdecimal() else item


def _require_size(count: int, what: str) -> None:
    if count > MAXIMUM_NODES:
        raise InvalidArgumentError(f"{what} has {count:,} nodes; at most {MAXIMUM_NODES:,} are supported")


def _require_lists(collection: Any) -> None:
    sound = isinstance(collection, dict) and all(
        isinstance(name, str) and isinstance(items, list) for name, items in collection.items()
    )
    if not sound:
        raise InvalidArgumentError("GraphDef: collection must be an object of lists")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: isinstance(value, str) and bool(value),
    "op": _is_text,
    "input": is_texts,
    "attr": lambda value: isinstance(value, dict) and all(isinstance(key, str) for key in value),
    "output": lambda value: isinstance(value, list) and all(isinstance(v, TensorSpec) for v in value),
    "device": _is_text,
    "colocation": is_texts,
    "source": _is_text,
    "context": _is_text,
}


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__


# Writing ------------------------------------------------------------------------------------------


def _node_entry(node: NodeDef, sources: dict[str, int]) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": node.name, "op": node.op}
    if node.input:
        entry["input"] = list(node.input)
    if node.device:
        entry["device"] = node.device
    if node.colocation:
        entry["colocation"] = list(node.colocation)
    if node.attr:
        entry["attr"] = _encoded_attributes(node)
    if node.output:
        entry["output"] = [[s.dtype.name, None if s.shape is None else list(s.shape)] for s in node.output]
    if node.context:
        entry["context"] = node.context
    if node.source:
        entry["source"] = sources.setdefault(node.source, len(sources))
    return entry


def _encoded_attributes(node: NodeDef) -> dict[str, Any]:
    encoded = {}
    for key in sorted(node.attr):
        try:
            encoded[key] = encode_attribute(node.attr[key])
        except InvalidArgumentError as error:
            made = f" (made at {node.source})" if node.source else ""
            raise InvalidArgumentError(
                f"{node.op} {node.name}: attribute {key!r} cannot be written to a GraphDef: {error}{made}"
            ) from None
    return encoded


def _compact(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _lines(sources: Iterable[str]) -> str:
    return "[" + ",\n".join(_compact(source) for source in sources) + "]"


# Reading ------------------------------------------------------------------------------------------


def _parse(text: str | bytes) -> dict[str, Any]:
    if not isinstance(text, (str, bytes)):
        raise refuse("GraphDef.from_json", "text", "JSON text", text)
    if len(text) > MAXIMUM_CHARACTERS:
        raise InvalidArgumentError(
            f"GraphDef: a text of {len(text):,} characters; at most {MAXIMUM_CHARACTERS:,} are supported"
        )
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        _require_size(sum(1 for _ in _OP.finditer(text)), "GraphDef")  # before they are allocated
        content = parse_json(text, MAXIMUM_VALUES)
    except TensorBowError:
        raise
    except (ValueError, MemoryError) as error:
        raise InvalidArgumentError(f"GraphDef: the text is truncated or no JSON: {_reason(error)}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InvalidArgumentError(f'GraphDef: expected a JSON object with "format": "{FORMAT}"')
    if content.get("version") != VERSION:
        raise InvalidArgumentError(
            f"GraphDef: version {content.get('version')!r:.40} is not supported, only {VERSION}"
        )
    return content


_OP = re.compile(r'"op"\s*:')


def _node_of(index: int, entry: Any, sources: list[str]) -> NodeDef:
    """A node from JSON. Raises InvalidArgumentError, prefixed by the node's index and name."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise InvalidArgumentError(f"GraphDef: node {index} must be an object with a name")
    where = f"GraphDef: node {index} {entry['name'][:80]!r}"
    unknown = set(entry) - {
        "name",
        "op",
        "input",
        "device",
        "colocation",
        "attr",
        "output",
        "source",
        "context",
    }
    if unknown:
        raise InvalidArgumentError(f"{where}: unknown field {sorted(unknown)[0][:40]!r}")
    if not isinstance(entry.get("op"), str):
        raise InvalidArgumentError(f"{where}: op must be a text")
    inputs, attrs, device = entry.get("input", []), entry.get("attr", {}), entry.get("device", "")
    colocation = entry.get("colocation", [])
    if not is_texts(colocation):
        raise InvalidArgumentError(f"{where}: colocation must be a list of texts")
    if not is_texts(inputs) or not isinstance(attrs, dict) or not isinstance(device, str):
        raise InvalidArgumentError(f"{where}: input must be a list of texts, attr an object, device a text")
    source = entry.get("source")
    if source is not None and (type(source) is not int or not 0 <= source < len(sources)):
        raise InvalidArgumentError(f"{where}: source must be a number below {len(sources)}")
    context, outputs = entry.get("context", ""), entry.get("output", [])
    if not isinstance(context, str):
        raise InvalidArgumentError(f"{where}: context must be a text")
    if not isinstance(outputs, list):
        raise InvalidArgumentError(f"{where}: output must be a list")
    decoded = {}
    for key, value in attrs.items():
        try:
            decoded[key] = decode_attribute(value)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{where}: attribute {key[:40]!r}: {_reason(error)}") from None
    try:
        specs = [decode_attribute({"spec": item}) for item in outputs]
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: output: {_reason(error)}") from None
    line = "" if source is None else sources[source][:LONGEST_LINE]
    return NodeDef(
        entry["name"], entry["op"], list(inputs), decoded, specs, device, list(colocation), line, context
    )


def _function_entry(function: FunctionDef, sources: dict[str, int]) -> dict[str, Any]:
    return {
        "name": function.name,
        "input": function.input,
        "output": function.output,
        "node": [_node_entry(node, sources) for node in function.node],
    }


def _library_of(entries: Any, sources: list[str]) -> list[FunctionDef]:
    """The functions of JSON. Raises InvalidArgumentError, naming the function."""
    if not isinstance(entries, list):
        raise InvalidArgumentError("GraphDef: library must be a list")
    library = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or set(entry) != {"name", "input", "output", "node"}:
            raise InvalidArgumentError(
                f"GraphDef: function {index} must be an object of name, input, output and node"
            )
        function = FunctionDef(**entry)
        function.check()
        function.node = [_node_of(number, node, sources) for number, node in enumerate(function.node)]
        library.append(function)
    return library


def _contexts_of(entries: Any) -> list[ContextDef]:
    if not isinstance(entries, list):
        raise InvalidArgumentError("GraphDef: context must be a list")
    return [ContextDef.of_entry(index, entry) for index, entry in enumerate(entries)]
