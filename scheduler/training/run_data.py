"""Data of a run: loaded by its options, split, augmented, and with weights of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from scheduler.training.config import TrainingConfig
from scheduler.training.option_kinds import BALANCED
from tensorbow.data import DataSplits, ImageDataset, TrainingData, load, splits_of
from tensorbow.data.augmentation import augmentation_of
from tensorbow.data.own_data import load_own
from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array

ABOUT = (
    "dataset",
    "data_dir",
    "data",
    "target",
    "image_size",
    "validation_split",
    "test_split",
    "split_seed",
)


def load_data(
    config: TrainingConfig, data: Any = None, say: Callable[[str], None] = lambda text: None
) -> DataSplits:
    """Splits of a run's data. data: given by a program, instead of the options; see `splits_of`.

    Raises a TensorBowError for data that cannot be read, or does not fit the options.
    """
    splits = _loaded(config, data, say)
    if config.augmentation is None:
        return splits
    augmentation = augmentation_of(config.augmentation)
    if not isinstance(splits.train, ImageDataset):
        raise InvalidArgumentError(
            f"augmentation: expected pictures uint8 [examples, height, width, channels], got {splits.train!r}"
        )
    return replace(splits, train=replace(splits.train, augmentation=augmentation))


def _loaded(config: TrainingConfig, data: Any, say: Callable[[str], None]) -> DataSplits:
    options: dict[str, Any] = {
        "validation_split": config.validation_split,
        "test_split": config.test_split,
        "seed": config.split_seed,
        "say": say,
    }
    if data is not None:
        return splits_of(data, **options)
    if config.data is None:
        return splits_of(load(str(config.dataset), config.data_dir), str(config.dataset), **options)
    own = load_own(config.data, target=config.target, image_size=config.image_size)
    return splits_of(own, config.data_name, **options)


def data_options(config: TrainingConfig | Mapping[str, Any]) -> dict[str, Any]:
    """Options by which a run's data is found again."""
    values = config.to_dict() if isinstance(config, TrainingConfig) else config
    return {name: values.get(name) for name in ABOUT}


def class_weights_of(config: TrainingConfig, train: TrainingData) -> Array | None:
    """Weight of each class, float32 [classes]; None if all are 1. Raises InvalidArgumentError."""
    given, classes = config.class_weights, train.classes
    if given is None:
        return None
    labels = train.labels
    if classes is None or not isinstance(labels, np.ndarray) or labels.ndim != 1:
        raise InvalidArgumentError(f"class_weights: expected labels int [examples] of classes, got {train!r}")
    if given == BALANCED:
        counts = np.maximum(np.bincount(labels, minlength=classes), 1)
        return (len(labels) / (classes * counts)).astype(np.float32)
    if len(given) != classes:
        raise InvalidArgumentError(
            f"class_weights: expected one for each of {classes} classes, got {len(given)}"
        )
    return np.array(given, np.float32)
