import gzip
import math
import os
import struct
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorbow.data import read_idx
from tensorbow.errors import DataLossError, FailedPreconditionError, NotFoundError, TensorBowError

SHAPE = (6, 3, 4)
VALUES = np.random.default_rng(1).integers(0, 256, SHAPE, dtype=np.uint8)


def header(shape=SHAPE, code=0x08, rank=None):
    return struct.pack(f">HBB{len(shape)}I", 0, code, len(shape) if rank is None else rank, *shape)


PLAIN = header() + VALUES.tobytes()
PACKED = gzip.compress(PLAIN, mtime=0)


def read_bytes(folder, content, dimensions=(None, 3, 4), **options):
    path = folder / "file-idx3-ubyte"
    path.write_bytes(content)
    return read_idx(path, dimensions, **options)


def assert_damaged(folder, content, words, dimensions=(None, 3, 4), **options):
    with pytest.raises(DataLossError, match=words) as raised:
        read_bytes(folder, content, dimensions, **options)
    message = str(raised.value)
    assert "file-idx3-ubyte" in message
    assert "\n" not in message
    assert message.endswith("get it again")


@pytest.mark.parametrize(
    "content",
    [PLAIN, PACKED, gzip.compress(PLAIN[:20]) + gzip.compress(PLAIN[20:])],
    ids=["plain", "gzip", "two members"],
)
def test_plain_and_gzip_are_told_apart_by_their_bytes(tmp_path, content):
    values = read_bytes(tmp_path, content)
    assert values.dtype == np.uint8
    np.testing.assert_array_equal(values, VALUES)


def test_a_plain_file_cut_anywhere_is_damaged(tmp_path):
    for length in range(len(PLAIN)):
        assert_damaged(tmp_path, PLAIN[:length], "starts with 00 00|ends within its header|header declares")


def test_a_gzip_file_cut_anywhere_is_damaged(tmp_path):
    for length in range(len(PACKED)):
        assert_damaged(tmp_path, PACKED[:length], "gzip|starts with 00 00")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "starts with 00 00"),
        (b"<!DOCTYPE html><html>404</html>", "this one with '3c 21 44 4f'"),
        (header(code=0x0D) + bytes(4 * VALUES.size), r"holds float32 \(type 0x0d\) where uint8"),
        (header(code=0x07) + VALUES.tobytes(), "this one with '00 00 07 03'"),
        (header((72,)) + VALUES.tobytes(), "has 1 dimensions where 3"),
        (header(rank=255), "has 255 dimensions where 3"),
        (header((6, 4, 3)) + VALUES.tobytes(), "dimension 1 is 4 where 3 is expected"),
        (header((0, 3, 4)), "dimension 0 is 0, and from 1 to 1048576"),
        (header((2**32 - 1, 3, 4)), "dimension 0 is 4294967295"),
        (PLAIN + b"x", "but the file has 89"),
        (
            header((7, 3, 4)) + VALUES.tobytes(),
            r"declares \[7, 3, 4\], 100 bytes in all, but the file has 88",
        ),
        (gzip.compress(PLAIN + b"x"), "more bytes follow than the 72"),
        (gzip.compress(header((7, 3, 4)) + VALUES.tobytes()), "declares 84 bytes of values, but only 72"),
        (PACKED + b"tail", "gzip"),
        (PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:], "CRC"),
    ],
    ids=range(15),
)
def test_each_fault_is_one_clear_line(tmp_path, content, words):
    assert_damaged(tmp_path, content, words)


def test_the_longest_first_dimension_can_be_set(tmp_path):
    assert read_bytes(tmp_path, PLAIN, maximum_length=6).shape == SHAPE
    assert_damaged(tmp_path, PLAIN, "from 1 to 5 are accepted", maximum_length=5)
    assert_damaged(
        tmp_path, header((2**20,) * 3), "declares", dimensions=(None, None, None)
    )  # 2**60 bytes: refused by the file's size


@pytest.mark.slow
@pytest.mark.parametrize("claimed", [6, 2**20])
def test_a_decompression_bomb_takes_no_memory(tmp_path, claimed):
    bomb = gzip.compress(header((claimed, 3, 4)) + bytes(64 << 20), 9)
    path = tmp_path / "file-idx3-ubyte"
    path.write_bytes(bomb)
    tracemalloc.start()
    try:
        with pytest.raises(DataLossError, match="more bytes follow"):
            read_idx(path, [None, 3, 4])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < claimed * 12 + (4 << 20)


def test_a_small_gzip_file_that_declares_much_is_refused_before_memory_is_taken(tmp_path):
    content = gzip.compress(header((2**20, 28, 28)) + bytes(1000))
    tracemalloc.start()
    try:
        assert_damaged(tmp_path, content, "cannot hold more than", dimensions=(None, 28, 28))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_bytes_raise_anything_but_our_errors(tmp_path, data):
    content = bytearray(data.draw(st.sampled_from([PLAIN, PACKED, b"\x1f\x8b", b"\0\0\x08\x03", b""])))
    for _ in range(data.draw(st.integers(0, 4))):
        where = data.draw(st.integers(0, len(content)))
        until = where + data.draw(st.integers(0, 3))
        content[where:until] = data.draw(st.binary(max_size=4))
    content += data.draw(st.one_of(st.just(b""), st.binary(max_size=40)))
    message = None
    try:
        values = read_bytes(tmp_path, bytes(content))
    except TensorBowError as error:
        message = str(error)
    if message is not None:
        assert "file-idx3-ubyte" in message
        assert "\n" not in message
    else:
        assert values.shape[1:] == (3, 4)
        assert values.size == math.prod(values.shape)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(NotFoundError, match=r"no file '.*absent'"):
        read_idx(tmp_path / "absent", [None])
    with pytest.raises(FailedPreconditionError, match="cannot read"):
        read_idx(tmp_path, [None])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    caught = []

    def read():
        try:
            read_idx(tmp_path / "pipe", [None])
        except FailedPreconditionError as error:
            caught.append(str(error))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert "expected a regular file, got a FIFO" in caught[0]


@pytest.mark.skipif(
    sys.platform == "win32" or (hasattr(os, "geteuid") and os.geteuid() == 0),
    reason="needs a file the user may not read",
)
def test_a_file_without_permission(tmp_path):
    path = tmp_path / "closed"
    path.write_bytes(PLAIN)
    path.chmod(0)
    with pytest.raises(FailedPreconditionError, match=r"cannot read '.*closed': Permission denied"):
        read_idx(path, [None, 3, 4])


def test_an_input_error_of_the_disk_is_told(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(5, "Input/output error")

    path = tmp_path / "file"
    path.write_bytes(PLAIN)
    monkeypatch.setattr("tensorbow.data.idx._read", refuse)
    with pytest.raises(FailedPreconditionError, match=r"cannot read '.*file': Input/output error"):
        read_idx(path, [None, 3, 4])
