"""Choice of the backend of CPU devices: `TENSORBOW_CPU`, with and without llvmlite."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorbow.cli import main
from tensorbow.cli.devices import devices
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.kernels import backends
from tensorbow.kernels.backends import CPU_CHOICES, CPU_DEFAULT, make_cpu_backend
from tensorbow.kernels.reference import ReferenceBackend

needs_llvmlite = pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvmlite is not installed")


@pytest.fixture
def no_llvmlite(monkeypatch):
    monkeypatch.setattr(backends, "find_spec", lambda name: None)


@pytest.mark.parametrize("choice", ["reference", "auto"])
def test_without_llvmlite_reference_kernels_run(choice, monkeypatch, no_llvmlite, caplog):
    monkeypatch.setenv("TENSORBOW_CPU", choice)
    assert type(make_cpu_backend()) is ReferenceBackend
    said = [record.getMessage() for record in caplog.records]
    if choice == "reference":
        assert not said
    else:
        assert len(said) == 1
        assert "llvmlite is not installed; pip install 'tensorbow[native]'" in said[0]


@needs_llvmlite
@pytest.mark.parametrize("version", ["0.43.0", "0.9"])
def test_an_llvmlite_that_is_too_old(version, monkeypatch, caplog):
    monkeypatch.setattr("llvmlite.__version__", version)
    monkeypatch.setenv("TENSORBOW_CPU", "auto")
    assert type(make_cpu_backend()) is ReferenceBackend
    assert f"llvmlite is {version}, and 0.44 is needed" in caplog.text
    monkeypatch.setenv("TENSORBOW_CPU", "native")
    with pytest.raises(FailedPreconditionError, match=f"llvmlite is {version}, and 0.44 is needed; pip inst"):
        make_cpu_backend()


@needs_llvmlite
def test_an_llvmlite_that_does_not_load(monkeypatch, caplog):
    monkeypatch.setenv("TENSORBOW_CPU", "auto")
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    assert type(make_cpu_backend()) is ReferenceBackend
    assert "llvmlite cannot be loaded (ModuleNotFoundError: " in caplog.text


@needs_llvmlite
def test_the_program_says_so_on_the_terminal_whatever_becomes_of_the_log(monkeypatch, tmp_path, capsys):
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").write_text(
        "raise OSError('libllvmlite.so:\\n  not \x1b[1m found')"
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "llvmlite"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TENSORBOW_CPU", "auto")
    monkeypatch.setattr(backends, "_backends", {})
    monkeypatch.setattr(logging.getLogger("tensorbow"), "propagate", False)  # as with handlers of one's own
    for words in (["explain", "logreg"], ["explain", "logreg"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
    assert capsys.readouterr().err == (
        "tensorbow: warning: CPU devices run NumPy kernels, for llvmlite cannot be loaded (OSError: "
        "libllvmlite.so: not \\x1b[1m found); pip install 'tensorbow[native]' for native code, which is "
        "faster (TENSORBOW_CPU=reference says nothing)\n"
    )


def test_what_is_needed_is_what_the_extra_installs():
    text = Path(__file__).parents[3].joinpath("pyproject.toml").read_text()
    assert f'native = ["llvmlite>={".".join(map(str, backends.LEAST_LLVMLITE))}"]' in text


def test_native_without_llvmlite_says_what_to_do(monkeypatch, no_llvmlite):
    monkeypatch.setenv("TENSORBOW_CPU", "native")
    with pytest.raises(FailedPreconditionError, match=r"pip install 'tensorbow\[native\]'.*=reference"):
        make_cpu_backend()


def test_a_choice_that_there_is_not(monkeypatch):
    monkeypatch.setenv("TENSORBOW_CPU", "fast")
    with pytest.raises(InvalidArgumentError, match="TENSORBOW_CPU='fast': expected one of auto, native"):
        make_cpu_backend()


def test_nothing_said_is_the_default(monkeypatch):
    kinds = []
    for value in (None, "", CPU_DEFAULT):
        monkeypatch.delenv("TENSORBOW_CPU", raising=False)
        if value is not None:
            monkeypatch.setenv("TENSORBOW_CPU", value)
        kinds.append(type(make_cpu_backend()))
    assert len(set(kinds)) == 1
    assert CPU_DEFAULT in CPU_CHOICES


@needs_llvmlite
@pytest.mark.parametrize("choice", ["native", "auto"])
def test_with_llvmlite_native_code_runs(choice, monkeypatch, tmp_path):
    from tensorbow.kernels.native.backend import NativeBackend

    monkeypatch.setenv("TENSORBOW_CPU", choice)
    monkeypatch.setenv("TENSORBOW_CACHE", str(tmp_path))
    backend = make_cpu_backend()
    assert type(backend) is NativeBackend
    assert "native code, LLVM" in backend.title
    monkeypatch.setenv("TENSORBOW_CPU", "reference")
    assert type(make_cpu_backend()) is ReferenceBackend


def fresh_devices(monkeypatch):
    monkeypatch.delitem(backends._backends, "cpu", raising=False)
    return CliRunner(env={"COLUMNS": "200"}).invoke(devices, ["--json"]).output


def test_the_table_of_devices_says_which(monkeypatch):
    monkeypatch.setenv("TENSORBOW_CPU", "reference")
    assert "reference kernels" in fresh_devices(monkeypatch)
    if find_spec("llvmlite") is not None:
        monkeypatch.setenv("TENSORBOW_CPU", "native")
        assert "native code, LLVM" in fresh_devices(monkeypatch)


PROGRAM = """
import sys
import tensorbow as tb
assert "llvmlite" not in sys.modules
x = tb.placeholder(tb.float32, [3])
with tb.Session() as session:
    print(session.run(x * 2 + 1, {x: [1, 2, 3]}).tolist(), "llvmlite" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "loads"), [("reference", False), pytest.param("native", True, marks=needs_llvmlite)]
)
def test_llvmlite_is_loaded_when_it_is_needed(choice, loads, tmp_path):
    environment = os.environ | {"TENSORBOW_CPU": choice, "TENSORBOW_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[3.0,", "5.0,", "7.0]", str(loads)]
    assert bool(list(tmp_path.glob("native/*.o"))) == loads
