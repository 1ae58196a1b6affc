"""The program: runs a command, and ends every error as one line and an exit status.

Nothing heavy is imported before signals are handled: Ctrl-C while the program starts is an end like
any other.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence

from tensorbow.cli.signals import StopSignals
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.shadowing import import_ours

INTERRUPTED = 130  # the exit status of a program ended by Ctrl-C
BAD_OPTION = 2  # of a bad value of an option, as of one that click refuses
DEBUG_VARIABLE = "TENSORBOW_DEBUG"
COMPLETION_VARIABLE = "_TENSORBOW_COMPLETE"  # how shells ask click for completions


class OptionValueError(InvalidArgumentError):
    """An option of the command line, or of --config, has a value that it cannot have."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program; always ends by SystemExit. Without arguments the process is the program's own.

    Every error is one line on standard error; `--debug`, or TENSORBOW_DEBUG=1, shows its traceback.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words or os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")
    signals = StopSignals()
    with signals.installed(for_good=arguments is None):
        try:
            status, message = _run(words, signals)
        except BaseException as error:
            status, message = _ending(error)
            if debug and not isinstance(error, SystemExit):
                traceback.print_exc()
        if message:
            say(message)
        sys.exit(_flushed(status))


def _run(words: list[str], signals: StopSignals) -> tuple[int, str]:
    """Exit status and last words of a command. Raises what the command raises."""
    import click

    import_ours("scheduler")  # which says what is wrong when another package of that name is there
    from tensorbow.cli.app import app

    if COMPLETION_VARIABLE in os.environ:
        app.main(words, prog_name="tensorbow")
    try:
        with app.make_context("tensorbow", words, obj=signals) as context:
            result = app.invoke(context)
    except click.exceptions.Exit as error:  # after --help and --version
        return error.exit_code, ""
    except click.UsageError as error:
        if not words:  # no command: the help, as click shows it
            error.show()
            return error.exit_code, ""
        command = error.ctx.command_path if error.ctx is not None else "tensorbow"
        message = error.format_message()
        stop = "" if message.endswith((".", "?", "!", ".)", "?)")) else "."
        return error.exit_code, f"{message}{stop} See '{command} --help'."
    except click.ClickException as error:
        return error.exit_code, error.format_message()
    except click.Abort:
        raise KeyboardInterrupt from None
    return (result if isinstance(result, int) else 0), ""


def _ending(error: BaseException) -> tuple[int, str]:
    """Exit status and last words after an exception."""
    if isinstance(error, SystemExit):  # completion has ended, or rich: its reader went away
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        return status, "nobody reads the output any more" if status else ""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, BrokenPipeError):
        return 1, "nobody reads the output any more"
    if isinstance(error, MemoryError) and not isinstance(error, TensorBowError):
        return 1, f"out of memory: {error or 'no more is to be had'}; use fewer replicas or a smaller batch"
    if isinstance(error, OSError) and not isinstance(error, TensorBowError) and error.strerror:
        return 1, f"{error.strerror}{'' if error.filename is None else f': {error.filename}'}"
    if isinstance(error, OptionValueError):
        return BAD_OPTION, str(error)
    if isinstance(error, (TensorBowError, OSError)):
        return 1, str(error)
    return 1, (f"internal error: {type(error).__name__}: {error}; please report it with what --debug shows")


def say(message: str) -> None:
    """One printable line on standard error, whatever the message holds."""
    line = " ".join(message.split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    with contextlib.suppress(OSError, ValueError):
        print(f"tensorbow: {line}", file=sys.stderr, flush=True)


def _flushed(status: int) -> int:
    """Writes out what standard output still holds; where that fails, says so and lets it go."""
    if sys.stdout is None:
        return status
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        if status == 0:
            say(f"cannot write to standard output: {getattr(error, 'strerror', None) or error}")
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status or 1
    return status
