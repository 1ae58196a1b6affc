"""Files and folders of local file systems, as `tb.gfile` has them."""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import wraps
from typing import IO, Annotated, Any, NoReturn, TypeAlias, TypeVar

from tensorbow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    TensorBowError,
    UnimplementedError,
)
from tensorbow.kinds import AsPath, checked, one_of

T = TypeVar("T")
Mode: TypeAlias = Annotated[
    str, one_of(*(first + rest for first in "rwa" for rest in ("", "+", "b", "b+", "+b")))
]
_REMOTE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_CLASSES: dict[int | None, type[TensorBowError]] = {
    errno.ENOENT: NotFoundError,
    errno.EEXIST: AlreadyExistsError,
    errno.ENOTEMPTY: FailedPreconditionError,
    errno.EACCES: PermissionDeniedError,
    errno.EPERM: PermissionDeniedError,
}


def _fail(name: str, path: str, error: OSError | ValueError) -> NoReturn:
    made = _CLASSES.get(getattr(error, "errno", None), FailedPreconditionError)
    reason = getattr(error, "strerror", None) or str(error)
    raise made(f"gfile.{name}: {path!r:.200}: {reason}") from None


def _local(name: str, path: Any) -> str:
    """A path as text. Raises UnimplementedError for a URL."""
    text = os.fsdecode(path).removeprefix("file://")
    if _REMOTE.match(text):
        raise UnimplementedError(
            f"gfile.{name}: expected a path of this machine, got {text!r:.200}; copy or mount the files"
        )
    return text


def _translated(function: Callable[..., T]) -> Callable[..., T]:
    """The function with local paths as text, which raises errors of `tb.errors` in place of OSError."""

    @wraps(function)
    def call(path: Any, *more: Any, **options: Any) -> T:
        text = _local(function.__name__, path)
        try:
            return function(text, *more, **options)
        except (OSError, ValueError) as error:
            if isinstance(error, TensorBowError):
                raise
            _fail(function.__name__, text, error)

    return call


class GFile:
    """A file, opened when it is first used: `with tb.gfile.GFile(path) as file: text = file.read()`."""

    @checked
    def __init__(self, name: AsPath, mode: Mode = "r"):
        """mode: as of `open`; texts are UTF-8. Raises InvalidArgumentError for another mode."""
        self._name, self._mode = _local("GFile", name), mode
        self._file: IO[Any] | None = None

    @property
    def name(self) -> str:
        """The path."""
        return self._name

    @property
    def mode(self) -> str:
        """The mode."""
        return self._mode

    def _opened(self) -> IO[Any]:
        if self._file is None:
            self._file = _translated(_named("GFile", _open))(self._name, self._mode)
        return self._file

    def size(self) -> int:
        """Size in bytes, including what has been written so far."""
        if self._file is not None and self._file.writable():
            self._file.flush()
        return Stat(self._name).st_size

    def read(self, n: int = -1) -> Any:
        """The next n characters or bytes; -1: all that are left."""
        return self._opened().read(n)

    def readline(self) -> Any:
        """The next line, with its end; empty at the end of the file."""
        return self._opened().readline()

    def readlines(self) -> list[Any]:
        """All lines that are left."""
        return self._opened().readlines()

    def write(self, file_content: Any) -> None:
        """Appends a text, or bytes where the mode is binary."""
        self._opened().write(file_content)

    def seek(self, offset: int, whence: int = 0) -> None:
        """Moves to a position, as `io.IOBase.seek`."""
        self._opened().seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._opened().tell()

    def flush(self) -> None:
        """Writes buffered data to the file."""
        self._opened().flush()

    def close(self) -> None:
        """Closes the file; idempotent. Creates a file that was to be written, even if nothing was."""
        if self._file is None and "r" not in self._mode:
            self._opened()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._opened())

    def __enter__(self) -> GFile:
        self._opened()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


FastGFile = Open = GFile


def _open(path: str, mode: str) -> IO[Any]:
    return open(path, mode, encoding=None if "b" in mode else "utf-8", newline=None if "b" in mode else "")


@checked
def Exists(path: AsPath) -> bool:  # noqa: N802 - TensorFlow's name
    """True if there is a file or folder."""
    return os.path.exists(_local("Exists", path))


@checked
def IsDirectory(path: AsPath) -> bool:  # noqa: N802 - TensorFlow's name
    """True if there is a folder."""
    return os.path.isdir(_local("IsDirectory", path))


@_translated
def ListDirectory(path: str) -> list[str]:  # noqa: N802 - TensorFlow's name
    """Names in a folder, sorted."""
    return sorted(os.listdir(path))


@_translated
def MakeDirs(path: str) -> None:  # noqa: N802 - TensorFlow's name
    """Makes a folder and its missing parents; it may exist already."""
    os.makedirs(path, exist_ok=True)


@_translated
def MkDir(path: str) -> None:  # noqa: N802 - TensorFlow's name
    """Makes a folder in an existing one."""
    os.mkdir(path)


@_translated
def Remove(path: str) -> None:  # noqa: N802 - TensorFlow's name
    """Deletes a file."""
    os.unlink(path)


@_translated
def DeleteRecursively(path: str) -> None:  # noqa: N802 - TensorFlow's name
    """Deletes a folder with all that is in it."""
    shutil.rmtree(path)


def Copy(oldpath: Any, newpath: Any, overwrite: bool = False) -> None:  # noqa: N802 - TensorFlow's name
    """Copies a file. Raises AlreadyExistsError if the new one is there, unless `overwrite`."""
    _require_free("Copy", newpath, overwrite)
    _translated(_named("Copy", shutil.copyfile))(oldpath, _local("Copy", newpath))


def Rename(oldname: Any, newname: Any, overwrite: bool = False) -> None:  # noqa: N802 - TensorFlow's name
    """Moves a file or folder. Raises AlreadyExistsError if the new name is taken, unless `overwrite`."""
    _require_free("Rename", newname, overwrite)
    _translated(_named("Rename", os.replace))(oldname, _local("Rename", newname))


def _named(name: str, function: Callable[..., T]) -> Callable[..., T]:
    """The function under a name that messages show."""

    def call(*words: str) -> T:
        return function(*words)

    call.__name__ = name
    return call


def _require_free(name: str, path: Any, overwrite: bool) -> None:
    if not overwrite and os.path.lexists(text := _local(name, path)):
        raise AlreadyExistsError(f"gfile.{name}: {text!r:.200} exists; give overwrite=True, or another path")


def Glob(filename: Any) -> list[str]:  # noqa: N802 - TensorFlow's name
    """Paths that match a pattern such as data/*.csv, or one of a list of patterns, sorted."""
    patterns = [filename] if isinstance(filename, (str, bytes, os.PathLike)) else [*filename]
    return sorted(path for pattern in patterns for path in glob.glob(_local("Glob", pattern)))


@_translated
def Walk(path: str, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:  # noqa: N802
    """(folder, its folders, its files) of a folder and all below. in_order: a folder before those in it."""
    return os.walk(path, topdown=in_order)


@_translated
def Stat(path: str) -> os.stat_result:  # noqa: N802 - TensorFlow's name
    """Facts about a file, as `os.stat` gives them, where TensorFlow has `length` and `mtime_nsec`."""
    return os.stat(path)
