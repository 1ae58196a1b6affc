"""Messages to Python's logger "tensorbow"."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from typing import Annotated, Any, TypeAlias

from tensorbow.kinds import Flag, Kind, RefusedError, checked, whole

DEBUG, INFO, WARN, ERROR, FATAL = 10, 20, 30, 40, 50
_NAMES = {"DEBUG": DEBUG, "INFO": INFO, "WARN": WARN, "WARNING": WARN, "ERROR": ERROR, "FATAL": FATAL}
_logger = logging.getLogger("tensorbow")
_calls = Counter[tuple[str, int]]()  # of log_every_n and log_first_n, by place in the program


def _read_level(value: Any) -> int:
    if isinstance(value, str):
        if value not in _NAMES:
            raise RefusedError
        return _NAMES[value]
    level: int = whole(0, 100).read(value)
    return level


Verbosity: TypeAlias = Annotated[Any, Kind("a level such as tb.logging.INFO", _read_level)]  # reads an int
Times: TypeAlias = Annotated[int, whole(1)]


def get_verbosity() -> int:
    """The least level that is shown."""
    return _logger.getEffectiveLevel()


@checked
def set_verbosity(v: Verbosity) -> None:
    """Sets the least level that is shown; writes to the standard error if Python's logging has no handler."""
    if not _logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
        _logger.addHandler(handler)
    _logger.setLevel(v)


def debug(msg: Any, *args: Any) -> None:
    """Logs msg % args as a message for debugging."""
    _logger.debug(msg, *args, stacklevel=2)


def info(msg: Any, *args: Any) -> None:
    """Logs msg % args as information."""
    _logger.info(msg, *args, stacklevel=2)


def warning(msg: Any, *args: Any) -> None:
    """Logs msg % args as a warning."""
    _logger.warning(msg, *args, stacklevel=2)


def error(msg: Any, *args: Any) -> None:
    """Logs msg % args as an error."""
    _logger.error(msg, *args, stacklevel=2)


def fatal(msg: Any, *args: Any) -> None:
    """Logs msg % args as an error after which a program cannot go on; it does not end the program."""
    _logger.critical(msg, *args, stacklevel=2)


warn = warning


@checked
def log(level: Verbosity, msg: Any, *args: Any) -> None:
    """Logs msg % args with a level."""
    _logger.log(level, msg, *args)


@checked
def log_if(level: Verbosity, msg: Any, condition: Flag, *args: Any) -> None:
    """Logs msg % args with a level if the condition is true."""
    if condition:
        _logger.log(level, msg, *args)


def log_every_n(level: Verbosity, msg: Any, n: Times, *args: Any) -> None:
    """Logs msg % args at calls 1, n + 1, 2 n + 1 and so on from this line of the program."""
    if _calls_before() % whole(1).read(n) == 0:
        log(level, msg, *args)


def log_first_n(level: Verbosity, msg: Any, n: Times, *args: Any) -> None:
    """Logs msg % args at the first n calls from this line of the program."""
    if _calls_before() < whole(1).read(n):
        log(level, msg, *args)


def _calls_before() -> int:
    """Number of earlier calls from the place that calls our caller."""
    frame = sys._getframe(2)
    place = frame.f_code.co_filename, frame.f_lineno
    _calls[place] += 1
    return _calls[place] - 1


def flush() -> None:
    """Writes buffered messages of the logger's handlers."""
    for handler in _logger.handlers:
        handler.flush()
