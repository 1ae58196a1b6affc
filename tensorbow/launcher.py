"""The program's first moments: signals are handled before anything that takes time is imported.

`import tensorbow` loads this file first, and loads nothing else for it but small modules of Python itself.
In any other program than the command line it does nothing.
"""

from __future__ import annotations

import os
import sys

_SCRIPTS = ("tensorbow", "tensorbow.exe", "tensorbow-script.py", "tensorbow-script.pyw")
_MODULES = ("tensorbow", "tensorbow.__main__")


def _is_program(arguments: list[str], typed: list[str]) -> bool:
    """Whether a process with this `sys.argv` and `sys.orig_argv` is the console script or `python -m`."""
    if not arguments:
        return False
    if arguments[0] != "-m":  # which stands there while Python looks for the module
        return os.path.basename(arguments[0]) in _SCRIPTS
    module = typed[len(typed) - len(arguments)] if len(typed) > len(arguments) else ""
    return module in _MODULES or (module[:1] == "-" and module.partition("m")[2] in _MODULES)


def _forget_current_folder() -> None:
    """Has `python -m` import nothing from the current folder, where files have any names, as random.py."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        here = os.getcwd()
    except OSError:  # it is deleted
        return
    if sys.argv[0] == "-m" and sys.path and sys.path[0] in ("", here) and here != home:
        del sys.path[0]


IS_PROGRAM = _is_program(sys.argv, sys.orig_argv)
if IS_PROGRAM:
    _forget_current_folder()

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:  # without the time that importing typing takes
    from types import TracebackType

ENDING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
LAST_WORDS = "interrupted"


def main() -> None:
    """The `tensorbow` program. Always ends by SystemExit."""
    begin()
    from tensorbow.cli import main as program

    program()


def begin() -> None:
    """Has signals and errors end the process with a line, until `tensorbow.cli` handles them.

    A signal that the parent has ignored (nohup, a script's background job) stays ignored. Elsewhere than in
    the main thread, where Python handles no signals, they stay as they are.
    """
    _open_standard_files()
    sys.excepthook = _cannot_start
    for number in ENDING:
        if signal.getsignal(number) not in (signal.SIG_IGN, end_at_once):
            try:
                signal.signal(number, end_at_once)
            except ValueError:  # not the main thread
                return


def begin_if_program() -> None:
    """`begin` where the process is the command line itself, no program of somebody else's."""
    if IS_PROGRAM:
        begin()


def end_at_once(number: int, frame: object = None) -> None:
    """A signal's handler that ends the process with a line and the shells' status, 128 + number.

    It raises nothing: an exception within an import is turned into ImportError by C extensions, or
    caught by who imports.
    """
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except Exception:  # closed, full, or in use at this very moment
            pass
    if sys.stderr is not None:
        try:
            os.write(2, f"tensorbow: {LAST_WORDS}\n".encode())
        except OSError:
            pass
    os._exit(128 + number)


def why_not_started(error: BaseException) -> str:
    """A line for an error that importing the program's parts has ended with, and its likely cause."""
    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return f"cannot start: {reason}{foreign_modules(error)}"


def foreign_modules(error: BaseException) -> str:
    """The end of an error's line that names modules in the place of others, which may be its cause."""
    found = _shadowing_files(error)
    return "".join(f"; {file} shadows {original}: rename or move it" for file, original in found)


def _cannot_start(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """`sys.excepthook` until the command runs: a package is broken, missing or shadowed."""
    if os.environ.get("TENSORBOW_DEBUG", "0") not in ("", "0") or "--debug" in sys.argv:
        sys.__excepthook__(kind, error, trace)
    ours = "tensorbow.errors" in sys.modules and kind.__module__ == "tensorbow.errors"
    line = str(error) if ours else why_not_started(error)
    if sys.stderr is not None:
        sys.stderr.write(f"tensorbow: {''.join(c if c.isprintable() else ascii(c)[1:-1] for c in line)}\n")


def _shadowing_files(error: BaseException) -> list[tuple[str, str]]:
    """Modules that were imported in place of others of their names, further down the path: (file, other)."""
    from importlib.machinery import PathFinder

    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if "." not in name]
    files.append(error.filename if isinstance(error, SyntaxError) else None)
    trace = error.__traceback__
    while trace is not None:  # a module that could not be imported is not kept
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    found = {}
    for file in filter(None, files):
        place = os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file
        folder, name = os.path.split(os.path.splitext(place)[0])
        if folder in sys.path and not folder.endswith("-packages"):  # where installed ones are
            other = PathFinder.find_spec(name, sys.path[sys.path.index(folder) + 1 :])
            if other is not None and other.origin not in (None, file):
                found[file] = str(other.origin)
    return list(found.items())


def _open_standard_files() -> None:
    """Has closed standard files lead nowhere: the next file opened would take the place of one."""
    try:
        while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(handle, True)
        os.close(handle)
    except OSError:
        pass
