"""Messages on standard error: one line per error or warning."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

from tensorbow.errors import InvalidArgumentError

LONGEST_LINE = 2_000  # characters of a message: it may quote input of any length


class OptionValueError(InvalidArgumentError):
    """An option of the command line or of --config has an invalid value."""


def say(message: str) -> None:
    """Prints a message on standard error, see `line_of`."""
    if sys.stderr is not None:  # print(file=None) would write to standard output
        with contextlib.suppress(OSError, ValueError):
            print(line_of(message), end="", file=sys.stderr, flush=True)


def line_of(message: str) -> str:
    """A message as one line of printable characters and bounded length."""
    line = " ".join(shortened(message).split())
    return f"tensorbow: {''.join(c if c.isprintable() else ascii(c)[1:-1] for c in line)}\n"


def shortened(text: str) -> str:
    """Shortens a long message in the middle: its end has the remedy."""
    left_out = len(text) - LONGEST_LINE
    if left_out <= 0:
        return text
    half = LONGEST_LINE // 2
    return f"{text[:half]} [... {left_out:,} characters ...] {text[-half:]}"


class _Said(logging.Handler):
    """Log handler that prints each warning by `say`, or has the watch of a job do so."""

    def emit(self, record: logging.LogRecord) -> None:
        from scheduler.workers.watch_client import is_shown  # here: most runs have no warnings

        text = f"warning: {record.getMessage()}"
        if not is_shown(line_of(text)):
            say(text)


@contextlib.contextmanager
def warnings_said() -> Iterator[None]:
    """Context in which warnings of the library's logger are printed on standard error."""
    logger, handler = logging.getLogger("tensorbow"), _Said(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
