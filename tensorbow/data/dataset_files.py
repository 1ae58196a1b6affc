"""Folder of the data sets' files, from the option or the environment, and finding files in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from tensorbow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.files import shown

DATA_DIR_VARIABLE = "TENSORBOW_DATA"


def data_folder(data_dir: str | os.PathLike[str] | None, wanted_by: str, remedy: str) -> Path:
    """Folder of the data: `data_dir`, or the environment variable TENSORBOW_DATA, with ~ expanded.

    Raises NotFoundError, ending with `remedy`, if neither is given or the folder does not exist, and
    InvalidArgumentError if it is not a folder.
    """
    source = "--data-dir"
    if data_dir is None or not os.fspath(data_dir):
        data_dir, source = os.environ.get(DATA_DIR_VARIABLE), DATA_DIR_VARIABLE
    if not data_dir:
        raise NotFoundError(
            f"data set {wanted_by!r} is read from files, and no folder was given: "
            f"pass --data-dir or set {DATA_DIR_VARIABLE}. {remedy}"
        )
    folder = Path(os.path.expanduser(data_dir))
    mode = mode_of(folder)
    if mode is None:
        raise NotFoundError(
            f"data set {wanted_by!r}: the folder {shown(folder)} (from {source}) does not exist. {remedy}"
        )
    if not stat.S_ISDIR(mode):
        raise InvalidArgumentError(
            f"data set {wanted_by!r}: {shown(folder)} (from {source}) is not a folder; "
            "give the folder that holds the files"
        )
    return folder


def mode_of(path: Path) -> int | None:
    """Mode bits of the file at `path`, following links, or None if there is none.

    Raises FailedPreconditionError if it cannot be examined (no permission, a loop of links), and
    InvalidArgumentError for an invalid path.
    """
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FailedPreconditionError(
            f"cannot look at {shown(path)}: {error.strerror}; check the path and its permissions"
        ) from error
    except ValueError as error:  # a null character
        raise InvalidArgumentError(f"{shown(path)} cannot be a path: {error}") from error


def find_file(folder: Path, names: Sequence[str]) -> Path | None:
    """Path of the first of `names` that is a file in `folder`, or None. Folders of these names are skipped.

    Raises FailedPreconditionError for a pipe or a device: reading it could block forever.
    """
    for name in names:
        path = folder / name
        mode = mode_of(path)
        if mode is None or stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            raise FailedPreconditionError(f"{shown(path)} is not a regular file; remove or replace it")
        return path
    return None


def damaged(path: Path, what: str) -> DataLossError:
    """The error for a file of a data set with a content that is not the one expected."""
    return DataLossError(f"{shown(path)} is damaged or not the file expected: {what}; get it again")
