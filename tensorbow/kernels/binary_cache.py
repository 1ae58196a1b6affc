"""Compiled code on disk: where it is kept, and files that carry their checksum.

A file that is damaged counts as none: it is compiled anew and replaced.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path


def cache_folder(kind: str) -> Path | None:
    """Where code of a kind is kept: in `$TENSORBOW_CACHE`, or in the user's cache folder.

    None when the variable is set empty, or where there is no home: nothing is kept.
    """
    given = os.environ.get("TENSORBOW_CACHE")
    if given is not None:
        return Path(given) / kind if given else None
    base = os.environ.get("XDG_CACHE_HOME")
    if not base:
        try:
            base = str(Path.home() / ".cache")
        except RuntimeError:  # of a user that the system does not know
            return None
    return Path(base) / "tensorbow" / kind


def kept_binary(path: Path | None) -> bytes | None:
    """What `keep_binary` wrote; None where there is nothing, or nothing whole."""
    if path is not None:
        with suppress(OSError):
            content = path.read_bytes()
            if hashlib.sha256(content[32:]).digest() == content[:32]:
                return content[32:]
    return None


def keep_binary(path: Path | None, binary: bytes) -> None:
    """Writes a file at once or not at all; a folder that cannot be written is no reason not to run."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(hashlib.sha256(binary).digest() + binary)
                file.close()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
