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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ["script", "package", "folder"])
@pytest.mark.parametrize("arguments", [["-c", PYTHON_PROGRAM], ["-m", "tensorbow", "devices"]])
def test_a_foreign_scheduler(tmp_path, form, arguments):
    file = tmp_path / ("scheduler.py" if form == "script" else "scheduler/__init__.py")
    file.parent.mkdir(exist_ok=True)
    file.write_text("print('it ran')\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if form == "folder":  # one without an __init__.py gives way to a package further on
        file.unlink()
    result = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "it ran" not in result.stdout
    if form == "folder":
        assert result.returncode == 0, result.stderr
        return
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert f"package 'scheduler': {file} shadows {ROOT / 'scheduler'}" in last
    assert "rename or move it" in last
    assert ("NotFoundError" in last) == (arguments[0] == "-c")


def test_dir_shows_what_is_public():
    names = dir(tb)
    assert {*tb.__all__, *tb._LATER} <= set(names)
    assert not {"Any", "import_module", "version", "PackageNotFoundError"} & set(names)
