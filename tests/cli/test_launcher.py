"""Signals while the program starts: one line, the shells' status, from the first import on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tensorbow import launcher
from tensorbow.cli.signals import StopSignals

Program = Any
# Sends the process a signal when a module is about to be imported: before it is looked for.
AT_IMPORT = """
import os, sys

class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ.get("SIGNAL_AT"):
            os.environ.pop("SIGNAL_AT")
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))

sys.meta_path.insert(0, Sender())
"""
# As C extensions that use NumPy do, when an exception comes in the middle of their import.
TURNS_ANYTHING_INTO_IMPORT_ERROR = """
import os
try:
    os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    while True: pass
except BaseException:
    raise ImportError("numpy.core.multiarray failed to import") from None
"""
USERS_PROGRAM = """
import signal, sys, threading

def handlers():
    return [signal.getsignal(number) for number in signal.valid_signals()]

before, others = handlers(), (sys.excepthook, sys.path[0])
import tensorbow
assert handlers() == before and others == (sys.excepthook, sys.path[0])
from tensorbow.launcher import begin
thread = threading.Thread(target=begin)
thread.start(), thread.join()
assert handlers() == before
"""
DIGITS = ("train", "logreg", "--dataset", "digits", "--epochs", "1", "--output", "run")
SYNTHETIC = ("train", "logreg", "--dataset", "synthetic", "--epochs", "1", "--output", "run")
CASES = [
    *[(("--help",), name) for name in ("importlib.metadata", "tensorbow.errors", "numpy", "scheduler")],
    *[(("devices",), name) for name in ("tensorbow.cli", "click", "rich", "llvmlite.binding")],
    *[(DIGITS, name) for name in ("tensorbow.cli.app", "tensorbow.data.digits", "llvmlite.binding")],
    *[(("tune", "logreg", "--picture", "p.png"), name) for name in ("matplotlib.figure", "matplotlib.axes")],
    (SYNTHETIC, "llvmlite.binding.ffi"),
]


def started(program: Program, folder: Path, words: Any, number: int, **env: str) -> Any:
    path = os.pathsep.join([str(folder / "first"), str(Path(launcher.__file__).parents[1])])
    settings = {"PYTHONPATH": path, "SIGNAL": str(int(number)), **env}
    return program.start(*words, env=settings)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("words", "module"), CASES)
def test_a_signal_at_an_import(
    program: Program, tmp_path: Path, words: tuple[str, ...], module: str, number: int
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(AT_IMPORT)
    ended = program.end(started(program, tmp_path, words, number, SIGNAL_AT=module))
    assert (ended.status, ended.err) == (128 + number, "tensorbow: interrupted\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("package", ["sklearn", "llvmlite", "matplotlib", "click"])
def test_an_interrupt_stays_one_whatever_an_import_makes_of_it(
    program: Program, tmp_path: Path, package: str
) -> None:
    (tmp_path / "first" / package).mkdir(parents=True)
    (tmp_path / "first" / package / "__init__.py").write_text(TURNS_ANYTHING_INTO_IMPORT_ERROR)
    words = ("tune", "logreg", "--picture", "p.png") if package == "matplotlib" else DIGITS
    ended = program.end(started(program, tmp_path, words, signal.SIGINT))
    assert (ended.status, ended.err) == (130, "tensorbow: interrupted\n")


@pytest.mark.slow
def test_a_terminal_gets_its_cursor_back_when_an_import_is_interrupted(
    program: Program, tmp_path: Path
) -> None:
    """Tuning imports native code while rich's spinner turns, with the cursor hidden."""
    pty = pytest.importorskip("pty")
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(AT_IMPORT)
    path = os.pathsep.join([str(tmp_path / "first"), str(Path(launcher.__file__).parents[1])])
    settings = {"PYTHONPATH": path, "SIGNAL": "2", "TERM": "xterm", "SIGNAL_AT": "llvmlite.binding"}
    master, slave = pty.openpty()
    words = ("tune", "logreg", "--dataset", "synthetic")
    process = program.start(*words, env=settings, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    assert program.end(process).status == 130
    assert b"\x1b[?25l" in shown
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
    assert shown.endswith(b"tensorbow: interrupted\r\n")


@pytest.mark.slow
def test_what_the_parent_ignores_stays_ignored(program: Program, tmp_path: Path) -> None:
    """A script's background job starts with ignored signals."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(AT_IMPORT)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = started(program, tmp_path, ("devices",), signal.SIGINT, SIGNAL_AT="click")
    finally:
        signal.signal(signal.SIGINT, before)
    assert program.end(process).status == 0
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals().installed():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("arguments", "typed", "ours"),
    [
        (["/usr/bin/tensorbow", "train"], ["python", "/usr/bin/tensorbow", "train"], True),
        (["C:/Scripts/tensorbow-script.py"], ["python", "C:/Scripts/tensorbow-script.py"], True),
        (["-m", "train", "-m"], ["python", "-m", "tensorbow", "train", "-m"], True),
        (["-m"], ["python", "-W", "error", "-Im", "tensorbow"], True),
        (["-m", "a"], ["python", "-umtensorbow", "a"], True),
        (["-m", "tensorbow"], ["python", "-m", "mine", "tensorbow"], False),
        (["-m"], ["python", "-m", "tensorbow.mine"], False),
        (["/home/me/tensorbow.py"], ["python", "/home/me/tensorbow.py"], False),
        (["mine.py", "tensorbow"], ["python", "mine.py", "tensorbow"], False),
        (["-c"], ["python", "-c", "import tensorbow"], False),
        ([""], ["python"], False),
        ([], [], False),
    ],
)
def test_which_process_is_the_program(arguments: list[str], typed: list[str], ours: bool) -> None:
    assert launcher._is_program(arguments, typed) == ours


@pytest.mark.slow
def test_a_user_s_program_keeps_its_handlers(program: Program, tmp_path: Path) -> None:
    """Also with a name like ours, and when a thread, which handles no signals, starts the command line."""
    (tmp_path / "tensorbow_training.py").write_text(USERS_PROGRAM)
    result = subprocess.run(
        [sys.executable, "tensorbow_training.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(launcher.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.slow
def test_signals_at_any_time(program: Program, tmp_path: Path) -> None:
    """Signals arrive from the first line of this project's code on; before that, Python handles them."""
    (tmp_path / "first").mkdir()
    ready = "import os, sys\nos.write(1, b'.') if 'tensorbow' in str(sys.orig_argv) else None\n"
    (tmp_path / "first" / "sitecustomize.py").write_text(ready)
    commands = (
        DIGITS,
        ("devices",),
        ("--help",),
        ("predict", "a", "b"),
        ("tune", "logreg"),
        ("explain", "lenet"),
    )
    draw = random.Random(0)
    for _ in range(90):
        number = draw.choice([signal.SIGINT, signal.SIGTERM])
        process = started(program, tmp_path, draw.choice(commands), number)
        assert process.stdout.read(1) == "."
        time.sleep(0.02 + draw.uniform(0, 1.5))
        process.send_signal(number)
        ended = program.end(process)
        assert "Traceback" not in ended.err
        assert ended.err.count("\n") <= 1, ended
        assert ended.status in (0, 1, 128 + number), ended
        # predict had ended, or an earlier train had
        assert ended.status != 1 or "there is no" in ended.err or "holds a run already" in ended.err
