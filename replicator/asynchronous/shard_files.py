"""Folders of shards' checkpoints: one for each shard of a training, in the training's folder."""

from __future__ import annotations

import re
from pathlib import Path

from tensorbow.errors import DataLossError, NotFoundError
from tensorbow.files import shown
from tensorbow.specs import Array
from tensorbow.training import RollingCheckpoints

_NAME = re.compile(r"^shard-(\d{1,6})-of-(\d{1,6})$", re.ASCII)


def shard_folders(folder: Path, shards: int) -> list[Path]:
    """Folders of the shards of a training, by number."""
    return [folder / f"shard-{number}-of-{shards}" for number in range(shards)]


def other_folders(folder: Path, shards: int) -> list[Path]:
    """Folders there of shards of trainings with another number of shards, by number."""
    return [path for _, count, path in _found(folder) if count != shards]


def any_folders(folder: Path) -> list[Path]:
    """Folders there of shards of any training."""
    return [path for *_, path in _found(folder)]


def state_in(folder: Path) -> tuple[dict[str, Array], int]:
    """The newest checkpoints of all shards of a training: arrays by name, slots too, and the pushes applied.

    Counters that each shard has: those of the first. Raises NotFoundError for a folder without any,
    DataLossError for one of which a shard's are missing or damaged.
    """
    found = _found(folder)
    if not found:
        raise NotFoundError(f"{shown(folder)} has no checkpoints of shards (folders such as shard-0-of-1)")
    by_time = sorted(found, key=lambda each: each[2].stat().st_mtime, reverse=True)
    missing: list[tuple[int, str]] = []
    # A training that has died before it had written all its first checkpoints leaves the one before whole.
    for shards in dict.fromkeys(count for _, count, _ in by_time):
        folders = shard_folders(folder, shards)[::-1]
        newest = [RollingCheckpoints(path).newest()[0] for path in folders]
        read = [each for each in newest if each is not None]
        if len(read) == len(newest):
            arrays = {name: array for each in read for name, array in each.arrays.items()}
            return arrays, max(int(each.metadata["round"]) for each in read)
        missing.append((shards, folders[newest.index(None)].name))
    raise DataLossError(
        f"{shown(folder)} has checkpoints of {missing[0][0]} shards, of which {missing[0][1]} is missing; "
        "restore a file of save, or begin anew in another folder"
    )


def _found(folder: Path) -> list[tuple[int, int, Path]]:
    """(number, count, path) of the shards' folders there."""
    matches = [(_NAME.match(path.name), path) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(match[1]), int(match[2]), path) for match, path in matches if match)
