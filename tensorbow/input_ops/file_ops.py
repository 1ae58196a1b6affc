"""Ops that read, write and list files."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from tensorbow.files import open_to_read, shown
from tensorbow.files import write_file as write_whole
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, HostCall, Operation, Tensor, graph_of
from tensorbow.input_ops.scalar_inputs import path_of, require_scalars
from tensorbow.kinds import Name, checked
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec, string
from tensorbow.string_ops.elements import as_strings, require_strings, scalar_of

__all__ = ["match_filenames_once", "matching_files", "read_file", "write_file"]


def whole_file(path: str) -> bytes:
    """The content of a regular file. Raises what `open_to_read` raises, and ResourceExhaustedError."""
    try:
        with open_to_read(path) as file:
            return file.read()
    except MemoryError:
        raise ResourceExhaustedError(f"the content of {shown(path)} does not fit into memory") from None


def string_scalar(value: bytes) -> Array:
    """An array of one string."""
    made: Array = np.empty((), object)
    made[()] = value
    return made


def _read_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_scalars("ReadFile", inputs, ("filename",))
    return TensorSpec((), string)


ReadFile = define_op(
    "ReadFile",
    spec=_read_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("filename",),
    host=lambda call: string_scalar(whole_file(path_of("ReadFile", "filename", call.inputs[0]))),
    slow=True,
    stateful=True,
    strings=True,
    doc="The content of a file.",
)


@checked
def read_file(filename: Any, name: Name = None) -> Tensor:
    """The content of a file, a scalar string.

    Raises, when it runs, NotFoundError for a missing file, FailedPreconditionError for one that cannot be
    read or is no regular file.
    """
    return ReadFile.tensor(as_strings(filename), name=name)


def _write_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> tuple[()]:
    require_scalars("WriteFile", inputs, ("filename", "contents"))
    return ()


def _write(call: HostCall) -> list[Array]:
    path = path_of("WriteFile", "filename", call.inputs[0])
    folder = os.path.dirname(path)
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise FailedPreconditionError(f"cannot make the folder {shown(folder)}: {error.strerror}") from None
    write_whole(path, scalar_of("WriteFile", "contents", call.inputs[1]))
    return []


WriteFile = define_op(
    "WriteFile",
    spec=_write_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("filename", "contents"),
    host=_write,
    slow=True,
    stateful=True,
    strings=True,
    doc="Writes a file, whole or not at all.",
)


@checked
def write_file(filename: Any, contents: Any, name: Name = None) -> Operation:
    """An operation that writes a string to a file, and makes the folders of its path.

    The file appears whole or not at all, and replaces one that is there. Raises, when it runs,
    FailedPreconditionError or ResourceExhaustedError if it cannot be written.
    """
    with graph_of([filename, contents]).as_default():
        result: Operation = WriteFile(as_strings(filename), as_strings(contents), name=name)
    return result


def _matching_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (pattern,) = inputs
    require_strings("MatchingFiles", pattern, "pattern")
    if pattern.shape is not None and len(pattern.shape) > 1:
        raise InvalidArgumentError(f"MatchingFiles: pattern is {pattern}, expected a scalar or a vector")
    return TensorSpec((None,), string)


def _matching(call: HostCall) -> Array:
    found = {
        os.fsencode(path) for each in call.inputs[0].ravel().tolist() for path in glob.glob(os.fsdecode(each))
    }
    made: Array = np.empty(len(found), object)
    made[:] = sorted(found)
    return made


MatchingFiles = define_op(
    "MatchingFiles",
    spec=_matching_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("pattern",),
    host=_matching,
    slow=True,
    stateful=True,
    strings=True,
    doc="The paths that match patterns.",
)
MatchingFilesOnce = define_op(
    "MatchingFilesOnce",
    spec=_matching_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("pattern",),
    host=lambda call: call.resources.get(("matched", call.name), lambda: _matching(call)),
    slow=True,
    stateful=True,
    strings=True,
    doc="The paths that match patterns when a session first asks.",
)


@checked
def matching_files(pattern: Any, name: Name = None) -> Tensor:
    """The paths that match a pattern, or one of a vector of them, sorted: a vector of strings.

    `*`, `?` and `[...]` stand for characters within a part of a path, as in a shell.
    """
    return MatchingFiles.tensor(as_strings(pattern), name=name)


@checked
def match_filenames_once(pattern: Any, name: Name = None) -> Tensor:
    """`matching_files`, found once in each session: files that come later do not change an epoch.

    TensorFlow keeps them in a local variable; here nothing needs to be initialised.
    """
    return MatchingFilesOnce.tensor(as_strings(pattern), name=name or "matching_filenames")
