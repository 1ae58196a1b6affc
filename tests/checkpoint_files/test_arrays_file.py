from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from tensorbow.checkpoint_files import arrays_file, load_arrays, load_metadata, save_arrays
from tensorbow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from tests.memory_rig.peak import growing_by_less_than

ARRAYS = {
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "step": np.array(3, np.int64),
    "nothing": np.zeros((0, 4), np.uint8),
    "flags": np.array([True, False]),
    "sliced": np.arange(10, dtype=np.float64)[::2],
}
METADATA = {"round": 3, "nested": [1, {"x": None}], "rate": 0.1}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "arrays.safetensors"
    save_arrays(path, ARRAYS, METADATA)
    return path


def test_what_is_saved_is_loaded(saved: Path) -> None:
    arrays, metadata = load_arrays(saved)
    assert metadata == METADATA == load_metadata(saved)
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        np.testing.assert_array_equal(arrays[name], array)


def test_other_programs_read_the_file(saved: Path) -> None:
    arrays = load_file(saved)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)


def test_equal_content_gives_equal_bytes(saved: Path, tmp_path: Path) -> None:
    save_arrays(tmp_path / "again", dict(reversed(ARRAYS.items())), METADATA)
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_never_taken_for_a_sound_one(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    path = folder / "arrays"
    save_arrays(path, ARRAYS, METADATA)
    good = path.read_bytes()
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(damaged) - 1)))
        kind = data.draw(st.sampled_from(["cut", "flip", "insert", "delete", "json"]))
        if kind == "cut":
            del damaged[at:]
        elif kind == "flip" and damaged:
            damaged[at] ^= data.draw(st.integers(1, 255))
        elif kind == "insert":
            damaged[at:at] = data.draw(st.binary(max_size=9))
        elif kind == "delete":
            del damaged[at : at + data.draw(st.integers(1, 5))]
        elif damaged:
            damaged[at] = data.draw(st.sampled_from(list(b'0123456789-[]{}",:eE.n')))
    path.write_bytes(damaged)
    if bytes(damaged) == good:
        return
    with pytest.raises(DataLossError) as caught:
        load_arrays(path)
    assert "\n" not in str(caught.value)


def crafted(header: Any, body: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def with_array(**entry: Any) -> dict[str, Any]:
    described = {"format": arrays_file.FORMAT, "crc32": 0, "metadata": {}}
    return {"__metadata__": {arrays_file.KEY: json.dumps(described)}, "a": entry}


HOSTILE = {
    "empty": b"",
    "header larger than memory": crafted({}, size=2**63),
    "no header": crafted(b"", size=0),
    "deep list": crafted(b"[" * 100_000),
    "deep object": crafted(b'{"a":' * 100_000),
    "deep metadata": crafted({"__metadata__": {arrays_file.KEY: "[" * 100_000}}),
    "no text": crafted(b"\xff\xfe"),
    "a list": crafted([]),
    "NaN": crafted(b'{"a":NaN}'),
    "a number of many digits": crafted(b'{"a":1' + b"0" * 10_000 + b"}"),
    "metadata a list": crafted({"__metadata__": [1]}),
    "metadata no text": crafted({"__metadata__": {arrays_file.KEY: 3}}),
    "another program's": crafted({}),
    "overflowing shape": crafted(with_array(dtype="F32", shape=[2**62, 4], data_offsets=[0, 2**66])),
    "huge and empty": crafted(with_array(dtype="F32", shape=[2**62, 0], data_offsets=[0, 0])),
    "too many axes": crafted(with_array(dtype="F32", shape=[0] * 70, data_offsets=[0, 0])),
    "negative": crafted(with_array(dtype="U8", shape=[-1], data_offsets=[0, 1]), b"a"),
    "bool extent": crafted(with_array(dtype="U8", shape=[True], data_offsets=[0, 1]), b"a"),
    "offsets backwards": crafted(with_array(dtype="U8", shape=[1], data_offsets=[1, 0]), b"a"),
    "bytes nobody owns": crafted(with_array(dtype="U8", shape=[1], data_offsets=[0, 1]), b"abc"),
    "unknown dtype": crafted(with_array(dtype="BF16", shape=[1], data_offsets=[0, 2]), b"ab"),
    "dtype a list": crafted(with_array(dtype=["U8"], shape=[1], data_offsets=[0, 1]), b"a"),
    "bool of 98": crafted(with_array(dtype="BOOL", shape=[1], data_offsets=[0, 1]), b"b"),
    "strange entry": crafted({"a\nb\x1b[31m": 3}),
    "twice": crafted(b'{"a":1,"a":2}'),
    "beyond float64": crafted(b'{"a":1e999}'),
    "more values than are parsed": crafted(b'{"a":[' + b"[]," * (1 << 22) + b"[]]}"),
    "overlapping": crafted(
        {
            **with_array(dtype="U8", shape=[4], data_offsets=[0, 4]),
            "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]},
        },
        b"abcdef",
    ),
    "another dtype's size": crafted(with_array(dtype="F64", shape=[1], data_offsets=[0, 4]), b"abcd"),
}


def test_a_file_larger_than_memory_is_not_read(tmp_path: Path) -> None:
    """160 GiB, as its header says and its size is, of which the disk holds a page."""
    nbytes, path = 160 << 30, tmp_path / "large"
    with open(path, "wb") as file:
        file.write(crafted(with_array(dtype="F32", shape=[nbytes // 4], data_offsets=[0, nbytes])))
        file.truncate(file.tell() + nbytes)
    with growing_by_less_than(1 << 24), pytest.raises(ResourceExhaustedError, match="does not fit into mem"):
        load_arrays(path)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(DataLossError) as caught:
        load_arrays(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))


def test_a_missing_file_a_folder_a_pipe_and_a_device(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no file"):
        load_arrays(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero"), Path("a\0b")):
        with pytest.raises(FailedPreconditionError):
            load_arrays(path)


@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble", "object", "U3", "datetime64[s]"])
def test_dtypes_the_reader_would_refuse_are_not_written(dtype: str, saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(InvalidArgumentError, match=r"array 'a': dtype .* cannot be written; use complex128"):
        save_arrays(saved, {"a": np.ones(3).astype(dtype)}, {})
    assert saved.read_bytes() == before


@pytest.mark.parametrize("name", ["__metadata__", "\ud800", 3, None])
def test_names_the_format_does_not_have(name: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="an array cannot be named"):
        save_arrays(tmp_path / "file", {name: np.ones(3)}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", ">i8"])
def test_another_byte_order_is_turned(dtype: str, tmp_path: Path) -> None:
    array = np.arange(6).astype(dtype).reshape(2, 3)
    save_arrays(tmp_path / "file", {"a": array}, {})
    np.testing.assert_array_equal(load_arrays(tmp_path / "file")[0]["a"], array)


def test_metadata_that_json_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        save_arrays(tmp_path / "file", {}, {"loss": float("nan")})
