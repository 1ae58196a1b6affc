"""Values of checkpoints: read by name, and given to variables before they are initialised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorbow.checkpoint_files import latest_checkpoint
from tensorbow.checkpoint_files.checkpoint_reader import CheckpointReader
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import GraphKeys, get_default_graph
from tensorbow.kinds import AsPath, Mapped, Text, checked, refuse
from tensorbow.partitioned_variables import PartitionedVariable
from tensorbow.specs import Array, render_dims
from tensorbow.variables import Variable

__all__ = ["NewCheckpointReader", "init_from_checkpoint", "load_checkpoint", "load_variable"]


@checked
def load_checkpoint(ckpt_dir_or_file: AsPath) -> CheckpointReader:
    """A reader of a checkpoint, or of the newest one in a folder.

    It has `get_tensor`, `has_tensor`, `get_variable_to_shape_map` and `get_variable_to_dtype_map`. Raises
    NotFoundError if there is none, DataLossError for a damaged one.
    """
    path = Path(ckpt_dir_or_file)
    if path.is_dir():
        newest = latest_checkpoint(path)
        if newest is None:
            raise NotFoundError(f"load_checkpoint: there is no checkpoint in {path}")
        path = Path(newest)
    return CheckpointReader(path)


@checked
def NewCheckpointReader(filepattern: AsPath) -> CheckpointReader:  # noqa: N802 - TensorFlow's name
    """A reader of a checkpoint: see `load_checkpoint`."""
    return CheckpointReader(filepattern)


@checked
def load_variable(ckpt_dir_or_file: AsPath, name: Text) -> Array:
    """The value of a variable in a checkpoint, or in the newest one of a folder. Raises NotFoundError."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


@checked
def init_from_checkpoint(ckpt_dir_or_file: AsPath, assignment_map: Mapped) -> None:
    """Makes initializers of variables give them the values of a checkpoint, as in fine-tuning.

    ckpt_dir_or_file: as for `load_checkpoint`; it is read now. assignment_map: by the name in the checkpoint
    a variable, its name, or a list of the parts of one; or by a scope there that ends in `/`,
    of which all variables are meant, a scope of the graph: `{"bert/": "model/bert/"}`, `{"/": "/"}` for all.
    A partitioned variable, also of a scope, takes its slices of a whole one.

    Raises NotFoundError for a variable that one of both lacks, InvalidArgumentError for another shape.
    """
    reader = load_checkpoint(ckpt_dir_or_file)
    known = {
        variable.op.name: variable
        for variable in get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES)
        if isinstance(variable, Variable)
    }
    for source, target in assignment_map.items():
        for name, variable in _pairs(reader, known, source, target):
            array = reader.get_tensor(name)
            info = variable.save_slice_info
            if info is not None and array.shape == info.full_shape:
                array = array[info.index]
            if array.shape != variable.shape.dims:
                raise InvalidArgumentError(
                    f"init_from_checkpoint: {variable.name} is {render_dims(variable.shape.dims or ())}, but "
                    f"{name} in {reader.path} is {render_dims(array.shape)}"
                )
            variable._starts_with(array)


def _pairs(
    reader: CheckpointReader, known: Mapping[str, Variable], source: Any, target: Any
) -> Iterator[tuple[str, Variable]]:
    """Names in the checkpoint and variables of one entry of an assignment map."""
    if not isinstance(source, str):
        raise refuse("init_from_checkpoint", "assignment_map", "names of the checkpoint as keys", source)
    if source.endswith("/"):
        if not isinstance(target, str) or not target.endswith("/"):
            raise refuse(
                "init_from_checkpoint", "assignment_map", "a scope that ends in / for a scope", target
            )
        there, here = ("" if scope == "/" else scope for scope in (source, target))
        inside = {name: variable for name, variable in known.items() if name.startswith(here)}
        if not inside:
            raise NotFoundError(f"init_from_checkpoint: the graph has no variable in scope {target!r:.80}")
        for name, member in inside.items():
            info = member.save_slice_info
            if info is not None and not reader.has_tensor(f"{there}{name.removeprefix(here)}"):
                name = info.full_name
            yield f"{there}{name.removeprefix(here)}", member
        return
    for each in target if isinstance(target, (list, tuple, PartitionedVariable)) else [target]:
        variable = known.get(each.removesuffix(":0")) if isinstance(each, str) else each
        if variable is None:
            parts = [v for v in known.values() if v.save_slice_info and v.save_slice_info.full_name == each]
            if parts:
                yield from ((source, part) for part in parts)
                continue
        if variable is None:
            raise NotFoundError(f"init_from_checkpoint: the graph has no variable {each!r:.80}")
        if not isinstance(variable, Variable):
            raise refuse("init_from_checkpoint", "assignment_map", "variables, or names of them", each)
        yield source, variable
