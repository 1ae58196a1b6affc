"""`digits`: scikit-learn's 1797 handwritten digits, 8x8, resized to 28x28. Needs no download."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np

from tensorbow.data.augment import CropAndFlip
from tensorbow.data.dataset import Dataset, pixel_statistics
from tensorbow.data.philox import Purpose, permutation
from tensorbow.data.resize import resize_bilinear
from tensorbow.errors import DataLossError, NotFoundError

_EXAMPLES = 1797
_HOLD_OUT_EVERY = 5  # 1437 examples to train with, 360 to test


def _bundled() -> Any:
    try:
        module = import_module("sklearn.datasets")
    except ImportError as error:
        raise NotFoundError(
            "data set 'digits' comes with scikit-learn, which cannot be imported "
            f"({' '.join(str(error).split())}); install it: pip install 'tensorbow[data]', "
            "or use the data set 'synthetic', which needs nothing"
        ) from error
    try:
        return module.load_digits()
    except (OSError, EOFError, ValueError) as error:
        raise DataLossError(
            "data set 'digits': scikit-learn's own copy cannot be read "
            f"({' '.join(str(error).split())}); reinstall scikit-learn"
        ) from error


SHIFTS = CropAndFlip(padding=2, flip=False)  # 1437 pictures are few: training moves them by up to 2 pixels


def load_digits(data_dir: str | os.PathLike[str] | None = None) -> tuple[Dataset, Dataset]:
    """The two splits: 1437 and 360 pictures, uint8 [n, 28, 28, 1], 10 classes. `data_dir` is not used.

    The split is fixed, whatever the run's seed, and stratified: every fifth of the shuffled examples of
    each class is held out. Training batches are shifted at random (`SHIFTS`). NotFoundError when
    scikit-learn is missing.
    """
    bundle = _bundled()
    pictures, labels = np.asarray(bundle.images), np.asarray(bundle.target).astype(np.int64)
    if pictures.shape != (_EXAMPLES, 8, 8) or labels.shape != (_EXAMPLES,):
        raise DataLossError(
            f"data set 'digits': expected {_EXAMPLES} pictures of 8x8 from scikit-learn; "
            f"got {list(pictures.shape)} with labels {list(labels.shape)}"
        )
    images = resize_bilinear(pictures.astype(np.int64), 28, 28, maximum=16)[..., np.newaxis]

    shuffled = permutation(_EXAMPLES, Purpose.DIGITS_SPLIT, key=(0, 0))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    held_out = np.zeros(_EXAMPLES, np.bool_)
    held_out[by_class[::_HOLD_OUT_EVERY]] = True
    train, test = shuffled[~held_out[shuffled]], shuffled[held_out[shuffled]]

    mean, std = pixel_statistics(images[train])
    return (
        Dataset("digits/train", images[train], labels[train], 10, mean, std, SHIFTS),
        Dataset("digits/test", images[test], labels[test], 10, mean, std),
    )
