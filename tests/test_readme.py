"""Every code block of the README runs: here, or (the two install commands) in `.ci/run`."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tensorbow.devices.gpu_discovery import gpu_status
from tests.gpu_rig.runtimes import needs_compiler

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.DOTALL)
BLOCKS = [match.groupdict() for match in BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8"))]
INSTALLS = ("train", "test")
NEEDS_GPU = ("gpu", "gpu: cli")


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
        marks = ("run: cli", "gpu: cli", "gpu: install", *INSTALLS)
        runs = block["mark"] in marks if block["language"] == "bash" else block["language"] == "python"
        assert runs, f"a block that nothing runs:\n{block['code']}"


PROGRAMS = [block["code"] for block in kinds("python") if block["mark"] not in NEEDS_GPU]


SEEDED = [n for n, code in enumerate(PROGRAMS) if "set_random_seed" in code and "LearningEngine" in code]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs(number, tmp_path):
    """The one that sets a seed and prints what it has learnt gives the same bits once more."""
    outputs = set()
    for folder in range(2 if number in SEEDED else 1):
        (tmp_path / str(folder)).mkdir()
        outputs.add(run([sys.executable, "-W", "error", "-c", PROGRAMS[number]], tmp_path / str(folder)))
    assert len(outputs) == 1
    assert "" not in outputs
    assert len(SEEDED) == 1


@needs_compiler
def test_gpu_programs_on_an_emulated_gpu(tmp_path):
    """With fewer steps, since an emulated GPU takes seconds for each."""
    (block,) = kinds("python", "gpu")
    assert "steps=10" in block["code"]
    started = "from tests.gpu_rig.runtimes import show_emulated_gpu\nshow_emulated_gpu()\n"
    code = started + block["code"].replace("steps=10", "steps=2")
    assert run([sys.executable, "-W", "error", "-c", code], tmp_path).count(",") == 1


def test_gpu_blocks_on_a_gpu(tmp_path):
    if gpu_status().problem:
        pytest.skip(gpu_status().problem)
    for block in kinds("python", "gpu"):
        assert run([sys.executable, "-W", "error", "-c", block["code"]], tmp_path)
    (block,) = kinds("bash", "gpu: cli")
    assert "/device:GPU:0" in run(["sh", "-ec", block["code"]], tmp_path)


def test_gpu_troubles_are_those_that_the_program_tells():
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- messages -->\n")[2]
    table = text.partition("\n\n")[0].splitlines()[2:]
    program = (ROOT / "tensorbow" / "devices" / "gpu_discovery.py").read_text(encoding="utf-8")
    assert len(table) >= 7
    for row in table:
        message = row.split("`")[1]
        assert message in program, message


def test_the_gpu_install_command_names_an_extra():
    (block,) = kinds("bash", "gpu: install")
    (extra,) = re.findall(r"\[(cuda\d+),", block["code"])
    assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


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
