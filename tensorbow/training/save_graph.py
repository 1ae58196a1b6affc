"""The operations by which a graph itself saves and restores variables (OSDI 2016, figure 2, section 4.3)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorbow.checkpoint_files.save_ops import MergeCheckpoints, Restore, Save, ShardedFilename
from tensorbow.checkpoint_files.slice_texts import slice_text
from tensorbow.devices import DeviceName
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph, Operation, Tensor, control_dependencies, name_scope
from tensorbow.ops.arrays import stack
from tensorbow.ops.constant import constant
from tensorbow.ops.control import group, identity, placeholder_with_default
from tensorbow.ops.sparse_updates import SparseApplyMomentum
from tensorbow.ops.updates import ApplyMomentum
from tensorbow.optimizers import SLOT_FORM
from tensorbow.specs import SaveSliceInfo, string
from tensorbow.string_ops import string_join
from tensorbow.variables import Variable

HOURS = 10_000.0  # keep_checkpoint_every_n_hours by default
METADATA = {"kind": "saver", **SLOT_FORM, "metrics": {}}


@dataclass(frozen=True)
class SaverDef:
    """Names of a Saver's operations in its graph, and its options: TensorFlow's message of this name.

    filename_tensor_name: the tensor to feed with the path. save_tensor_name: to fetch, which saves;
    restore_op_name: to run, which restores. max_to_keep, sharded, keep_checkpoint_every_n_hours: the Saver's.
    variables: names of variables in the graph, by their names in files.
    """

    filename_tensor_name: str
    save_tensor_name: str
    restore_op_name: str
    max_to_keep: int = 5
    variables: Mapping[str, str] = field(default_factory=dict)
    sharded: bool = False
    keep_checkpoint_every_n_hours: float = HOURS


SAVER_NAMES = ("filename_tensor_name", "save_tensor_name", "restore_op_name")  # fields of a SaverDef


def read_saver_def(fields: Any) -> SaverDef:
    """A SaverDef of what a file says. Raises InvalidArgumentError."""
    needed, optional = (
        {*SAVER_NAMES, "max_to_keep", "variables"},
        {"sharded", "keep_checkpoint_every_n_hours"},
    )
    if (
        not isinstance(fields, dict)
        or not needed <= set(fields) <= needed | optional
        or not all(isinstance(fields[key], str) for key in SAVER_NAMES)
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


def is_momentum(variable: Variable) -> bool:
    """True if a variable is a slot of a momentum optimiser."""
    slot = variable.op.outputs[0]
    kinds = (ApplyMomentum, SparseApplyMomentum)
    return any(op.definition in kinds and op.inputs[1] is slot for op in variable.graph.consumers(slot))


def add_save_graph(
    graph: Graph,
    variables: Mapping[str, Variable],
    slices: Mapping[str, SaveSliceInfo],
    max_to_keep: int | None,
    sharded: bool,
    hours: float,
    scope: str = "save",
) -> SaverDef:
    """Adds to a graph the operations, in a scope, that save and restore variables, by name.

    slices: of parts of variables, by the part's name, the slice of which array they are. sharded: one file
    for the variables of each device, which its task reads and writes. hours: between checkpoints that stay.
    """
    with graph.as_default(), control_dependencies(None), name_scope(scope):
        path = placeholder_with_default(constant("model", name="filename/input"), [], name="Const")
        add = _add_shards if sharded else _add_one_file
        saved, everything = add(path, variables, slices)
    known = {key: variable.op.name for key, variable in variables.items()}
    return SaverDef(path.name, saved.name, everything.name, max_to_keep or 0, known, sharded, hours)


def _add_one_file(
    path: Tensor, variables: Mapping[str, Variable], slices: Mapping[str, SaveSliceInfo]
) -> tuple[Tensor, Operation]:
    file = _FileOfVariables(variables, slices)
    with control_dependencies([file.save(path)]):
        saved = identity(path, name="control_dependency")
    return saved, group(*file.assign(file.restore(path)), name="restore_all")


def _add_shards(
    path: Tensor, variables: Mapping[str, Variable], slices: Mapping[str, SaveSliceInfo]
) -> tuple[Tensor, Operation]:
    graph, by_device = path.graph, variables_by_device(variables)
    shards = [(_host_of(d), _FileOfVariables(members, slices)) for d, members in by_device.items()]
    temporary, written = string_join([path, "_temp"]), list[Tensor]()
    for number, (host, shard) in enumerate(shards):
        with graph.device(None), graph.device(host):
            name = ShardedFilename(temporary, number, len(shards))
            with control_dependencies([shard.save(name)]):
                written.append(identity(name))
    with control_dependencies([MergeCheckpoints(stack(written), path)]):
        saved = identity(path, name="control_dependency")
    found: list[list[Tensor]] = []
    for host, shard in shards:
        with graph.device(None), graph.device(host):
            found.append(shard.restore(path))
    assigns: list[Operation] = []
    with control_dependencies(
        [tensors[0].op for tensors in found]
    ):  # nothing is assigned if one of them fails
        for (_, shard), tensors in zip(shards, found, strict=True):
            assigns.append(group(*shard.assign(tensors), name="restore_shard"))
    return saved, group(*assigns, name="restore_all")


def variables_by_device(variables: Mapping[str, Variable]) -> dict[str, dict[str, Variable]]:
    """Variables by the device that they request, sorted by its name; each has a shard, as in TensorFlow."""
    found: dict[str, dict[str, Variable]] = {}
    for key, variable in variables.items():
        found.setdefault(_device_of(variable.op), {})[key] = variable
    return {device: found[device] for device in sorted(found)}


def _device_of(op: Operation) -> str:
    """The device that a variable requests, or that which it follows does."""
    seen: set[Operation] = set()
    while op not in seen:
        seen.add(op)
        if op.colocation:
            op = op.colocation[0]
        elif not op.device and op.attrs.get("slot_of"):
            op = op.graph.get_operation_by_name(op.attrs["slot_of"])
    return op.device


def _host_of(device: str) -> str:
    """The first CPU of a device's task."""
    name = DeviceName.parse(device)
    return str(DeviceName(job=name.job, task=name.task, kind="CPU", index=0)) if device else ""


class _FileOfVariables:
    """The variables in one file, and the operations that write and read it."""

    def __init__(self, variables: Mapping[str, Variable], slices: Mapping[str, SaveSliceInfo]):
        self._names = [slices[key].full_name if key in slices else key for key in variables]
        self._slices = [slice_text(slices.get(key)) for key in variables]
        self._members = list(variables.values())

    def _texts(self) -> list[Tensor]:
        return [constant(np.array(texts, object), string) for texts in (self._names, self._slices)]

    def save(self, path: Tensor) -> Operation:
        """Writes the file."""
        listed, sliced = self._texts()
        values = [identity(variable) for variable in self._members]
        written: Operation = Save(path, listed, sliced, *values, metadata=json.dumps(METADATA))
        return written

    def restore(self, path: Tensor) -> list[Tensor]:
        """The values in the file."""
        listed, sliced = self._texts()
        momenta = (n for n, v in zip(self._names, self._members, strict=True) if is_momentum(v))
        restored = Restore(
            path,
            listed,
            sliced,
            dtypes=tuple(variable.dtype for variable in self._members),
            shapes=tuple(variable.op.outputs[0].spec.shape for variable in self._members),
            momenta=tuple(momenta),
            metadata=json.dumps(SLOT_FORM),
        )
        return list(restored) if isinstance(restored, tuple) else [restored]

    def assign(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sets the variables."""
        return [variable.assign(value) for variable, value in zip(self._members, tensors, strict=True)]
