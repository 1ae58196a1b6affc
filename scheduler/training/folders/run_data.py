"""Data of a run: loaded by its options, split, augmented, and with weights of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.config_file import read_config_file
from scheduler.training.configuration.option_kinds import BALANCED
from scheduler.training.folders.run_folder import CONFIG
from tensorbow.data import DataSplits, ImageDataset, TrainingData, load, splits_of
from tensorbow.data.augmentation_names import augmentation_of
from tensorbow.data.doubtful_data import warn_of_doubts, warn_of_infinite_numbers
from tensorbow.data.own_data import load_own
from tensorbow.data.resized_pictures import resized
from tensorbow.data.splits import AUTO, with_class_names
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.specs import Array
from tensorbow.user_code import is_object_name

GIVEN = "data"  # name of data that a program gives
LINEAR = "linear"  # the model that is for numbers by its name
ABOUT = (
    "dataset",
    "data_dir",
    "data",
    "target",
    "ignore_columns",
    "image_size",
    "validation_split",
    "test_split",
    "split_seed",
    "task",
)


def load_data(
    config: TrainingConfig,
    data: Any = None,
    say: Callable[[str], None] = lambda text: None,
    feature_names: Sequence[str] = (),
) -> DataSplits:
    """Splits of a run's data. data: given by a program, instead of the options; see `splits_of`.

    feature_names: of the model that a table is for; by default those of the table.

    Raises a TensorBowError for data that cannot be read, or does not fit the options.
    """
    splits = _loaded(config, data, say, feature_names)
    if config.source.takes_raw:
        parts = {name: getattr(splits, name) for name in ("train", "validation", "test")}
        pictures = {name: part for name, part in parts.items() if isinstance(part, ImageDataset)}
        splits = replace(splits, **{name: part.with_pixels() for name, part in pictures.items()})
    if config.augmentation is None:
        return splits
    if not isinstance(splits.train, ImageDataset):
        raise InvalidArgumentError(
            f"augmentation: expected pictures uint8 [examples, height, width, channels], got "
            f"{splits.train!r}; leave it out"
        )
    augmentation = augmentation_of(config.augmentation, splits.train.mean)
    return replace(splits, train=replace(splits.train, augmentation=augmentation))


def warn_of_data(config: TrainingConfig, train: TrainingData, *evaluated: TrainingData | None) -> None:
    """Warns of data that the run's model takes otherwise than it seems meant, see `warn_of_doubts`.

    evaluated: of which numbers that are not finite are told, too.
    """
    given = not config.source.is_ours or config.task != AUTO or config.source.name == LINEAR
    warn_of_doubts(train, any_labels=given)
    for each in evaluated:
        if each is not None:
            warn_of_infinite_numbers(each)


def _loaded(
    config: TrainingConfig, data: Any, say: Callable[[str], None], feature_names: Sequence[str]
) -> DataSplits:
    options: dict[str, Any] = {
        "validation_split": config.validation_split,
        "test_split": config.test_split,
        "seed": config.split_seed,
        "task": config.task,
        "say": say,
    }
    if data is not None:
        return splits_of(data, **options)
    if config.data is None:
        parts = load(str(config.dataset), config.data_dir)
        if config.image_size is not None and config.image_size != parts[0].specs[0].dims[1:3]:
            parts = resized(parts, *config.image_size)
        return splits_of(parts, str(config.dataset), **options)
    own = load_own(
        config.data,
        target=config.target,
        ignored=config.ignore_columns or (),
        image_size=config.image_size,
        feature_names=feature_names,
        say=say,
    )
    return splits_of(own, config.data_name, **options)


def data_options(config: TrainingConfig | Mapping[str, Any]) -> dict[str, Any]:
    """Options by which a run's data is found again."""
    values = config.to_dict() if isinstance(config, TrainingConfig) else config
    found = {name: values.get(name) for name in ABOUT}
    paths = {name: _absolute(str(found[name])) for name in ("data", "data_dir") if found[name] is not None}
    return found | paths


def _absolute(path: str) -> str:
    """The path from any folder, of FILE.py:FUNCTION too; as it is if there is nothing."""
    file, colon, name = path.rpartition(":") if is_object_name(path) else (path, "", "")
    full = Path(file).expanduser().absolute()
    return f"{full}{colon}{name}" if full.exists() else path


def data_of_run(model: Path, about: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, DataSplits]:
    """Name and splits of the data on which a trained model was trained, or of those given instead.

    model: its file or folder. about: its description. given: options of the data, by name. Raises
    InvalidArgumentError if a program gave the data, and what loading the data raises.
    """
    saved = about.get("data")
    by_program = saved is None and ("inputs" in about or about.get("dataset") == GIVEN)
    if by_program and not {"data", "dataset"} & given.keys():
        raise InvalidArgumentError(f"{model}: a program gave the data of this run; give --data or --dataset")
    values = {**_of_older_version(model, about), **(saved or {})}
    if "data" in given or "dataset" in given:
        values |= {"data": None, "dataset": None}
    config = TrainingConfig(**{name: v for name, v in {**values, **given}.items() if v is not None})
    splits = load_data(config, feature_names=about.get("feature_names", ()))
    names = about.get("class_names")
    if names:  # names in other data may be among the model's
        parts = {part: getattr(splits, part) for part in ("train", "validation", "test")}
        named = {part: each for part, each in parts.items() if each is not None and each.class_names}
        splits = replace(splits, **{part: with_class_names(each, names) for part, each in named.items()})
    return config.data_name, splits


def _of_older_version(model: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Data of a model without them in its description: its data set, and the folder in config.yaml."""
    folder = model if model.is_dir() else model.parent
    found: dict[str, Any] = {"dataset": about.get("dataset")}
    with suppress(TensorBowError):
        found["data_dir"] = read_config_file(folder / CONFIG).get("data_dir")
    return found


def class_weights_of(config: TrainingConfig, train: TrainingData) -> Array | None:
    """Weight of each class, float32 [classes]; None if all are 1. Raises InvalidArgumentError."""
    given, classes = config.class_weights, train.classes
    if given is None:
        return None
    labels = train.labels
    if classes is None or not isinstance(labels, np.ndarray) or labels.ndim != 1:
        raise InvalidArgumentError(
            f"class_weights: expected labels int [examples] of classes, got {train!r}; leave it out"
        )
    if given == BALANCED:
        counts = np.maximum(np.bincount(labels, minlength=classes), 1)
        return (len(labels) / (classes * counts)).astype(np.float32)
    if len(given) != classes:
        raise InvalidArgumentError(
            f"class_weights: expected one for each of {classes} classes, got {len(given)}"
        )
    return np.array(given, np.float32)
