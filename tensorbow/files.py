"""Access to files: only regular files, of bounded size, written whole or not at all.

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

_UNFINISHED = re.compile(r"^\.tensorbow-(\d+)-\d+\.tmp$")  # contains no part of the final name
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
)  # do not wait for a FIFO, nor take a terminal
_CHUNK = 1 << 16
_numbers = itertools.count()  # distinguishes the unfinished files of this process


def kind_of(mode: int) -> str:
    """Name of the file type in a mode of `os.stat`."""
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")


def _reason(error: OSError | ValueError) -> str:
    """The system's reason, without the path; a ValueError means a null character in a path."""
    return (getattr(error, "strerror", None) or str(error)) if isinstance(error, OSError) else str(error)


def shown(path: str | os.PathLike[str]) -> str:
    """A path for a message: quoted, on one line, printable whatever its bytes."""
    text = os.fsdecode(path)
    return f"'{text}'" if text.isprintable() else ascii(text)


# Reading -------------------------------------------------------------------------------------------


@contextmanager
def open_to_read(path: str | os.PathLike[str]) -> Iterator[BufferedReader]:
    """Opens a regular file for reading; links are followed.

    Raises NotFoundError if it does not exist, FailedPreconditionError for anything but a regular file, for
    a file without read permission, and for a read that fails within the block.
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
            if error.errno is None or error.filename is not None:  # not the system's, or about another file
                raise
            raise _unreadable(path, _reason(error)) from error


def _unreadable(path: str | os.PathLike[str], reason: str) -> FailedPreconditionError:
    return FailedPreconditionError(f"cannot read {shown(path)}: {reason}")


def read_file(path: str | os.PathLike[str], limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes.

    Raises the errors of `open_to_read`, and ResourceExhaustedError if it is larger or memory runs out.
    """
    with open_to_read(path) as file:
        nbytes = os.fstat(file.fileno()).st_size
        try:
            blob = file.read(nbytes) if nbytes <= limit else b""
            while nbytes <= limit and len(blob) <= limit and (more := file.read(_CHUNK)):  # it may have grown
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
    """Permissions of the file to be replaced; None if it does not exist yet.

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
    """True if a write failed for lack of space, so that it may succeed after something is deleted."""
    full = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in full


class NewFile:
    """A file written beside its final place, which `commit` replaces in one step.

    The constructor reserves the place, so that an unwritable path is found before the content is computed. As
    a context manager it commits at the end of the block, or discards the file if the block raises.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Raises InvalidArgumentError for a path that cannot be a regular file (a folder, FIFO or device is
        there), ResourceExhaustedError if no file can be made (missing folder, no permission, full disk).
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
        """Moves the file to its final place, on disk before this returns.

        Raises ResourceExhaustedError; the earlier file is then untouched.
        """
        if self._temporary is None:
            return
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            _mode_there(self._target)  # it may have been replaced by a FIFO
            os.replace(self._temporary, self._target)
            self._temporary = None
            _sync_folder(self._target.parent)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        """Deletes the unfinished file, unless it is committed; idempotent."""
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
        if isinstance(error, OSError) and error.filename is None:  # raised by a write to this file
            raise _unwritable(self.path, error) from error


def write_file(path: str | os.PathLike[str], blob: bytes) -> None:
    """Replaces a file's content in one step, on disk before it returns. Thread-safe.

    Raises the errors of `NewFile`; the earlier file is then untouched.
    """
    with NewFile(path) as file:
        file.write(blob)


def link_file(old: Path, new: Path) -> bool:
    """Makes `new` another name of the file `old`. False if that fails."""
    temporary = new.with_name(f".{new.name}.{os.getpid()}.link")
    try:
        if new.exists() and old.samefile(new):
            return True
        os.link(old, temporary)
        os.replace(temporary, new)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        return False
    return True


def append_to_file(path: str | os.PathLike[str], blob: bytes) -> None:
    """Appends bytes to a regular file, on disk before it returns; creates the file if needed.

    Raises InvalidArgumentError for anything but a regular file, ResourceExhaustedError if the bytes cannot
    be written; the earlier content then stays complete.
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
    """Makes a rename durable, if the system can synchronise folders."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_unfinished(folder: str | os.PathLike[str]) -> None:
    """Deletes unfinished files of killed processes from a folder; only for the folder's sole owner."""
    for path in Path(folder).iterdir():
        match = _UNFINISHED.match(path.name)
        if match and int(match.group(1)) != os.getpid():
            with suppress(OSError):
                path.unlink(missing_ok=True)
