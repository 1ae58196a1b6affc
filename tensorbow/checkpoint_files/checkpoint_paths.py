"""File names of a `Saver`'s checkpoints, and the file that names the newest and the best."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tensorbow.checkpoint_files.arrays_file import load_arrays
from tensorbow.errors import DataLossError, InvalidArgumentError, NotFoundError, TensorBowError
from tensorbow.files import read_file
from tensorbow.kinds import PATH, AsPath, Text, checked, read_as
from tensorbow.specs import Array
from tensorbow.strict_json import parse_json

SUFFIX = ".safetensors"
STATE = "checkpoint"  # the file that names a folder's checkpoints
STATE_LIMIT = 1 << 20  # bytes of this file
SHOWN = 10  # missing names in a message


@checked
def latest_checkpoint(checkpoint_dir: AsPath, latest_filename: Text = STATE) -> str | None:
    """Path of a folder's newest checkpoint, or None. Raises DataLossError if the file is damaged."""
    return _stated(checkpoint_dir, latest_filename, "model_checkpoint_path")


@checked
def best_checkpoint(checkpoint_dir: AsPath, latest_filename: Text = STATE) -> str | None:
    """Path of a folder's best checkpoint, or None. Raises DataLossError if the file is damaged."""
    return _stated(checkpoint_dir, latest_filename, "best_model_checkpoint_path")


@checked
def list_variables(save_path: AsPath) -> list[tuple[str, list[int]]]:
    """(name, shape) of all variables of a checkpoint, sorted by name. Raises NotFoundError, DataLossError."""
    arrays = load_checkpoint(save_path)[1]
    return [(name, list(arrays[name].shape)) for name in sorted(arrays)]


def _text(path: Any) -> str:
    """Converts a path to a string. Raises InvalidArgumentError for values that are no path."""
    text: str = os.fspath(read_as(PATH, path, "Saver", "save_path"))
    return text


def file_to_save(save_path: str | os.PathLike[str], step: int | None) -> Path:
    """Path of a new file: `save_path[-step].safetensors`. Raises InvalidArgumentError for no file name."""
    text = _text(save_path)
    if os.path.basename(text) in ("", ".", ".."):
        raise InvalidArgumentError(
            f"Saver: expected save_path to be the path of a file, as 'run/model', got {text!r:.80}"
        )
    return Path(f"{text.removesuffix(SUFFIX)}{'' if step is None else f'-{step}'}{SUFFIX}")


def existing_file(save_path: str | os.PathLike[str]) -> Path:
    """Path of a checkpoint's file; adds the suffix if it is missing."""
    path = Path(_text(save_path))
    return path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX) if path.name else path


def load_checkpoint(save_path: str | os.PathLike[str]) -> tuple[Path, dict[str, Array], dict[str, Any]]:
    """Reads a checkpoint: its file, arrays by name, and metadata.

    Raises NotFoundError with TensorFlow's message, DataLossError.
    """
    path = existing_file(save_path)
    try:
        return path, *load_arrays(path)
    except NotFoundError:
        raise NotFoundError(
            f"The passed save_path is not a valid checkpoint: there is no file {path}"
        ) from None


def _stated(folder: str | os.PathLike[str], filename: str, key: str) -> str | None:
    path = Path(_text(folder)) / _text(filename)
    try:
        text = read_file(path, STATE_LIMIT)
    except TensorBowError:  # missing, a folder, a pipe, or too large
        return None
    for line in text.decode("utf-8", "replace").splitlines():
        name, _, quoted = line.partition(": ")
        if name != key:
            continue
        try:
            found = parse_json(quoted, STATE_LIMIT)
            if not isinstance(found, str) or "\0" in found:
                raise ValueError("expected a path in quotes")
        except ValueError as error:
            raise DataLossError(f"{path} is damaged: {key}: {error}; delete it") from None
        checkpoint = os.path.join(folder, found)
        return checkpoint if os.path.isfile(checkpoint) else None
    return None


def not_found(missing: Sequence[str], path: Path, there: Collection[str]) -> str:
    """Message for missing names: the first in TensorFlow's words, similar names in the file, the others."""
    near = difflib.get_close_matches(missing[0], there, 3)
    hint = f"; it has {', '.join(near)}" if near else ""
    more = ", ".join(missing[1:SHOWN]) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
    return f"Key {missing[0]} not found in checkpoint {path}{hint}{f'; nor are {more}' if more else ''}"
