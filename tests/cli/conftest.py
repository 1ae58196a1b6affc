"""Calls of the program: in this process, and as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tensorbow.cli import main

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120


@dataclass(frozen=True)
class Ended:
    """Outcome of a call of the program."""

    status: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """Last line on standard error, the message of an error."""
        assert "Traceback" not in self.err, self.err
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("tensorbow: ")
        assert self.status != 0
        return self.err


Call = Callable[..., Ended]


@pytest.fixture(autouse=True, scope="session")
def programs_can_be_interrupted() -> None:
    """Restores Ctrl-C in the tests' processes, also where the tests run as a script's background job."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Call:
    """Runs the program in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("TENSORBOW_DATA", "TENSORBOW_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    if "draws_curves" not in request.keywords:  # drawing takes longer than most of the runs
        monkeypatch.setattr("scheduler.training.folders.run_curves.draw_run", lambda folder: None)

    def run(*words: object) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        shown = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, shown.out, shown.err)

    return run


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TENSORBOW", "PYTHON", "FORCE_COLOR"))}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


@dataclass
class Program:
    """The program as a process of its own, in a folder."""

    folder: Path
    processes: list[subprocess.Popen[str]]

    def start(
        self, *words: object, env: dict[str, str] | None = None, shell: str = "", **more: Any
    ) -> subprocess.Popen[str]:
        """shell: a command of sh that is run before the program, in its process."""
        settings: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **more,
        }
        process = subprocess.Popen(
            ["sh", "-c", f'{shell}\nexec "$@"', "sh", sys.executable, "-m", "tensorbow", *map(str, words)]
            if shell
            else [sys.executable, "-m", "tensorbow", *map(str, words)],
            cwd=self.folder,
            env=environment(**(env or {})),
            text=True,
            **settings,
        )
        self.processes.append(process)
        return process

    def run(self, *words: object, **more: Any) -> Ended:
        return self.end(self.start(*words, **more))

    def end(self, process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=TIMEOUT_S)
        return Ended(process.returncode, out or "", err or "")


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Waits until something holds; fails when the process ends before."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path, [])
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.fixture(name="wait_for")
def wait_for_fixture() -> Callable[..., None]:
    return wait_for
