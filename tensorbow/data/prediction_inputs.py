"""Input pictures for prediction: from a folder or file of pictures, an array file, or an IDX file."""

from __future__ import annotations

import io
import math
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.dataset_files import mode_of
from tensorbow.data.idx import read_idx
from tensorbow.data.numpy_files import read_numpy_file
from tensorbow.data.resize import resize_bilinear
from tensorbow.devices.host_memory import require_memory
from tensorbow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    TensorBowError,
)
from tensorbow.files import read_file, shown

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")  # Pillow has more; its EPS starts another program
MAXIMUM_PIXELS = 1 << 26  # of one picture, before it is resized
MAXIMUM_FILE_NBYTES = 1 << 28  # of one picture file
_TILE_EXTENTS = (322, 323)  # TIFF tags: TileWidth, TileLength

Pictures = NDArray[np.uint8]
Extents = tuple[int, int, int]


def read_pictures(
    path: str | os.PathLike[str], image_shape: Extents, resize: bool = False
) -> tuple[list[str], Pictures]:
    """Reads names, and pictures uint8 [n, height, width, channels] of the model's `image_shape`.

    path: a picture file, or a folder with pictures in it and below it (see `picture_files`), for which Pillow
        is needed;
        a .npy or .npz file of uint8 [n, height, width, channels], where n and a single channel may be left
        out; or an IDX file, plain or gzip. Examples of arrays are named by their indices.
    resize: resize picture files to the model's size; otherwise other sizes are refused.

    Raises NotFoundError, InvalidArgumentError for other shapes or dtypes, DataLossError for damaged files,
    FailedPreconditionError for files that cannot be read, ResourceExhaustedError; each names the file.
    """
    path = Path(path)
    mode = mode_of(path)
    if mode is None:
        raise NotFoundError(f"there is no file or folder {shown(path)}")
    if stat.S_ISDIR(mode):
        files = picture_files(path)
        if not files:
            raise NotFoundError(f"the folder {shown(path)} holds no picture ({', '.join(SUFFIXES)})")
        return [file.relative_to(path).as_posix() for file in files], _from_files(files, image_shape, resize)
    if not stat.S_ISREG(mode):
        raise FailedPreconditionError(f"{shown(path)} is not a regular file; give a file or a folder")
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return [path.name], _from_files([path], image_shape, resize)
    if suffix in (".npy", ".npz"):
        array = _from_numpy(path, image_shape)
    else:
        wanted = image_shape[:2] if image_shape[2] == 1 else image_shape
        try:
            array = read_idx(path, (None, *wanted)).reshape(-1, *image_shape)
        except DataLossError:
            if suffix in ("", ".gz") or "idx" in path.name:
                raise
            raise InvalidArgumentError(
                f"{shown(path)}: expected a picture ({', '.join(SUFFIXES)}), a folder of pictures, or an "
                f"array in a .npy, .npz or IDX file; got a file {suffix}"
            ) from None
    return [str(number) for number in range(len(array))], array


def picture_files(folder: Path) -> list[Path]:
    """Picture files in a folder and in all folders below, in the order of their paths.

    Hidden files and folders, and macOS's __MACOSX, which hold no pictures, are left out.
    """
    found, seen = [], set[str]()
    for root, folders, names in os.walk(folder, followlinks=True):
        place = os.path.realpath(root)
        folders[:] = [] if place in seen else [name for name in folders if not is_hidden(name)]
        pictures = [] if place in seen else [name for name in names if not is_hidden(name)]
        found += [Path(root, name) for name in pictures if name.lower().endswith(SUFFIXES)]
        seen.add(place)
    return sorted(file for file in found if file.is_file())


def is_hidden(name: str) -> bool:
    """True for names of files and folders that are no part of a data set."""
    return name.startswith(".") or name == "__MACOSX"


def _from_numpy(path: Path, image_shape: Extents) -> Pictures:
    """Pictures of an array file, uint8 [n, height, width, channels]; axes that were left out are added."""
    plain = image_shape[:2] if image_shape[2] == 1 else image_shape

    def check(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        fits = shape in (image_shape, plain) or shape[1:] in (image_shape, plain)
        if dtype != np.uint8 or not fits or 0 in shape:
            holds = f"{dtype} {list(shape)}{', which is empty' if 0 in shape else ''}"
            raise InvalidArgumentError(
                f"{shown(path)} holds {holds}; "
                f"the model takes uint8 [n, {', '.join(map(str, image_shape))}] with pixels 0..255"
            )

    array = read_numpy_file(path, check)
    if not array.flags.c_contiguous:
        require_memory(array.nbytes, shown(path), "write it in C order")
    return np.ascontiguousarray(array).astype(np.uint8, copy=False).reshape(-1, *image_shape)


def _from_files(files: Sequence[Path], image_shape: Extents, resize: bool) -> Pictures:
    require_memory(len(files) * math.prod(image_shape), f"{len(files):,} pictures", "give fewer at a time")
    pictures = np.empty((len(files), *image_shape), np.uint8)
    damaged = []
    for index, file in enumerate(files):
        try:
            pictures[index] = _decoded(file, image_shape, resize)
        except DataLossError as error:
            damaged.append(error)
    if damaged:
        more = f"; so are {len(damaged) - 1} more of {len(files)} files" if len(damaged) > 1 else ""
        raise DataLossError(f"{damaged[0]}{more}") from damaged[0]
    return pictures


def _bytes_of(file: Path, image: Any, mode: str) -> Pictures:
    """Pixels with 8 bits; 16-bit pixels are scaled down, since Pillow would clip them at 255."""
    if image.mode[:1] == "I":
        wide = np.asarray(image)
        if wide.size and (wide.min() < 0 or wide.max() > 0xFFFF):
            raise InvalidArgumentError(f"{shown(file)} has pixels of more than 16 bits; give 8 or 16")
        grey = ((wide.astype(np.int32) + 128) // 257).astype(np.uint8)
        return grey if mode == "L" else np.repeat(grey[..., None], 3, axis=2)
    if image.mode == "F":
        raise InvalidArgumentError(f"{shown(file)} has pixels of floating point; give 8 or 16 bits")
    return np.asarray(image.convert(mode), np.uint8)


def _require_size(file: Path, image: Any) -> None:
    """Raises InvalidArgumentError if the picture, or a tile of it, has more than MAXIMUM_PIXELS."""
    tags = getattr(image, "tag_v2", {})
    for width, height in (image.size, [tags.get(tag, 1) for tag in _TILE_EXTENTS]):
        if width * height > MAXIMUM_PIXELS:
            raise InvalidArgumentError(
                f"{shown(file)} has {width}x{height} pixels, more than {MAXIMUM_PIXELS:,}; make it smaller"
            )


def image_extents_of(file: Path) -> Extents:
    """(height, width, channels) of a picture file, 1 channel if it is grey. Raises as `read_pictures`."""
    with _opened(file) as image:
        return image.height, image.width, 1 if image.mode[:1] in ("1", "L", "I", "F") else 3


def _decoded(file: Path, image_shape: Extents, resize: bool) -> Pictures:
    height, width, channels = image_shape
    if channels not in (1, 3):
        raise InvalidArgumentError(
            f"{shown(file)}: the model takes {channels} channels, picture files have 1 or 3"
        )
    with _opened(file) as image:
        if image.size != (width, height) and not resize:
            raise InvalidArgumentError(
                f"{shown(file)} has {image.width}x{image.height} pixels, the model takes "
                f"{width}x{height}; add --resize"
            )
        pixels = _bytes_of(file, image, "L" if channels == 1 else "RGB")
    planes = pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)
    if planes.shape[1:] != (height, width):
        planes = resize_bilinear(planes, height, width)
    picture: NDArray[np.uint8] = planes.transpose(1, 2, 0)
    return picture


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Context with a picture file opened by Pillow, and its decoder's errors named."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise FailedPreconditionError(
            f"{shown(file)}: reading pictures needs Pillow; pip install tensorbow[image], or give a .npy file"
        ) from None
    blob = read_file(file, MAXIMUM_FILE_NBYTES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of unusual but valid files
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(blob), formats=FORMATS) as image:
                _require_size(file, image)
                yield image
    except TensorBowError:
        raise
    except MemoryError:
        raise ResourceExhaustedError(f"{shown(file)} does not fit into memory") from None
    except UnidentifiedImageError:
        raise DataLossError(
            f"{shown(file)} is damaged or no picture ({', '.join(FORMATS)}); replace or remove it"
        ) from None
    except Exception as error:  # Pillow's decoders raise many kinds for a file that is damaged
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataLossError(
            f"{shown(file)} is damaged or no picture: {reason}; replace or remove it"
        ) from error
