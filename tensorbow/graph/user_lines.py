"""The user's line that created an op, for error messages."""

from __future__ import annotations

import linecache
import os
import re
import sys
import warnings
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType

from tensorbow.call_errors import PACKAGES, ROOT
from tensorbow.errors import TensorBowError

_CHECKS = os.path.join(ROOT, "tensorbow", "kinds.py")  # wraps public calls, the models' too
_MODELS = os.path.join(ROOT, "tensorbow", "models") + os.sep  # shipped models count as user code


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
    """A line recorded by another process, kept as text."""

    text: str

    def __str__(self) -> str:
        return self.text


def user_line() -> UserLine:
    """The innermost frame outside this library, recognised by file, not by module name.

    Within a shipped model it is the frame that calls the model, or where the library itself calls it, as a
    Trainer does, the model's own.
    """
    frame = sys._getframe(1)
    while _is_ours(_file_of(frame)) and (outer := frame.f_back) is not None:
        frame = outer
    made = caller = frame
    while _is_of_model_call(caller.f_code.co_filename) and (outer := caller.f_back) is not None:
        caller = outer
    if not caller.f_code.co_filename.startswith(PACKAGES):
        made = caller
    code = made.f_code
    return _line(code.co_filename, made.f_lineno, code.co_name)


def warn_at_user_line(message: str) -> None:
    """Warns with a UserWarning of the innermost frame outside this library."""
    depth, frame = 1, sys._getframe(1)
    while _file_of(frame).startswith(PACKAGES) and (outer := frame.f_back) is not None:
        depth, frame = depth + 1, outer
    warnings.warn(message, UserWarning, stacklevel=depth + 1)


def _file_of(frame: FrameType) -> str:
    """File of a frame's code; of generated code, as a data class's `__init__`, that of its module."""
    name = frame.f_code.co_filename
    return str(frame.f_globals.get("__file__", name)) if name == "<string>" else name


def raising_line(error: BaseException) -> UserLine | None:
    """The outermost line of an error's traceback that is outside this library, if there is one."""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(PACKAGES):
            return _line(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return None


_line = lru_cache(maxsize=1024)(UserLine)  # one object for all ops of a line


@lru_cache(maxsize=1024)
def _is_ours(file: str) -> bool:
    return file.startswith(PACKAGES) and not file.startswith(_MODELS)


def _is_of_model_call(file: str) -> bool:
    return file.startswith(_MODELS) or file == _CHECKS


def blame(kind: str, name: str, error: BaseException, source: UserLine | None) -> str:
    """One line of error text: the op, the error, and the user's line that created the op."""
    text, exception = " ".join(str(error).split()), type(error).__name__
    if not text:
        text = exception
    elif not isinstance(error, (TensorBowError, MemoryError)):  # raised by a user's kernel
        text = f"{exception}: {text}"
    head, colon, rest = text.partition(": ")
    if colon and _plain(head) == _plain(kind):  # the text already names the op's function
        text = rest
    made = f" (made at {source})" if source is not None and "(made at " not in text else ""
    return f"{label_of(kind, name)}: {text}{made}"


def add_iteration(error: BaseException, frame_name: str, number: int) -> None:
    """Adds the loop (by its frame) and the number of the iteration, from 0, to an error's text."""
    if error.args and isinstance(error.args[0], str):
        error.args = (
            f"{error.args[0]}, in iteration {number} of loop {loop_name(frame_name)!r}",
            *error.args[1:],
        )


def loop_name(frame_name: str) -> str:
    """The scope of the loop that has a frame, as errors and traces name it."""
    return frame_name.removesuffix("/while_context")


def label_of(kind: str, name: str) -> str:
    """Name of an operation in errors: its op and its own name, or only the latter if that contains the op."""
    if not name:
        return kind
    return name if re.fullmatch(rf"{re.escape(kind)}(_\d+)?", name) else f"{kind} {name}"


def _plain(name: str) -> str:
    """A name without case, underscores and version, to compare `conv2d` with `Conv2D`."""
    return re.sub(r"v\d+$|_", "", name.lower())
