"""Save and Restore as ops (OSDI 2016, section 4.3): tensors by name to and from a checkpoint file.

They run on the host, in the dynamic mode. A file is that of a `Saver`: written whole or not at all. Several
Saves write shards under temporary names, of which MergeV2Checkpoints makes a checkpoint.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorbow.checkpoint_files.arrays_file import MOST_VALUES, save_arrays
from tensorbow.checkpoint_files.checkpoint_paths import SUFFIX, file_to_save, not_found
from tensorbow.checkpoint_files.checkpoint_reader import CheckpointReader
from tensorbow.checkpoint_files.shards import SLICES as SLICES_KEPT
from tensorbow.checkpoint_files.shards import merge_shards, remove_shards, shard_name
from tensorbow.checkpoint_files.slice_texts import parse_slice
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.files import shown
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec, render_dims, string
from tensorbow.strict_json import parse_json
from tensorbow.string_ops.elements import require_strings, scalar_of

PREFIX, NAMES, SLICES = "prefix", "tensor_names", "shape_and_slices"


def _check_inputs(op: str, inputs: Sequence[TensorSpec]) -> None:
    for spec, what, rank in zip(inputs, (PREFIX, NAMES, SLICES), (0, 1, 1), strict=True):
        require_strings(op, spec, what)
        if spec.shape is not None and len(spec.shape) != rank:
            expected = "a scalar" if rank == 0 else "a vector"
            raise InvalidArgumentError(f"{op}: {what} is {spec}, expected {expected}")


def _texts(op: str, what: str, array: Array, count: int) -> list[str]:
    texts = [text.decode("utf-8", "surrogateescape") for text in array.ravel().tolist()]
    if len(texts) != count:
        raise InvalidArgumentError(f"{op}: {what} has {len(texts)} strings, expected one for each of {count}")
    return texts


# Save ---------------------------------------------------------------------------------------------


def _save_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> tuple[()]:
    _check_inputs("SaveV2", inputs[:3])
    return ()


def _save(call: HostCall) -> list[Array]:
    prefix, names, slices, *tensors = call.inputs
    whole: dict[str, Array] = {}
    cut: dict[str, list[tuple[str, Array]]] = {}  # slices as text, by the tensor's name
    rows = zip(
        _texts("SaveV2", NAMES, names, len(tensors)),
        _texts("SaveV2", SLICES, slices, len(tensors)),
        tensors,
        strict=True,
    )
    for name, text, tensor in rows:
        if text:
            cut.setdefault(name, []).append((text, tensor))
        else:
            whole[name] = tensor
    arrays, kept = _joined(whole, cut)
    path = file_to_save(os.fsdecode(scalar_of("SaveV2", PREFIX, prefix)), None)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FailedPreconditionError(
            f"cannot make the folder {shown(path.parent)}: {error.strerror}"
        ) from None
    described = _metadata("SaveV2", call)
    save_arrays(path, arrays, {**described, SLICES_KEPT: kept} if kept else described)
    remove_shards(path.with_suffix(""))
    return []


def _joined(
    whole: Mapping[str, Array], cut: Mapping[str, Sequence[tuple[str, Array]]]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays by name in the file, and for those that are slices the tensor's name, extents and slice.

    Slices that make a whole are joined.
    """
    arrays, kept = dict(whole), dict[str, Any]()
    for name, parts in cut.items():
        places = [parse_slice(text, "SaveV2") for text, _ in parts]
        extents = places[0][0]
        if sum(tensor.size for _, tensor in parts) == math.prod(extents):
            arrays[name] = np.empty(extents, parts[0][1].dtype)
            for (_, index), (_, tensor) in zip(places, parts, strict=True):
                arrays[name][index] = tensor
            continue
        for text, tensor in parts:
            arrays[f"{name} {text}"] = tensor
            kept[f"{name} {text}"] = [name, extents, text]
    return arrays, kept


def _metadata(op: str, call: HostCall) -> Any:
    try:
        return parse_json(call.attrs["metadata"], MOST_VALUES)
    except ValueError as error:
        raise InvalidArgumentError(f"{op}: the attribute metadata is no JSON: {error}") from None


Save = define_op(
    "SaveV2",
    spec=_save_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=(PREFIX, NAMES, SLICES, "*tensors"),
    attrs={"metadata": "{}"},
    host=_save,
    slow=True,
    stateful=True,
    strings=True,
    doc="Writes tensors by name to a checkpoint file; metadata: JSON that is written, too.",
)


# Restore ------------------------------------------------------------------------------------------


def _restore_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    _check_inputs("RestoreV2", inputs)
    if len(attrs["dtypes"]) != len(attrs["shapes"]):
        raise InvalidArgumentError("RestoreV2: expected as many shapes as dtypes")
    return [TensorSpec(s, t) for s, t in zip(attrs["shapes"], attrs["dtypes"], strict=True)]


def _restore(call: HostCall) -> list[Array]:
    dtypes = call.attrs["dtypes"]
    reader = CheckpointReader(os.fsdecode(scalar_of("RestoreV2", PREFIX, call.inputs[0])))
    path, extents = reader.path, reader.extents()
    names = _texts("RestoreV2", NAMES, call.inputs[1], len(dtypes))
    missing = [name for name in dict.fromkeys(names) if name not in extents]
    if missing:
        raise NotFoundError(not_found(missing, path, extents))
    found, form = [], _metadata("RestoreV2", call)
    slices = _texts("RestoreV2", SLICES, call.inputs[2], len(dtypes))
    for name, cut, dtype, dims in zip(names, slices, dtypes, call.attrs["shapes"], strict=True):
        whole = parse_slice(cut, "RestoreV2")[0] if cut else dims
        if whole is not None and extents[name] != tuple(whole):
            raise InvalidArgumentError(
                f"Assign requires shapes of both tensors to match. lhs shape= {render_dims(whole)} "
                f"rhs shape= {render_dims(extents[name])}: tensor {name}, checkpoint {path}"
            )
        array = reader.tensor(name, cut)
        if array.dtype != dtype.as_numpy_dtype:
            raise InvalidArgumentError(
                f"tensor_name = {name}; expected dtype {dtype.name} does not equal original dtype "
                f"{array.dtype.name} in {path}"
            )
        if name in call.attrs["momenta"] and not form.items() <= reader.metadata.items() and array.any():
            raise InvalidArgumentError(
                f"{path} is of an earlier version: its {name} is -learning_rate times the sum of gradients "
                "that momentum keeps now; restore the others, by a Saver(var_list) of them"
            )
        found.append(array)
    return found


Restore = define_op(
    "RestoreV2",
    spec=_restore_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=(PREFIX, NAMES, SLICES),
    attrs={"dtypes": REQUIRED, "shapes": REQUIRED, "momenta": (), "metadata": "{}"},
    host=_restore,
    slow=True,
    stateful=True,
    strings=True,
    doc="The tensors of some names in a checkpoint file. momenta: names of momentum slots, which "
    "need a file with this metadata.",
)


# Shards -------------------------------------------------------------------------------------------


def _shard_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_strings("ShardedFilename", inputs[0], "basename")
    return TensorSpec((), string)


def _shard(call: HostCall) -> Array:
    basename = os.fsdecode(scalar_of("ShardedFilename", "basename", call.inputs[0])).removesuffix(SUFFIX)
    number, count = (int(scalar_of("ShardedFilename", "shard", each)) for each in call.inputs[1:])
    return np.array(os.fsencode(shard_name(basename, number, count)), object)


ShardedFilename = define_op(
    "ShardedFilename",
    spec=_shard_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("basename", "shard", "num_shards"),
    host=_shard,
    strings=True,
    doc="The name of a shard: `basename-00000-of-00002`.",
)


def _merge_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> tuple[()]:
    for spec, what in zip(inputs, ("checkpoint_prefixes", "destination_prefix"), strict=True):
        require_strings("MergeV2Checkpoints", spec, what)
    return ()


def _merge(call: HostCall) -> list[Array]:
    shards = [Path(f"{os.fsdecode(prefix)}{SUFFIX}") for prefix in call.inputs[0].ravel().tolist()]
    destination = scalar_of("MergeV2Checkpoints", "destination_prefix", call.inputs[1])
    merge_shards(shards, file_to_save(os.fsdecode(destination), None).with_suffix(""))
    return []


MergeCheckpoints = define_op(
    "MergeV2Checkpoints",
    spec=_merge_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("checkpoint_prefixes", "destination_prefix"),
    host=_merge,
    stateful=True,
    strings=True,
    doc="Makes files that SaveV2 wrote the shards of one checkpoint.",
)
