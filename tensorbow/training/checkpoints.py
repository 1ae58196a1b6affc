"""Rolling checkpoints in a folder: the newest few and those that are spared, each whole or absent."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """Checkpoints of one run, by round; all but the newest `keep` and those spared are deleted.

    spared: the rounds of checkpoints that are never deleted, whether among the newest or not.
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
        """Writes one, then deletes the oldest, where it can. Raises ResourceExhaustedError; the others stay.

        Those of later rounds (damaged ones, passed over when resuming) are neither counted nor deleted.
        spared: from now on.
        """
        path = self.path_of(round)
        save_arrays(path, arrays, metadata)
        self.spared = spared
        self._delete(self._surplus(round, self.keep - 1))
        return path

    def make_room(self, round: int) -> bool:
        """Deletes what `save` of that round would delete; whether there was anything.

        Those spared so far stay, as does the newest one, even if only one is to be kept: the next is yet to
        be written.
        """
        return self._delete(self._surplus(round, max(1, self.keep - 1)))

    def _surplus(self, round: int, keep: int) -> list[Path]:
        """Those of earlier rounds, but for the newest and the spared."""
        older = [(at, path) for at, path in self.paths() if at < round]
        return [path for at, path in older[: max(0, len(older) - keep)] if at not in self.spared]

    @staticmethod
    def _delete(paths: list[Path]) -> bool:
        """Whether any is gone."""
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        return not all(map(os.path.lexists, paths))

    def path_of(self, round: int) -> Path:
        """The file of a round's checkpoint, whether it is there or not."""
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
        """The newest sound checkpoint, or None; and a line for each newer one that cannot be used.

        check: raises DataLossError for content that cannot be. Raises DataLossError when there are
        checkpoints and none can be read.
        """
        problems: list[str] = []
        tried: set[Path] = set()
        # Looks anew each time: a run that writes there at the moment deletes the oldest meanwhile.
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
                if path.is_symlink():  # that leads nowhere
                    problems.append(str(error))
        if problems:
            others = f"; nor can {len(problems) - 1} older" if len(problems) > 1 else ""
            raise DataLossError(
                f"no checkpoint in {self.folder} can be read: {problems[0]}{others}; "
                "start anew in another folder"
            )
        return None, []


def make_folder(folder: Path, new: bool = False) -> None:
    """Makes an output folder, and those that it lies in.

    new: raises AlreadyExistsError where anything of that name is. Raises ResourceExhaustedError or
    InvalidArgumentError in one line.
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
            f"cannot make the output folder {folder}: a file is in the way; choose another --output"
        ) from None
    except OSError as error:
        raise ResourceExhaustedError(
            f"cannot make the output folder {folder}: {error.strerror or error}; choose another --output"
        ) from error
