"""Files read, written and listed by steps."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.usefixtures("session")


def test_a_file_is_written_and_read(session, tmp_path):
    path = str(tmp_path / "new" / "folder" / "file.bin")
    session.run(tb.write_file(path, b"\0one\xff"))
    assert session.run(tb.read_file(path)) == b"\0one\xff"
    session.run(tb.write_file(path, "two"))
    assert session.run(tb.read_file(path)) == b"two"
    assert [each.name for each in tmp_path.joinpath("new", "folder").iterdir()] == ["file.bin"]


def test_the_path_may_be_computed(session, tmp_path):
    (tmp_path / "a.txt").write_text("A")
    name = tb.placeholder(tb.string, [])
    assert session.run(tb.read_file(tb.string_join([str(tmp_path), "/", name, ".txt"])), {name: "a"}) == b"A"


def test_files_that_match(session, tmp_path):
    for name in ("b1.txt", "a1.txt", "a2.txt", "c.csv"):
        (tmp_path / name).touch()

    def names(pattern):
        return [each.decode().rpartition("/")[2] for each in session.run(tb.matching_files(pattern))]

    assert names(f"{tmp_path}/*.txt") == ["a1.txt", "a2.txt", "b1.txt"]
    assert names([f"{tmp_path}/a?.txt", f"{tmp_path}/[ac]*"]) == ["a1.txt", "a2.txt", "c.csv"]
    assert names(f"{tmp_path}/none*") == []
    once = tb.train.match_filenames_once(f"{tmp_path}/a*")
    assert len(session.run(once)) == 2
    (tmp_path / "a3.txt").touch()
    assert len(session.run(once)) == 2
    with tb.Session() as another:
        assert len(another.run(once)) == 3


def test_what_cannot_be_read_or_written(session, tmp_path):
    (tmp_path / "file").touch()
    for make, kind, words in (
        (lambda: tb.read_file(f"{tmp_path}/missing"), NotFoundError, "ReadFile: there is no file"),
        (lambda: tb.read_file(str(tmp_path)), FailedPreconditionError, "a regular file, got a folder"),
        (lambda: tb.read_file(""), InvalidArgumentError, "filename is b'', expected a path"),
        (lambda: tb.read_file(["a"]), InvalidArgumentError, r"filename is string\[1\], expected a scalar"),
        (lambda: tb.write_file(f"{tmp_path}/file/x", "a"), FailedPreconditionError, "cannot make the folder"),
        (lambda: tb.write_file(f"{tmp_path}/x", 1), InvalidArgumentError, "contents: cannot make a tensor"),
        (lambda: tb.matching_files([["a"]]), InvalidArgumentError, "expected a scalar or a vector"),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            session.run(make())
    assert np.array_equal(sorted(each.name for each in tmp_path.iterdir()), ["file"])
