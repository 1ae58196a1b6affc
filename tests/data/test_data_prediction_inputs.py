"""Picture files: only the formats that are meant, of bounded size, and one line for what is wrong."""

from __future__ import annotations

import io
import random
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorbow.data import read_pictures, resize_bilinear
from tensorbow.data.prediction_inputs import MAXIMUM_FILE_NBYTES
from tensorbow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    TensorBowError,
)
from tests.attack_rig.mutations import mutated
from tests.memory_rig.peak import growing_by_less_than

Image = pytest.importorskip("PIL.Image")
MB = 1 << 20
MODEL = (28, 20, 3)
LOSSLESS = ("PNG", "BMP", "TIFF", "GIF", "WEBP")
SUFFIX = {"JPEG": ".jpg", "TIFF": ".tiff"}


def pixels() -> np.ndarray[Any, Any]:
    """Three planes, of few enough colours for a GIF."""
    rng = np.random.default_rng(0)
    return rng.choice(np.array([0, 60, 255], np.uint8), MODEL)


def encoded(kind: str, **more: Any) -> bytes:
    stream = io.BytesIO()
    if kind == "WEBP":
        more = {"lossless": True, **more}
    Image.fromarray(pixels()).save(stream, kind, **more)
    return stream.getvalue()


def read(path: Path, blob: bytes, resize: bool = False) -> np.ndarray[Any, Any]:
    path.write_bytes(blob)
    return read_pictures(path, MODEL, resize)[1]


@pytest.mark.parametrize("kind", [*LOSSLESS, "JPEG"])
def test_every_format_that_is_meant(kind: str, tmp_path: Path) -> None:
    """Files of several pictures are read as their first one."""
    path = tmp_path / f"x{SUFFIX.get(kind, '.' + kind.lower())}"
    assert read(path, encoded(kind)).shape == (1, *MODEL)
    if kind in LOSSLESS:
        np.testing.assert_array_equal(read(path, encoded(kind))[0], pixels())
    if kind in ("GIF", "TIFF", "WEBP"):
        others = [Image.fromarray(pixels()[::-1].copy())] * 300
        with growing_by_less_than(64 * MB):
            found = read(path, encoded(kind, save_all=True, append_images=others))
        np.testing.assert_array_equal(found[0], pixels())
    whole = encoded(kind)
    for damaged in (whole[:12], whole[: len(whole) // 2], b"", whole[:4] + bytes(60)):
        with pytest.raises(DataLossError, match=r"'.*x\.\w+' is damaged or no picture") as refused:
            read(path, damaged)
        assert "\n" not in str(refused.value)


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 20 28
%%EndComments
showpage
%%EOF
"""


def test_no_program_is_started_for_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostScript, which Pillow has Ghostscript read, whatever the file is called."""
    program, mark = tmp_path / "bin" / "gs", tmp_path / "started"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nopen({str(mark)!r}, 'w')\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    eps = pytest.importorskip("PIL.EpsImagePlugin")
    monkeypatch.setattr(eps, "gs_binary", None)
    (tmp_path / "x.eps").write_bytes(EPS)
    with pytest.raises(OSError), Image.open(tmp_path / "x.eps") as image:
        image.load()
    assert mark.exists(), "this test finds nothing"
    mark.unlink()
    for name in ("x.png", "x.jpg", "x.gif", "x.tif"):
        with pytest.raises(DataLossError, match=r"no picture \(PNG, JPEG, BMP, GIF, TIFF, WEBP\)"):
            read(tmp_path / name, EPS)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["PPM", "ICO", "TGA", "PCX", "PDF", "SGI", "JPEG2000"])
def test_other_formats_are_refused(kind: str, tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.fromarray(pixels()).save(stream, kind)
    with pytest.raises(DataLossError, match="is damaged or no picture"):
        read(tmp_path / "x.png", stream.getvalue())
    with pytest.raises(TensorBowError, match="IDX"):
        read(tmp_path / f"x.{kind.lower()}", stream.getvalue())


def chunk(kind: bytes, blob: bytes) -> bytes:
    return struct.pack(">I", len(blob)) + kind + blob + struct.pack(">I", zlib.crc32(kind + blob))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    """A PNG that says so of its size."""
    size = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + size + b"".join(chunks) + chunk(b"IDAT", zlib.compress(bytes(100)))


def gif(width: int, height: int) -> bytes:
    return (
        b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0,\0\0\0\0" + b"\xff\xff\xff\xff\0\2\2L\1\0;"
    )


def bmp(width: int, height: int) -> bytes:
    size = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 100, 0, 0, 54) + size + bytes(46)


def tiff(width: int, height: int, *more: tuple[int, int]) -> bytes:
    """A TIFF of one byte, and of tags that are numbers."""
    tags = {256: width, 257: height, 258: 8, 259: 32773, 262: 1, 273: 8, 277: 1, 278: height, 279: 1}
    tags.update(more)
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + entries + bytes(4)


TILE = ((322, 1 << 15), (323, 1 << 15), (324, 8), (325, 1))
BOMBS = {
    "more.png": png(9000, 9000),
    "huge.png": png((1 << 31) - 1, (1 << 31) - 1),
    "wide.png": png((1 << 31) - 1, 1),
    "most.png": png((1 << 32) - 1, (1 << 32) - 1),
    "more.gif": gif(0xFFFF, 0xFFFF),
    "more.bmp": bmp(30000, 30000),
    "huge.bmp": bmp((1 << 31) - 1, -(1 << 31)),
    "more.tif": tiff(30000, 30000),
    "huge.tif": tiff((1 << 32) - 1, (1 << 32) - 1),
    "tile.tif": tiff(20, 28, *TILE),
    "planes.tif": tiff(20, 28, (277, 65535)),
    "tags.tif": tiff(20, 28, (259, 5), (317, 2)),
    "text.png": png(20, 28, *[chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(MB - 10)))] * 70),
    "colours.png": png(20, 28, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(200 * MB)))),
    "cut.webp": encoded("WEBP")[:12] + b"VP8X" + struct.pack("<II", 10, 2) + b"\xff" * 6 + bytes(60),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("resize", [False, True])
def test_pictures_that_say_they_are_huge(name: str, resize: bool, tmp_path: Path) -> None:
    """Each is a few bytes, or KB of compressed zeros, and is refused before it is decoded."""
    read(tmp_path / "x.png", encoded("PNG"))  # loads what Pillow loads once
    with (
        growing_by_less_than(96 * MB),
        pytest.raises((InvalidArgumentError, DataLossError)) as refused,
    ):
        read(tmp_path / name, BOMBS[name], resize)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    with open(path, "wb") as file:
        file.truncate(MAXIMUM_FILE_NBYTES + 1)
    with pytest.raises(ResourceExhaustedError, match="at most 268,435,456 bytes are read"):
        read_pictures(path, MODEL)


def test_more_pictures_than_memory_holds(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(encoded("PNG"))
    with pytest.raises(ResourceExhaustedError, match="1 pictures: 211,106,232,532,992 bytes do not fit into"):
        read_pictures(path, (1 << 23, 1 << 23, 3))


def test_a_folder_holds_pictures_only(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").mkdir()
    (tmp_path / "c.png").symlink_to("/dev/zero")
    (tmp_path / "d.png").write_bytes(encoded("PNG"))
    assert read_pictures(tmp_path, MODEL)[0] == ["d.png"]
    with pytest.raises(FailedPreconditionError, match="is not a regular file"):
        read_pictures(tmp_path / "a.png", MODEL)


def slow_resize(image: np.ndarray[Any, Any], height: int, width: int) -> np.ndarray[Any, Any]:
    """Bilinear, half-pixel centres, edges repeated, in exact fractions."""
    from fractions import Fraction

    def along(size_in: int, size_out: int) -> list[list[tuple[int, Fraction]]]:
        found = []
        for place in range(size_out):
            centre = Fraction(2 * place + 1, 2) * size_in / size_out - Fraction(1, 2)
            before = centre.__floor__()
            part = centre - before
            at = [min(max(n, 0), size_in - 1) for n in (before, before + 1)]
            found.append([(at[0], 1 - part), (at[1], part)])
        return found

    rows, columns = along(image.shape[0], height), along(image.shape[1], width)
    values = [
        [
            (sum(int(image[r, c]) * a * b for r, a in row for c, b in column) + Fraction(1, 2)).__floor__()
            for column in columns
        ]
        for row in rows
    ]
    return np.array(values, np.uint8)


@pytest.mark.parametrize("size", [(1, 1), (2, 7), (13, 5), (28, 20), (40, 3)])
@pytest.mark.parametrize("image", [(1, 1), (1, 9), (3, 2), (28, 20), (57, 41)])
def test_resized_as_in_exact_fractions(size: tuple[int, int], image: tuple[int, int]) -> None:
    picture = np.random.default_rng(1).integers(0, 256, image).astype(np.uint8)
    found = resize_bilinear(picture[None], *size)[0]
    np.testing.assert_array_equal(found, slow_resize(picture, *size))


@pytest.mark.parametrize("shape", [(1, 1 << 24), (1 << 24, 1), (4096, 4096)])
def test_resizing_takes_memory_for_the_result_only(shape: tuple[int, int]) -> None:
    picture = np.zeros((1, *shape), np.uint8)
    picture[:, -1, -1] = 255
    with growing_by_less_than(48 * MB):
        assert resize_bilinear(picture, 28, 20).shape == (1, 28, 20)


def attack(rounds: int, seed: int, folder: Path) -> int:
    """Changed pictures are read or refused in a line, in bounded memory; how many are read."""
    rng, sound, said = random.Random(seed), 0, []
    known = [
        (f"x{SUFFIX.get(kind, '.' + kind.lower())}", encoded(kind, **more))
        for kind, more in (
            *((kind, {}) for kind in (*LOSSLESS, "JPEG")),
            *(("TIFF", {"compression": name}) for name in ("tiff_lzw", "tiff_adobe_deflate", "packbits")),
        )
    ]
    with growing_by_less_than(1500 * MB):  # a picture of 64 million pixels has 192 MB
        for number in range(rounds):
            name, blob = known[number % len(known)]
            try:
                pictures = read(folder / name, mutated(blob, rng), resize=True)
            except TensorBowError as error:
                said.append(str(error))
                continue
            sound += 1
            assert pictures.shape == (1, *MODEL)
    assert not [line for line in said if "\n" in line or len(line) > 500]
    return sound


def test_changed_pictures(tmp_path: Path) -> None:
    assert 20 < attack(270, 1, tmp_path) < 250


@pytest.mark.slow
def test_many_changed_pictures(tmp_path: Path) -> None:
    assert attack(9_000, 2, tmp_path) > 600
