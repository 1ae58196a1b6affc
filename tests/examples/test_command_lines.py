"""Command lines of the examples: bad options and paths are one line, without optional libraries too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PENDULUM, RESNET50 = ([f"examples/{path}.py"] for path in ("pendulum/train_pendulum", "resnet50/resnet50"))
GAN = ["-m", "examples.conditional_gan"]
WITHOUT_MATPLOTLIB = "import runpy, sys; sys.modules['matplotlib'] = None; runpy.run_module(sys.argv.pop(1))"


def called(*words: str) -> subprocess.CompletedProcess[str]:
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | paths, capture_output=True, text=True, timeout=120
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            (*PENDULUM, "--output", "README.md/runs"),
            "cannot write README.md/runs: Not a directory; give another folder by --output",
        ),
        (
            (*RESNET50, "--devices", "foo"),
            "get_device: expected a kind and an index",
        ),
        (
            (*GAN, "--output", "README.md/runs"),
            "cannot write README.md/runs: Not a directory; give another folder by --output",
        ),
        ((*GAN, "--data-dir", "nowhere", "--output", "TEMPORARY"), "data set 'mnist': the folder 'nowhere' "),
    ],
)
def test_a_bad_option_or_path_is_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ended = called(*(str(tmp_path) if word == "TEMPORARY" else word for word in words))
    (line,) = ended.stderr.splitlines()
    assert "error: " in line
    assert said in line
    assert ended.returncode == 2


@pytest.mark.slow
def test_help_needs_no_matplotlib() -> None:
    ended = called("-c", WITHOUT_MATPLOTLIB, "examples.conditional_gan.__main__", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
