"""A foreign file of the name of one of our packages is named, with the remedy, and is not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tensorbow as tb

ROOT = Path(tb.__file__).resolve().parent.parent
PYTHON_PROGRAM = "import tensorbow as tb; tb.Session(); tb.LearningEngine"


def run(folder: Path, *arguments: str, path: str = str(ROOT)) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("form", ["script", "package"])
@pytest.mark.parametrize("package", ["scheduler", "allocators"])
def test_a_foreign_package_of_our_name_in_the_current_folder(tmp_path, form, package):
    file = tmp_path / (f"{package}.py" if form == "script" else f"{package}/__init__.py")
    file.parent.mkdir(exist_ok=True)
    file.write_text("print('it ran')\n")
    result = run(tmp_path, "-c", PYTHON_PROGRAM)
    assert "it ran" not in result.stdout
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert f"NotFoundError: package '{package}': {file} shadows {ROOT / package}" in last
    assert "rename or move it" in last


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "import tensorbow as tb; tb.MultiGpuReplicator",
        "import tensorbow as tb; tb.Session('tensorbow')",
        pytest.param("import replicator", marks=pytest.mark.slow),
        pytest.param("import tensorbow as tb, scheduler; tb.Trainer", marks=pytest.mark.slow),
    ],
)
def test_a_script_beside_a_foreign_file_of_our_name(tmp_path, program):
    file = tmp_path / "scheduler.py"
    file.write_text("steps = 3\n")
    (tmp_path / "main.py").write_text(program)
    result = run(tmp_path, "main.py")
    assert f"NotFoundError: package 'scheduler': {file} shadows" in result.stderr.splitlines()[-1]


@pytest.mark.slow
def test_pytest_beside_a_foreign_file_of_our_name(tmp_path):
    file = tmp_path / "replicator.py"
    file.write_text("")
    (tmp_path / "test_mine.py").write_text("import tensorbow as tb\n\ndef test_it():\n    tb.NonReplicator\n")
    result = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert f"NotFoundError: package 'replicator': {file} shadows" in result.stdout


@pytest.mark.slow
def test_a_folder_of_our_name_without_an_init_gives_way(tmp_path):
    (tmp_path / "scheduler").mkdir()
    assert run(tmp_path, "-c", PYTHON_PROGRAM).returncode == 0


QUICK = ("train", "logreg", "--dataset", "synthetic", "--epochs", "1", "--config", "c.yaml")
NAMES = ("scheduler", "allocators", "replicator", "yaml", "random", "signal", "logging", "click", "numpy")


@pytest.mark.slow
def test_the_program_imports_nothing_from_the_current_folder(tmp_path):
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('it ran')\n")
    result = run(tmp_path, "-m", "tensorbow", "devices")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scheduler", "allocators", "yaml", "random", "click", "numpy"])
@pytest.mark.parametrize("text", ["", "1 / 0", "1 +"], ids=["empty", "fails", "no Python"])
def test_a_foreign_module_on_the_path_is_named_in_one_line(tmp_path, name, text):
    file = tmp_path / f"{name}.py"
    file.write_text(f"{text}\n")
    (tmp_path / "c.yaml").write_text("seed: 1\n")
    result = run(tmp_path, "-m", "tensorbow", *QUICK, path=f"{tmp_path}{os.pathsep}{ROOT}")
    assert result.returncode == 1, result
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("tensorbow: ")
    assert f"{file} shadows /" in result.stderr
    assert "rename or move it" in result.stderr


@pytest.mark.slow
def test_a_script_named_like_a_package_shadows_nothing(tmp_path):
    script = tmp_path / "numpy"
    script.write_text(
        "from tensorbow.launcher import foreign_modules\nprint([foreign_modules(ImportError())])\n"
    )
    result = run(tmp_path, str(script))
    assert (result.returncode, result.stderr) == (0, "")
    assert str(script) not in result.stdout


@pytest.mark.slow
def test_an_error_of_the_program_itself_is_told_also_beside_a_second_copy_of_it(tmp_path):
    copy = tmp_path / "copy"
    for package in ("tensorbow", "scheduler", "allocators", "replicator"):
        (copy / package).mkdir(parents=True)
        (copy / package / "__init__.py").write_text("")
    (copy / "sitecustomize.py").write_text(
        "import click\ndef broken(*words, **named): raise KeyError('model')\nclick.group = broken\n"
    )
    path = os.pathsep.join([str(ROOT), str(copy)])
    result = run(tmp_path, "-m", "tensorbow", "devices", path=path)
    assert result.stderr == (
        f"tensorbow: cannot start: KeyError: 'model', in {copy / 'sitecustomize.py'}, line 2; "
        "--debug shows the traceback\n"
    )
    debugged = run(tmp_path, "-m", "tensorbow", "devices", "--debug", path=path)
    assert "tensorbow/cli/app.py" in debugged.stderr


def test_dir_shows_what_is_public():
    names = dir(tb)
    assert {*tb.__all__, *tb._LATER} <= set(names)
    assert not {"Any", "import_module", "version", "PackageNotFoundError"} & set(names)
