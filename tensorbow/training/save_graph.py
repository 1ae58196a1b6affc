"""The operations by which a graph itself saves and restores variables (OSDI 2016, figure 2, section 4.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tensorbow.checkpoint_files.save_ops import Restore, Save, slice_text
from tensorbow.graph import Graph, control_dependencies, name_scope
from tensorbow.ops.constant import constant
from tensorbow.ops.control import group, identity, placeholder_with_default
from tensorbow.ops.sparse_updates import SparseApplyMomentum
from tensorbow.ops.updates import ApplyMomentum
from tensorbow.optimizers import SLOT_FORM
from tensorbow.specs import SaveSliceInfo, string
from tensorbow.variables import Variable

METADATA = {"kind": "saver", **SLOT_FORM, "metrics": {}}


@dataclass(frozen=True)
class SaverDef:
    """Names of a Saver's operations in its graph, and its options: TensorFlow's message of this name.

    filename_tensor_name: the tensor to feed with the path. save_tensor_name: to fetch, which saves;
    restore_op_name: to run, which restores.
    variables: names of variables in the graph, by their names in files.
    """

    filename_tensor_name: str
    save_tensor_name: str
    restore_op_name: str
    max_to_keep: int = 5
    variables: Mapping[str, str] = field(default_factory=dict)


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
) -> SaverDef:
    """Adds to a graph the operations under `save/` that save and restore variables, by name.

    slices: of parts of variables, by the part's name, the slice of which array they are.
    """
    names = [slices[key].full_name if key in slices else key for key in variables]
    cuts = [slice_text(slices.get(key)) for key in variables]
    members = list(variables.values())
    with graph.as_default(), control_dependencies(None), name_scope("save"):
        path = placeholder_with_default(constant("model", name="filename/input"), [], name="Const")
        listed, sliced = (constant(np.array(texts, object), string) for texts in (names, cuts))
        values = [identity(variable) for variable in members]
        written = Save(path, listed, sliced, *values, metadata=json.dumps(METADATA))
        with control_dependencies([written]):
            saved = identity(path, name="control_dependency")
        restored = Restore(
            path,
            listed,
            sliced,
            dtypes=tuple(variable.dtype for variable in members),
            shapes=tuple(variable.op.outputs[0].spec.shape for variable in members),
            momenta=tuple(n for n, v in zip(names, members, strict=True) if is_momentum(v)),
            metadata=json.dumps(SLOT_FORM),
        )
        tensors = restored if isinstance(restored, tuple) else (restored,)
        assigns = [variable.assign(value) for variable, value in zip(members, tensors, strict=True)]
        everything = group(*assigns, name="restore_all")
    known = {key: variable.op.name for key, variable in variables.items()}
    return SaverDef(path.name, saved.name, everything.name, max_to_keep or 0, known)
