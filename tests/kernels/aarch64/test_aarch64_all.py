"""Runs all tests of native code, with all their examples, as on an AArch64 machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.native_rig import aarch64_machine  # noqa: F401 - skips where there is no emulator

ROOT = Path(__file__).parents[3]
OF_X86 = ("test_native_matrix_tiles.py",)  # AMX
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.glob("tests/kernels/native/**/test_native_*.py")
    if path.name not in OF_X86
)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_native_code_of_neon(file):
    plugin = ["-p", "tests.native_rig.aarch64_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout[-20_000:]  # all are slow
