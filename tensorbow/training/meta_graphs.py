"""Meta graphs: a graph in a file together with the operations that save and restore its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from tensorbow.checkpoint_files.checkpoint_paths import META, meta_file
from tensorbow.errors import TensorBowError
from tensorbow.files import read_file, write_file
from tensorbow.graph import AsGraph, GraphDef, Operation, get_default_graph
from tensorbow.graph.graph_def import MAXIMUM_CHARACTERS
from tensorbow.kinds import PATH, AsPath, Flag, Kind, Mapped, Name, RefusedError, checked, instance, refuse
from tensorbow.ops.importing import import_graph_def
from tensorbow.training.checkpoints import make_folder
from tensorbow.training.meta_graph_def import MetaGraphDef
from tensorbow.training.save_graph import SaverDef
from tensorbow.training.saver import Saver
from tensorbow.training.scoped_meta_graphs import graph_def_in_scope


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
    export_scope: Name = None,
) -> MetaGraphDef:
    """A graph, by default the default graph, with a saver's names; written to a file if one is named.

    saver_def: of `Saver.saver_def`. clear_devices: leaves out on which devices operations are.
    as_text: writes JSON; else a protocol buffer as TensorFlow's, by protobuf. export_scope: writes the
    operations of this name scope only, without the scope in their names, and what collections have of them;
    a tensor `x:0` from outside becomes a placeholder `unbound_inputs/x:0`, for `input_map` of
    `import_meta_graph`. It has no saver: make one of the imported variables.

    Raises InvalidArgumentError for a graph that cannot be written, or export_scope and saver_def,
    NotFoundError for a scope without operations, FailedPreconditionError without protobuf.
    """
    graph_def = (get_default_graph() if graph is None else graph).as_graph_def()
    if export_scope:
        if saver_def is not None:
            raise refuse("export_meta_graph", "saver_def", "None with export_scope", saver_def)
        graph_def = graph_def_in_scope(graph_def, export_scope)
    meta = MetaGraphDef(_without_devices(graph_def) if clear_devices else graph_def, saver_def)
    if filename is not None:
        path = Path(filename)
        make_folder(path.parent)
        write_file(path, meta.to_json().encode() if as_text else meta.SerializeToString())
    return meta


@checked
def import_meta_graph(
    meta_graph_or_file: AnyMetaGraph,
    clear_devices: Flag = False,
    import_scope: Name = None,
    *,
    input_map: Mapped | None = None,
) -> Saver | None:
    """Adds a meta graph to the default graph; returns its saver, or None if it has none.

    meta_graph_or_file: of `export_meta_graph`, or its file, or the one that `Saver.save` writes, as
    `path + ".meta"`, where path is what it returns. Variables and collections come back, too; the
    saver finds the values in files by the names that they had. import_scope: the scope to add it under.
    input_map: as of `tb.import_graph_def`.

    Raises NotFoundError for a missing file, InvalidArgumentError for another content, and what
    `tb.import_graph_def` raises.
    """
    where = ""
    meta = meta_graph_or_file
    try:
        if not isinstance(meta, MetaGraphDef):
            where = f"{meta}: "
            path = Path(meta)
            if path.suffix == META and not path.is_file():  # a checkpoint's path, with the suffix added
                path = meta_file(path.with_suffix(""))
            meta = MetaGraphDef.from_file_content(read_file(path, MAXIMUM_CHARACTERS))
        graph_def = _without_devices(meta.graph_def) if clear_devices else meta.graph_def
        saver = meta.saver_def
        elements = None if saver is None else [saver.restore_op_name]
        made = import_graph_def(graph_def, input_map, elements, import_scope or "")
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
