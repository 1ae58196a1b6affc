"""GraphDef as protocol buffers, wire-compatible with TensorFlow's (white paper, section 2).

Ops that mean the same as TensorFlow's have its name and attributes (`T`, `dtype`, `shape`, `value` and so
on); the rest is written as `TensorBow>Name`. Attributes that the messages cannot hold exactly are in the
attribute `_tensorbow` as JSON. Static shapes and dtypes of outputs, colocation and the user's line are in
`_output_shapes`, `_output_types`, `_class` and `_source`, the branch or loop of a node in `_context`;
collections, and the branches and loops, in fields of their own, which other readers skip.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.graph.attribute_json import decode_attribute, encode_attribute, strings_of
from tensorbow.graph.function_def import CALL, FunctionDef
from tensorbow.graph.protobuf_messages import message_classes
from tensorbow.graph.tensorflow_forms import (
    FORMS,
    OTHER_OUTPUTS,
    RESOURCE,
    Form,
    FormPart,
    FormSource,
    ShapeOf,
    constants_after,
    constants_inside,
    output_argument,
    output_index,
    resources_of,
    writes_after,
)
from tensorbow.graph.tensorflow_reading import READERS, Foreign, Read
from tensorbow.specs import Array, DType, TensorSpec, as_dims, as_dtype
from tensorbow.strict_json import parse_json

PREFIX = "TensorBow>"  # of ops that TensorFlow does not have, or has with another meaning
EXACT, SHAPES, TYPES, LINE, CLASS = "_tensorbow", "_output_shapes", "_output_types", "_source", "_class"
CONTEXT = "_context"
OWN_SHAPES = "_tensorbow_shapes"  # of outputs, where TensorFlow has others
PART = "_tensorbow_part"  # the node beside which a node stands, which this library does not have
OWN = frozenset((EXACT, SHAPES, TYPES, LINE, CLASS, CONTEXT, PART, OWN_SHAPES))
COLLECTIONS = 50001  # number of the field of GraphDef with the collections as JSON
CONTEXTS = 50002  # and with the branches and loops
PRODUCER = 134  # TensorFlow's version of GraphDefs that writers of today state
LARGEST_TENSOR = 1 << 28  # bytes of a tensor of a message
MOST_VALUES = 1 << 24  # of JSON in a message

_TYPES = {
    "float32": ("DT_FLOAT", 1), "float64": ("DT_DOUBLE", 2), "int32": ("DT_INT32", 3),
    "uint8": ("DT_UINT8", 4), "int16": ("DT_INT16", 5), "int8": ("DT_INT8", 6), "string": ("DT_STRING", 7),
    "complex64": ("DT_COMPLEX64", 8), "int64": ("DT_INT64", 9), "bool": ("DT_BOOL", 10),
    "bfloat16": ("DT_BFLOAT16", 14), "uint16": ("DT_UINT16", 17), "complex128": ("DT_COMPLEX128", 18),
    "float16": ("DT_HALF", 19), "uint32": ("DT_UINT32", 22), "uint64": ("DT_UINT64", 23),
}  # fmt: skip
DT_RESOURCE = 20  # of handles
_NUMBERS = {name: number for name, (_, number) in _TYPES.items()}
_NAMES = {number: name for name, number in _NUMBERS.items()}

# Attributes that TensorFlow's op has and this library derives: "0", "1": dtype of that input, "out": of the
# first output, "count": number of inputs; another text is the value.
_T, _OUT, _NHWC = {"T": "0"}, {"T": "out"}, {"T": "0", "data_format": "NHWC"}
_DERIVED: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(
        ("Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Assign", "AssignAdd", "AssignSub", "Atan", "Atan2",
         "Atanh", "BatchMatMulV2", "Ceil", "Cos", "Cosh", "Elu", "EluGrad", "Enter", "Equal", "Erf", "Erfc",
         "Exit", "Expm1", "Floor", "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Identity", "IsFinite",
         "L2Loss", "LeakyRelu", "LeakyReluGrad", "Less", "LessEqual", "Lgamma", "Log", "Log1p", "LogSoftmax",
         "MatMul", "Maximum", "Minimum", "Mul", "Neg", "NextIteration", "NotEqual", "Pow", "Rank", "RealDiv",
         "Reciprocal", "Relu", "ReluGrad", "Round", "Rsqrt", "Sigmoid", "SigmoidGrad", "Sign", "Sin", "Sinh",
         "Softmax", "SoftmaxCrossEntropyWithLogits", "Softplus", "Sqrt", "Square", "Squeeze", "Sub", "Switch",
         "Tan", "Tanh", "TanhGrad"),
        _T,
    ),
    **dict.fromkeys(("AvgPool", "BiasAdd", "BiasAddGrad", "Conv2D", "DepthwiseConv2dNative", "MaxPool",
                     "MaxPoolGrad"), _NHWC),
    **dict.fromkeys(("RandomStandardNormal", "RandomUniform", "Shape", "Size", "TruncatedNormal"), _T),
    **{key: {} for key in ("LogicalAnd", "LogicalNot", "LogicalOr", "LoopCond", "NoOp", "Placeholder")},
    "Cast": {"SrcT": "0", "DstT": "out"},
    "Const": {"dtype": "out"},
    "Conv2DBackpropFilter": _NHWC,
    "Conv2DBackpropInput": {"T": "out", "data_format": "NHWC"},
    "Fill": {"T": "1", "index_type": "0"},
    "Merge": {"T": "0", "N": "count"},
    "PlaceholderWithDefault": {"dtype": "out"},
    "Range": {"Tidx": "out"},
    "ReadVariable": _OUT,
    "Reshape": {"T": "0", "Tshape": "1"},
    "Select": _OUT,
    "SparseSoftmaxCrossEntropyWithLogits": {"T": "0", "Tlabels": "1"},
    "StopGradient": _T,
    "Variable": {"shared_name": ""},
}  # fmt: skip
_SPELLED = {"Variable": "VariableV2", "ReadVariable": "Identity"}  # ops whose name in TensorFlow is another
_RENAMED = {"Squeeze": {"axis": "squeeze_dims"}, "Cast": {"dtype": "DstT"}}  # attributes likewise
_SAME = {
    "VariableV2": "Variable",
    "Variable": "Variable",
    "AddV2": "Add",
    "SelectV2": "Select",
}  # TensorFlow's ops, by this library's
_IGNORED = frozenset(  # attributes of TensorFlow's ops that change nothing here
    ("T", "Tidx", "Tshape", "SrcT", "Tlabels", "N", "index_type", "use_cudnn_on_gpu", "Truncate",
     "validate_shape", "use_locking", "incompatible_shape_error", "grad_a", "grad_b", "explicit_paddings")
)  # fmt: skip
CALLING = ("PartitionedCall", "StatefulPartitionedCall")  # ops that call the function in the attribute f
_HIDDEN = {  # attributes that TensorFlow's op does not have
    "Enter": ("shape",),
    "Switch": ("enters",),
    "Variable": ("combine", "decayed", "role", "slot_name", "slot_of", "slot_value"),
}
_DEFAULT_ONLY = {"data_format": b"NHWC"}  # attributes of which one value only is supported


@cache
def messages() -> Any:
    """Returns `message(name)`: TensorFlow's message classes, in a pool of their own.

    Raises FailedPreconditionError where protobuf is not installed.
    """
    numbers = {"DT_INVALID": 0, "DT_RESOURCE": DT_RESOURCE, **dict(_TYPES.values())}
    return message_classes("graph", _MESSAGES, {"DataType": numbers}, {"AttrValue": "value"})


_MESSAGES = {
    "TensorShapeProto": "repeated TensorShapeProto.Dim dim 2, bool unknown_rank 3",
    "TensorShapeProto.Dim": "int64 size 1, string name 2",
    "TensorProto": "DataType dtype 1, TensorShapeProto tensor_shape 2, int32 version_number 3, "
    "bytes tensor_content 4, repeated float float_val 5, repeated double double_val 6, "
    "repeated int32 int_val 7, repeated bytes string_val 8, repeated float scomplex_val 9, "
    "repeated int64 int64_val 10, repeated bool bool_val 11, repeated double dcomplex_val 12, "
    "repeated int32 half_val 13, repeated uint32 uint32_val 16, repeated uint64 uint64_val 17",
    "AttrValue": "AttrValue.ListValue list 1, bytes s 2, int64 i 3, float f 4, bool b 5, DataType type 6, "
    "TensorShapeProto shape 7, TensorProto tensor 8, string placeholder 9, NameAttrList func 10",
    "AttrValue.ListValue": "repeated bytes s 2, repeated int64 i 3, repeated float f 4, repeated bool b 5, "
    "repeated DataType type 6, repeated TensorShapeProto shape 7, repeated TensorProto tensor 8, "
    "repeated NameAttrList func 9",
    "NameAttrList": "string name 1, map:AttrValue attr 2",
    "NodeDef": "string name 1, string op 2, repeated string input 3, string device 4, map:AttrValue attr 5",
    "VersionDef": "int32 producer 1, int32 min_consumer 2, repeated int32 bad_consumers 3",
    "OpDef": "string name 1, repeated OpDef.ArgDef input_arg 2, repeated OpDef.ArgDef output_arg 3",
    "OpDef.ArgDef": "string name 1, DataType type 3, string type_attr 4",
    "FunctionDef": "OpDef signature 1, repeated NodeDef node_def 3, map:string ret 4, "
    f"repeated NodeDef tensorbow_arguments {COLLECTIONS}",
    "GradientDef": "string function_name 1, string gradient_func 2",
    "FunctionDefLibrary": "repeated FunctionDef function 1, repeated GradientDef gradient 2",
    "GraphDef": "repeated NodeDef node 1, FunctionDefLibrary library 2, int32 version 3, "
    f"VersionDef versions 4, bytes tensorbow_collections {COLLECTIONS}, bytes tensorbow_contexts {CONTEXTS}",
}


# Writing ------------------------------------------------------------------------------------------


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
        message.signature.input_arg.add(name=name, type=_NUMBERS[outputs[name][0].dtype.name])
    for number, item in enumerate(function.output):
        name, _, index = item.rpartition(":")
        dtype = outputs[name][int(index)].dtype
        message.signature.output_arg.add(name=f"out{number}", type=_NUMBERS[dtype.name])
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
        inner = constants_inside(node, by_name, entries) if form or node.op in _DERIVED else {}
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
        message.attr["value"].CopyFrom(_attr_value("value", part.value))
        message.attr["dtype"].type = _NUMBERS[part.value.dtype.name]
    for key, value in part.attr.items():
        _put(message.attr[key], key, value)
    message.attr[PART].s = node.name.encode()
    return message


def _inputs(items: Iterable[str]) -> list[str]:
    return [item.removesuffix(":0") for item in items]


def _put(message: Any, key: str, value: Any) -> None:
    """Sets an attribute of a form."""
    if isinstance(value, ShapeOf):
        message.shape.CopyFrom(_shape(value.dims))
    elif value is RESOURCE:
        message.type = DT_RESOURCE
    elif isinstance(value, tuple) and value and all(isinstance(item, ShapeOf) for item in value):
        message.list.shape.extend(_shape(item.dims) for item in value)
    elif value == ():
        message.list.SetInParent()
    else:
        message.CopyFrom(_attr_value(key, value))


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
    derived = None if own or form is not None else _DERIVED.get(node.op)
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
        message.op = _SPELLED.get(node.op, node.op) if derived is not None else f"{PREFIX}{node.op}"
    attrs = {}
    hidden = _HIDDEN.get(node.op, ()) if derived is not None else ()
    for key, value in node.attr.items():
        if (node.op, key) == (CALL, "f"):  # it is the op's name
            continue
        name = _RENAMED.get(node.op, {}).get(key, key) if derived is not None else key
        plain = None if name in OWN or form is not None or key in hidden else _attr_value(key, value)
        if plain is not None:
            message.attr[name].CopyFrom(plain)
        if plain is None or not _same(_value(plain), value):
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
        message.attr[key].list.shape.extend(_shape(spec.shape) for spec in node.output)
        message.attr[TYPES].list.type.extend(_NUMBERS[spec.dtype.name] for spec in node.output)
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


def _shape(dims: tuple[int | None, ...] | None) -> Any:
    shape = messages()("TensorShapeProto")()
    if dims is None:
        shape.unknown_rank = True
    for extent in dims or ():
        shape.dim.add(size=-1 if extent is None else extent)
    return shape


def _attr_value(key: str, value: Any) -> Any:
    """The attribute as a message; None if messages have no such type."""
    message = messages()("AttrValue")()
    if key == "shape" and (value is None or isinstance(value, tuple)):
        message.shape.CopyFrom(_shape(value))
    elif type(value) is bool:
        message.b = value
    elif type(value) is int and -(1 << 63) <= value < 1 << 63:
        message.i = value
    elif type(value) is float:
        with np.errstate(over="ignore"):
            message.f = float(np.float32(value))
    elif isinstance(value, str):
        message.s = value.encode("utf-8", "surrogatepass")
    elif type(value) is bytes:
        message.s = value
    elif isinstance(value, DType) and value.name in _NUMBERS:
        message.type = _NUMBERS[value.name]
    elif isinstance(value, np.ndarray) and (_is_of_strings(value) or value.dtype.name in _NUMBERS):
        _write_tensor(message.tensor, value)
    elif type(value) is tuple and value and all(type(item) is int for item in value):
        if not all(-(1 << 63) <= item < 1 << 63 for item in value):
            return None
        message.list.i.extend(value)
    elif type(value) is tuple and value and all(isinstance(item, DType) for item in value):
        message.list.type.extend(_NUMBERS[item.name] for item in value)
    else:
        return None
    return message


def _write_tensor(message: Any, array: Array) -> None:
    """Fills a TensorProto with an array of numbers or strings."""
    message.tensor_shape.CopyFrom(_shape(array.shape))
    if array.dtype == object:
        message.dtype = _NUMBERS["string"]
        message.string_val.extend(array.ravel().tolist())
        return
    message.dtype = _NUMBERS[array.dtype.name]
    ordered = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    message.tensor_content = ordered.tobytes()


def serialized_tensor(array: Array) -> bytes:
    """The bytes of TensorFlow's TensorProto with an array of numbers or strings.

    Raises FailedPreconditionError where protobuf is not installed.
    """
    message = messages()("TensorProto")()
    _write_tensor(message, array)
    blob: bytes = message.SerializeToString(deterministic=True)
    return blob


def parsed_tensor(blob: bytes) -> Array:
    """The array of a serialised TensorProto. Raises InvalidArgumentError for other bytes."""
    message = messages()("TensorProto")()
    try:
        message.ParseFromString(blob)
    except Exception as error:  # DecodeError of protobuf
        raise InvalidArgumentError(f"the bytes are truncated or no TensorProto: {error}") from None
    return _array(message)


def _is_of_strings(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype == object
        and all(type(each) is bytes for each in value.flat)
    )


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


# Reading ------------------------------------------------------------------------------------------


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
            node_def(each.name, "Placeholder", [], {"dtype": _dtype(each.type), "shape": None})
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
            op = _SAME.get(op, op)
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
        specs = [TensorSpec(_dims(s), _dtype(t)) for s, t in zip(shapes, types, strict=True)]
    colocation = [item.decode("utf-8").removeprefix("loc:@") for item in message.attr[CLASS].list.s]
    colocation = [name for name in colocation if name != message.name]
    source = message.attr[LINE].s.decode("utf-8", "replace")
    context = message.attr[CONTEXT].s.decode("utf-8", "replace") if CONTEXT in message.attr else ""
    return node_def(message.name, op, inputs, attrs, specs, message.device, colocation, source, context)


def _read_foreign(message: Any, inputs: list[str], constants: Mapping[str, Any]) -> Read:
    def attribute(key: str, default: Any) -> Any:
        return _value(message.attr[key]) if key in message.attr else default

    def constant(item: str) -> Array | None:
        found = constants.get(item.removesuffix(":0"))
        return None if found is None else _array(found.attr["value"].tensor)

    plain = [item for item in inputs if not item.startswith("^")]
    op, read, attrs = READERS[message.op](Foreign(message.op, plain, attribute, constant))
    return op, [*read, *(item for item in inputs if item.startswith("^"))], attrs


def _read_attributes(message: Any, op: str, foreign: bool) -> dict[str, Any]:
    """The attributes of a node of the same inputs. foreign: TensorFlow has the op."""
    written = _DERIVED.get(op, {}) if foreign else {}
    names = {theirs: mine for mine, theirs in _RENAMED.get(op, {}).items()} if foreign else {}
    attrs = {}
    for key in sorted(message.attr):
        if key in OWN or (foreign and key.startswith("_") and key != "_gradient_op_type"):
            continue
        value = message.attr[key]
        if foreign and key in _DEFAULT_ONLY:
            if value.s != _DEFAULT_ONLY[key]:
                raise InvalidArgumentError(
                    f"attribute {key}: expected {_DEFAULT_ONLY[key].decode()}, got {value.s!r:.40}"
                )
            continue
        if foreign and key not in names and (key in _IGNORED or key in written):
            continue
        try:
            attrs[names.get(key, key)] = _value(value)
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


def _dtype(number: int) -> DType:
    if number not in _NAMES:
        raise InvalidArgumentError(f"DataType {number} is not supported")
    return as_dtype(_NAMES[number])


def _dims(shape: Any) -> tuple[int | None, ...] | None:
    return None if shape.unknown_rank else as_dims([None if d.size < 0 else d.size for d in shape.dim])


def _value(message: Any) -> Any:
    kind = message.WhichOneof("value")
    if kind in ("i", "f", "b"):
        return getattr(message, kind)
    if kind == "s":
        try:
            return message.s.decode("utf-8")
        except UnicodeDecodeError:
            return message.s
    if kind == "type":
        return _dtype(message.type)
    if kind == "shape":
        return _dims(message.shape)
    if kind == "tensor":
        return _array(message.tensor)
    if kind == "list":
        if message.list.type:
            return tuple(_dtype(number) for number in message.list.type)
        if message.list.shape:
            return tuple(_dims(shape) for shape in message.list.shape)
        if message.list.s:
            return tuple(item.decode("utf-8") for item in message.list.s)
        return tuple(message.list.i) or tuple(message.list.f) or tuple(message.list.b)
    raise InvalidArgumentError(f"a value of kind {kind!r} is not supported")


_FIELDS = {
    "float32": "float_val", "float64": "double_val", "int64": "int64_val", "bool": "bool_val",
    "uint32": "uint32_val", "uint64": "uint64_val",
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int_val"),
}  # fmt: skip


def _array(tensor: Any) -> Array:
    """The array of a TensorProto: its content, or its list of values, of which the last one repeats."""
    dims = _dims(tensor.tensor_shape)
    if dims is None or None in dims:
        raise InvalidArgumentError("a tensor without a known shape")
    shape = tuple(extent for extent in dims if extent is not None)
    dtype = np.dtype(_dtype(tensor.dtype).as_numpy_dtype)
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    if nbytes > LARGEST_TENSOR or len(shape) > 32:
        raise InvalidArgumentError(f"a tensor of shape {list(shape)!r:.80}; at most {LARGEST_TENSOR:,} bytes")
    if tensor.dtype == _NUMBERS["string"]:
        return _strings(tensor, shape, count)
    content, field = tensor.tensor_content, _FIELDS.get(dtype.name)
    if content or not count:
        if nbytes != len(content):
            raise InvalidArgumentError(
                f"a tensor {dtype.name}{list(shape)} has {nbytes} bytes, not {len(content)}"
            )
        if dtype == np.bool_ and content.strip(b"\0\1"):
            raise InvalidArgumentError("a tensor with a bool that is neither 0 nor 1")
        array: Array = np.frombuffer(content, dtype.newbyteorder("<")).reshape(shape).astype(dtype)
    else:
        values = list(getattr(tensor, field)) if field else []
        if field is None or len(values) > count:
            raise InvalidArgumentError(f"a tensor {dtype.name}{list(shape)} with {len(values)} values")
        array = np.zeros(count, dtype)
        if values:
            array[: len(values)] = values
            array[len(values) :] = values[-1]
        array = array.reshape(shape)
    array.flags.writeable = False
    return array


def _strings(tensor: Any, shape: tuple[int, ...], count: int) -> Array:
    elements = list(tensor.string_val)
    if tensor.tensor_content or len(elements) > count or (count and not elements):
        raise InvalidArgumentError(f"a tensor string{list(shape)} with {len(elements)} string_val")
    return strings_of(shape, [*elements, *elements[-1:] * (count - len(elements))])
