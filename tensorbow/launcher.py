"""Start of the program: handles signals before slow imports.

`import tensorbow` imports this file first, which itself imports only small modules of Python.
It does nothing in programs other than the command line.
"""

from __future__ import annotations

import os
import sys

_SCRIPTS = ("tensorbow", "tensorbow.exe", "tensorbow-script.py", "tensorbow-script.pyw")
_MODULES = ("tensorbow", "tensorbow.__main__")
_HOME = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_PACKAGES = ("tensorbow", "allocators", "replicator", "scheduler")


def _is_program(arguments: list[str], typed: list[str]) -> bool:
    """True if `sys.argv` and `sys.orig_argv` are those of the console script or `python -m`."""
    if not arguments:
        return False
    if arguments[0] != "-m":  # `-m` stands there while Python locates the module
        return os.path.basename(arguments[0]) in _SCRIPTS
    module = typed[len(typed) - len(arguments)] if len(typed) > len(arguments) else ""
    return module in _MODULES or (module[:1] == "-" and module.partition("m")[2] in _MODULES)


def _forget_current_folder() -> None:
    """Stops `python -m` from importing files of the current folder, which may be named like random.py."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        here = os.getcwd()
    except OSError:  # the folder was deleted
        return
    if sys.argv[0] == "-m" and sys.path and sys.path[0] in ("", here) and here != home:
        del sys.path[0]


IS_PROGRAM = _is_program(sys.argv, sys.orig_argv)
if IS_PROGRAM:
    _forget_current_folder()

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:  # avoids the time of importing typing
    from types import TracebackType

ENDING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
LAST_WORDS = "interrupted"


def main() -> None:
    """Entry point of the `tensorbow` program. Always ends by SystemExit."""
    begin()
    from tensorbow.cli import main as program

    program()


def begin() -> None:
    """Lets signals and errors end the process with one line, until `tensorbow.cli` handles them.

    A signal that the parent ignores (nohup, a script's background job) stays ignored. Outside of
    the main thread, where Python cannot handle signals, handlers stay unchanged.
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
    """Calls `begin` if this process is the command line, not a user's program."""
    if IS_PROGRAM:
        begin()


def end_at_once(number: int, frame: object = None) -> None:
    """Signal handler that ends the process with one line and the shells' status, 128 + number.

    It raises nothing: C extensions turn an exception within an import into ImportError, and
    importing code may catch it.
    """
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except Exception:  # stderr is closed, full, or in use at this moment
            pass
    if sys.stderr is not None:
        try:
            os.write(2, f"tensorbow: {LAST_WORDS}\n".encode())
        except OSError:
            pass
    os._exit(128 + number)


_told = False  # whether an error has been reported


def why_not_started(error: BaseException) -> str:
    """One line for an error while importing the program, with its likely cause, or else its place."""
    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return f"cannot start: {reason}{foreign_modules(error) or _place_of(error)}"


def foreign_modules(error: BaseException) -> str:
    """End of an error's line: foreign modules that shadow others, which may be its cause."""
    found = _shadowing_files(error)
    return "".join(f"; {file} shadows {original}: rename or move it" for file, original in found)


def _place_of(error: BaseException) -> str:
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f", in {trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return f"{place}; --debug shows the traceback"


def _cannot_start(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """`sys.excepthook` until the command runs: reports a broken, missing or shadowed package.

    Only the first call writes: C extensions print errors of their imports by this hook, before they raise
    another.
    """
    global _told
    if os.environ.get("TENSORBOW_DEBUG", "0") not in ("", "0") or "--debug" in sys.argv:
        sys.__excepthook__(kind, error, trace)
    if _told:
        return
    _told = True
    ours = "tensorbow.errors" in sys.modules and kind.__module__ == "tensorbow.errors"
    line = str(error) if ours else why_not_started(error)
    if sys.stderr is not None:
        sys.stderr.write(f"tensorbow: {''.join(c if c.isprintable() else ascii(c)[1:-1] for c in line)}\n")


def _shadowing_files(error: BaseException) -> list[tuple[str, str]]:
    """(file, shadowed file) of modules that shadow modules of the same name later on the path.

    They are all that are imported if the error is that a module or a name of one is missing; for another
    error those whose code it passed. A second copy of this distribution on the path is not shadowed.
    """
    from importlib.machinery import PathFinder

    files = [error.filename if isinstance(error, SyntaxError) else None]
    if isinstance(error, (ImportError, AttributeError)):
        files += [
            getattr(module, "__file__", None) for name, module in sys.modules.items() if "." not in name
        ]
    trace = error.__traceback__
    while trace is not None:  # a module that failed to import is not in sys.modules
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    found = {}
    for file in filter(None, files):
        module = os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file
        folder, name = os.path.split(os.path.splitext(module)[0])
        is_script = module == file and not os.path.splitext(file)[1]  # as bin/pytest, which no import finds
        is_installed = folder.endswith("-packages")
        is_ours = os.path.realpath(module) in (os.path.join(_HOME, package) for package in _PACKAGES)
        if folder in sys.path and not (is_installed or is_script or is_ours):
            other = PathFinder.find_spec(name, sys.path[sys.path.index(folder) + 1 :])
            if other is not None and other.origin not in (None, file):
                found[file] = str(other.origin)
    return list(found.items())


def _open_standard_files() -> None:
    """Opens closed standard files to nowhere; otherwise the next opened file would take their descriptor."""
    try:
        while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(handle, True)
        os.close(handle)
    except OSError:
        pass
