"""Meta graphs: a graph in a file together with the operations that save and restore its variables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.files import read_file, write_file
from tensorbow.graph import AsGraph, GraphDef, Operation, get_default_graph
from tensorbow.graph.graph_def import MAXIMUM_CHARACTERS
from tensorbow.graph.protobuf.message_classes import message_classes
from tensorbow.kinds import PATH, AsPath, Flag, Kind, Name, RefusedError, checked, instance
from tensorbow.ops.importing import import_graph_def
from tensorbow.strict_json import parse_json
from tensorbow.training.checkpoints import make_folder
from tensorbow.training.save_graph import HOURS, SaverDef
from tensorbow.training.saver import Saver

MOST_VALUES = 1 << 24  # of JSON in a file
OWN_FIELD = 50001  # number of the field with the variables' names, which other readers skip
_MESSAGES = {
    "MetaGraphDef": "bytes graph_def 2, SaverDef saver_def 3",
    "SaverDef": "string filename_tensor_name 1, string save_tensor_name 2, string restore_op_name 3, "
    f"int32 max_to_keep 4, bool sharded 5, float keep_checkpoint_every_n_hours 6, int32 version 7, "
    f"bytes tensorbow_variables {OWN_FIELD}",
}
TEXTS = ("filename_tensor_name", "save_tensor_name", "restore_op_name")  # fields of a SaverDef
VERSION = 2  # TensorFlow's number of savers whose operations are SaveV2 and RestoreV2


@cache
def _messages() -> Any:
    return message_classes("meta_graph", _MESSAGES, {}, {})


@dataclass(frozen=True)
class MetaGraphDef:
    """A graph as data, and which of its operations save and restore; TensorFlow's message of this name."""

    graph_def: GraphDef
    saver_def: SaverDef | None = None

    def to_json(self) -> str:
        """JSON text. Raises InvalidArgumentError for a graph that cannot be written."""
        saver = None if self.saver_def is None else asdict(self.saver_def)
        return json.dumps({"graph_def": json.loads(self.graph_def.to_json()), "saver_def": saver}, indent=1)

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """A protocol buffer of TensorFlow's MetaGraphDef. Raises FailedPreconditionError without protobuf."""
        message = _messages()("MetaGraphDef")()
        message.graph_def = self.graph_def.SerializeToString()
        if self.saver_def is not None:
            known = asdict(self.saver_def)
            variables = json.dumps(known.pop("variables")).encode()
            message.saver_def.CopyFrom(
                _messages()("SaverDef")(**known, version=VERSION, tensorbow_variables=variables)
            )
        blob: bytes = message.SerializeToString(deterministic=True)
        return blob

    @classmethod
    def from_file_content(cls, content: bytes) -> MetaGraphDef:
        """Reads JSON text, which begins with `{`, or a protocol buffer. Raises InvalidArgumentError."""
        if content[:1] == b"{":
            try:
                fields = parse_json(content.decode("utf-8"), MOST_VALUES)
                graph_def = GraphDef.from_json(json.dumps(fields["graph_def"]))
                saver = fields["saver_def"]
                return cls(graph_def, None if saver is None else _saver_def(saver))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise InvalidArgumentError(f"MetaGraphDef: {str(error)[:200]}") from None
        message = _messages()("MetaGraphDef")()
        try:
            message.ParseFromString(content)
            saver = message.saver_def if message.HasField("saver_def") else None
            names = None if saver is None else _variables_of(saver.tensorbow_variables)
        except Exception as error:  # DecodeError of protobuf, ValueError
            raise InvalidArgumentError(f"MetaGraphDef: the bytes are no meta graph: {error}") from None
        if saver is None:
            return cls(GraphDef.FromString(message.graph_def))
        fields = {
            **{key: getattr(saver, key) for key in (*TEXTS, "max_to_keep", "sharded")},
            "variables": names,
        }
        if saver.keep_checkpoint_every_n_hours > 0:  # 0 in files that do not say it
            fields["keep_checkpoint_every_n_hours"] = saver.keep_checkpoint_every_n_hours
        return cls(GraphDef.FromString(message.graph_def), _saver_def(fields))


def _variables_of(text: bytes) -> Any:
    return parse_json(text.decode("utf-8"), MOST_VALUES) if text else {}


def _saver_def(fields: Any) -> SaverDef:
    """A SaverDef of what a file says. Raises InvalidArgumentError."""
    needed, optional = {*TEXTS, "max_to_keep", "variables"}, {"sharded", "keep_checkpoint_every_n_hours"}
    if (
        not isinstance(fields, dict)
        or not needed <= set(fields) <= needed | optional
        or not all(isinstance(fields[key], str) for key in TEXTS)
        or type(fields["max_to_keep"]) is not int
        or fields["max_to_keep"] < 0
        or type(fields.get("sharded", False)) is not bool
        or type(hours := fields.get("keep_checkpoint_every_n_hours", HOURS)) not in (int, float)
        or not 0 < hours < math.inf
        or not isinstance(fields["variables"], dict)
        or not all(isinstance(each, str) for each in fields["variables"].values())
    ):
        raise InvalidArgumentError("MetaGraphDef: its saver_def has other fields than a SaverDef")
    return SaverDef(**fields)


def _read_meta_graph(value: Any) -> Any:
    if isinstance(value, MetaGraphDef):
        return value
    try:
        return PATH.read(value)
    except RefusedError:
        raise RefusedError from None


AnyMetaGraph: TypeAlias = Annotated[Any, Kind("a path, or a MetaGraphDef", _read_meta_graph)]
AsSaverDef: TypeAlias = Annotated[SaverDef, instance(SaverDef, expected="a Saver's saver_def")]


@checked
def export_meta_graph(
    filename: AsPath | None = None,
    *,
    graph: AsGraph | None = None,
    saver_def: AsSaverDef | None = None,
    clear_devices: Flag = False,
    as_text: Flag = False,
) -> MetaGraphDef:
    """A graph, by default the default graph, with a saver's names; written to a file if one is named.

    saver_def: of `Saver.saver_def`. clear_devices: leaves out on which devices operations are.
    as_text: writes JSON; else a protocol buffer as TensorFlow's, by protobuf. Raises InvalidArgumentError for
    a graph that cannot be written, FailedPreconditionError without protobuf.
    """
    graph_def = (get_default_graph() if graph is None else graph).as_graph_def()
    meta = MetaGraphDef(_without_devices(graph_def) if clear_devices else graph_def, saver_def)
    if filename is not None:
        path = Path(filename)
        make_folder(path.parent)
        write_file(path, meta.to_json().encode() if as_text else meta.SerializeToString())
    return meta


@checked
def import_meta_graph(
    meta_graph_or_file: AnyMetaGraph, clear_devices: Flag = False, import_scope: Name = None
) -> Saver | None:
    """Adds a meta graph to the default graph; returns its saver, or None if it has none.

    meta_graph_or_file: of `export_meta_graph`, or its file. Variables and collections come back, too; the
    saver finds the values in files by the names that they had. import_scope: the scope to add it under.

    Raises NotFoundError for a missing file, InvalidArgumentError for another content, and what
    `tb.import_graph_def` raises.
    """
    where = ""
    meta = meta_graph_or_file
    try:
        if not isinstance(meta, MetaGraphDef):
            where = f"{meta}: "
            meta = MetaGraphDef.from_file_content(read_file(Path(meta), MAXIMUM_CHARACTERS))
        graph_def = _without_devices(meta.graph_def) if clear_devices else meta.graph_def
        saver = meta.saver_def
        elements = None if saver is None else [saver.restore_op_name]
        made = import_graph_def(graph_def, return_elements=elements, name=import_scope or "")
        if saver is None or not made or not isinstance(made[0], Operation):
            return None
        scope = made[0].name.removesuffix(saver.restore_op_name)
        return Saver(saver_def=_under(scope, saver))
    except TensorBowError as error:
        raise type(error)(f"{where}{error}") from None


def _under(scope: str, saver: SaverDef) -> SaverDef:
    """The same saver in a graph that was added under a scope."""
    if not scope:
        return saver
    variables: Mapping[str, str] = {key: f"{scope}{name}" for key, name in saver.variables.items()}
    return replace(
        saver,
        filename_tensor_name=f"{scope}{saver.filename_tensor_name}",
        save_tensor_name=f"{scope}{saver.save_tensor_name}",
        restore_op_name=f"{scope}{saver.restore_op_name}",
        variables=variables,
    )


def _without_devices(graph_def: GraphDef) -> GraphDef:
    nodes = [replace(node, device="") for node in graph_def.node]
    return GraphDef(nodes, graph_def.collection)
