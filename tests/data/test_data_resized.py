"""Data sets of pictures at another size."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler import TrainingConfig
from scheduler.training.folders.run_data import load_data
from tensorbow.data import ArrayDataset, ImageDataset
from tensorbow.data.resize import resize_bilinear
from tensorbow.data.resized_pictures import AT_ONCE, resized
from tensorbow.errors import InvalidArgumentError


def test_pictures_of_both_splits_and_their_statistics() -> None:
    images = np.random.default_rng(0).integers(0, 256, (AT_ONCE + 3, 5, 4, 3), np.uint8)
    labels = np.arange(len(images), dtype=np.int64) % 4
    data = ImageDataset("made", images, labels, 4, 0.9, 0.1)
    train, test = resized((data, data.take(np.arange(7), "part")), 8, 6)
    for channel in range(3):
        expected = resize_bilinear(images[..., channel], 8, 6)
        np.testing.assert_array_equal(train.images[..., channel], expected)
        np.testing.assert_array_equal(test.images[..., channel], expected[:7])
    assert (train.mean, train.std) == (test.mean, test.std) != (0.9, 0.1)
    assert train.mean == pytest.approx(train.images.mean() / 255)


def test_models_of_large_pictures_have_a_default_size_for_named_data_sets() -> None:
    config = TrainingConfig("alexnet", dataset="synthetic")
    assert config.image_size == (64, 64)
    assert load_data(config).train.specs[0].dims[1:3] == (64, 64)
    given = (np.zeros((6, 70, 70, 1), np.uint8), np.arange(6) % 2)
    assert load_data(config, (given, given)).train.specs[0].dims[1:3] == (70, 70)
    assert TrainingConfig("alexnet", data="pictures").image_size is None
    assert TrainingConfig("mlp", image_size=(9, 8)).image_size == (9, 8)


def test_sequences_have_no_size() -> None:
    data = ArrayDataset(np.zeros((4, 3), np.int64), np.zeros((4, 3), np.int64))
    with pytest.raises(InvalidArgumentError, match="image_size: expected a data set of pictures"):
        resized((data, data), 4, 4)
