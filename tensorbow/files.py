"""The only way this library reads and writes files: regular ones, within bounds, whole or not at all.

Devices, FIFOs and sockets are refused, never replaced and never waited for. Symbolic links are followed:
a write replaces the file that a link leads to, and the link stays.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)

_UNFINISHED = re.compile(r"^\.tensorbow-(\d+)-\d+\.tmp$")  # no part of it is the name of the file to be
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
}
_WAIT_FOR_NOBODY = getattr(os, "O_NONBLOCK", 0) | getattr(
    os, "O_NOCTTY", 0
)  # should it be a FIFO or terminal
_CHUNK = 1 << 16
_numbers = itertools.count()  # tells the unfinished files of this process apart


def kind_of(mode: int) -> str:
    """What a mode of `os.stat` is of, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")


def _reason(error: OSError | ValueError) -> str:
    """What the system says, without the path; ValueError is a null character in a path."""
    return (getattr(error, "strerror", None) or str(error)) if isinstance(error, OSError) else str(error)


def shown(path: str | os.PathLike[str]) -> str:
    """A path as it stands in a message: quoted, on one line, printable whatever bytes it holds."""
    text = os.fsdecode(path)
    return f"'{text}'" if text.isprintable() else ascii(text)


# Reading -------------------------------------------------------------------------------------------


@contextmanager
def open_to_read(path: str | os.PathLike[str]) -> Iterator[BufferedReader]:
    """A regular file, open for reading; links are followed.

    Raises NotFoundError when it is not there, FailedPreconditionError for anything but a regular file, for
    one that may not be read, and for a read that the system refuses within the block.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | _WAIT_FOR_NOBODY)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no file {shown(path)}") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, _reason(error)) from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise _unreadable(path, f"expected a regular file, got {kind_of(mode)}")
    with open(handle, "rb") as file:
        try:
            yield file
        except OSError as error:
            if error.errno is None or error.filename is not None:  # not of the system, or of another file
                raise
            raise _unreadable(path, _reason(error)) from error


def _unreadable(path: str | os.PathLike[str], reason: str) -> FailedPreconditionError:
    return FailedPreconditionError(f"cannot read {shown(path)}: {reason}")


def read_file(path: str | os.PathLike[str], limit: int) -> bytes:
    """The bytes of a regular file, of at most `limit` of them.

    Raises what `open_to_read` raises, and ResourceExhaustedError when it is larger or memory runs out.
    """
    with open_to_read(path) as file:
        nbytes = os.fstat(file.fileno()).st_size
        try:
            blob = file.read(nbytes) if nbytes <= limit else b""
            while nbytes <= limit and len(blob) <= limit and (more := file.read(_CHUNK)):  # it has grown
                blob += more
        except (MemoryError, OverflowError):
            raise ResourceExhaustedError(
                f"{shown(path)} ({nbytes:,} bytes) does not fit into memory"
            ) from None
    if max(nbytes, len(blob)) > limit:
        raise ResourceExhaustedError(
            f"{shown(path)} ({nbytes:,} bytes) does not fit: at most {limit:,} bytes are read"
        )
    return blob


# Writing -------------------------------------------------------------------------------------------


def _mode_there(path: str | os.PathLike[str]) -> int | None:
    """The permissions of the file that is to be written; None when there is none yet.

    Raises InvalidArgumentError for anything but a regular file.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise InvalidArgumentError(
            f"cannot write {shown(path)}: expected a regular file, got {kind_of(mode)}; choose another path"
        )
    return stat.S_IMODE(mode)


def _unwritable(path: str | os.PathLike[str], error: OSError) -> ResourceExhaustedError:
    remedy = "free space or choose another path; what was there before is untouched"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        remedy = "choose a path in a folder that is there"
    return ResourceExhaustedError(f"cannot write {shown(path)}: {_reason(error)}; {remedy}")


def disk_is_full(error: ResourceExhaustedError) -> bool:
    """Whether a write failed for want of space, so that it may succeed when something is deleted."""
    full = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in full


class NewFile:
    """A file in the making beside the one whose place it takes, in one step, at `commit`.

    The constructor claims the place, so that what cannot be written is known before it is computed. Used
    with `with`, the file is committed at the end of the block, or discarded when the block raises.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Raises InvalidArgumentError for a path that cannot be a regular file's (a folder, FIFO or device is
        there), ResourceExhaustedError where no file can be made (its folder is missing, no permission, full).
        """
        self.path = Path(path)
        text = os.fsdecode(path)
        if not self.path.name or "\0" in text:
            raise InvalidArgumentError(f"cannot write {text!r:.300}: expected the path of a file")
        self._target = Path(os.path.realpath(path))
        self._temporary: Path | None = None
        try:
            mode = _mode_there(self.path)
            self._temporary = self._target.with_name(f".tensorbow-{os.getpid()}-{next(_numbers)}.tmp")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            handle = os.open(self._temporary, flags | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:
            self._temporary = None
            raise _unwritable(self.path, error) from error
        self.file: BinaryIO = open(handle, "wb")  # noqa: SIM115 - closed by commit and discard
        if mode is not None and hasattr(os, "fchmod"):
            with suppress(OSError):
                os.fchmod(handle, mode)

    def commit(self) -> None:
        """Puts the file in its place, on disk before this returns.

        Raises ResourceExhaustedError; the earlier file is untouched then.
        """
        if self._temporary is None:
            return
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            _mode_there(self._target)  # it may have become a FIFO meanwhile
            os.replace(self._temporary, self._target)
            self._temporary = None
            _sync_folder(self._target.parent)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        """Gives the place up, unless it has been taken; idempotent."""
        temporary, self._temporary = self._temporary, None
        with suppress(OSError):
            self.file.close()
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def __enter__(self) -> BinaryIO:
        return self.file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
            return
        self.discard()
        if isinstance(error, OSError) and error.filename is None:  # of a write to this file
            raise _unwritable(self.path, error) from error


def write_file(path: str | os.PathLike[str], blob: bytes) -> None:
    """Replaces a file by new content in one step, on disk before it returns. Threads may do so at once.

    Raises what `NewFile` raises; the earlier file is untouched then.
    """
    with NewFile(path) as file:
        file.write(blob)


def append_to_file(path: str | os.PathLike[str], blob: bytes) -> None:
    """Adds bytes to the end of a regular file, on disk before it returns; makes the file if need be.

    Raises InvalidArgumentError for anything but a regular file, ResourceExhaustedError when the bytes cannot
    be written; what was there before is whole then.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0) | _WAIT_FOR_NOBODY
    try:
        _mode_there(path)
        with open(os.open(path, flags, 0o666), "ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                written = 0
                while written < len(blob):
                    written += file.write(blob[written:])
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file.fileno(), before)
                raise
    except OSError as error:
        raise _unwritable(path, error) from error


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable, where the system lets folders be synchronised."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_unfinished(folder: str | os.PathLike[str]) -> None:
    """Deletes what other processes that were killed have left in a folder; only for its sole owner."""
    for path in Path(folder).iterdir():
        match = _UNFINISHED.match(path.name)
        if match and int(match.group(1)) != os.getpid():
            with suppress(OSError):
                path.unlink(missing_ok=True)
