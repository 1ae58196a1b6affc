"""The user's line that made an op, for error messages."""

from __future__ import annotations

import linecache
import os
import re
import sys
from dataclasses import dataclass
from functools import lru_cache

from tensorbow.errors import TensorBowError

# As frames spell it, which may be a relative path.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname((lambda: 0).__code__.co_filename)))
_LIBRARY = tuple(
    os.path.join(_ROOT, package) + os.sep
    for package in ("tensorbow", "scheduler", "replicator", "allocators")
)
_MODELS = os.path.join(_ROOT, "tensorbow", "models") + os.sep  # shipped models are programs like any user's


@dataclass(frozen=True, slots=True)
class UserLine:
    """File, line and function of a call into the library."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        where = f"{self.file}:{self.line} in {self.function}"
        return f"{where}: {text}" if text else where


@dataclass(frozen=True, slots=True)
class RecordedLine(UserLine):
    """A line of another process, kept as the text it had there."""

    text: str

    def __str__(self) -> str:
        return self.text


def user_line() -> UserLine:
    """The innermost frame outside this library, which is told by the files, not by module names."""
    frame = sys._getframe(1)
    code = frame.f_code
    while _is_ours(code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
        code = frame.f_code
    return UserLine(code.co_filename, frame.f_lineno, code.co_name)


@lru_cache(maxsize=1024)
def _is_ours(file: str) -> bool:
    return file.startswith(_LIBRARY) and not file.startswith(_MODELS)


def blame(kind: str, name: str, error: BaseException, source: UserLine | None) -> str:
    """An error's text behind the op it is about, with the line that made the op; in one line."""
    text, exception = " ".join(str(error).split()), type(error).__name__
    if not text:
        text = exception
    elif not isinstance(error, (TensorBowError, MemoryError)):  # of a user's kernel
        text = f"{exception}: {text}"
    head, colon, rest = text.partition(": ")
    if colon and _plain(head) == _plain(kind):  # the same thing under its function's name
        text = rest
    made = f" (made at {source})" if source is not None and "(made at " not in text else ""
    return f"{label_of(kind, name)}: {text}{made}"


def label_of(kind: str, name: str) -> str:
    """What an error calls an operation: by its op and its own name, or by the one that holds both."""
    if not name:
        return kind
    return name if re.fullmatch(rf"{re.escape(kind)}(_\d+)?", name) else f"{kind} {name}"


def _plain(name: str) -> str:
    """A name without case, underscores and version, to compare `conv2d` with `Conv2D`."""
    return re.sub(r"v\d+$|_", "", name.lower())
