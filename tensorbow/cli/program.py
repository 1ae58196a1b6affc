"""Entry point of the program: runs a command; every error becomes one line and an exit status.

Large modules are imported after signal handlers are installed, so that Ctrl-C also works during the start.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import sys
import time
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensorbow.cli.messages import OptionValueError, line_of, say, warnings_said
from tensorbow.cli.signals import StopSignals
from tensorbow.cli.terminal import USUAL_COLUMNS, use_sound_size
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, TensorBowError
from tensorbow.launcher import LAST_WORDS, foreign_modules, why_not_started
from tensorbow.shadowing import import_ours

if TYPE_CHECKING:
    import click

NOT_READ = 128 + 13  # exit status when the reader of the output is gone, as by SIGPIPE
BAD_OPTION = 2  # exit status for an invalid option; click uses the same
REPEATED_S = 5.0
DEBUG_VARIABLE = "TENSORBOW_DEBUG"
COMPLETION_VARIABLE = "_TENSORBOW_COMPLETE"  # shells set it to ask click for completions


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program; always ends with SystemExit. arguments: None uses sys.argv, as a process of its own.

    Every error is one line on standard error; `--debug`, or TENSORBOW_DEBUG=1, shows its traceback.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    use_sound_size(os.environ, _terminal_size())
    debug = "--debug" in words or os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")
    if arguments is None:
        _print_any_text()
    signals = StopSignals()
    is_told = False
    with signals.installed(for_good=arguments is None), warnings_said():
        try:
            status, message = _run(words, signals)
        except BaseException as error:
            status, message = _ending(error, signals)
            is_told = getattr(error, "is_told", False)  # worker 0 has reported its error
            if debug and not isinstance(error, SystemExit):
                traceback.print_exc()
        signals.nothing_to_save = arguments is None
        if status == BAD_OPTION and arguments is None and _is_repeated():
            is_told = True
            time.sleep(REPEATED_S)  # MPI ends all with the first that ends: worker 0, which says why
        said = message if message and not is_told else ""
        if status and arguments is None:
            _leave_job(_flushed(status), said and line_of(said))
        if said:
            say(said)
        if arguments is None:
            gc.freeze()  # skips garbage collection at exit, which takes a second for a large graph
        sys.exit(_flushed(status))


def _leave_job(status: int, shown: str) -> None:
    """Ends a worker of a job, which shows what all workers have in common once, and does not wait for MPI."""
    with contextlib.suppress(Exception):  # a package is broken or missing: the job has not begun
        from scheduler.workers.watch_client import leave_job

        leave_job(status, shown)


def _terminal_size() -> os.terminal_size:
    """Size of the terminal of standard output or error; 80 x 24 without a terminal."""
    for handle in (1, 2):
        with contextlib.suppress(OSError):
            return os.get_terminal_size(handle)
    return os.terminal_size((USUAL_COLUMNS, 24))


def _run(words: list[str], signals: StopSignals) -> tuple[int, str]:
    """Runs a command; returns its exit status and last message. Raises what the command raises."""
    try:
        import click

        import_ours("scheduler")  # with a clear error if another package has this name
        from tensorbow.cli.app import app
    except TensorBowError:
        raise
    except Exception as error:  # a package is broken, missing or shadowed
        raise FailedPreconditionError(why_not_started(error)) from error

    if COMPLETION_VARIABLE in os.environ:
        _complete(app, words)
    if not _is_shared(words) and _is_left_to_worker_0():
        return 0, ""
    try:
        with app.make_context("tensorbow", [*words], obj=signals) as context:
            result = app.invoke(context)
    except click.exceptions.Exit as error:  # after --help and --version
        return error.exit_code, ""
    except click.NoSuchOption as error:
        from tensorbow.cli.options import no_such_option

        return error.exit_code, no_such_option(error)
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


def _is_shared(words: Sequence[str]) -> bool:
    """True if workers of a job run a command together; worker 0 alone does all else."""
    from tensorbow.cli.launch import SHARED

    command = next((word for word in words if not word.startswith("-")), "")
    return command in SHARED and not {"-h", "--help"} & {*words}


def _is_left_to_worker_0() -> bool:
    from scheduler.workers.find import leave_to_worker_0

    return leave_to_worker_0()


def _is_repeated() -> bool:
    with contextlib.suppress(Exception):  # as in _leave_job
        from scheduler.workers.find import is_repeated

        return is_repeated()
    return False


def _complete(app: click.Group, words: list[str]) -> None:
    """Prints completions, or the shell script that asks for them; ends with SystemExit."""
    try:
        app.main(words, prog_name="tensorbow")
    except SystemExit as error:
        if error.code:
            value = os.environ[COMPLETION_VARIABLE]
            raise InvalidArgumentError(
                f"{COMPLETION_VARIABLE}: expected bash_source, zsh_source or fish_source, got {value!r:.60}"
            ) from error
        raise


def _print_any_text() -> None:
    """Makes standard output escape characters that its encoding lacks, as standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _ending(error: BaseException, signals: StopSignals) -> tuple[int, str]:
    """Exit status and last message after an exception."""
    if isinstance(error, SystemExit):  # after completion, or from rich when the reader of the output is gone
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        return NOT_READ if status == 1 else status, ""
    if isinstance(error, KeyboardInterrupt):
        return signals.status, LAST_WORDS
    if isinstance(error, BrokenPipeError):
        return NOT_READ, ""
    if isinstance(error, MemoryError) and not isinstance(error, TensorBowError):
        return (
            1,
            f"out of memory: {error or 'an allocation failed'}; use fewer replicas, a smaller batch or model",
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        return 1, f"cannot write to standard output: {error.strerror}"  # errors of files have a filename
    if isinstance(error, OSError) and not isinstance(error, TensorBowError) and error.strerror:
        return 1, f"{error.strerror}{'' if error.filename is None else f': {error.filename}'}"
    if isinstance(error, OptionValueError):
        return BAD_OPTION, str(error)
    if isinstance(error, (TensorBowError, OSError)):
        return 1, str(error)
    remedy = foreign_modules(error) or "; please report it with what --debug shows"
    return 1, f"internal error: {type(error).__name__}: {error}{remedy}"


def _flushed(status: int) -> int:
    """Flushes standard output; on failure prints an error and discards the rest. Returns the exit status."""
    if sys.stdout is None:
        return status
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        is_unread = isinstance(error, BrokenPipeError)
        if status == 0 and not is_unread:
            say(f"cannot write to standard output: {getattr(error, 'strerror', None) or error}")
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status or (NOT_READ if is_unread else 1)
    return status
