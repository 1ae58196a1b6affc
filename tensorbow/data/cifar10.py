"""Data set `cifar10`: reads the published binary or Python (pickled) files. Never downloads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.augmentation import CropAndFlip
from tensorbow.data.dataset_files import damaged, data_folder, find_file
from tensorbow.data.image_dataset import ImageDataset, pixel_statistics
from tensorbow.data.pickles import read_pickled_dict
from tensorbow.errors import NotFoundError, ResourceExhaustedError, TensorBowError
from tensorbow.files import open_to_read, shown
from tensorbow.kinds import AsPath, checked

_BINARY, _PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
_FOLDERS = ("", _BINARY, _PYTHON, f"cifar10/{_BINARY}", f"cifar10/{_PYTHON}", "cifar10")
_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = "test_batch"
_SIZE, _CHANNELS, _CLASSES = 32, 3, 10
_PIXELS = _CHANNELS * _SIZE * _SIZE
_RECORD = 1 + _PIXELS  # bytes: a label, then the red, green and blue plane
_MAXIMUM_EXAMPLES = 1 << 17  # per file; the published files have 10,000
_REMEDY = (
    "Get cifar-10-binary.tar.gz or cifar-10-python.tar.gz from "
    "https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there; "
    "the data sets 'digits' and 'synthetic' need no download"
)

Split = tuple[NDArray[np.uint8], NDArray[np.int64]]


def _find(root: Path) -> tuple[list[Path], Path]:
    """Training files and test file, from the first folder that has all of them."""
    best: tuple[int, Path, list[str]] = (0, root, [])
    for below in _FOLDERS:
        folder = root / below
        for ending in (".bin", ""):
            names = [f"{stem}{ending}" for stem in (*_TRAIN, _TEST)]
            found = [find_file(folder, [name]) for name in names]
            paths = [path for path in found if path is not None]
            if len(paths) == len(names):
                return paths[:-1], paths[-1]
            missing = [name for name, path in zip(names, found, strict=True) if path is None]
            best = max(best, (len(paths), folder, missing), key=lambda entry: entry[0])
    if best[0]:
        what = f"{', '.join(best[2])} not found in {shown(best[1])}, which has the others"
    else:
        what = (
            "neither data_batch_1.bin to data_batch_5.bin with test_batch.bin, nor data_batch_1 to "
            f"data_batch_5 with test_batch found in {', '.join(shown(root / below) for below in _FOLDERS)}"
        )
    raise NotFoundError(f"data set 'cifar10': {what}. {_REMEDY}")


def _read(path: Path) -> Split:
    """Pictures uint8 [n, 32, 32, 3] and labels int64 [n] of one file."""
    planes, labels = _read_binary(path) if path.suffix == ".bin" else _read_python(path)
    if labels.max() >= _CLASSES or labels.min() < 0:
        first = int(np.argmax((labels >= _CLASSES) | (labels < 0)))
        raise damaged(path, f"label {first} is {labels[first]}, and labels are 0..{_CLASSES - 1}")
    pictures = planes.reshape(-1, _CHANNELS, _SIZE, _SIZE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pictures), labels


def _read_binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        with open_to_read(path) as file:
            nbytes = os.fstat(file.fileno()).st_size
            if nbytes == 0 or nbytes % _RECORD or nbytes > _MAXIMUM_EXAMPLES * _RECORD:
                raise damaged(path, f"it has {nbytes:,} bytes, and records have {_RECORD:,}")
            records = np.fromfile(file, np.uint8, count=nbytes)
    except TensorBowError:
        raise
    except MemoryError as error:
        raise ResourceExhaustedError(f"the content of {shown(path)} does not fit into memory") from error
    if records.size != nbytes:
        raise damaged(path, f"it ended after {records.size:,} of {nbytes:,} bytes")
    records = records.reshape(-1, _RECORD)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _read_python(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    values = read_pickled_dict(path)
    pictures: Any = values.get("data")
    labels: Any = values.get("labels")
    if not isinstance(pictures, np.ndarray) or pictures.ndim != 2 or pictures.shape[1] != _PIXELS:
        raise damaged(path, f"'data' is no array of bytes [examples, {_PIXELS}]")
    if not isinstance(labels, list) or len(labels) != len(pictures) or not len(pictures):
        raise damaged(path, f"'labels' is no list of {len(pictures)} numbers, one for each picture")
    if not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise damaged(path, f"'labels' holds other than numbers 0..{_CLASSES - 1}")
    return pictures, np.array(labels, np.int64)


@checked
def load_cifar10(data_dir: AsPath | None = None) -> tuple[ImageDataset, ImageDataset]:
    """Training and test split, uint8 [n, 32, 32, 3], 10 classes (as published: 50000 and 10000 pictures).

    Searches `data_dir`, or the folder in the environment variable TENSORBOW_DATA, and cifar-10-batches-bin,
    cifar-10-batches-py and cifar10 below it. Training batches are cropped and flipped at random
    (`CropAndFlip`). Raises NotFoundError for missing files, DataLossError for damaged ones.
    """
    root = data_folder(data_dir, "cifar10", _REMEDY)
    train_paths, test_path = _find(root)
    test = _read(test_path)
    parts = [_read(path) for path in train_paths]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    mean, std = pixel_statistics(images)
    if std == 0:
        raise damaged(train_paths[0], "all pixels are equal")
    return (
        ImageDataset("cifar10/train", images, labels, _CLASSES, mean, std, CropAndFlip()),
        ImageDataset("cifar10/test", *test, _CLASSES, mean, std),
    )
