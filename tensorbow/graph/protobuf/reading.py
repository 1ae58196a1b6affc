"""NodeDefs, collections, contexts and functions, from messages of graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.graph.attribute_json import decode_attribute
from tensorbow.graph.function_def import CALL
from tensorbow.graph.protobuf.op_spelling import (
    CALLING,
    CLASS,
    CONTEXT,
    DEFAULT_ONLY,
    DERIVED,
    EXACT,
    IGNORED,
    LINE,
    OWN,
    OWN_SHAPES,
    PART,
    PREFIX,
    RENAMED,
    SAME,
    SHAPES,
    TYPES,
)
from tensorbow.graph.protobuf.output_names import output_index
from tensorbow.graph.protobuf.tensorflow_forms import FORMS
from tensorbow.graph.protobuf.tensorflow_reading import READERS, Foreign, Read
from tensorbow.graph.protobuf.values import array_of, attribute_of, dims_of, dtype_of, messages
from tensorbow.specs import Array, TensorSpec
from tensorbow.strict_json import parse_json

MOST_VALUES = 1 << 24  # of JSON in a message


def read_message(
    blob: bytes, node_def: Callable[..., Any], most_nodes: int
) -> tuple[list[Any], dict[str, Any], list[Any], list[tuple[str, list[str], list[str], list[Any]]]]:
    """Nodes, made by `node_def`, collections, contexts, and functions of a serialised GraphDef.

    A function is its name, the names of its inputs, its outputs, and its nodes.

    Raises InvalidArgumentError, naming the node, for bytes that are no GraphDef, more than `most_nodes`
    nodes, and attributes that are invalid.
    """
    graph = messages()("GraphDef")()
    _require_count(blob, most_nodes)
    try:
        graph.ParseFromString(blob)
    except Exception as error:  # DecodeError of protobuf
        raise InvalidArgumentError(f"GraphDef: the bytes are truncated or no GraphDef: {error}") from None
    called = {function.signature.name for function in graph.library.function}
    nodes = _read_nodes(graph.node, node_def, called)
    library, count = [], len(nodes)
    for function in graph.library.function:
        library.append(_read_function(function, node_def, called))
        count += len(function.node_def)
    if count > most_nodes:
        raise InvalidArgumentError(
            f"GraphDef has more than {most_nodes:,} nodes, which are supported at most"
        )
    return (
        nodes,
        _json_of("collections", graph.tensorbow_collections) or {},
        _json_of("contexts", graph.tensorbow_contexts) or [],
        library,
    )


def _read_nodes(messages: Iterable[Any], node_def: Callable[..., Any], called: set[str]) -> list[Any]:
    messages = [message for message in messages if PART not in message.attr]
    variables = {node.name for node in messages if node.op in ("Variable", "VariableV2")}
    constants = {message.name: message for message in messages if message.op == "Const"}
    names = {message.name for message in messages}
    nodes = []
    for index, message in enumerate(messages):
        try:
            node = _read_node(message, node_def, variables, called, constants)
            if message.op == "Select" and EXACT not in message.attr:
                nodes.append(_condition_of_rows(node, node_def, names))
            nodes.append(node)
        except (TensorBowError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise InvalidArgumentError(f"GraphDef: node {index} {message.name[:80]!r}: {reason}") from None
    return nodes


def _condition_of_rows(select: Any, node_def: Callable[..., Any], taken: set[str]) -> Any:
    """The condition of a Select of TensorFlow, which chooses rows if it is a vector."""
    name = f"{select.name}/condition"
    while name in taken:
        name += "_"
    taken.add(name)
    made = node_def(name, "ConditionOfRows", select.input[:3], device=select.device, context=select.context)
    select.input[0] = f"{name}:0"
    return made


def _read_function(
    function: Any, node_def: Callable[..., Any], called: set[str]
) -> tuple[str, list[str], list[str], list[Any]]:
    name = function.signature.name
    inputs = [argument.name for argument in function.signature.input_arg]
    ops = {node.name: node.op for node in function.node_def}

    def plain(item: str) -> str:
        node, *rest = item.split(":")
        if item.startswith("^") or not rest:
            return item if item.startswith("^") else f"{item}:0"
        if len(rest) == 1:  # of older functions
            return f"{node}:{rest[0] if rest[0].isdecimal() else 0}"
        return f"{node}:{output_index(ops.get(node, ''), rest[0], int(rest[1]))}"

    bodies = list(function.node_def)
    for body in bodies:
        body.input[:] = [plain(item) for item in body.input]
    try:
        nodes = _read_nodes(bodies, node_def, called)
        exact = _read_nodes(function.tensorbow_arguments, node_def, called)
        arguments = exact or [
            node_def(each.name, "Placeholder", [], {"dtype": dtype_of(each.type), "shape": None})
            for each in function.signature.input_arg
        ]
        outputs = [plain(function.ret[each.name]) for each in function.signature.output_arg]
    except (TensorBowError, ValueError) as error:
        text = str(error).removeprefix("GraphDef: ")
        raise InvalidArgumentError(f"GraphDef: function {name[:80]!r}: {text}") from None
    return name, inputs, outputs, [*arguments, *nodes]


def _json_of(what: str, text: bytes) -> Any:
    try:
        return parse_json(text.decode("utf-8"), MOST_VALUES) if text else None
    except (ValueError, MemoryError, TensorBowError) as error:
        raise InvalidArgumentError(f"GraphDef: the {what} are no JSON: {str(error)[:200]}") from None


def _require_count(blob: bytes, most: int) -> None:
    """Counts the nodes before memory is allocated for them."""
    position, count = 0, 0
    while position < len(blob) and blob[position] == 0x0A:  # field 1, a message
        size, shift, position = 0, 0, position + 1
        while position < len(blob):
            byte = blob[position]
            size, shift, position = size | (byte & 127) << shift, shift + 7, position + 1
            if byte < 128 or shift > 35:
                break
        position += size
        count += 1
        if count > most:
            raise InvalidArgumentError(f"GraphDef has more than {most:,} nodes, which are supported at most")


def _read_node(
    message: Any,
    node_def: Callable[..., Any],
    variables: set[str],
    called: set[str],
    constants: Mapping[str, Any],
) -> Any:
    """A node. variables: names of those in the graph. called: functions. constants: messages of Consts."""
    if not message.name:
        raise InvalidArgumentError("expected a name")
    inputs = [item if item.startswith("^") or ":" in item else f"{item}:0" for item in message.input]
    exact = _exact(message.attr[EXACT].s) if EXACT in message.attr else {}
    op = message.op.removeprefix(PREFIX)
    if exact.get("op") in FORMS:
        op, inputs, attrs = exact["op"], exact.get("input", inputs), exact["attr"]
    elif message.op in called or op in CALLING:
        op, attrs = CALL, {"f": message.op if message.op in called else message.attr["f"].func.name}
    elif op in READERS and op == message.op:
        op, inputs, attrs = _read_foreign(message, inputs, constants)
    else:
        foreign = op == message.op
        inputs = exact.get("input", inputs)
        if foreign:
            op = SAME.get(op, op)
            if exact.get("op") == "ReadVariable" or (
                op == "Identity" and inputs and inputs[0][:-2] in variables
            ):
                op = "ReadVariable"
        attrs = {**_read_attributes(message, op, foreign), **exact.get("attr", {})}
    key = OWN_SHAPES if OWN_SHAPES in message.attr else SHAPES
    shapes, types = message.attr[key].list.shape, message.attr[TYPES].list.type
    specs = []
    if types:
        if len(types) != len(shapes):
            raise InvalidArgumentError(f"{len(shapes)} {SHAPES}, but {len(types)} {TYPES}")
        specs = [TensorSpec(dims_of(s), dtype_of(t)) for s, t in zip(shapes, types, strict=True)]
    colocation = [item.decode("utf-8").removeprefix("loc:@") for item in message.attr[CLASS].list.s]
    colocation = [name for name in colocation if name != message.name]
    source = message.attr[LINE].s.decode("utf-8", "replace")
    context = message.attr[CONTEXT].s.decode("utf-8", "replace") if CONTEXT in message.attr else ""
    return node_def(message.name, op, inputs, attrs, specs, message.device, colocation, source, context)


def _read_foreign(message: Any, inputs: list[str], constants: Mapping[str, Any]) -> Read:
    def attribute(key: str, default: Any) -> Any:
        return attribute_of(message.attr[key]) if key in message.attr else default

    def constant(item: str) -> Array | None:
        found = constants.get(item.removesuffix(":0"))
        return None if found is None else array_of(found.attr["value"].tensor)

    plain = [item for item in inputs if not item.startswith("^")]
    op, read, attrs = READERS[message.op](Foreign(message.op, plain, attribute, constant))
    return op, [*read, *(item for item in inputs if item.startswith("^"))], attrs


def _read_attributes(message: Any, op: str, foreign: bool) -> dict[str, Any]:
    """The attributes of a node of the same inputs. foreign: TensorFlow has the op."""
    written = DERIVED.get(op, {}) if foreign else {}
    names = {theirs: mine for mine, theirs in RENAMED.get(op, {}).items()} if foreign else {}
    attrs = {}
    for key in sorted(message.attr):
        if key in OWN or (foreign and key.startswith("_") and key != "_gradient_op_type"):
            continue
        value = message.attr[key]
        if foreign and key in DEFAULT_ONLY:
            if value.s != DEFAULT_ONLY[key]:
                raise InvalidArgumentError(
                    f"attribute {key}: expected {DEFAULT_ONLY[key].decode()}, got {value.s!r:.40}"
                )
            continue
        if foreign and key not in names and (key in IGNORED or key in written):
            continue
        try:
            attrs[names.get(key, key)] = attribute_of(value)
        except (TensorBowError, ValueError) as error:
            raise InvalidArgumentError(f"attribute {key[:40]!r}: {error}") from None
    return attrs


def _exact(text: bytes) -> dict[str, Any]:
    try:
        content = parse_json(text.decode("utf-8"), MOST_VALUES)
        attrs = content.get("attr", {})
        return {**content, "attr": {key: decode_attribute(value) for key, value in attrs.items()}}
    except (AttributeError, ValueError, RecursionError, TensorBowError) as error:
        raise InvalidArgumentError(f"attribute {EXACT!r}: {str(error)[:200]}") from None
