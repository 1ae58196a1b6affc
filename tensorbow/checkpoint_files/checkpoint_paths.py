"""File names of a `Saver`'s checkpoints, and the file that names the newest and the best."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tensorbow.checkpoint_files.shards import INDEX, SHARD, remove_shards
from tensorbow.errors import DataLossError, InvalidArgumentError, TensorBowError
from tensorbow.files import read_file
from tensorbow.kinds import PATH, AsPath, Text, checked, read_as
from tensorbow.missing_names import listed
from tensorbow.strict_json import parse_json

SUFFIX = SHARD
META = ".meta"  # of the file with the graph
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


def _text(path: Any) -> str:
    """Converts a path to a string. Raises InvalidArgumentError for values that are no path."""
    text: str = os.fspath(read_as(PATH, path, "Saver", "save_path"))
    return text


def file_to_save(save_path: str | os.PathLike[str], step: int | None, digits: int = 1) -> Path:
    """Path of a new file: `save_path[-step].safetensors`. Raises InvalidArgumentError for no file name.

    digits: least number of digits of the step.
    """
    text = _text(save_path)
    if os.path.basename(text) in ("", ".", ".."):
        raise InvalidArgumentError(
            f"Saver: expected save_path to be the path of a file, as 'run/model', got {text!r:.80}"
        )
    return Path(f"{text.removesuffix(SUFFIX)}{'' if step is None else f'-{step:0{digits}d}'}{SUFFIX}")


def existing_file(save_path: str | os.PathLike[str]) -> Path:
    """Path of a checkpoint's file, or of the index of its shards; adds the suffix if it is missing."""
    path = Path(_text(save_path))
    if path.name.endswith((SUFFIX, INDEX)) or not path.name:
        return path
    whole, index = (path.with_name(f"{path.name}{suffix}") for suffix in (SUFFIX, INDEX))
    return index if index.is_file() and not whole.is_file() else whole


def checkpoint_name(save_path: str | os.PathLike[str]) -> str:
    """Path by which a checkpoint is known: of its file; without a suffix if it has shards."""
    file = existing_file(save_path)
    return str(file.with_suffix("")) if file.suffix == INDEX else str(file)


def meta_file(save_path: str | os.PathLike[str]) -> Path:
    """Path of the graph beside a checkpoint: `save_path.meta`, without the checkpoint's own suffix."""
    text = _text(save_path)
    return Path(f"{text.removesuffix(SUFFIX).removesuffix(INDEX)}{META}")


def remove_files(save_path: str | os.PathLike[str]) -> None:
    """Deletes a checkpoint: its file, or its index and shards, and its graph."""
    file = existing_file(save_path)
    with suppress(OSError):
        meta_file(file).unlink()
    if file.suffix == INDEX:
        remove_shards(file.with_suffix(""))
    with suppress(OSError):
        os.unlink(file)


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
        return checkpoint if existing_file(checkpoint).is_file() else None
    return None


def not_found(missing: Sequence[str], path: Path, there: Collection[str]) -> str:
    """Message for missing names: the first in TensorFlow's words, similar names in the file, the others."""
    near = difflib.get_close_matches(missing[0], there, 3)
    hint = f"; it has {', '.join(near)}" if near else ""
    others = f"; nor are {listed(missing[1:], SHOWN - 1)}" if missing[1:] else ""
    return f"Key {missing[0]} not found in checkpoint {path}{hint}{others}"
