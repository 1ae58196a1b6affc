"""Cache of compiled code on disk. Cached code is executed, so it must be authentic.

Each file carries an HMAC-SHA256 of its name and content, with a key stored beside it that only the user
can read. The name is the digest of everything the code depends on: plan, versions, processor features. A file
with a wrong HMAC is compiled anew and replaced. A file that others could have written is refused, and a
folder or key that others could change is not used at all (`tensorbow.private_folder`); the log says so,
once.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import threading
import time
from pathlib import Path

from tensorbow.errors import FailedPreconditionError, NotFoundError
from tensorbow.private_folder import PrivateFolder, open_private_folder

LIMIT_NBYTES = 256 << 20  # of all files in a folder
LIMIT_DAYS = 90  # unused
PRUNED_EVERY_NBYTES = LIMIT_NBYTES // 16  # bytes written by a process between prunings
RENEWED_EVERY_DAYS = 1
LONGEST_WRITE_S = 3600  # an older unfinished file was left by a killed process
KEY, KEY_NBYTES = "key", 32
TAG_NBYTES = 32
ERRORS = (FailedPreconditionError, NotFoundError, OSError, ValueError)  # ValueError: invalid path

_DAY_S = 24 * 3600
_KEPT = re.compile(r"[0-9a-f]{64}\.\w+")
_UNFINISHED = re.compile(r"\.tensorbow-\d+-\d+\.tmp")

_logger = logging.getLogger("tensorbow.kernels")
_lock = threading.Lock()  # guards the two below
_told: set[Path] = set()  # folders already reported in the log
_written: dict[Path, int] = {}  # bytes by folder, written by this process since the last pruning


def cache_folder(kind: str) -> Path | None:
    """Folder for code of a kind: in `$TENSORBOW_CACHE`, or in the user's cache folder.

    None (no caching) if the variable is set but empty, or if there is no home folder. A relative
    `$XDG_CACHE_HOME` or `$HOME` is ignored: it would mean a different folder for each current folder.
    """
    given = os.environ.get("TENSORBOW_CACHE")
    if given is not None:
        return Path(given) / kind if given else None
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        if os.environ.get("HOME") == "":  # Python would use the root folder
            return None
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # a user unknown to the system
            return None
    return base / "tensorbow" / kind if base.is_absolute() else None


def kept_binary(folder: Path | None, depends_on: str, suffix: str) -> bytes | None:
    """Code that `keep_binary` stored for the same text and suffix; None if there is no authentic file."""
    if folder is None:
        return None
    name = _name(depends_on, suffix)
    try:
        with open_private_folder(folder, make=False) as opened:
            key = _key(opened)
            renew_before_s = time.time() - RENEWED_EVERY_DAYS * _DAY_S
            content = opened.read(name, LIMIT_NBYTES, renew_before_s=renew_before_s) if key else None
    except NotFoundError:
        return None
    except ERRORS as error:
        _tell(folder, error)
        return None
    if key is None or content is None:
        return None
    tag, binary = content[:TAG_NBYTES], content[TAG_NBYTES:]
    return binary if hmac.compare_digest(tag, _tag(key, name, binary)) else None


def keep_binary(folder: Path | None, depends_on: str, suffix: str, binary: bytes) -> None:
    """Stores code in one step or not at all; logs instead of raising if the folder cannot be used.

    depends_on: text that identifies the code. Occasionally deletes files that are too many or too old.
    """
    if folder is None:
        return
    name = _name(depends_on, suffix)
    try:
        with open_private_folder(folder, make=True) as opened:
            key = _key(opened)
            if key is None:
                opened.write(KEY, secrets.token_bytes(KEY_NBYTES), replace=False)
                key = _key(opened)
            if key is not None:
                opened.write(name, _tag(key, name, binary) + binary)
                if _is_to_be_pruned(folder, len(binary)):
                    _prune(opened)
    except ERRORS as error:
        _tell(folder, error)


def _name(depends_on: str, suffix: str) -> str:
    return hashlib.sha256(depends_on.encode()).hexdigest() + suffix


def _tag(key: bytes, name: str, binary: bytes) -> bytes:
    return hmac.digest(key, f"{name}\n".encode() + binary, "sha256")


def _key(folder: PrivateFolder) -> bytes | None:
    """The user's key; None if there is none yet. Raises FailedPreconditionError if others can read it."""
    key = folder.read(KEY, KEY_NBYTES, secret=True)
    if key is not None and len(key) != KEY_NBYTES:
        raise FailedPreconditionError(f"{folder.path / KEY}: expected {KEY_NBYTES} bytes, got {len(key)}")
    return key


def _tell(folder: Path, error: Exception) -> None:
    with _lock:
        if folder in _told:
            return
        _told.add(folder)
    distrusted = isinstance(error, FailedPreconditionError)
    _logger.log(
        logging.WARNING if distrusted else logging.INFO,
        "compiled code from the cache is not used: %s; remove or mend it, or let TENSORBOW_CACHE name a "
        "folder of your own, or nothing for no cache",
        error,
    )


def _is_to_be_pruned(folder: Path, nbytes: int) -> bool:
    """True if this process has never pruned the folder, or has written much since."""
    with _lock:
        written = _written.get(folder, PRUNED_EVERY_NBYTES) + nbytes
        _written[folder] = written if written < PRUNED_EVERY_NBYTES else 0
        return written >= PRUNED_EVERY_NBYTES


def _prune(folder: PrivateFolder) -> None:
    """Deletes files unused for long, then the least recently used ones.

    Several processes may do so at once: a deleted file is compiled anew.
    """
    now, kept = time.time(), list[tuple[float, int, str]]()
    for name in folder.names():
        if not (_KEPT.fullmatch(name) or _UNFINISHED.fullmatch(name)):
            continue
        try:
            found = folder.stat(name)
        except FileNotFoundError:
            continue
        longest_s = LONGEST_WRITE_S if name.startswith(".") else LIMIT_DAYS * _DAY_S
        if found.st_mtime < now - longest_s or not stat.S_ISREG(found.st_mode):
            folder.remove(name)
        elif not name.startswith("."):
            kept.append((found.st_mtime, found.st_size, name))
    total = sum(nbytes for _, nbytes, _ in kept)
    for _, nbytes, name in sorted(kept):
        if total <= LIMIT_NBYTES:
            break
        folder.remove(name)
        total -= nbytes
