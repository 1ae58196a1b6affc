"""Training, validation and test split of any data: arrays, nests of arrays, pipelines, data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorbow.array_likes import ArrayLike
from tensorbow.data.array_dataset import ArrayDataset, TrainingData
from tensorbow.data.image_dataset import ImageDataset, pixel_statistics
from tensorbow.data.pipeline import Dataset
from tensorbow.data.random_words import Purpose, permutation
from tensorbow.data.tables import standardisation_of
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import FUNCTION, TEXT, WORD, read_as, refuse, shown
from tensorbow.nest import map_leaves, named_leaves
from tensorbow.specs import Array
from tensorbow.user_code import is_of_torch

NAMES = ("train", "validation", "test")
AUTO, CLASSIFICATION, REGRESSION = TASKS = ("auto", "classification", "regression")
TEST_SPLIT = 0.2  # of data without test examples
TORCH_HINT = (
    "; of a data set of PyTorch give the arrays, inputs, labels = map(np.stack, zip(*dataset)), with "
    "channels last; a DataLoader goes into the input_fn of a Replicator"
)


@dataclass(frozen=True)
class DataSplits:
    """Splits of a data set. validation: None if the test split is evaluated after each epoch."""

    train: TrainingData
    validation: TrainingData | None
    test: TrainingData

    @property
    def evaluated(self) -> TrainingData:
        """The split on which a run is evaluated after each epoch."""
        return self.test if self.validation is None else self.validation


def splits_of(
    data: Any,
    name: str = "data",
    *,
    validation_split: float | None = None,
    test_split: float = TEST_SPLIT,
    seed: int = 0,
    task: str = AUTO,
    say: Callable[[str], None] = lambda text: None,
) -> DataSplits:
    """Splits of (train, test), (train, validation, test), or of one split, which is divided.

    data: each split is an `ImageDataset`, an `ArrayDataset`, a `tb.data.Dataset` of (inputs, labels), a tuple
    (inputs, labels) of arrays or nests of them, a dictionary {"inputs": ..., "labels": ...}, or None.
    Pictures uint8 [examples, height, width, channels], with labels int [examples], become an `ImageDataset`.
    seed: of the examples held out. task: whether labels are classes or numbers, see `labels_for`. say: called
    with a line for each split that was drawn. Raises InvalidArgumentError for anything else, for splits that
    do not fit together, and for labels that do not fit the task.
    """
    for argument, kind, value in (("name", TEXT, name), ("seed", WORD, seed), ("say", FUNCTION, say)):
        read_as(kind, value, "splits_of", argument)
    parts = _parts_of(data, name)
    given = {part: labels_for(task, _split_of(value, f"{name}/{part}")) for part, value in parts.items()}
    if given["train"] is None:
        raise InvalidArgumentError(f"{name}: expected examples to train with, got None")
    found = _alike({part: split for part, split in given.items() if split is not None})
    train, test = found["train"], found.get("test")
    if test is None:
        train, test = _held_out(train, test_split, seed, f"{name}/test", "test_split", say)
    validation = found.get("validation")
    if validation is None and validation_split is not None:
        train, validation = _held_out(
            train, validation_split, seed, f"{name}/validation", "validation_split", say
        )
    if isinstance(train, ArrayDataset) and train.standardisation is not None:
        by_train = standardisation_of(train.inputs, train.standardisation)
        for each in (train, validation, test):
            if isinstance(each, ArrayDataset):
                each.standardisation = by_train
    if isinstance(train, ArrayDataset):
        scale = None if train.numbers is None else standardisation_of(train.numbers)
        for each in (train, validation, test):
            if isinstance(each, ArrayDataset):
                each.label_scale = scale
    return DataSplits(train, _plain(validation), _plain(test))


def labels_for(task: str, data: TrainingData | None) -> TrainingData | None:
    """A split whose labels are classes or numbers, as a task says.

    task: `classification`, where floating labels [examples] must be whole numbers from 0; `regression`, where
    whole numbers become float32; or `auto`, which leaves them as they are: integers, and in a table few whole
    numbers, are classes. Raises InvalidArgumentError for labels that do not fit.
    """
    if not isinstance(task, str) or task not in TASKS:
        raise InvalidArgumentError(f"task: expected {', '.join(TASKS[:2])} or {TASKS[2]}, got {shown(task)}")
    if task == AUTO or data is None or data.labels is None:
        return data
    labels = data.labels
    if not isinstance(labels, np.ndarray) or (data.class_names and task == REGRESSION):
        got = (
            f"{len(data.class_names)} classes with names" if data.class_names else "several arrays of labels"
        )
        raise InvalidArgumentError(f"task: expected one array of numbers as labels for {task}, got {got}")
    if task == REGRESSION:
        if isinstance(data, ArrayDataset):
            return data.relabelled(labels.astype(np.float32))
        return ArrayDataset(data.images, labels.astype(np.float32), name=data.name)
    if labels.dtype.kind != "f" or not isinstance(data, ArrayDataset):
        return data
    wrong = labels[(labels != np.floor(labels)) | (labels < 0)]
    if labels.ndim != 1 or wrong.size:
        got = f"{wrong[0]:g}" if wrong.size else f"labels {list(labels.shape)}"
        raise InvalidArgumentError(
            f"task: expected whole numbers from 0 as classes, [examples], for classification, got {got}"
        )
    return data.relabelled(labels.astype(np.int64))


def _parts_of(data: Any, name: str) -> dict[str, Any]:
    if isinstance(data, DataSplits):
        return {"train": data.train, "validation": data.validation, "test": data.test}
    if isinstance(data, (tuple, list)) and 2 <= len(data) <= 3 and _is_split(data[0]):
        return dict(zip(("train", "test") if len(data) == 2 else NAMES, data, strict=True)) | (
            {"validation": None} if len(data) == 2 else {}
        )
    if isinstance(data, Mapping) and "train" in data and set(data) <= set(NAMES):
        return {part: data.get(part) for part in NAMES}
    if not _is_split(data) and not isinstance(data, ArrayLike) and not isinstance(data, Mapping):
        of_torch = any(map(is_of_torch, data if isinstance(data, (tuple, list)) else [data]))
        raise InvalidArgumentError(
            f"{name}: expected (train, test) or (train, validation, test), each (inputs, labels) or a data "
            f"set, got {shown(data)}{TORCH_HINT if of_torch else ''}"
        )
    return {"train": data, "validation": None, "test": None}


def _is_split(value: Any) -> bool:
    """True for a data set, and for a tuple (inputs, labels)."""
    if isinstance(value, (ImageDataset, ArrayDataset, Dataset)):
        return True
    if isinstance(value, Mapping):
        return "inputs" in value and set(value) <= {"inputs", "labels"}
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2
    return is_pair and isinstance(value[0], (ArrayLike, Mapping, tuple)) and not _is_split(value[0])


def _split_of(value: Any, name: str) -> TrainingData | None:
    """A data set of one split."""
    if value is None or isinstance(value, (ImageDataset, ArrayDataset)):
        return value
    if isinstance(value, Dataset):
        value = _elements_of(value, name)
    if isinstance(value, Mapping) and _is_split(value):
        inputs, labels = value["inputs"], value.get("labels")
    elif _is_split(value):
        inputs, labels = value
    else:
        inputs, labels = value, None
    return ArrayDataset(inputs, labels, name=name)


def _elements_of(dataset: Dataset, name: str) -> Any:
    """Arrays of all elements of a pipeline."""
    try:
        elements = [each for _, each in zip(range(len(dataset)), dataset, strict=False)]
    except TypeError as error:
        raise InvalidArgumentError(
            f"{name}: expected a tb.data.Dataset with an end, {error}; limit it by take(count)"
        ) from None
    if not elements:
        raise InvalidArgumentError(f"{name}: expected a tb.data.Dataset with elements, it is empty")
    columns = [[leaf for _, leaf in named_leaves(each, name)] for each in elements]
    leaves = iter([np.stack(column) for column in zip(*columns, strict=True)])
    return map_leaves(lambda *_: next(leaves), elements[0], name)


def _alike(found: dict[str, TrainingData]) -> dict[str, TrainingData]:
    """The splits as data sets of one kind, with the same shapes, classes and statistics of pictures."""
    train = found["train"]
    found = {part: with_class_names(each, train.class_names) for part, each in found.items()}
    if all(isinstance(each, ArrayDataset) and _is_pictures(each) for each in found.values()):
        images = {part: _images(each) for part, each in found.items() if isinstance(each, ArrayDataset)}
        mean, std = pixel_statistics(images["train"][0])
        classes = max(each.classes or 1 for each in found.values())
        found = {
            part: ImageDataset(
                found[part].name, *arrays, classes, mean, std or 1.0, class_names=train.class_names
            )
            for part, arrays in images.items()
        }
        train = found["train"]
    elif not isinstance(train, ImageDataset):
        counts = [each.classes for each in found.values()]
        known = [count for count in counts if count is not None]
        for part, each in found.items():
            if isinstance(each, ArrayDataset):
                found[part] = alike = copy(each)
                alike.classes = max(known) if len(known) == len(counts) else None
    for each in found.values():
        mine, theirs = [[*named_leaves(split.specs, "")] for split in (train, each)]
        if mine != theirs or type(train) is not type(each):
            raise InvalidArgumentError(
                f"{each.name}: expected examples like those to train with, {train!r}, got {each!r}"
            )
    return found


def with_class_names(dataset: TrainingData, names: Sequence[str]) -> TrainingData:
    """The data set with its named classes numbered as these are, of which it may lack some.

    Without names of its own its labels are numbers already. Raises InvalidArgumentError for another class.
    """
    own = dataset.class_names
    if not own or tuple(own) == tuple(names):
        return dataset
    if unknown := [name for name in own if name not in names]:
        raise InvalidArgumentError(
            f"{dataset.name}: expected the classes that are trained "
            f"({', '.join(names)[:200] or 'which have no names'}), got {', '.join(unknown[:5])}"
        )
    labels = np.array([names.index(name) for name in own], np.int64)[dataset.labels]
    return dataset.with_labels(labels, names)


def _is_pictures(data: ArrayDataset) -> bool:
    images, labels = data.inputs, data.labels
    is_array = isinstance(images, np.ndarray) and isinstance(labels, np.ndarray)
    return (
        is_array
        and images.dtype == np.uint8
        and images.ndim in (3, 4)
        and data.classes is not None
        and (labels.ndim == 1)
    )


def _images(data: ArrayDataset) -> tuple[Array, Array]:
    images: Array = data.inputs if data.inputs.ndim == 4 else data.inputs[..., np.newaxis]
    return images, data.labels.astype(np.int64, copy=False)


def _held_out(
    data: TrainingData, fraction: float, seed: int, name: str, option: str, say: Callable[[str], None]
) -> tuple[TrainingData, TrainingData]:
    """The rest of the examples, and a fraction that is drawn by the seed."""
    if not isinstance(fraction, (int, float)) or not 0 < fraction < 1:
        raise refuse("splits_of", option, "a number above 0 and below 1", fraction)
    count = max(1, round(len(data) * fraction))
    if count >= len(data):
        raise InvalidArgumentError(
            f"{option}: {fraction:g} of {len(data)} examples leaves none to train with; give less"
        )
    order = permutation(len(data), Purpose.SPLIT, key=(seed, len(data)))
    kept = data.take(np.sort(order[count:]), data.name)
    say(f"{name}: {count:,} of {len(data):,} examples, drawn by split seed {seed}")
    return kept, data.take(np.sort(order[:count]), name)


def _plain(data: TrainingData | None) -> Any:
    """A split without augmentation: it is evaluated."""
    if isinstance(data, ImageDataset) and data.augmentation is not None:
        return replace(data, augmentation=None)
    return data
