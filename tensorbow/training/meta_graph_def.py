"""MetaGraphDef: a graph as data with the operations that save and restore, and its files."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, TensorBowError
from tensorbow.files import link_file, write_file
from tensorbow.graph import Graph, GraphDef
from tensorbow.graph.protobuf.message_classes import message_classes
from tensorbow.strict_json import parse_json
from tensorbow.training.collection_messages import COLLECTION_MESSAGES, read_collections, write_collection
from tensorbow.training.save_graph import SAVER_NAMES, SaverDef, read_saver_def

MOST_VALUES = 1 << 24  # of JSON in a file
OWN_FIELD = 50001  # number of the field with the variables' names, which other readers skip
_MESSAGES = {
    "MetaGraphDef": "bytes graph_def 2, SaverDef saver_def 3, map:CollectionDef collection_def 4",
    **COLLECTION_MESSAGES,
    "SaverDef": "string filename_tensor_name 1, string save_tensor_name 2, string restore_op_name 3, "
    f"int32 max_to_keep 4, bool sharded 5, float keep_checkpoint_every_n_hours 6, int32 version 7, "
    f"bytes tensorbow_variables {OWN_FIELD}",
}
VERSION = 2  # TensorFlow's number of savers whose operations are SaveV2 and RestoreV2
_LOG = logging.getLogger("tensorbow")


@cache
def _messages() -> Any:
    return message_classes("meta_graph", _MESSAGES, {}, {"CollectionDef": "kind"})


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
        for name, entries in self.graph_def.collection.items():
            write_collection(_messages(), name, entries, message.collection_def)
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
                return cls(graph_def, None if saver is None else read_saver_def(saver))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise InvalidArgumentError(f"MetaGraphDef: {str(error)[:200]}") from None
        message = _messages()("MetaGraphDef")()
        try:
            message.ParseFromString(content)
            saver = message.saver_def if message.HasField("saver_def") else None
            names = None if saver is None else _variables_of(saver.tensorbow_variables)
        except Exception as error:  # DecodeError of protobuf, ValueError
            raise InvalidArgumentError(f"MetaGraphDef: the bytes are no meta graph: {error}") from None
        graph_def = GraphDef.FromString(message.graph_def)
        if not graph_def.collection:  # TensorFlow's
            graph_def.collection = read_collections(
                message.collection_def, {node.name for node in graph_def.node}
            )
        if saver is None:
            return cls(graph_def)
        fields = {
            **{key: getattr(saver, key) for key in (*SAVER_NAMES, "max_to_keep", "sharded")},
            "variables": names,
        }
        if saver.keep_checkpoint_every_n_hours > 0:  # 0 in files that do not say it
            fields["keep_checkpoint_every_n_hours"] = saver.keep_checkpoint_every_n_hours
        return cls(graph_def, read_saver_def(fields))


def _variables_of(text: bytes) -> Any:
    return parse_json(text.decode("utf-8"), MOST_VALUES) if text else {}


class MetaGraphFiles:
    """Meta graphs beside the checkpoints of one saver. A graph is written once, until it changes."""

    def __init__(self) -> None:
        self._written: Path | None = None  # the newest file
        self._of: tuple[Graph, int, dict[str, int]] | None = None  # graph, ops and items that it has

    def write(self, path: Path, graph: Graph, saver_def: SaverDef) -> None:
        """Writes a protocol buffer, or JSON without protobuf; a link to the last file of an equal graph.

        A graph that cannot be written has no file, and a message says why; the checkpoint is whole without.
        """
        sizes = {key: len(graph.get_collection(key)) for key in graph.get_all_collection_keys()}
        state = graph, graph.version, sizes
        if self._written is not None and self._of == state and link_file(self._written, path):
            self._written = path
            return
        try:
            write_file(path, _content(MetaGraphDef(graph.as_graph_def(), saver_def)))
        except (TensorBowError, ValueError) as error:  # the second from protobuf, above 2 GiB
            _LOG.info("%s is not written: %s", path, error)
            return
        self._written, self._of = path, state


def _content(meta: MetaGraphDef) -> bytes:
    try:
        return meta.SerializeToString()
    except FailedPreconditionError:  # protobuf is not installed
        return meta.to_json().encode()
