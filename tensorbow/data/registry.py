"""Data sets by name, as for the option `--dataset`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, overload

from tensorbow.data.array_dataset import ArrayDataset, TrainingData
from tensorbow.data.cifar10 import load_cifar10
from tensorbow.data.digits import load_digits
from tensorbow.data.image_dataset import ImageDataset
from tensorbow.data.mnist import load_mnist
from tensorbow.data.synthetic import load_synthetic
from tensorbow.data.text import load_text
from tensorbow.data.word_text import load_large_word_text, load_word_text
from tensorbow.errors import AlreadyExistsError, NotFoundError
from tensorbow.kinds import AsPath, Function, Text, checked

Loader = Callable[[str | os.PathLike[str] | None], tuple[TrainingData, TrainingData]]
"""(data folder or None) -> (training split, test split)."""

DEFAULT_DATASET = "digits"

DATASETS: dict[str, Loader] = {
    "digits": load_digits,
    "mnist": load_mnist,
    "cifar10": load_cifar10,
    "synthetic": load_synthetic,
    "text": load_text,
    "words": load_word_text,
    "words-40k": load_large_word_text,
}

WITHOUT_FILES = frozenset({"digits", "synthetic", "text", "words", "words-40k"})
"""Data sets that read no files of a data folder."""

SEQUENCES = frozenset({"text", "words", "words-40k"})
"""Data sets of sequences of symbols; all others have pictures."""


@checked
def register_dataset(name: Text, loader: Function) -> None:
    """Registers a user's data set. Raises AlreadyExistsError if the name is taken."""
    if name in DATASETS:
        raise AlreadyExistsError(f"a data set {name!r} is registered already; choose another name")
    DATASETS[name] = loader


@overload
def load(
    name: Literal["digits", "mnist", "cifar10", "synthetic"] = ...,
    data_dir: str | os.PathLike[str] | None = None,
) -> tuple[ImageDataset, ImageDataset]: ...
@overload
def load(
    name: Literal["text"], data_dir: str | os.PathLike[str] | None = None
) -> tuple[ArrayDataset, ArrayDataset]: ...
@overload
def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> tuple[TrainingData, TrainingData]: ...
@checked
def load(name: Text = DEFAULT_DATASET, data_dir: AsPath | None = None) -> tuple[TrainingData, TrainingData]:
    """Loads the training and the test split of data set `name`; the split does not depend on a run's seed.

    data_dir: folder of its files; None uses the environment variable TENSORBOW_DATA. Raises NotFoundError
    for an unknown name or missing files, and what the loader raises.
    """
    loader = DATASETS.get(name)
    if loader is None:
        raise NotFoundError(
            f"load: there is no data set of the name {name!r:.60}; known are {', '.join(sorted(DATASETS))}"
        )
    return loader(data_dir)
