"""Rolling checkpoints in a folder: the newest few, each whole or absent."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorbow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from tensorbow.specs import Array
from tensorbow.training.arrays_file import load_arrays, save_arrays

MAXIMUM_ROUND = 10**15 - 1  # what a file name holds

_NAME = re.compile(r"^checkpoint-(\d{1,15})\.safetensors$", re.ASCII)


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on."""

    path: Path
    arrays: dict[str, Array]
    metadata: dict[str, Any]


class RollingCheckpoints:
    """Checkpoints of one run, by round; all but the newest `keep` are deleted."""

    def __init__(self, folder: Path, keep: int = 3):
        if keep < 1:
            raise InvalidArgumentError(f"checkpoints to keep: expected at least 1, got {keep}")
        self.folder = folder
        self.keep = keep

    def save(self, round: int, arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> Path:
        """Writes one, then deletes the oldest, where it can. Raises ResourceExhaustedError; the others stay.

        Those of later rounds (damaged ones, passed over when resuming) are neither counted nor deleted.
        """
        path = self.folder / f"checkpoint-{round:09d}.safetensors"
        save_arrays(path, arrays, metadata)
        for _, old in [item for item in self.paths() if item[0] <= round][: -self.keep]:
            with contextlib.suppress(OSError):
                old.unlink(missing_ok=True)
        return path

    def paths(self) -> list[tuple[int, Path]]:
        """(round, path), oldest first."""
        if not self.folder.is_dir():
            return []
        found = [(_NAME.match(path.name), path) for path in self.folder.iterdir()]
        return sorted((int(match.group(1)), path) for match, path in found if match)

    def newest(
        self, check: Callable[[Checkpoint], None] = lambda checkpoint: None
    ) -> tuple[Checkpoint | None, list[str]]:
        """The newest sound checkpoint, or None; and a line for each newer one that is damaged.

        check: raises DataLossError for content that cannot be. Raises DataLossError when there are
        checkpoints and none can be read.
        """
        problems: list[str] = []
        for _, path in reversed(self.paths()):
            try:
                checkpoint = Checkpoint(path, *load_arrays(path, remedy=""))
                check(checkpoint)
                return checkpoint, [f"passed over a damaged checkpoint: {problem}" for problem in problems]
            except (DataLossError, FailedPreconditionError, NotFoundError) as error:
                problems.append(str(error))
        if problems:
            others = f"; nor can {len(problems) - 1} older" if len(problems) > 1 else ""
            raise DataLossError(
                f"no checkpoint in {self.folder} can be read: {problems[0]}{others}; "
                "start anew in another folder"
            )
        return None, []


def make_folder(folder: Path) -> None:
    """Makes an output folder. Raises ResourceExhaustedError or InvalidArgumentError in one line."""
    if "\0" in str(folder):
        raise InvalidArgumentError(
            f"cannot make the output folder {str(folder)!r:.200}: it has a null character"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidArgumentError(
            f"cannot make the output folder {folder}: a file is in the way; choose another --output"
        ) from None
    except OSError as error:
        raise ResourceExhaustedError(
            f"cannot make the output folder {folder}: {error.strerror or error}; choose another --output"
        ) from error
