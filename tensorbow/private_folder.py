"""A folder whose files only its user can write: they may be executed.

Others may rename, replace and link paths at any time. So the path is walked from the root with
file descriptors, and later accesses use these instead of the path. Folders and links on the path must belong
to the user or root; a folder on it that others can write to must be sticky, like /tmp. On systems without
descriptors of folders (Windows), paths are used.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tensorbow.errors import FailedPreconditionError, NotFoundError
from tensorbow.files import kind_of, shown

HAS_DESCRIPTORS = (
    hasattr(os, "geteuid")
    and {os.open, os.mkdir, os.stat, os.readlink, os.unlink, os.rename, os.link} <= os.supports_dir_fd
    and os.listdir in os.supports_fd
)
MOST_LINKS = 40  # on the path; Linux's limit
BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NOT_THROUGH_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _CLOEXEC
_FOLDER = getattr(os, "O_DIRECTORY", 0) | _NOT_THROUGH_LINKS
_ON_THE_WAY = getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER  # works for folders without list permission
_numbers = itertools.count()


class PrivateFolder:
    """An open folder; see `open_private_folder`. Every method may raise OSError."""

    def __init__(self, path: Path, handle: int | None):
        self.path = path
        self._handle = handle  # None: access by path

    def _at(self, name: str) -> str:
        return name if self._handle is not None else str(self.path / name)

    def stat(self, name: str) -> os.stat_result:
        """Status of a file, or of the link itself."""
        return os.stat(self._at(name), dir_fd=self._handle, follow_symlinks=False)

    def read(self, name: str, limit: int, *, secret: bool = False, renew_before_s: float = 0) -> bytes | None:
        """The bytes of a file of at most `limit` bytes; None if it does not exist.

        secret: refuse a file that others can read. renew_before_s: an older file gets the present time.
        Raises FailedPreconditionError for anything but the user's regular file that only the user can write.
        """
        forbidden = BY_OTHERS | (stat.S_IRGRP | stat.S_IROTH if secret else 0)
        try:
            self._require_own_file(name, self.stat(name), forbidden)  # before opening: it may be a device
            flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | _NOT_THROUGH_LINKS
            handle = os.open(self._at(name), flags, dir_fd=self._handle)
        except FileNotFoundError:
            return None
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            self._require_own_file(name, found, forbidden)
            if found.st_size > limit:
                raise FailedPreconditionError(
                    f"{shown(self.path / name)}: expected at most {limit:,} bytes, got {found.st_size:,}"
                )
            if found.st_mtime < renew_before_s and os.utime in os.supports_fd:
                os.utime(handle)
            return file.read(found.st_size)  # a read of `limit` bytes would allocate them all

    def _require_own_file(self, name: str, found: os.stat_result, forbidden: int) -> None:
        wrong = None
        if not stat.S_ISREG(found.st_mode):
            wrong = f"got {kind_of(found.st_mode)}"
        elif self._handle is not None and found.st_uid != os.geteuid():
            wrong = f"it belongs to user {found.st_uid}"
        elif self._handle is not None and found.st_mode & forbidden:
            wrong = f"its mode is {stat.S_IMODE(found.st_mode):04o}"
        if wrong:
            raise FailedPreconditionError(
                f"{shown(self.path / name)}: expected a file that only you can write, {wrong}"
            )

    def write(self, name: str, content: bytes, *, replace: bool = True) -> None:
        """Makes a file in one step, for the user alone; without `replace` an existing one stays."""
        temporary = f".tensorbow-{os.getpid()}-{next(_numbers)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | _NOT_THROUGH_LINKS
        try:
            with open(os.open(self._at(temporary), flags, 0o600, dir_fd=self._handle), "wb") as file:
                file.write(content)
                if not replace:  # on disk before others can see it
                    file.flush()
                    os.fsync(file.fileno())
            if replace or not self._linked(temporary, name):
                os.replace(
                    self._at(temporary), self._at(name), src_dir_fd=self._handle, dst_dir_fd=self._handle
                )
        finally:
            self.remove(temporary)

    def _linked(self, temporary: str, name: str) -> bool:
        """True if a file now has the name, this one or another; False without hard links."""
        try:
            os.link(self._at(temporary), self._at(name), src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except FileExistsError:
            return True
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            return False
        return True

    def names(self) -> list[str]:
        """Names of all entries."""
        return os.listdir(self.path if self._handle is None else self._handle)

    def remove(self, name: str) -> None:
        """Removes a file or link; ignores a missing one, and folders."""
        with suppress(OSError):
            os.unlink(self._at(name), dir_fd=self._handle)


@contextmanager
def open_private_folder(path: Path, *, make: bool) -> Iterator[PrivateFolder]:
    """Opens the folder; `make` creates it, and missing folders on the path, with mode 0700.

    Raises FailedPreconditionError for a folder that others can write to, that is not the user's, or is a
    link, and for an untrusted path; NotFoundError if it is missing and not to be made; OSError.
    """
    if not HAS_DESCRIPTORS:
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.is_dir():
            raise NotFoundError(f"there is no folder {shown(path)}")
        yield PrivateFolder(path, None)
        return
    parent = _walked(path.absolute().parent, make)
    try:
        handle = _opened(parent, path.name, os.O_RDONLY | _FOLDER, make)
    except (NotADirectoryError, _LinkError):
        raise FailedPreconditionError(f"{shown(path)}: expected a folder, no link and no file") from None
    finally:
        os.close(parent)
    try:
        _require_private(path, os.fstat(handle))
        yield PrivateFolder(path, handle)
    finally:
        os.close(handle)


def _require_private(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise FailedPreconditionError(
            f"{shown(path)}: expected your own folder, got one of user {found.st_uid}"
        )
    if found.st_mode & BY_OTHERS:
        raise FailedPreconditionError(
            f"{shown(path)}: expected a folder that only you can write to, "
            f"got mode {stat.S_IMODE(found.st_mode):04o}"
        )


class _LinkError(OSError):
    """A name is a symbolic link."""


def _opened(parent: int, name: str, flags: int, make: bool) -> int:
    """Opens a folder in a folder. Raises _LinkError, NotADirectoryError, NotFoundError."""
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise NotFoundError(f"there is no folder {shown(name)}") from None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):  # the system's codes for a link
            raise
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise _LinkError from None
        raise NotADirectoryError(errno.ENOTDIR, "not a folder", name) from None
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    return _opened(parent, name, flags, make=False)


def _walked(path: Path, make: bool) -> int:
    """A descriptor of a folder, reached from the root through trusted folders and links only."""
    parts = deque(path.parts[1:])
    here, at = os.open(path.anchor, _ON_THE_WAY), Path(path.anchor)
    links = 0
    try:
        _require_trusted(at, os.fstat(here))
        while parts:
            name = parts.popleft()
            try:
                following = _opened(here, name, _ON_THE_WAY, make)
            except _LinkError:
                links += 1
                target = Path(_target(here, at / name, name, links))
                parts.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
                if not target.is_absolute():
                    continue
                following, at, name = os.open(target.anchor, _ON_THE_WAY), Path(target.anchor), ""
            os.close(here)
            here, at = following, at / name
            _require_trusted(at, os.fstat(here))
    except BaseException:
        os.close(here)
        raise
    return here


def _target(parent: int, path: Path, name: str, links: int) -> str:
    if links > MOST_LINKS:
        raise FailedPreconditionError(f"{shown(path)}: more than {MOST_LINKS} links lead there")
    owner = os.stat(name, dir_fd=parent, follow_symlinks=False).st_uid
    if owner not in (0, os.geteuid()):
        raise FailedPreconditionError(
            f"{shown(path)}: expected a link of yours or of root, got one of user {owner}"
        )
    return os.readlink(name, dir_fd=parent)


def _require_trusted(path: Path, found: os.stat_result) -> None:
    """Raises unless only the user and root can replace the entries of a folder on the path."""
    if found.st_uid not in (0, os.geteuid()):
        raise FailedPreconditionError(
            f"{shown(path)}: expected a folder of yours or of root, got one of user {found.st_uid}"
        )
    writers = found.st_mode & BY_OTHERS
    if found.st_gid == os.getegid():
        writers &= stat.S_IWOTH  # there, every user has a private group
    if writers and not found.st_mode & stat.S_ISVTX:
        raise FailedPreconditionError(
            f"{shown(path)}: expected a folder that others cannot write to, "
            f"got mode {stat.S_IMODE(found.st_mode):04o}"
        )
