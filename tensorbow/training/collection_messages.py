"""Collections of a graph as TensorFlow's CollectionDefs, for its readers of meta graphs, and of its writers.

The graph's own JSON has all items (`tensorbow.graph.collection_items`); messages have those that TensorFlow
knows: tensors and operations by name, numbers, texts, variables, queue runners and savers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

__all__ = ["COLLECTION_MESSAGES", "read_collections", "write_collection"]

COLLECTION_MESSAGES = {
    "CollectionDef": "CollectionDef.NodeList node_list 1, CollectionDef.BytesList bytes_list 2, "
    "CollectionDef.Int64List int64_list 3, CollectionDef.FloatList float_list 4",
    "CollectionDef.NodeList": "repeated string value 1",
    "CollectionDef.BytesList": "repeated bytes value 1",
    "CollectionDef.Int64List": "repeated int64 value 1",
    "CollectionDef.FloatList": "repeated float value 1",
    "VariableDef": "string variable_name 1, string initializer_name 2, string snapshot_name 3, "
    "SaveSliceInfoDef save_slice_info_def 4, string initial_value_name 6, bool trainable 7",
    "SaveSliceInfoDef": "string full_name 1, repeated int64 full_shape 2, repeated int64 var_offset 3",
    "QueueRunnerDef": "string queue_name 1, repeated string enqueue_op_name 2, string close_op_name 3, "
    "string cancel_op_name 4, repeated int32 queue_closed_exception_types 5",
}
CODES = {
    **{"CancelledError": 1, "InvalidArgumentError": 3, "DeadlineExceededError": 4, "NotFoundError": 5},
    **{"AlreadyExistsError": 6, "PermissionDeniedError": 7, "ResourceExhaustedError": 8},
    **{"FailedPreconditionError": 9, "AbortedError": 10, "OutOfRangeError": 11, "UnimplementedError": 12},
    **{"InternalError": 13, "UnavailableError": 14, "DataLossError": 15},
}  # TensorFlow's numbers of errors


def _operation(name: str) -> str:
    return name.rpartition(":")[0] or name


def _variable(messages: Any, parts: Mapping[str, Any]) -> Any:
    message = messages("VariableDef")(
        variable_name=parts["reference"],
        initializer_name=_operation(parts["initializer"]),
        snapshot_name=parts["read"],
        initial_value_name=parts["initial_value"],
        trainable=parts["trainable"],
    )
    if "slice" in parts:
        name, shape, offset = parts["slice"]
        message.save_slice_info_def.CopyFrom(
            messages("SaveSliceInfoDef")(full_name=name, full_shape=shape, var_offset=offset)
        )
    return message


def _queue_runner(messages: Any, parts: Mapping[str, Any]) -> Any:
    return messages("QueueRunnerDef")(
        queue_name=_operation(parts["queue"]),
        enqueue_op_name=[_operation(each) for each in parts["enqueue"]],
        close_op_name=_operation(parts["close"]),
        cancel_op_name=_operation(parts["cancel"]),
        queue_closed_exception_types=[CODES[each] for each in parts["ended"] if each in CODES],
    )


def _saver(messages: Any, fields: Mapping[str, Any]) -> Any:
    known = {key: value for key, value in fields.items() if key != "variables"}
    return messages("SaverDef")(**known, version=2)


_PROTOS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "variable": _variable,
    "queue_runner": _queue_runner,
    "saver": _saver,
}
_VALUES: Mapping[type, str] = {int: "int64_list", float: "float_list", str: "bytes_list"}


def write_collection(messages: Any, name: str, entries: Sequence[Mapping[str, Any]], into: Any) -> None:
    """Adds a collection's items, as the graph's JSON has them, to a map of CollectionDefs.

    A CollectionDef has items of one sort: a collection of several, or of others, is left out.
    """
    found: dict[str, list[Any]] = {}
    for entry in entries:
        ((kind, content),) = entry.items()
        if kind in ("tensor", "operation"):
            found.setdefault("node_list", []).append(content)
        elif kind in _PROTOS:
            message = _PROTOS[kind](messages, content)
            found.setdefault("bytes_list", []).append(message.SerializeToString(deterministic=True))
        elif kind == "value" and type(content) in _VALUES:
            if type(content) is int and not -(1 << 63) <= content < 1 << 63:
                return
            value = content.encode() if type(content) is str else content
            found.setdefault(_VALUES[type(content)], []).append(value)
        else:
            return
    if len(found) == 1:
        ((field, values),) = found.items()
        getattr(into[name], field).value.extend(values)


def read_collections(collections: Mapping[str, Any], names: Collection[str]) -> dict[str, list[Any]]:
    """The items of CollectionDefs, as the graph's JSON has them: those of names, numbers and texts.

    names: of the graph's operations; a collection with others is left out, and so are serialised messages,
    whose operations are TensorFlow's.
    """
    found: dict[str, list[Any]] = {}
    for name, collection in collections.items():
        kind = collection.WhichOneof("kind")
        values = [] if kind is None else list(getattr(collection, kind).value)
        if kind == "node_list":
            if all(_operation(each) in names for each in values):
                found[name] = [{"tensor" if ":" in each else "operation": each} for each in values]
        elif kind == "bytes_list":
            texts = [_text(each) for each in values]
            if None not in texts:
                found[name] = [{"value": each} for each in texts]
        elif values:
            found[name] = [{"value": each} for each in values]
    return found


def _text(value: bytes) -> str | None:
    """The text that UTF-8 bytes are, if they are one that is shown; else None, as of a message."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
