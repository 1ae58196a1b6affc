"""The data sets by name: what the command line's `--data` accepts."""

from __future__ import annotations

import os
from collections.abc import Callable

from tensorbow.data.cifar10 import load_cifar10
from tensorbow.data.dataset import Dataset
from tensorbow.data.digits import load_digits
from tensorbow.data.mnist import load_mnist
from tensorbow.data.synthetic import load_synthetic
from tensorbow.errors import AlreadyExistsError, NotFoundError
from tensorbow.kinds import AsPath, Function, Text, checked

Loader = Callable[[str | os.PathLike[str] | None], tuple[Dataset, Dataset]]
"""Takes the data folder (or None) and returns the training and the test split."""

DEFAULT_DATASET = "digits"

DATASETS: dict[str, Loader] = {
    "digits": load_digits,
    "mnist": load_mnist,
    "cifar10": load_cifar10,
    "synthetic": load_synthetic,
}

WITHOUT_FILES = frozenset({"digits", "synthetic"})
"""The data sets that read no data folder."""


@checked
def register_dataset(name: Text, loader: Function) -> None:
    """Adds a data set of the user's. AlreadyExistsError when the name is taken."""
    if name in DATASETS:
        raise AlreadyExistsError(f"a data set {name!r} is registered already; choose another name")
    DATASETS[name] = loader


@checked
def load(name: Text = DEFAULT_DATASET, data_dir: AsPath | None = None) -> tuple[Dataset, Dataset]:
    """The training and the test split of the data set `name`.

    `data_dir` is where its files lie; None means the environment's TENSORBOW_DATA. The split never depends
    on a run's seed. NotFoundError for an unknown name (it lists the known), or for missing files.
    """
    loader = DATASETS.get(name)
    if loader is None:
        raise NotFoundError(
            f"load: there is no data set of the name {name!r:.60}; known are {', '.join(sorted(DATASETS))}"
        )
    return loader(data_dir)
