"""Entry of a worker that `tensorbow launch` has started: runs a program, and tells how it has ended.

An exception, `sys.exit` and a failure to import anything all end the whole job, which would wait for this
worker for ever. MPI starts this file by its path, so that it runs before the library is imported.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from scheduler.workers.watch_client import WatchClient

if sys.path and os.path.realpath(sys.path[0] or os.curdir) == os.path.dirname(os.path.realpath(__file__)):
    del sys.path[0]  # Python puts it there; its modules are not to be imported as top-level ones

HOME = "TENSORBOW_HOME"  # environment variable: the folder of a checkout that is not installed
RANKS = "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"  # environment variables: the worker's number
_RUNPY = os.path.join(os.path.dirname(os.__file__), "runpy.py")  # before Python 3.11
COMMAND = "tensorbow"  # in place of a program's path: the words are of the command line


class PrefixedLines(io.TextIOBase):
    """Passes whole lines on to a file, each with a prefix."""

    def __init__(self, file: TextIO, prefix: str):
        self._file, self._prefix, self._rest = file, prefix, ""

    def write(self, text: str) -> int:
        """Writes the lines that are whole by now, in one piece each."""
        *lines, self._rest = f"{self._rest}{text}".split("\n")
        for line in lines:
            self._file.write(f"{self._prefix}{line}\n")
        if lines:
            self._file.flush()
        return len(text)

    def finish(self) -> None:
        """Writes the last line, which has no end."""
        if self._rest:
            self.write("\n")

    def flush(self) -> None:
        """Flushes whole lines."""
        self._file.flush()

    def fileno(self) -> int:
        """The descriptor of the file."""
        number: int = self._file.fileno()
        return number

    def writable(self) -> bool:
        """True."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the file."""
        return str(self._file.encoding)


def main(arguments: list[str]) -> None:
    """Runs a program in this worker. arguments: its path, or "tensorbow" for a command, and its words."""
    number = int(next(filter(None, map(os.environ.get, RANKS)), "0"))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # mpirun's pipe never ends for who reads it
    prefixed: list[PrefixedLines] = []
    if number:
        prefixed = [PrefixedLines(file, f"worker {number}: ") for file in (sys.stdout, sys.stderr)]
        sys.stdout, sys.stderr = prefixed
    if arguments[0] == COMMAND or os.path.basename(arguments[0]) == COMMAND:
        arguments[0] = COMMAND
    sys.argv = arguments
    if home := os.environ.get(HOME):
        sys.path.append(home)
    client: WatchClient | None = None
    status, reason = 0, ("", 0, "")
    try:
        from scheduler.workers.job_warnings import share_warnings
        from scheduler.workers.watch_client import WATCH, WatchClient, reason_of, traceback_of

        client = WatchClient(os.environ[WATCH], number)
        share_warnings(client.shows)
        _run(arguments)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            reason = error.code, 0, f"{error.code}\n"
    except BaseException as error:
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
        if client is not None:
            reason = *reason_of(error), traceback_of(error, (__file__, "<frozen runpy>", _RUNPY))
        else:
            reason = f"{type(error).__name__}: {error}", 0, "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError, ValueError):  # its reader is gone
        for lines in prefixed:
            lines.finish()
        sys.stdout.flush()
    if client is None and status:
        _tell_without_library(number, status, reason)
        os._exit(status)
    if client is not None and status:
        client.fail(status, *reason)
    if client is not None:
        client.tell_end()
        with contextlib.suppress(KeyboardInterrupt):
            client.await_others()  # while the watch goes on: MPI_Finalize waits for them without it


def _run(arguments: list[str]) -> None:
    if arguments[0] == COMMAND:
        from tensorbow.cli import main as program

        program()
        return
    import runpy

    sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
    runpy.run_path(arguments[0], run_name="__main__")


def _tell_without_library(number: int, status: int, reason: tuple[str, int, str]) -> None:
    """Tells of a failure to import the library itself."""
    import json
    import socket

    with contextlib.suppress(OSError, KeyError, ValueError):  # what started this one sees that it has ended
        host, port, secret, _ = os.environ["TENSORBOW_WATCH"].rsplit(":", 3)
        about = {"worker": number, "secret": secret, "host": socket.gethostname(), "process": os.getpid()}
        about |= {"status": status, "reason": reason[0], "shown": reason[2]}
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(json.dumps(about).encode() + b"\n")
            connection.recv(1)


if __name__ == "__main__":
    main(sys.argv[1:])
