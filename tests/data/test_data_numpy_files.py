"""Arrays in .npy and .npz files: what a header declares is checked before memory is taken for it."""

from __future__ import annotations

import io
import random
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorbow.data import read_pictures
from tensorbow.data.numpy_files import read_numpy_file
from tensorbow.errors import DataLossError, InvalidArgumentError, ResourceExhaustedError, TensorBowError
from tests.attack_rig.mutations import mutated
from tests.memory_rig.peak import growing_by_less_than

MB = 1 << 20


def anything(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """A check that wants nothing."""


def header(shape: str, descr: str = "'|u1'", order: str = "False", version: int = 1) -> bytes:
    """The beginning of a .npy file that says that of its array."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode() + b"\n"
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text


def npy(array: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for name, blob in members.items():
            archive.writestr(name, blob)
    return stream.getvalue()


def read(path: Path, blob: bytes) -> np.ndarray[Any, Any]:
    path.write_bytes(blob)
    return read_numpy_file(path, anything)


SOUND = [
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4)),
    np.arange(6, dtype=">i4"),
    np.array(7, np.int64),
    np.zeros((0, 3), np.float64),
    np.array([True, False]),
]


@pytest.mark.parametrize("array", SOUND, ids=[f"{a.dtype}{a.shape}" for a in SOUND])
def test_sound_arrays(array: np.ndarray[Any, Any], tmp_path: Path) -> None:
    for name, blob in (
        ("x.npy", npy(array)),
        ("x.npz", npz({"any.npy": npy(array)})),
        ("x.NPZ", npz({"images.npy": npy(array), "labels.npy": b"none"}, zipfile.ZIP_STORED)),
    ):
        found = read(tmp_path / name, blob)
        np.testing.assert_array_equal(found, array)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.flags.f_contiguous or not array.flags.f_contiguous


LIES = {
    header(f"({1 << 60},)"): "declares uint8 [1152921504606846976], 1,152,921,504,606,846,976 bytes, and 0",
    header(f"({1 << 31}, {1 << 31})"): "declares uint8",
    header("(65536, 65536, 65536)", "'<f8'"): "declares float64",
    header(f"({1 << 62}, 4, 4)"): "is beyond 64 bits",
    header(f"(0, {1 << 64})"): "is beyond 64 bits",
    header(f"({10**30},)"): "is beyond 64 bits",
    header("(-1,)"): "its shape is",
    header("(-2, -3)") + bytes(6): "its shape is",
    header("(True,)") + bytes(1): "its shape is",
    header(f"({'1, ' * 33})") + bytes(1): "its shape is",
    header("(1.0,)"): "its header cannot be read|shape is not valid",
    header("3"): "shape is not valid",
    header("(3,)") + bytes(2): "declares uint8 [3], 3 bytes, and 2 follow",
    header("(3,)") + bytes(4): "and 4 follow",
    header("(1,)", "'|O'") + b"\x80\x04N.": "it holds object, no numbers",
    header("(1,)", "'<c8'") + bytes(8): "it holds complex64, no numbers",
    header("(1,)", "'<M8[s]'") + bytes(8): "no numbers",
    header("(1,)", "'<U2'") + bytes(8): "no numbers",
    header("(1,)", "'|V8'") + bytes(8): "no numbers",
    header("(1,)", "[('a', '<i4'), ('b', '<i4')]") + bytes(8): "no numbers",
    header("(1,)", "'nonsense'"): "descr is not a valid dtype|cannot be read",
    header("(1,)", "3"): "descr is not a valid dtype|cannot be read",
    header("(1,)", order="1") + bytes(1): "fortran_order is not a valid bool",
    header("(1,)", version=3) + bytes(1): "version 3.0 of its format",
    header("(1,)", version=9) + bytes(1): "format version|version 9.0",
    header("(" * 4000): "its header cannot be read|[Cc]annot parse header",
    header("(" + "1," * 9000 + ")"): "[Hh]eader",
    header("(1L,)") + bytes(1): "its header cannot be read",
    b"\x93NUMPY\x02\0\xff\xff\xff\xff" + b"{" * 20_000: "EOF|[Hh]eader",
    b"": "EOF: reading magic string",
    b"hello": "magic string",
}


def pattern(said: str) -> str:
    return said.replace("[1152921504606846976]", r"\[\d+\]").replace("[3]", r"\[3\]")


@pytest.mark.parametrize("blob", LIES, ids=[repr(blob[6:70]) for blob in LIES])
def test_headers_that_lie(blob: bytes, tmp_path: Path) -> None:
    """A wrong header is refused in a file by itself and in a member of an archive."""
    for name, content in (("x.npy", blob), ("x.npz", npz({"images.npy": blob}))):
        with (
            growing_by_less_than(64 * MB),
            pytest.raises(DataLossError, match=r"is damaged or no array") as e,
        ):
            read(tmp_path / name, content)
        assert "\n" not in str(e.value)
        assert len(str(e.value)) < 400
        if name == "x.npy":
            assert re.search(pattern(LIES[blob]), str(e.value)), str(e.value)


def test_members_that_are_no_arrays(tmp_path: Path) -> None:
    for members in ({"readme.txt": b"hello"}, {"images.npy": b"hello"}, {"images": b"", "x.npy": b""}):
        with pytest.raises(DataLossError, match="magic string"):
            read(tmp_path / "x.npz", npz(members))
    with pytest.raises(InvalidArgumentError, match=r"holds 0 arrays \(\), none named 'images'"):
        read(tmp_path / "x.npz", npz({}))
    with pytest.raises(InvalidArgumentError, match=r"holds 2 arrays .*, none named 'images'"):
        read(tmp_path / "x.npz", npz({"a\n\x1b[31m": b"", "b": b""}))
    with pytest.raises(DataLossError, match="it holds 'images' twice"):
        read(tmp_path / "x.npz", npz({"images": b"", "images.npy": b""}))
    with pytest.raises(DataLossError, match="not packed as NumPy packs arrays"):
        read(tmp_path / "x.npz", npz({"images.npy": npy(SOUND[0])}, zipfile.ZIP_LZMA))
    blob = bytearray(npz({"images.npy": npy(SOUND[0])}))
    blob[-6:-2] = (len(blob) + 1000).to_bytes(4, "little")  # where the directory begins
    with pytest.raises(DataLossError, match="its directory points outside of the file"):
        read(tmp_path / "x.npz", bytes(blob))


@pytest.mark.slow
def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """64 KB that unpack to 64 MB, of another shape or size than is wanted."""
    bomb = npz({"images.npy": header("(64, 1024, 1024)") + bytes(64 * MB)})
    assert len(bomb) < 100_000
    (tmp_path / "x.npz").write_bytes(bomb)
    with growing_by_less_than(32 * MB), pytest.raises(InvalidArgumentError, match="the model takes uint8"):
        read_pictures(tmp_path / "x.npz", (28, 28, 1))
    more = npz({"images.npy": header("(1024,)") + bytes(64 * MB)})
    with growing_by_less_than(32 * MB), pytest.raises(DataLossError, match="packed bytes do not hold that"):
        read(tmp_path / "x.npz", more)


def test_a_size_that_the_member_does_not_have(tmp_path: Path) -> None:
    """All sizes in the archive agree on a wrong value; only the unpacked data differs."""
    blob = npz({"images.npy": header("(70000000,)") + bytes(1000)}, zipfile.ZIP_STORED)
    size = len(header("(70000000,)")) + 1000
    lie = (size - 1000 + 70_000_000).to_bytes(4, "little")
    with growing_by_less_than(32 * MB), pytest.raises(DataLossError, match="is damaged"):
        read(tmp_path / "x.npz", blob.replace(size.to_bytes(4, "little"), lie))


def test_an_array_beyond_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorbow.devices.host_memory.available_memory_nbytes", lambda: 10)
    with pytest.raises(ResourceExhaustedError, match=r"24 bytes do not fit .* 10 are free; give a .npy file"):
        read(tmp_path / "x.npz", npz({"images.npy": npy(SOUND[0])}))


def attack(rounds: int, seed: int, folder: Path) -> int:
    """Changed files are read or refused in a line, in bounded memory; how many are read."""
    rng, sound, said = random.Random(seed), 0, []
    originals = [npy(array) for array in SOUND[:4]]
    archives = [npz({"images.npy": blob}, kind) for blob in originals[:2] for kind in (0, 8)]
    with growing_by_less_than(64 * MB):
        for number in range(rounds):
            name, known = (("x.npy", originals), ("x.npz", archives))[number % 2]
            blob = mutated(rng.choice(known), rng)
            try:
                array = read(folder / name, blob)
            except TensorBowError as error:
                said.append(str(error))
                continue
            sound += 1
            assert array.nbytes <= 1032 * len(blob)
    assert not [line for line in said if "\n" in line or len(line) > 500]
    return sound


@pytest.mark.slow
def test_changed_files(tmp_path: Path) -> None:
    assert 10 < attack(600, 1, tmp_path) < 500


@pytest.mark.slow
def test_many_changed_files(tmp_path: Path) -> None:
    assert attack(10_000, 2, tmp_path) > 200
