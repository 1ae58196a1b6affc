"""Save and Restore as ops (OSDI 2016, section 4.3): tensors by name to and from a checkpoint file.

They run on the host, in the dynamic mode. A file is that of a `Saver`: written whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.checkpoint_files.arrays_file import MOST_VALUES, save_arrays
from tensorbow.checkpoint_files.checkpoint_paths import file_to_save, load_checkpoint, not_found
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.files import shown
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, SaveSliceInfo, TensorSpec, render_dims
from tensorbow.strict_json import parse_json
from tensorbow.string_ops.elements import require_strings, scalar_of

PREFIX, NAMES, SLICES = "prefix", "tensor_names", "shape_and_slices"


def slice_text(cut: SaveSliceInfo | None) -> str:
    """A slice of a whole array as TensorFlow writes it: `4 3 0,2:0,3`, extents, then begin,length of each."""
    if cut is None:
        return ""
    parts = ":".join(f"{start},{extent}" for start, extent in zip(cut.var_offset, cut.var_shape, strict=True))
    return " ".join([*map(str, cut.full_shape), parts])


def _slice_of(op: str, text: str) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """The extents of the whole array, and the index of the slice. Raises InvalidArgumentError."""
    *extents, parts = text.split(" ")
    try:
        pairs = [tuple(map(int, part.split(","))) for part in parts.split(":")]
        whole = tuple(map(int, extents))
        index = tuple(slice(start, start + length) for start, length in pairs)
    except ValueError:
        whole, index = (), (slice(0),)
    if len(whole) != len(index) or any(
        not 0 <= part.start <= part.stop <= extent for part, extent in zip(index, whole, strict=False)
    ):
        raise InvalidArgumentError(
            f"{op}: {text!r:.80} is no slice, expected one as '4 3 0,2:0,3', extents and begin,length of each"
        )
    return whole, index


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
    arrays: dict[str, Array] = {}
    rows = zip(
        _texts("SaveV2", NAMES, names, len(tensors)),
        _texts("SaveV2", SLICES, slices, len(tensors)),
        tensors,
        strict=True,
    )
    for name, cut, tensor in rows:
        if not cut:
            arrays[name] = tensor
            continue
        whole, index = _slice_of("SaveV2", cut)
        arrays.setdefault(name, np.empty(whole, tensor.dtype))[index] = tensor
    path = file_to_save(os.fsdecode(scalar_of("SaveV2", PREFIX, prefix)), None)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FailedPreconditionError(
            f"cannot make the folder {shown(path.parent)}: {error.strerror}"
        ) from None
    save_arrays(path, arrays, _metadata("SaveV2", call))
    return []


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
    path, arrays, described = load_checkpoint(os.fsdecode(scalar_of("RestoreV2", PREFIX, call.inputs[0])))
    names = _texts("RestoreV2", NAMES, call.inputs[1], len(dtypes))
    missing = [name for name in dict.fromkeys(names) if name not in arrays]
    if missing:
        raise NotFoundError(not_found(missing, path, arrays))
    found, form = [], _metadata("RestoreV2", call)
    slices = _texts("RestoreV2", SLICES, call.inputs[2], len(dtypes))
    for name, cut, dtype, dims in zip(names, slices, dtypes, call.attrs["shapes"], strict=True):
        array = arrays[name]
        if array.dtype != dtype.as_numpy_dtype:
            raise InvalidArgumentError(
                f"tensor_name = {name}; expected dtype {dtype.name} does not equal original dtype "
                f"{array.dtype.name} in {path}"
            )
        whole, index = _slice_of("RestoreV2", cut) if cut else (dims, ())
        if whole is not None and array.shape != tuple(whole):
            raise InvalidArgumentError(
                f"Assign requires shapes of both tensors to match. lhs shape= {render_dims(whole)} "
                f"rhs shape= {render_dims(array.shape)}: tensor {name}, checkpoint {path}"
            )
        if name in call.attrs["momenta"] and not form.items() <= described.items() and array.any():
            raise InvalidArgumentError(
                f"{path} is of an earlier version: its {name} is -learning_rate times the sum of gradients "
                "that momentum keeps now; restore the others, by a Saver(var_list) of them"
            )
        found.append(array[index])
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
