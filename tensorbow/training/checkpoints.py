"""Rolling checkpoints in a folder: keeps the newest and the protected ones; files are written atomically."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorbow.checkpoint_files.arrays_file import load_arrays, save_arrays
from tensorbow.errors import (
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from tensorbow.files import shown
from tensorbow.specs import Array

MAXIMUM_ROUND = 10**15 - 1  # 15 digits in file names

_NAME = re.compile(r"^checkpoint-(\d{1,15})\.safetensors$", re.ASCII)
_PART = re.compile(r"^checkpoint-(\d{1,15})\.worker(\d{1,9})\.safetensors$", re.ASCII)


@dataclass(frozen=True)
class Checkpoint:
    """State from which a run is resumed: arrays by name, and metadata."""

    path: Path
    arrays: dict[str, Array]
    metadata: dict[str, Any]


class RollingCheckpoints:
    """Checkpoints of one run, by round; deletes all except the newest `keep` and the spared ones.

    spared: rounds whose checkpoints are never deleted.
    """

    def __init__(self, folder: Path, keep: int = 3):
        if keep < 1:
            raise InvalidArgumentError(f"checkpoints to keep: expected at least 1, got {keep}")
        self.folder = folder
        self.keep = keep
        self.spared: Collection[int] = ()

    def save(
        self,
        round: int,
        arrays: Mapping[str, Array],
        metadata: Mapping[str, Any],
        spared: Collection[int] = (),
    ) -> Path:
        """Writes a checkpoint, then deletes surplus ones, ignoring failures. Returns its path.

        Checkpoints of later rounds (damaged ones, skipped when resuming) are neither counted nor deleted.
        spared: replaces the attribute. Raises ResourceExhaustedError if the file cannot be written; then
        nothing is deleted.
        """
        path = self.path_of(round)
        save_arrays(path, arrays, metadata)
        self.spared = spared
        self._delete(self._surplus(round, self.keep - 1))
        return path

    def make_room(self, round: int) -> bool:
        """Deletes the checkpoints that `save` of a round would delete; returns whether there were any.

        Keeps spared checkpoints, and always the newest one, since its successor is not written yet.
        """
        return self._delete(self._surplus(round, max(1, self.keep - 1)))

    def _surplus(self, round: int, keep: int) -> list[Path]:
        """Checkpoints before a round, without the newest `keep` of them and the spared ones."""
        older = [(at, path) for at, path in self.paths() if at < round]
        return [path for at, path in older[: max(0, len(older) - keep)] if at not in self.spared]

    @staticmethod
    def _delete(paths: list[Path]) -> bool:
        """Deletes files, ignoring failures; returns whether any is gone."""
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        return not all(map(os.path.lexists, paths))

    def path_of(self, round: int) -> Path:
        """Path of a round's checkpoint, which need not exist."""
        return self.folder / f"checkpoint-{round:09d}.safetensors"

    def paths(self) -> list[tuple[int, Path]]:
        """(round, path), oldest first. Raises FailedPreconditionError for a folder that cannot be read."""
        try:
            found = [(_NAME.match(name), self.folder / name) for name in os.listdir(self.folder)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, ValueError) as error:  # ValueError: a null character
            reason = getattr(error, "strerror", None) or error
            raise FailedPreconditionError(
                f"cannot look for checkpoints in {shown(self.folder)}: {reason}"
            ) from error
        return sorted((int(match.group(1)), path) for match, path in found if match)

    def newest(
        self, check: Callable[[Checkpoint], None] = lambda checkpoint: None
    ) -> tuple[Checkpoint | None, list[str]]:
        """Reads the newest usable checkpoint, or None; also returns a warning for each newer, unusable one.

        check: raises DataLossError for invalid content. Raises DataLossError if there are checkpoints but
        none is usable.
        """
        problems: list[str] = []
        tried: set[Path] = set()
        # Lists the folder each time: a run that is writing there deletes old checkpoints meanwhile.
        while left := [(round, path) for round, path in self.paths() if path not in tried]:
            round, path = left[-1]
            tried.add(path)
            try:
                checkpoint = Checkpoint(path, *load_arrays(path, remedy=""))
                check(checkpoint)
                if checkpoint.metadata.get("round") != round:
                    found = f"{checkpoint.metadata.get('round')!r:.40}"
                    raise DataLossError(f"{path} was renamed: what it holds is of round {found}")
                return checkpoint, [f"passed over an unusable checkpoint: {problem}" for problem in problems]
            except (DataLossError, FailedPreconditionError, ResourceExhaustedError) as error:
                problems.append(str(error))
            except NotFoundError as error:
                if path.is_symlink():  # a broken link
                    problems.append(str(error))
        if problems:
            others = f"; nor can {len(problems) - 1} older" if len(problems) > 1 else ""
            raise DataLossError(
                f"no checkpoint in {self.folder} can be read: {problems[0]}{others}; "
                "start anew in another folder"
            )
        return None, []


def part_path(folder: Path, round: int, worker: int) -> Path:
    """Path of what a worker other than 0 adds to a round's checkpoint, which `RollingCheckpoints` has not."""
    return folder / f"checkpoint-{round:09d}.worker{worker}.safetensors"


def delete_parts(folder: Path, kept: Collection[int], worker: int) -> None:
    """Deletes the parts of checkpoints of other rounds than those kept, ignoring failures.

    worker: whose; worker 0 deletes those of all, where it sees them.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            match = _PART.match(name)
            if match and int(match[1]) not in kept and worker in (0, int(match[2])):
                (folder / name).unlink(missing_ok=True)


def make_folder(folder: Path, new: bool = False) -> None:
    """Creates an output folder and its parents.

    new: raise AlreadyExistsError if it exists. Raises ResourceExhaustedError or InvalidArgumentError if it
    cannot be created.
    """
    if "\0" in str(folder):
        raise InvalidArgumentError(
            f"cannot make the output folder {str(folder)!r:.200}: it has a null character"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:
            if new:
                raise AlreadyExistsError(f"the output folder {folder} is there already") from None
            if not folder.is_dir():
                raise
    except (FileExistsError, NotADirectoryError):
        raise InvalidArgumentError(
            f"cannot make the output folder {folder}: a file is in the way; choose another one"
        ) from None
    except OSError as error:
        raise ResourceExhaustedError(
            f"cannot make the output folder {folder}: {error.strerror or error}; choose another one"
        ) from error
