"""Every code block of the README and of the pages in docs/ runs: here, or (two commands) in `.ci/run`.

The blocks of a page run in order, in one folder and one namespace: Python in this process, commands in a
shell. What a ```text block shows must have been printed by the blocks before it: with other numbers, but
accuracies and losses near those that are shown.

| block | meaning |
| --- | --- |
| ```python, ```bash | runs |
| ```{code-block} LANGUAGE with `:caption: FILE` | is written to FILE |
| ```text | output of the blocks before it; a line `...` stands for any lines |
| after `<!-- needs: MODULE -->` | runs where the module is installed, or is in TENSORBOW_PAGES_NEED |
| after `<!-- install -->` | a pip command; its extras are checked |
| after `<!-- gpu -->`, `<!-- gpu: cli -->` | runs on a GPU, and the first on an emulated one too |
| after `<!-- train -->`, `<!-- test -->` | README's two commands, which `.ci/run` runs |

The environment variable TENSORBOW_PAGES_NEED, such as "torch,mlflow", names modules whose blocks must run:
they fail where one is missing, instead of being left out.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
import re
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tensorbow as tb
from tensorbow.devices.gpu_discovery import gpu_status
from tests.gpu_rig.runtimes import needs_compiler

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^>\n]+) -->\n)?"
    r"(?P<fence>```+)(?P<language>[^\n`]*)\n(?::caption: (?P<file>[^\n]+)\n)?(?P<code>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
COMMANDS = ("train", "test")
REQUIRED = os.environ.get("TENSORBOW_PAGES_NEED", "").split(",")
NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?|nan|inf)")

FIGURE = re.compile(
    r"(?P<number>(?<![\w.])[-+]?(?:\d[\d,]*\.\d*(?:e[-+]?\d+)?|nan))(?P<percent>\s?%)?|(?P<word>[a-zA-Z]+)"
)
MEASURES = {"accuracy": "accuracy", "accuracies": "accuracy", "loss": "loss", "losses": "loss"}
BETWEEN = {
    "of",
    "the",
    "z",
    "each",
    "replica",
    "replicas",
    "average",
    "ensemble",
    "all",
    "np",
    "four",
    "lstms",
    "float",
}


class Block(NamedTuple):
    """A code block of a page. line: of its first line of code."""

    page: str
    mark: str
    language: str
    file: str
    code: str
    line: int


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        language = match["language"].removeprefix("{code-block}").strip()
        if not language.startswith("{"):  # no other directive, such as {image}
            line = text.count("\n", 0, match.start("code")) + 1
            found.append(Block(page, match["mark"] or "", language, match["file"] or "", match["code"], line))
    return found


BLOCKS = {page: blocks(page) for page in PAGES}


def marked(mark: str, language: str) -> list[Block]:
    return [b for found in BLOCKS.values() for b in found if b.mark == mark and b.language == language]


def runs(block: Block) -> bool:
    """True for a block that `test_page` runs on this machine."""
    if block.mark.startswith("needs: "):
        module = block.mark.removeprefix("needs: ")
        return module in REQUIRED or find_spec(module) is not None
    return not block.mark and not block.file and block.language in ("python", "bash")


def environment(tmp_path: Path) -> dict[str, str]:
    """Finds the checkout from any folder, and has a `tensorbow` program."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for name, arguments in {"tensorbow": "-m tensorbow ", "python": ""}.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}


def command(arguments: list[str], folder: Path, tmp_path: Path) -> str:
    done = subprocess.run(
        arguments, cwd=folder, env=environment(tmp_path), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def figures(line: str) -> list[tuple[str, float]]:
    """Accuracies and losses of a line, the numbers after these words up to the next word; NaN is one, too."""
    found, measure = [], ""
    for match in FIGURE.finditer(line):
        if match["number"] and measure:
            found.append(
                (measure, float(match["number"].replace(",", "")) / (100 if match["percent"] else 1))
            )
        elif word := match["word"]:
            measure = MEASURES.get(word.lower(), measure if word.lower() in BETWEEN else "")
    return found


def are_near(shown: tuple[str, float], printed: tuple[str, float]) -> bool:
    """True for an accuracy at most 0.1 away, and a loss within a factor of 3, or if both are below 0.01."""
    (measure, expected), (other, value) = shown, printed
    if measure != other or math.isnan(expected) or math.isnan(value):
        return measure == other and math.isnan(expected) == math.isnan(value)
    if measure == "accuracy":
        return abs(expected - value) <= 0.1
    return max(expected, value) < 0.01 or expected / 3 <= value <= 3 * expected


def require_shown(shown: str, printed: str) -> None:
    """Fails unless a block's text was printed, with accuracies and losses near those shown."""
    found = pattern(shown).search(masked(printed))
    assert found, f"{shown}\n---\n{printed}"
    for line in shown.splitlines():
        if expected := figures(line):
            own = [each for each in printed.splitlines() if pattern(line).fullmatch(masked(each).strip())]
            near = [
                each
                for each in own
                if len(figures(each)) == len(expected) and all(map(are_near, expected, figures(each)))
            ]
            assert near, f"{line}\n--- is far from\n{chr(10).join(own) or printed}"


def masked(printed: str) -> str:
    """Text with 0 for each number, without the spaces by which NumPy aligns arrays in brackets."""
    return re.sub(r"(?<=\[)\s+|\s+(?=\])", "", NUMBER.sub("0", printed))


def pattern(shown: str) -> re.Pattern[str]:
    """Matches an output with other numbers, and any lines in place of `...`."""
    lines = []
    for line in shown.splitlines():
        words = [re.escape(word) for word in masked(line).split()]
        lines.append(".*?" if line.strip() == "..." else r"\s+".join(words))
    return re.compile(r"\s*".join(lines), re.DOTALL)


def run_page(page: str, tmp_path: Path) -> str:
    """Runs the blocks of a page in `tmp_path`/here; returns what they print."""
    folder = tmp_path / "here"
    folder.mkdir()
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    with pytest.MonkeyPatch.context() as patch, tb.Graph().as_default():
        patch.chdir(folder)
        for block in BLOCKS[page]:
            if block.file:
                path = folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.code)
            elif block.language == "text" and (not block.mark or runs(block)):
                require_shown(block.code, printed)
            elif runs(block) and block.language == "bash":
                printed += command(["sh", "-ec", block.code], folder, tmp_path)
            elif runs(block):
                output = io.StringIO()
                with contextlib.redirect_stdout(output):
                    exec(compile("\n" * (block.line - 1) + block.code, ROOT / page, "exec"), names)
                printed += output.getvalue()
    return printed


@pytest.mark.parametrize(
    ("shown", "printed", "is_near"),
    [
        ("accuracy 0.793", "accuracy 0.75", True),
        ("accuracy 0.793", "accuracy 0.1", False),
        ("accuracy of z: 0.93", "accuracy of z: nan", False),
        ("validation accuracy 93.1%", "validation accuracy 89.0%", True),
        ("loss 0.5 accuracy 91.0 %, 1,000 images/s", "loss 0.9 accuracy 92.0 %, 17 images/s", True),
        ("loss 0.5 accuracy 91.0 %, 1,000 images/s", "loss 1.9 accuracy 92.0 %, 17 images/s", False),
        ("losses [0.5  1.0]", "losses [ 0.6 0.9]", True),
        ("losses [0.5  1.0]", "losses [ 0.6 9.0]", False),
        ("loss 1.0\n...\nloss 0.5", "loss 1.1\nx\nloss 0.4", True),
        ("took 1.0 s", "took 99.0 s", True),
    ],
)
def test_accuracies_and_losses_are_compared(shown, printed, is_near):
    if is_near:
        require_shown(shown, printed)
    else:
        with pytest.raises(AssertionError, match="is far from"):
            require_shown(shown, printed)


def test_every_block_is_of_a_kind_that_runs():
    for found in BLOCKS.values():
        for block in found:
            known = (
                block.language in ("python", "bash", "text")
                if not block.mark
                else (block.language, block.mark)
                in [("bash", "install"), ("bash", "gpu: cli"), ("python", "gpu")]
                or block.mark.startswith("needs: ")
                or (block.page == "README.md" and block.mark in COMMANDS)
            )
            assert known or block.file, f"{block.page}:{block.line}: a block that nothing runs"


def test_readme(tmp_path):
    run_page("README.md", tmp_path)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if any(b.language == "bash" for b in found) else [])
        for page, found in BLOCKS.items()
        if any(map(runs, found)) and page != "README.md"
    ],
)
@pytest.mark.sampled(1)
def test_page(page, tmp_path):
    """All pages run in `.ci/run`; those with commands, each a process, are not of the default suite."""
    run_page(page, tmp_path)


@needs_compiler
@pytest.mark.slow
def test_gpu_programs_on_an_emulated_gpu(tmp_path):
    """With fewer steps, since an emulated GPU takes seconds for each."""
    (block,) = marked("gpu", "python")
    assert "steps=10" in block.code
    started = "from tests.gpu_rig.runtimes import show_emulated_gpu\nshow_emulated_gpu()\n"
    code = started + block.code.replace("steps=10", "steps=2")
    printed = command([sys.executable, "-W", "error", "-c", code], tmp_path, tmp_path)
    assert printed.count(",") == 1


def test_gpu_blocks_on_a_gpu(tmp_path):
    if gpu_status().problem:
        pytest.skip(gpu_status().problem)
    for block in marked("gpu", "python"):
        assert command([sys.executable, "-W", "error", "-c", block.code], tmp_path, tmp_path)
    (block,) = marked("gpu: cli", "bash")
    assert "/device:GPU:0" in command(["sh", "-ec", block.code], tmp_path, tmp_path)


def test_gpu_troubles_are_those_that_the_program_tells():
    text = (ROOT / "docs/tutorials/gpu.md").read_text(encoding="utf-8").partition("<!-- messages -->\n")[2]
    table = text.partition("\n\n")[0].splitlines()[2:]
    program = (ROOT / "tensorbow" / "devices" / "gpu_discovery.py").read_text(encoding="utf-8")
    assert len(table) >= 7
    for row in table:
        message = row.split("`")[1]
        assert message in program, message


def test_install_commands_name_extras_that_exist():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = [b for found in BLOCKS.values() for b in found if b.mark in ("install", *COMMANDS)]
    assert len(found) > 3
    for block in found:
        extras = re.findall(r"\[([\w,]+)\]", block.code)
        assert "pip install" in block.code
        for extra in ",".join(extras).split(","):
            assert not extra or f"\n{extra} = [" in project, f"{block.page}: no extra {extra!r}"


@pytest.mark.parametrize("page", PAGES)
def test_names_in_the_text_are_there(page):
    for span in re.findall(r"`([^`\n]+)`", re.sub(BLOCK, "", (ROOT / page).read_text(encoding="utf-8"))):
        for name in re.findall(r"\btb\.([a-zA-Z_][\w.]*\w)", span):
            assert functools.reduce(getattr, name.split("."), tb) is not None


def test_nothing_is_left_to_fill_in():
    for page in PAGES:
        text = re.sub(r"`[^`\n]+`", "", re.sub(BLOCK, "", (ROOT / page).read_text(encoding="utf-8")))
        assert not re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|\bT[O]DO\b|\bTBD\b", text), page


def test_modules_needed_by_blocks_are_there_in_ci():
    """By the test's extras, or in the step with PyTorch."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    of_tests, of_torch = (set(each.split(",")) for each in re.findall(r"TENSORBOW_PAGES_NEED=(\S+)", text))
    (selected,) = re.findall(r"'test_page and \(([^)]+)\)", text)
    for page, found in BLOCKS.items():
        needs = {b.mark.removeprefix("needs: ") for b in found if b.mark.startswith("needs: ")}
        if needs - of_tests:
            assert needs - of_tests <= of_torch, page
            assert any(part in page for part in selected.split(" or ")), page


def test_blocks_of_a_module_that_must_be_there_are_not_left_out(monkeypatch):
    block = Block("page", "needs: no_such_module", "python", "", "import no_such_module", 1)
    assert not runs(block)
    monkeypatch.setitem(runs.__globals__, "REQUIRED", ["no_such_module"])
    assert runs(block)


@pytest.mark.parametrize("mark", COMMANDS)
def test_install_commands_run_in_ci(mark):
    (block,) = marked(mark, "bash")
    assert block.code.startswith("python -m pip install '.[")
    assert f'"$(block {mark})"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_readme_is_short_and_links_lead_somewhere():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    for page in PAGES:
        text = re.sub(BLOCK, "", (ROOT / page).read_text(encoding="utf-8"))
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"", text):
            target = "".join(link)
            if not target.startswith(("http", "reference/", "../reference/", "api/")):
                assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"
