"""The file that names a folder's checkpoints, as TensorFlow 1's programs read and write it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from tensorbow.checkpoint_files.checkpoint_paths import STATE, STATE_LIMIT, existing_file, remove_files
from tensorbow.errors import DataLossError, TensorBowError
from tensorbow.files import read_file, write_file
from tensorbow.kinds import PATH, AsPath, Text, checked, optional, sequence
from tensorbow.strict_json import parse_json

NEWEST, ALL, BEST = (
    f"{which}model_checkpoint_path{plural}" for which, plural in (("", ""), ("all_", "s"), ("best_", ""))
)
Paths: TypeAlias = Annotated["Sequence[str] | None", optional(sequence(PATH, "a list of paths"))]
PathsThere: TypeAlias = Annotated["Sequence[str]", sequence(PATH, "a list of paths")]


@dataclass(frozen=True)
class CheckpointState:
    """Paths of a folder's newest checkpoint, of all that are kept, oldest first, and of the best, if any."""

    model_checkpoint_path: str
    all_model_checkpoint_paths: tuple[str, ...]
    best_model_checkpoint_path: str | None = None


@checked
def get_checkpoint_state(checkpoint_dir: AsPath, latest_filename: Text = STATE) -> CheckpointState | None:
    """Reads what a folder's file says of its checkpoints, whether they are there or not; None without a file.

    Raises DataLossError if the file is damaged.
    """
    path = Path(checkpoint_dir) / latest_filename
    try:
        lines = read_file(path, STATE_LIMIT).decode("utf-8", "replace").splitlines()
    except TensorBowError:  # missing, a folder, a pipe, or too large
        return None
    paths: dict[str, list[str]] = {NEWEST: [], ALL: [], BEST: []}
    for line in lines:
        key, _, quoted = line.partition(": ")
        if key not in paths:
            continue  # TensorFlow writes times, too
        try:
            found = parse_json(quoted, STATE_LIMIT)
            if not isinstance(found, str) or "\0" in found:
                raise ValueError("expected a path in quotes")
        except ValueError as error:
            raise DataLossError(f"{path} is damaged: {key}: {error}; delete it") from None
        paths[key].append(os.path.join(checkpoint_dir, found))
    if not paths[NEWEST]:
        raise DataLossError(f"{path} is damaged: it names no {NEWEST}; delete it")
    return CheckpointState(paths[NEWEST][-1], tuple(paths[ALL]), paths[BEST][-1] if paths[BEST] else None)


@checked
def update_checkpoint_state(
    save_dir: AsPath,
    model_checkpoint_path: AsPath,
    all_model_checkpoint_paths: Paths = None,
    latest_filename: Text = STATE,
) -> None:
    """Writes a folder's file anew. Relative paths are relative to the folder.

    all_model_checkpoint_paths: oldest first; the newest is added if it is not the last one. A `Saver` does
    this by itself. Raises ResourceExhaustedError if the file cannot be written.
    """
    newest = str(model_checkpoint_path)
    every = [path for path in all_model_checkpoint_paths or () if path != newest]
    folder = Path(save_dir).absolute()
    write_state(folder / latest_filename, newest, [*every, newest], None)


def write_state(path: Path, newest: str, every: Sequence[str], best: str | None) -> None:
    """Writes the file with paths that are relative to its folder, in TensorFlow's format."""
    lines = [(NEWEST, newest), *((ALL, each) for each in every), *([] if best is None else [(BEST, best)])]
    text = "".join(f"{key}: {json.dumps(_relative(each, path.parent))}\n" for key, each in lines)
    write_file(path, text.encode())


def _relative(checkpoint: str, folder: Path) -> str:
    return os.path.relpath(checkpoint, folder) if os.path.isabs(checkpoint) else checkpoint


@checked
def checkpoint_exists(checkpoint_prefix: AsPath) -> bool:
    """True if there is a checkpoint of this path, with or without its suffix."""
    return existing_file(checkpoint_prefix).is_file()


@checked
def get_checkpoint_mtimes(checkpoint_prefixes: PathsThere) -> list[float]:
    """Times at which checkpoints were written, in seconds since 1970; missing ones are left out."""
    files = map(existing_file, checkpoint_prefixes)
    return [file.stat().st_mtime for file in files if file.is_file()]


@checked
def remove_checkpoint(checkpoint_prefix: AsPath) -> None:
    """Deletes a checkpoint of this path, with its shards and its graph, if there is one."""
    remove_files(checkpoint_prefix)
