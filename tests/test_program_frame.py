"""The frame of TensorFlow 1's programs: flags, `main`, messages and files."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tensorbow as tb
from tensorbow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from tensorbow.program_frame import command_line_flags, main_function
from tensorbow.program_frame.command_line_flags import FlagValues


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> FlagValues:
    """New flags in the place of the program's."""
    values = FlagValues()
    for module in (command_line_flags, main_function):
        monkeypatch.setattr(module, "FLAGS", values)
    tb.flags.DEFINE_string("folder", "runs", "Folder of the results.")
    tb.flags.DEFINE_integer("steps", 10, "Steps.")
    tb.flags.DEFINE_float("rate", "0.5", "Rate.")
    tb.flags.DEFINE_bool("verbose", True, "Talks.")
    tb.flags.DEFINE_boolean("normalise", False, "A flag that begins with no.")
    tb.flags.DEFINE_enum("kind", None, ["a", "b"], "Kind.")
    tb.flags.DEFINE_list("names", "x,y", "Names.")
    tb.flags.DEFINE_multi_integer("layer", [3, 4], "Sizes.")
    tb.flags.DEFINE_multi_string("word", None, "Words.")
    return values


def test_flags_are_read_from_the_command_line(flags: FlagValues) -> None:
    words = "a --folder=there --steps 3 -rate -1.5 --noverbose --normalise --layer 1 --layer=2 -2 -- --kind b"
    assert flags(["prog", *words.split()]) == ["prog", "a", "-2", "--kind", "b"]
    assert flags.flag_values_dict() == {
        "folder": "there",
        "steps": 3,
        "rate": -1.5,
        "verbose": False,
        "normalise": True,
        "kind": None,
        "names": ["x", "y"],
        "layer": [1, 2],
        "word": None,
    }
    assert flags(["prog", "--verbose=no", "--word=p", "--word", "q", "--names=", "--kind=b"]) == ["prog"]
    assert (flags.verbose, flags.word, flags.names, flags.kind) == (False, ["p", "q"], [], "b")
    assert (flags.steps, flags.layer) == (10, [3, 4])
    flags.steps = 7
    assert (flags.steps, flags["steps"].present, "steps" in flags, len(flags)) == (7, False, True, 9)
    del flags.steps
    with pytest.raises(AttributeError, match="FLAGS has no flag 'steps'"):
        print(flags.steps)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--steps=1.5", "--steps: expected a whole number, got '1.5'"),
        ("--kind c", "--kind: expected one of a, b, got 'c'"),
        ("--verbose=maybe", "--verbose: expected true or false, got 'maybe'"),
        ("--rate", "--rate: expected a number, got nothing after it"),
        ("--stops 3", "unknown flag --stops; did you mean --steps?"),
        ("--nosteps", "unknown flag --nosteps"),
    ],
)
def test_command_lines_that_are_refused(flags: FlagValues, words: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message.replace("?", r"\?")):
        flags(["prog", *words.split()])


def test_definitions_that_are_refused(flags: FlagValues) -> None:
    for name, default, message in (
        ("steps", 1, "--steps is defined already"),
        ("two words", 1, "expected a name of letters"),
        ("is_parsed", 1, "expected a name of letters"),
        ("other", "many", "default of --other to be a whole number, got 'many'"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            tb.flags.DEFINE_integer(name, default, "")
    with pytest.raises(InvalidArgumentError, match="expected a flag that is defined, got 'step'; did you m"):
        tb.flags.mark_flag_as_required("step")
    tb.flags.mark_flag_as_required("kind")
    with pytest.raises(InvalidArgumentError, match="expected a value of --kind, got none"):
        flags(["prog"])


def test_the_first_use_reads_the_command_line_and_keeps_what_the_program_set(
    flags: FlagValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["prog", "--rate=2", "--of-another-tool", "--late=5", "--steps=4"])
    flags.steps = 6
    assert (flags.rate, flags.steps) == (2.0, 6)
    tb.flags.DEFINE_integer("late", 1, "Defined after the first use.")
    assert (flags.late, flags.steps) == (5, 6)
    tb.flags.mark_flag_as_required("kind")
    tb.flags.DEFINE_integer("later", 1, "Not read yet.")
    flags.kind = "a"
    assert (flags.later, flags.kind) == (1, "a")
    assert flags["kind"].required
    flags.names.append("z")
    flags(["prog", "--kind=b"])
    assert (flags.names, flags.kind) == (["x", "y"], "b")


PROGRAM = '''"""Trains nothing."""
import tensorbow as tb

tb.flags.DEFINE_integer("steps", 10, "Steps.")
FLAGS = tb.flags.FLAGS


def main(argv):
    print(FLAGS.steps, argv[1:])
    return 3 if FLAGS.steps == 4 else None


if __name__ == "__main__":
    tb.app.run()
'''


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--steps", "4", "x", "--other"], 3, "4 ['x', '--other']"),
        ([], 0, "10 []"),
        (["--steps=x"], 1, "program.py: --steps: expected a whole number, got 'x'; --help lists the flags"),
        (["--help"], 0, "Trains nothing.\nflags:\n  --steps: Steps.\n    (a whole number; default: 10)"),
    ],
)
def test_a_program_with_flags(tmp_path: Path, words: list[str], code: int, told: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(Path(tb.__file__).resolve().parents[1])}
    command = [sys.executable, "program.py", *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, (done.stdout + done.stderr).strip()) == (code, told)


def test_a_program_without_main_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "main", raising=False)
    with pytest.raises(InvalidArgumentError, match="expected a function main"):
        tb.app.run(argv=["prog"])
    with pytest.raises(SystemExit) as ended:
        tb.app.run(lambda argv: len(argv), ["prog", "x"])
    assert ended.value.code == 2


@pytest.fixture
def own_level() -> Iterator[None]:
    logger = logging.getLogger("tensorbow")
    level, handlers = logger.level, [*logger.handlers]
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.mark.usefixtures("own_level")
def test_messages_are_those_of_pythons_logger(caplog: pytest.LogCaptureFixture) -> None:
    assert tb.logging.get_verbosity() == tb.logging.WARN
    tb.logging.info("%d is not shown", 1)
    tb.logging.set_verbosity("INFO")
    assert tb.logging.get_verbosity() == tb.logging.INFO
    tb.logging.debug("not shown either")
    for number in range(5):
        tb.logging.log_every_n(tb.logging.INFO, "every %d", 2, number)
        tb.logging.log_first_n(tb.logging.ERROR, "first %d", 2, number)
    tb.logging.log_if(tb.logging.WARN, "if %s", True, "so")
    tb.logging.log_if(tb.logging.WARN, "if %s", False, "not so")
    for tell in (tb.logging.info, tb.logging.warn, tb.logging.error, tb.logging.fatal):
        tell("%s", tell.__name__)
    tb.logging.flush()
    told = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert told == [
        (20, "every 0"),
        (40, "first 0"),
        (40, "first 1"),
        (20, "every 2"),
        (20, "every 4"),
        (30, "if so"),
        (20, "info"),
        (30, "warning"),
        (40, "error"),
        (50, "fatal"),
    ]
    assert {record.name for record in caplog.records} == {"tensorbow"}
    assert Path(caplog.records[-1].pathname) == Path(__file__)
    with pytest.raises(InvalidArgumentError, match=r"v to be a level such as tb\.logging\.INFO, got"):
        tb.logging.set_verbosity("LOUD")


def test_files_and_folders(tmp_path: Path) -> None:
    folder, path = tmp_path / "a" / "b", tmp_path / "a" / "b" / "text.txt"
    tb.gfile.MakeDirs(str(folder))
    tb.gfile.MakeDirs(folder)
    with tb.gfile.GFile(path, "w") as file:
        file.write("first\r\nzwölf\n")
        assert file.size() == 14
    with tb.gfile.Open(str(path)) as file:
        assert (file.readline(), file.tell(), file.read(2), file.readlines()) == (
            "first\r\n",
            7,
            "zw",
            ["ölf\n"],
        )
        file.seek(0)
        assert [*file] == ["first\r\n", "zwölf\n"]
    assert tb.gfile.FastGFile(path, "rb").read() == path.read_bytes()
    tb.gfile.GFile(folder / "empty", "a").close()
    tb.gfile.Copy(path, folder / "copy.txt")
    with pytest.raises(AlreadyExistsError, match=r"gfile.Copy: .*copy.txt' exists; give overwrite=True"):
        tb.gfile.Copy(path, folder / "copy.txt")
    tb.gfile.Copy(path, folder / "copy.txt", overwrite=True)
    tb.gfile.Rename(folder / "copy.txt", folder / "moved.txt")
    assert tb.gfile.ListDirectory(folder) == ["empty", "moved.txt", "text.txt"]
    assert tb.gfile.Glob(str(folder / "*.txt")) == [str(folder / "moved.txt"), str(path)]
    assert tb.gfile.Glob([str(path), str(folder / "e*")]) == [str(folder / "empty"), str(path)]
    assert next(tb.gfile.Walk(tmp_path / "a")) == (str(tmp_path / "a"), ["b"], [])
    assert tb.gfile.Stat(path).st_size == 14
    tb.gfile.Remove(path)
    tb.gfile.MkDir(folder / "c")
    assert (tb.gfile.Exists(path), tb.gfile.IsDirectory(folder / "c")) == (False, True)
    tb.gfile.DeleteRecursively(str(tmp_path / "a"))
    assert not tb.gfile.Exists(tmp_path / "a")


def test_errors_of_files_are_the_librarys(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing" / "x")
    for call in (tb.gfile.MkDir, tb.gfile.Remove, tb.gfile.ListDirectory, tb.gfile.Stat):
        with pytest.raises(NotFoundError, match=rf"gfile.{call.__name__}: '.*x': No such file"):
            call(missing)
    with pytest.raises(NotFoundError, match=r"gfile.GFile: '.*missing.x': No such file"):
        tb.gfile.GFile(missing).read()
    with pytest.raises(NotFoundError, match=r"gfile.Copy: .*missing"):
        tb.gfile.Copy(missing, tmp_path / "y")
    with pytest.raises(FailedPreconditionError, match=r"gfile.GFile: .*Is a directory"):
        tb.gfile.GFile(tmp_path).read()
    with pytest.raises(UnimplementedError, match="expected a path of this machine, got 'gs://bucket/x'"):
        tb.gfile.Exists("gs://bucket/x")
    with pytest.raises(InvalidArgumentError, match="GFile"):
        tb.gfile.GFile(missing, "read")
