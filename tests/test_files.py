"""Files: regular ones only, through links, whole or not at all, within bounds."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from tensorbow.files import NewFile, append_to_file, open_to_read, read_file, remove_unfinished, write_file

WRITERS = [write_file, append_to_file]


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_a_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("target"))
    path.symlink_to("target")


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")  # only ever refused: nothing here could replace or write it as a user


NO_FILES = [a_fifo, a_socket, a_folder, a_link_to_a_fifo]


@pytest.fixture(params=NO_FILES, ids=lambda make: make.__name__)
def no_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "x"
    request.param(path)
    return path


@pytest.mark.parametrize("write", WRITERS)
def test_what_is_no_regular_file_is_not_written(write: Callable[..., None], no_file: Path) -> None:
    before = {path: os.lstat(path).st_mode for path in no_file.parent.iterdir()}
    with pytest.raises(InvalidArgumentError, match=r"cannot write '.*': expected a regular file, got a \w+"):
        write(no_file, b"content")
    assert {path: os.lstat(path).st_mode for path in no_file.parent.iterdir()} == before


def test_what_is_no_regular_file_is_not_read(no_file: Path) -> None:
    with pytest.raises(FailedPreconditionError, match="cannot read"):
        read_file(no_file, 100)


def test_an_endless_device_is_not_read(tmp_path: Path) -> None:
    a_link_to_a_device(tmp_path / "x")
    with pytest.raises(FailedPreconditionError, match="expected a regular file, got a character device"):
        read_file(tmp_path / "x", 1 << 40)


@pytest.mark.parametrize("write", WRITERS)
def test_a_write_goes_through_links_to_their_target(write: Callable[..., None], tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("there", "not yet"):
        target, link, second = folder / name, tmp_path / f"link to {name}", tmp_path / f"2 to {name}"
        if name == "there":
            target.write_bytes(b"")
        link.symlink_to(target)
        second.symlink_to(link.name)
        write(second, b"content")
        assert second.is_symlink()
        assert link.is_symlink()
        assert not target.is_symlink()
        assert target.read_bytes() == b"content"
    assert sorted(os.listdir(folder)) == ["not yet", "there"]


@pytest.mark.parametrize("write", WRITERS)
def test_links_in_a_circle(write: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ResourceExhaustedError, match="Too many levels of symbolic links"):
        write(tmp_path / "a", b"content")
    with pytest.raises(FailedPreconditionError, match="Too many levels of symbolic links"):
        read_file(tmp_path / "a", 10)


@pytest.mark.parametrize("write", WRITERS)
def test_a_folder_that_is_missing(write: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(ResourceExhaustedError, match="No such file or directory; choose a path in a folder"):
        write(tmp_path / "missing" / "file", b"content")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["", ".", "..", "/", "a\0b", "d/a\0b"])
def test_paths_that_are_no_files(path: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected (the path of a file|a regular file)"):
        write_file(path, b"content")


def test_the_permissions_of_a_replaced_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_file(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    umask = os.umask(0o027)
    try:
        write_file(tmp_path / "fresh", b"new")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o640


@pytest.mark.parametrize("write", WRITERS)
def test_names_as_long_as_the_system_has(write: Callable[..., None], tmp_path: Path) -> None:
    write(tmp_path / ("n" * 255), b"content")
    assert read_file(tmp_path / ("n" * 255), 7) == b"content"
    with pytest.raises(ResourceExhaustedError, match="File name too long"):
        write(tmp_path / ("n" * 256), b"content")


def full(handle: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_leaves_what_was_there(
    write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceExhaustedError, match="No space left on device; free space"):
        write(path, b"content")
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]


def test_a_write_that_the_system_refuses_within_the_block(tmp_path: Path) -> None:
    with pytest.raises(ResourceExhaustedError, match="No space left on device"), NewFile(tmp_path / "file"):
        full(0)
    assert not os.listdir(tmp_path)


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "file", b"content")
    assert not os.listdir(tmp_path)


def test_a_place_is_claimed_before_and_given_up_again(tmp_path: Path) -> None:
    claimed = NewFile(tmp_path / "file")
    assert [name for name in os.listdir(tmp_path) if name.startswith(".tensorbow-")]
    claimed.discard()
    claimed.discard()
    claimed.commit()
    assert not os.listdir(tmp_path)


def test_a_fifo_that_appears_between_claim_and_commit(tmp_path: Path) -> None:
    claimed = NewFile(tmp_path / "file")
    os.mkfifo(tmp_path / "file")
    with pytest.raises(InvalidArgumentError, match="got a FIFO"):
        claimed.commit()
    assert os.listdir(tmp_path) == ["file"]
    assert stat.S_ISFIFO(os.stat(tmp_path / "file").st_mode)


def test_only_what_other_processes_left_unfinished_is_removed(tmp_path: Path) -> None:
    kept = {f".tensorbow-{os.getpid()}-7.tmp", ".tensorbow-notes", "file", ".file.12.tmp"}
    for name in (*kept, f".tensorbow-{os.getpid() + 1}-7.tmp"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert set(os.listdir(tmp_path)) == kept


def test_reading_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    with pytest.raises(ResourceExhaustedError, match=r"'.*file' \(5 bytes\) does not fit: at most 4 bytes"):
        read_file(path, 4)
    with pytest.raises(ResourceExhaustedError, match="at most 4 bytes"):
        read_file("/proc/self/status", 4)  # whose size is said to be 0
    with open(path, "wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(ResourceExhaustedError, match="does not fit into memory"):
        read_file(path, 1 << 44)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path / "none" / "deeper"):
        with pytest.raises(NotFoundError, match=r"there is no file '.*none"):
            read_file(path, 5)
    with pytest.raises(FailedPreconditionError, match=r"cannot read 'a\\x00b': embedded null"):
        read_file("a\0b", 5)
    (tmp_path / "file").touch()
    with (
        pytest.raises(FailedPreconditionError, match=r"cannot read '.*file': Input/output error"),
        open_to_read(tmp_path / "file"),
    ):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_threads_may_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    blobs = [bytes([number]) * 20_000 for number in range(6)]

    def write(blob: bytes) -> None:
        for _ in range(20):
            write_file(path, blob)
            assert read_file(path, 20_000) in blobs

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, blobs))
    assert os.listdir(tmp_path) == ["file"]
