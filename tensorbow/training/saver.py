"""`Saver`, as in TensorFlow 1: checkpoints of a session's variables; keeps the newest and the best."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.checkpoint_files.arrays_file import save_arrays
from tensorbow.checkpoint_files.checkpoint_paths import (
    STATE,
    SUFFIX,
    best_checkpoint,
    checkpoint_name,
    existing_file,
    file_to_save,
    meta_file,
    not_found,
    remove_files,
)
from tensorbow.checkpoint_files.checkpoint_reader import CheckpointReader, load_checkpoint
from tensorbow.checkpoint_files.shards import INDEX, ShardIndex, remove_shards
from tensorbow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.graph import GraphKeys, Operation, Tensor, get_default_graph, register_collection_item
from tensorbow.graph.collection_items import LaterItem
from tensorbow.kinds import (
    PATH,
    Count,
    Flag,
    Kind,
    Name,
    PositiveNumber,
    checked,
    instance,
    is_tensor,
    one_of,
    read_as,
    refuse,
    sequence,
    whole,
)
from tensorbow.optimizers import slots_hold_rate
from tensorbow.partitioned_variables import PartitionedVariable
from tensorbow.runtime.forgotten_updates import warn_of_unsaved_averages
from tensorbow.specs import Array, SaveSliceInfo
from tensorbow.training.checkpoint_state import write_state
from tensorbow.training.checkpoints import make_folder
from tensorbow.training.meta_graph_def import MetaGraphFiles
from tensorbow.training.save_graph import (
    HOURS,
    METADATA,
    SaverDef,
    add_save_graph,
    is_momentum,
    read_saver_def,
)
from tensorbow.variables import Variable, global_variables

MODES = ("max", "min")
Paths: TypeAlias = Annotated[Sequence[str], sequence(PATH, "a list of paths")]
AnyVariable: TypeAlias = Variable | PartitionedVariable
_STEP = Kind("a whole number, or a scalar tensor, variable or name of one", whole().read)


class Saver:
    """Saves and restores variables of sessions.

    A file `checkpoint` in the folder names the newest checkpoint and, with `best_metric`, the best.

    It adds operations to the graph by which a session saves and restores without it (see `saver_def`), as in
    TensorFlow: `save/control_dependency:0` writes the file whose path `save/Const:0` is fed, and
    `save/restore_all` reads it.
    """

    @checked
    def __init__(
        self,
        var_list: Sequence[AnyVariable] | Mapping[str, AnyVariable] | None = None,
        *,
        max_to_keep: Count | None = 5,
        best_metric: Name = None,
        mode: Annotated[str, one_of(*MODES)] = "max",
        keep_checkpoint_every_n_hours: PositiveNumber = HOURS,
        sharded: Flag = False,
        saver_def: Annotated[SaverDef, instance(SaverDef, expected="a Saver's saver_def")] | None = None,
        allow_empty: Flag = False,
        reshape: Flag = False,
        restore_sequentially: Flag = False,
        name: Name = None,
        pad_step_number: Flag = False,
        defer_build: Flag = False,
    ):
        """var_list: the variables, or a dictionary of them by their names in the file; None: all variables.

        max_to_keep: number of newest checkpoints to keep; 0 or None keeps all.
        best_metric: name in `save(metrics=...)`; the checkpoint with its greatest value (with mode "min" the
        least) is kept in addition. Among equal values the earlier one is best; NaN is never best.
        keep_checkpoint_every_n_hours: of the checkpoints that `max_to_keep` drops, one of every so many hours
            stays.
        sharded: a file for the variables of each device, `save_path-00000-of-00002.safetensors` and so on,
            and `save_path.index`, listing them. Over a cluster each task reads and writes the files of its
            variables; the tasks need one file system.
        saver_def: of another saver, whose operations are in the default graph, as after
            `tb.train.import_meta_graph`: this one has the same variables and names, and adds none.
        allow_empty: without variables the saver does nothing, instead of raising an error.
        reshape: `restore` takes arrays of another shape with as many elements; not with sharded.
        restore_sequentially: without effect (TensorFlow's): variables are always restored one by one.
        name: scope of its operations, by default "save". pad_step_number: the global step in a file's name
            has eight digits or more. defer_build: `build` chooses the variables and adds the operations.

        Raises InvalidArgumentError if there is nothing to save, or two variables have one name, NotFoundError
        for a saver_def whose variables are not in the default graph, FailedPreconditionError for sharded in a
        finalized graph.
        """
        if saver_def is not None:
            max_to_keep, sharded = saver_def.max_to_keep, saver_def.sharded
            keep_checkpoint_every_n_hours = saver_def.keep_checkpoint_every_n_hours
        if reshape and sharded:
            raise refuse("Saver", "reshape", "False for sharded files", reshape)
        self._sharded, self._reshapes = sharded, reshape
        self._keep = max_to_keep or None
        self._interval_s = keep_checkpoint_every_n_hours * 3600
        self._stays_after_s = time.time() + self._interval_s  # a checkpoint written later stays
        self._written_s: dict[str, float] = {}  # by path
        self._kept_for_good: set[str] = set()  # dropped ones that stay
        self._metric, self._mode = best_metric, mode
        self._paths: list[str] = []
        self.best_checkpoint: str | None = None  # path
        self.best_value: float | None = None
        self._def, self._meta_graphs = saver_def, MetaGraphFiles()
        self._scope, self._pads = name or "save", pad_step_number
        self._hours, self._choice = keep_checkpoint_every_n_hours, (var_list, allow_empty)
        self._variables: dict[str, Variable] | None = None
        if not defer_build:
            self.build()

    def build(self) -> None:
        """Chooses the variables and adds the operations, if `defer_build` has left it to this call.

        Raises FailedPreconditionError if it is done already, and what making the saver raises.
        """
        if self._variables is not None:
            raise FailedPreconditionError(
                "Saver.build: the saver is built; give defer_build=True to do it later"
            )
        if self._def is None:
            self._variables, self._slices = _by_name(*self._choice)
        else:
            self._variables, self._slices = _of_definition(self._def)
        if not self._variables:
            return
        graph = next(iter(self._variables.values())).graph
        if self._def is None and not graph.finalized:
            self._def = add_save_graph(
                *(graph, self._variables, self._slices, self._keep, self._sharded, self._hours, self._scope)
            )
        if self._sharded:
            self.saver_def  # noqa: B018 - raises if there is none

    @property
    def _built(self) -> dict[str, Variable]:
        """The variables, by name in the file."""
        if self._variables is None:
            raise FailedPreconditionError(
                "Saver: it was made with defer_build=True, and has no variables yet; call build() before"
            )
        return self._variables

    @property
    def saver_def(self) -> SaverDef:
        """Names of the operations that save and restore, to run by a session without this object.

        Raises FailedPreconditionError for a Saver made after its graph was finalized, which adds none.
        """
        if self._def is None:
            raise FailedPreconditionError(
                "saver_def: the graph was finalized when this Saver was made, so that it has no operations; "
                "make the Saver before"
            )
        return self._def

    def as_saver_def(self) -> SaverDef:
        """`saver_def`, by TensorFlow's other name."""
        return self.saver_def

    @property
    def last_checkpoints(self) -> list[str]:
        """Paths of the newest checkpoints that are kept, oldest first."""
        return list(self._paths)

    # Saving -----------------------------------------------------------------------------------

    @checked
    def save(
        self,
        session: Any,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
        *,
        metrics: Mapping[str, float] | None = None,
        latest_filename: str = STATE,
        write_meta_graph: Flag = True,
        write_state: Flag = True,
    ) -> str:
        """Writes a consistent snapshot of the variables to `save_path[-global_step].safetensors`.

        Shards go to files beside it, as `sharded` says. Over a cluster, whose steps are atomic on each device
        only, the snapshot is consistent on each device.
        global_step: a number, or a scalar tensor or variable of the session. Returns the path for `restore`.
        latest_filename: file in the same folder that names the newest checkpoint; savers that share a folder
        need different ones. write_state: False leaves that file as it is. write_meta_graph: writes the graph
        to `save_path[-global_step].meta`, for `tb.train.import_meta_graph`, if this saver has operations in
        it and the graph can be written. A saver without variables writes nothing and returns "".
        Raises FailedPreconditionError for an uninitialised variable,
        ResourceExhaustedError if the file cannot be written (nothing has changed then), InvalidArgumentError.
        """
        numbers = _numbers(metrics)
        value = self._metric_of(numbers)
        if not _is_filename(latest_filename):
            raise refuse("save", "latest_filename", f"the name of a file without {SUFFIX}", latest_filename)
        if not self._built:
            return ""
        elements = self._elements(session)
        path = file_to_save(save_path, _step(session, global_step), 8 if self._pads else 1)
        described = {**METADATA, "metrics": {k: _plain(v) for k, v in numbers.items()}}
        if self._sharded:
            name = self._write_shards(session, path.with_suffix(""), described)
        else:
            values = session.run(elements)
            arrays = self._joined({name: np.asarray(array) for name, array in values.items()})
            make_folder(path.parent)
            save_arrays(path, arrays, described)
            remove_shards(path.with_suffix(""))
            name = str(path)
        before = self._paths, self.best_checkpoint, self.best_value
        self._paths = [*(p for p in self._paths if p != name), name]
        self._written_s[name] = time.time()
        self._kept_for_good.discard(name)
        superseded = self.best_checkpoint
        self._offer_best(name, value)
        dropped = [] if self._keep is None else self._paths[: -self._keep]
        self._paths = self._paths[len(dropped) :]
        try:
            if write_state:
                self._write_state(path.parent / latest_filename)
        except BaseException:
            self._paths, self.best_checkpoint, self.best_value = before
            raise
        self._kept_for_good.update(old for old in dropped if self._stays(old))
        kept = {self.best_checkpoint, *self._paths, *self._kept_for_good}
        for old in (*dropped, superseded):
            if old is not None and old not in kept:
                remove_files(old)
        if write_meta_graph and self._def is not None:
            self._meta_graphs.write(meta_file(path), session.graph, self._def)
        return name

    def _write_shards(self, session: Any, prefix: Path, described: Mapping[str, Any]) -> str:
        """Has the session write its shards, and adds metadata to the index. Returns the checkpoint's path."""
        session.run(self.saver_def.save_tensor_name, {self.saver_def.filename_tensor_name: str(prefix)})
        index = prefix.with_name(f"{prefix.name}{INDEX}")
        replace(ShardIndex.read(index), metadata=described).write(index)
        return str(prefix)

    def _stays(self, dropped: str) -> bool:
        """True for the checkpoint of the next interval of hours among those that are dropped."""
        stays = self._written_s.pop(dropped, 0.0) > self._stays_after_s
        if stays:
            self._stays_after_s += self._interval_s
        return stays

    def _joined(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Arrays by name in the file: those of a partitioned variable become one."""
        joined = {name: array for name, array in arrays.items() if name not in self._slices}
        for name, cut in self._slices.items():
            whole = joined.setdefault(cut.full_name, np.empty(cut.full_shape, arrays[name].dtype))
            whole[cut.index] = arrays[name]
        return joined

    def _metric_of(self, metrics: Mapping[str, float]) -> float | None:
        if self._metric is None:
            return None
        if self._metric not in metrics:
            raise InvalidArgumentError(
                f"Saver: the best checkpoint is told by {self._metric!r}, which is not in metrics"
            )
        return metrics[self._metric]

    def _offer_best(self, path: str, value: float | None) -> None:
        """Makes a checkpoint the best if its value is better. An overwritten file is no longer the best."""
        if self.best_checkpoint == path:
            self.best_checkpoint = self.best_value = None
        if value is None or math.isnan(value):
            return
        best = self.best_value
        if best is None or (value > best if self._mode == "max" else value < best):
            self.best_checkpoint, self.best_value = path, value

    def _elements(self, session: Any) -> dict[str, Variable]:
        if (
            isinstance(session, type)
            or not hasattr(session, "graph")
            or not hasattr(session, "load_variables")
        ):
            raise refuse("Saver", "session", "a session", session)
        for name, variable in self._built.items():
            if variable.graph is not session.graph:
                raise InvalidArgumentError(
                    f"Saver: variable {name} is not of the session's graph; make the Saver in that graph"
                )
        return self._built

    def _write_state(self, path: Path) -> None:
        """Writes the file that names the newest, all and the best checkpoints."""
        paths = [os.path.abspath(each) for each in self._paths]
        best = None if self.best_checkpoint is None else os.path.abspath(self.best_checkpoint)
        write_state(path.absolute(), paths[-1], paths, best)

    # Restoring --------------------------------------------------------------------------------

    def restore(self, session: Any, save_path: str | os.PathLike[str]) -> None:
        """Sets the variables to the values in a file; other variables and other arrays are ignored.

        Raises, before anything is changed, NotFoundError for a missing file or a variable that is not in
        it, InvalidArgumentError for another shape or dtype or for momentum slots of an earlier version of
        this library, DataLossError for a damaged file.
        """
        if save_path is None:
            remedy = "latest_checkpoint gives None for a folder without a checkpoint: save one there first"
            raise refuse("Saver.restore", "save_path", "a path", save_path, remedy)
        if not self._built:
            return
        variables = self._elements(session)
        if self._sharded:
            path = CheckpointReader(save_path).path
            session.run(
                self.saver_def.restore_op_name, {self.saver_def.filename_tensor_name: checkpoint_name(path)}
            )
            return
        path, arrays, described = load_checkpoint(save_path)
        sources = {name: self._slices[name].full_name if name in self._slices else name for name in variables}
        missing = [name for name in dict.fromkeys(sources.values()) if name not in arrays]
        if missing:
            raise NotFoundError(not_found(missing, path, arrays))
        for key, variable in variables.items():
            name, cut = sources[key], self._slices.get(key)
            array = arrays[name]
            spec = variable.op.outputs[0].spec
            if array.dtype != variable.dtype.as_numpy_dtype:
                raise InvalidArgumentError(
                    f"tensor_name = {name}; expected dtype {variable.dtype.name} does not equal original "
                    f"dtype {array.dtype.name} in {path}"
                )
            if cut is None and spec.shape is None:  # of a variable whose shape may change
                continue
            expected = spec.extents if cut is None else cut.full_shape
            if self._reshapes and array.size == math.prod(expected):
                arrays[name] = array = array.reshape(expected)
            if array.shape != expected:
                raise InvalidArgumentError(
                    f"Assign requires shapes of both tensors to match. lhs shape= {_shape(expected)} "
                    f"rhs shape= {_shape(array.shape)}: variable {variable.op.name}, checkpoint {path}"
                )
            if slots_hold_rate(described) and is_momentum(variable) and array.any():
                raise InvalidArgumentError(
                    f"{path} is of an earlier version: its {name} is -learning_rate times the sum of "
                    "gradients that momentum keeps now; restore the others, by a Saver(var_list) of them"
                )
        values = {key: arrays[name] for key, name in sources.items()}
        values |= {key: values[key][cut.index] for key, cut in self._slices.items()}
        session.load_variables({variable.op.name: values[key] for key, variable in variables.items()})

    @checked
    def recover_last_checkpoints(self, checkpoint_paths: Paths) -> None:
        """Takes over the existing ones of an earlier process's checkpoints, given oldest first.

        Also finds the best one again, from the metrics saved in these files and in their folders' best.
        """
        there = [checkpoint_name(path) for path in checkpoint_paths if existing_file(path).is_file()]
        self._paths = there
        self._written_s = {path: os.path.getmtime(existing_file(path)) for path in there}
        if self._metric is None:
            return
        folders = dict.fromkeys(os.path.dirname(path) for path in there)
        bests = [best for best in (best_checkpoint(folder) for folder in folders) if best is not None]
        for path in dict.fromkeys([*bests, *there]):
            with contextlib.suppress(DataLossError, NotFoundError):
                metrics = CheckpointReader(path).metadata.get("metrics")
                value = metrics.get(self._metric) if isinstance(metrics, dict) else None
                if isinstance(value, (int, float)):
                    self._offer_best(path, float(value))


def _by_name(
    var_list: Sequence[AnyVariable] | Mapping[str, AnyVariable] | None, allow_empty: bool
) -> tuple[dict[str, Variable], dict[str, SaveSliceInfo]]:
    """Variables by name, and of parts of variables, by the part's name, the slice of which array they are."""
    if (
        isinstance(var_list, (str, bytes))
        or is_tensor(var_list)
        or not isinstance(var_list, (Iterable, type(None)))
    ):
        raise refuse("Saver", "var_list", "a list or dictionary of variables", var_list)
    named: list[tuple[str, Any]] = []
    slices: dict[str, SaveSliceInfo] = {}
    if isinstance(var_list, Mapping):
        for name, variable in var_list.items():
            if not isinstance(variable, PartitionedVariable):
                named.append((name, variable))
                continue
            for part in variable:
                if part.save_slice_info is not None:
                    slices[part.op.name] = replace(part.save_slice_info, full_name=name)
                named.append((part.op.name, part))
    else:
        for variable in global_variables() if var_list is None else var_list:
            for each in variable if isinstance(variable, PartitionedVariable) else [variable]:
                named.append((each.op.name if isinstance(each, Variable) else "", each))
                if isinstance(each, Variable) and each.save_slice_info is not None:
                    slices[each.op.name] = each.save_slice_info
    found: dict[str, Variable] = {}
    for name, variable in named:
        if not isinstance(variable, Variable):
            raise refuse("Saver", "var_list", "of variables", variable)
        if not isinstance(name, str):
            raise refuse("Saver", f"the name of {variable.op.name} in var_list", "a string", name)
        if found.setdefault(name, variable) is not variable:
            raise InvalidArgumentError(
                f"Saver: two variables are named {name}; give a dictionary with other names"
            )
    if not found and allow_empty:
        return {}, {}
    if not found:
        raise InvalidArgumentError("Saver: no variables to save; make them first, or give var_list")
    if var_list is not None:
        graph = next(iter(found.values())).graph
        warn_of_unsaved_averages(graph, {variable.op.name for variable in found.values()})
    _require_wholes(slices, found)
    return found, slices


def _written(saver: Saver) -> dict[str, Any] | None:
    return None if saver._def is None else asdict(saver._def)


def _restored(content: Any, lookup: Callable[[str], Operation | Tensor]) -> LaterItem:
    """A saver of an imported graph, made after the variables. Raises InvalidArgumentError."""
    definition = read_saver_def(content)
    renamed = replace(
        definition,
        filename_tensor_name=lookup(definition.filename_tensor_name).name,
        save_tensor_name=lookup(definition.save_tensor_name).name,
        restore_op_name=lookup(definition.restore_op_name).name,
        variables={key: lookup(name).name for key, name in definition.variables.items()},
    )
    return LaterItem(lambda: Saver(saver_def=renamed))


register_collection_item("saver", Saver, _written, _restored)


def _of_definition(definition: SaverDef) -> tuple[dict[str, Variable], dict[str, SaveSliceInfo]]:
    """`_by_name` for the variables of a saver's definition in the default graph."""
    graph = get_default_graph()
    known = {
        item.op.name: item
        for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES)
        for item in graph.get_collection(key)
        if isinstance(item, Variable)
    }
    missing = [name for name in definition.variables.values() if name not in known]
    if missing or not definition.variables:
        what = f"no variable {missing[0]!r:.80}" if missing else "none of a saver's variables"
        raise NotFoundError(f"Saver: saver_def: the default graph has {what}; import its graph before")
    found = {key: known[name] for key, name in definition.variables.items()}
    slices = {key: v.save_slice_info for key, v in found.items() if v.save_slice_info is not None}
    return found, slices


def _require_wholes(slices: Mapping[str, SaveSliceInfo], found: Collection[str]) -> None:
    """Raises InvalidArgumentError for a partitioned variable whose name is taken, or with parts missing."""
    sizes = dict[str, list[int]]()
    for cut in slices.values():
        counted = sizes.setdefault(cut.full_name, [math.prod(cut.full_shape), 0])
        counted[1] += math.prod(cut.var_shape)
    for name, (size, there) in sizes.items():
        if name in found:
            raise InvalidArgumentError(
                f"Saver: a variable and a partitioned one are named {name}; give a dictionary of other names"
            )
        if there != size:
            raise InvalidArgumentError(
                f"Saver: expected all parts of {name}, {size} elements, got parts with {there}; give the "
                "partitioned variable itself"
            )


def _is_filename(value: Any) -> bool:
    return (
        isinstance(value, str)
        and value not in ("", ".", "..")
        and os.path.basename(value) == value
        and "\0" not in value
        and not value.endswith(SUFFIX)
    )


def _numbers(metrics: Any) -> dict[str, float]:
    """Converts metrics to floats. Raises InvalidArgumentError for values that are no numbers."""
    if not isinstance(metrics, (Mapping, type(None))):
        raise refuse("Saver", "metrics", "a dictionary or None", metrics)
    numbers = {}
    for name, value in (metrics or {}).items():
        number = None
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = None if isinstance(value, str) else float(value)
        if not isinstance(name, str):
            raise refuse("Saver", "metrics", "of numbers by name", name)
        if number is None:
            raise refuse("Saver", f"{name!r:.60} of metrics", "a number", value, "run tensors first")
        numbers[name] = number
    return numbers


def _step(session: Any, global_step: Any) -> int | None:
    if global_step is None:
        return None
    value = (
        session.run(global_step) if isinstance(global_step, str) or is_tensor(global_step) else global_step
    )
    value = value[()] if isinstance(value, np.ndarray) else value  # an array of rank 0 becomes a scalar
    return int(read_as(_STEP, value, "Saver", "global_step"))


def _plain(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _shape(extents: Sequence[int]) -> str:
    return f"[{','.join(map(str, extents))}]"
