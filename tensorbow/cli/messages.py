"""What the program says on standard error: a line for an error or a warning."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

from tensorbow.errors import InvalidArgumentError

LONGEST_LINE = 2_000  # characters of an error: what users give may be of any length


class OptionValueError(InvalidArgumentError):
    """An option of the command line, or of --config, has a value that it cannot have."""


def say(message: str) -> None:
    """One printable line on standard error, of bounded length, whatever the message holds."""
    line = " ".join(shortened(message).split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    if sys.stderr is not None:  # else it would go to standard output
        with contextlib.suppress(OSError, ValueError):
            print(f"tensorbow: {line}", file=sys.stderr, flush=True)


def shortened(text: str) -> str:
    """A message with its beginning, and its end, where the remedy stands."""
    left_out = len(text) - LONGEST_LINE
    if left_out <= 0:
        return text
    half = LONGEST_LINE // 2
    return f"{text[:half]} [... {left_out:,} characters ...] {text[-half:]}"


class _Said(logging.Handler):
    """Says warnings as errors are said: a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"warning: {record.getMessage()}")


@contextlib.contextmanager
def warnings_said() -> Iterator[None]:
    """What the library warns of in its log is said on standard error, wherever other logs go."""
    logger, handler = logging.getLogger("tensorbow"), _Said(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
