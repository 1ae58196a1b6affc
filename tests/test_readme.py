"""Every code block of the README runs: here, or (the two install commands) in `.ci/run`."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.DOTALL)
BLOCKS = [match.groupdict() for match in BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8"))]
INSTALLS = ("train", "test")


def kinds(language: str, mark: str | None = None) -> list[dict[str, str]]:
    return [b for b in BLOCKS if b["language"] == language and (mark is None or b["mark"] == mark)]


def environment(tmp_path: Path) -> dict[str, str]:
    """Finds the checkout from any folder, and has a `tensorbow` program."""
    program = tmp_path / "bin" / "tensorbow"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tensorbow "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}


def run(arguments: list[str], tmp_path: Path) -> str:
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_block_is_of_a_kind_that_runs():
    assert BLOCKS
    for block in BLOCKS:
        runs = block["language"] == "python" or block["mark"] in ("run: cli", *INSTALLS)
        assert runs, f"a block that nothing runs:\n{block['code']}"


@pytest.mark.parametrize("number", range(len(kinds("python"))))
def test_programs(number, tmp_path):
    assert run([sys.executable, "-W", "error", "-c", kinds("python")[number]["code"]], tmp_path)


def test_command_line(tmp_path):
    (block,) = kinds("bash", "run: cli")
    output = run(["sh", "-ec", block["code"]], tmp_path)
    assert "resumed from" in output
    assert "memory of a replica" in output


@pytest.mark.parametrize("mark", INSTALLS)
def test_install_commands_run_in_ci(mark):
    (block,) = kinds("bash", mark)
    assert block["code"].startswith("python -m pip install '.[")
    assert f'"$(block {mark})"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_nothing_is_left_to_fill_in():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not re.findall(r"^[A-Z_]{4,}$", text, re.MULTILINE)
