"""Messages of graphs, from their NodeDefs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph.attribute_json import encode_attribute
from tensorbow.graph.function_def import CALL, FunctionDef
from tensorbow.graph.protobuf.control_inputs import constants_after, constants_inside, writes_after
from tensorbow.graph.protobuf.op_spelling import (
    CLASS,
    CONTEXT,
    DERIVED,
    EXACT,
    HIDDEN,
    LINE,
    OWN,
    OWN_SHAPES,
    PART,
    PREFIX,
    RENAMED,
    SHAPES,
    SPELLED,
    TYPES,
)
from tensorbow.graph.protobuf.output_names import output_argument
from tensorbow.graph.protobuf.tensorflow_forms import (
    FORMS,
    OTHER_OUTPUTS,
    RESOURCE,
    Form,
    FormPart,
    FormSource,
    ShapeOf,
    resources_of,
)
from tensorbow.graph.protobuf.values import (
    DT_RESOURCE,
    NUMBERS,
    attribute_message,
    attribute_of,
    messages,
    shape_message,
)

PRODUCER = 134  # TensorFlow's version of GraphDefs that writers of today state


def graph_message(
    nodes: Iterable[Any],
    collection: Mapping[str, list[Any]],
    contexts: Sequence[Any] = (),
    library: Sequence[FunctionDef] = (),
) -> Any:
    """The message of a graph's NodeDefs, collections, contexts as JSON, and functions.

    Raises InvalidArgumentError, naming node and attribute, for a value that cannot be written.
    """
    nodes = list(nodes)
    graph = messages()("GraphDef")()
    graph.versions.producer = PRODUCER
    graph.node.extend(_messages_of(nodes, contexts))
    if collection:
        try:
            text = json.dumps({name: collection[name] for name in sorted(collection)}, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"GraphDef: a collection is no JSON: {str(error)[:200]}") from None
        graph.tensorbow_collections = text.encode()
    if contexts:
        graph.tensorbow_contexts = json.dumps(contexts, allow_nan=False).encode()
    for function in library:
        _write_function(graph.library.function.add(), function)
    return graph


def _write_function(message: Any, function: FunctionDef) -> None:
    """Inputs of its nodes are named as TensorFlow does: an argument, or node:output name:index."""
    outputs = {node.name: node.output for node in function.node}
    written = _messages_of(function.node, ())
    ops = {each.name: each.op for each in written}

    def named(item: str) -> str:
        name, _, index = item.partition(":")
        if item.startswith("^") or name in function.input:
            return item if item.startswith("^") else name
        argument, place = output_argument(ops.get(name, ""), int(index or 0))
        return f"{name}:{argument}:{place}"

    message.signature.name = function.name
    for name in function.input:
        message.signature.input_arg.add(name=name, type=NUMBERS[outputs[name][0].dtype.name])
    for number, item in enumerate(function.output):
        name, _, index = item.rpartition(":")
        dtype = outputs[name][int(index)].dtype
        message.signature.output_arg.add(name=f"out{number}", type=NUMBERS[dtype.name])
        message.ret[f"out{number}"] = named(item)
    for each in written:
        if each.name in function.input:  # with the shape and the user's line, which a signature does not have
            message.tensorbow_arguments.append(each)
        else:
            each.input[:] = [named(item) for item in each.input]
            message.node_def.append(each)


def _messages_of(nodes: Sequence[Any], contexts: Sequence[Any]) -> list[Any]:
    """The messages of nodes, and of the nodes that TensorFlow needs beside them, before them."""
    by_name = {node.name: node for node in nodes}
    entries = {context["name"]: context for context in contexts}
    resources, after = resources_of(nodes), writes_after(nodes)
    messages: list[Any] = []
    for node in nodes:
        source = FormSource(node, by_name, resources)
        rule = FORMS.get(node.op)
        form = None if rule is None else rule(source)
        inner = constants_inside(node, by_name, entries) if form or node.op in DERIVED else {}
        parts = [*inner.values(), *(form.parts if form else ())]
        taken = any(f"{node.name}/{part.suffix}" in by_name for part in parts)
        if taken:  # a name that a node of the user's has
            form, parts, inner = None, [], {}
        for part in parts:
            messages.append(_part_message(node, part, constants_after(node, entries)))
        own = rule is not None and form is None
        messages.append(_node_message(node, source, form, inner, own, after.get(node.name, ())))
    return messages


def _part_message(node: Any, part: FormPart, after: Sequence[str]) -> Any:
    message = messages()("NodeDef")()
    message.name, message.op, message.device = f"{node.name}/{part.suffix}", part.op, node.device
    message.input.extend(_inputs(part.input or (after if part.value is not None else ())))
    if part.value is not None:
        message.attr["value"].CopyFrom(attribute_message("value", part.value))
        message.attr["dtype"].type = NUMBERS[part.value.dtype.name]
    for key, value in part.attr.items():
        _put(message.attr[key], key, value)
    message.attr[PART].s = node.name.encode()
    return message


def _inputs(items: Iterable[str]) -> list[str]:
    return [item.removesuffix(":0") for item in items]


def _put(message: Any, key: str, value: Any) -> None:
    """Sets an attribute of a form."""
    if isinstance(value, ShapeOf):
        message.shape.CopyFrom(shape_message(value.dims))
    elif value is RESOURCE:
        message.type = DT_RESOURCE
    elif isinstance(value, tuple) and value and all(isinstance(item, ShapeOf) for item in value):
        message.list.shape.extend(shape_message(item.dims) for item in value)
    elif value == ():
        message.list.SetInParent()
    else:
        message.CopyFrom(attribute_message(key, value))


def _node_message(
    node: Any,
    source: FormSource,
    form: Form | None,
    inner: Mapping[str, FormPart],
    own: bool,
    after: Sequence[str],
) -> Any:
    """A node as TensorFlow has it, with what it does not say as JSON.

    inner: constants of its own, by input. own: no op of TensorFlow's. after: further control inputs.
    """
    message = messages()("NodeDef")()
    message.name, message.device = node.name, node.device
    derived = None if own or form is not None else DERIVED.get(node.op)
    exact: dict[str, Any] = {"op": node.op} if node.op == "ReadVariable" or form is not None else {}
    controls = [item for item in node.input if item.startswith("^")]
    controls += [item for item in after if item not in controls]
    inputs = [*(form.input if form is not None else source.input)]
    inputs = [f"{node.name}/{inner[item].suffix}:0" if item in inner else item for item in inputs]
    if [*inputs, *controls] != node.input:
        exact["input"] = list(node.input)
    message.input.extend(_inputs([*inputs, *controls]))
    if form is not None:
        message.op = form.op
        for key, value in form.attr.items():
            _put(message.attr[key], key, value)
    elif node.op == CALL:
        message.op = node.attr["f"]
    else:
        message.op = SPELLED.get(node.op, node.op) if derived is not None else f"{PREFIX}{node.op}"
    attrs = {}
    hidden = HIDDEN.get(node.op, ()) if derived is not None else ()
    for key, value in node.attr.items():
        if (node.op, key) == (CALL, "f"):  # it is the op's name
            continue
        name = RENAMED.get(node.op, {}).get(key, key) if derived is not None else key
        plain = None if name in OWN or form is not None or key in hidden else attribute_message(key, value)
        if plain is not None:
            message.attr[name].CopyFrom(plain)
        if plain is None or not _same(attribute_of(plain), value):
            try:
                attrs[key] = encode_attribute(value)
            except InvalidArgumentError as error:
                made = f" (made at {node.source})" if node.source else ""
                raise InvalidArgumentError(
                    f"{node.op} {node.name}: attribute {key!r} cannot be written to a GraphDef: {error}{made}"
                ) from None
    for key, what in (derived or {}).items():
        if key not in message.attr:
            _derive(message.attr, key, what, source)
    if attrs:
        exact["attr"] = {key: attrs[key] for key in sorted(attrs)}
    if exact:
        message.attr[EXACT].s = json.dumps(exact, allow_nan=False).encode()
    if node.output:
        plain = node.op not in OTHER_OUTPUTS and not source.makes_handles
        key = SHAPES if plain else OWN_SHAPES
        message.attr[key].list.shape.extend(shape_message(spec.shape) for spec in node.output)
        message.attr[TYPES].list.type.extend(NUMBERS[spec.dtype.name] for spec in node.output)
    if node.colocation:
        message.attr[CLASS].list.s.extend(f"loc:@{name}".encode() for name in node.colocation)
    if node.source:
        message.attr[LINE].s = node.source.encode()
    if node.context:
        message.attr[CONTEXT].s = node.context.encode()
    return message


def _derive(attr: Any, key: str, what: str, source: FormSource) -> None:
    if what == "count":
        attr[key].i = len(source.input)
    elif what in ("0", "1", "out"):
        kind = source.out if what == "out" else source.type(int(what))
        if kind is not None:  # else a part of a graph, or a node without declared outputs
            _put(attr[key], key, kind)
    else:
        attr[key].s = what.encode()


def _same(one: Any, other: Any) -> bool:
    """Equal in type and value, down to the bits of arrays."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if one.dtype == object:
            return bool(one.shape == other.shape and one.tolist() == other.tolist())
        return bool((one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float):
        return bool(one.hex() == other.hex())
    return bool(one == other)
