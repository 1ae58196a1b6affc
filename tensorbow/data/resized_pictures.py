"""Data sets of pictures at another size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorbow.data.array_dataset import TrainingData
from tensorbow.data.image_dataset import ImageDataset, pixel_statistics
from tensorbow.data.resize import resize_bilinear
from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array

AT_ONCE = 512  # pictures resized together: interpolation takes eight bytes for each pixel


def resized(
    parts: tuple[TrainingData, TrainingData], height: int, width: int
) -> tuple[ImageDataset, ImageDataset]:
    """Training and test split with pictures of this size, and the statistics of the resized training
    pictures.

    Raises InvalidArgumentError for examples that are no pictures uint8.
    """
    train, test = (_resized(part, height, width) for part in parts)
    mean, std = pixel_statistics(train.images)
    return replace(train, mean=mean, std=std or 1.0), replace(test, mean=mean, std=std or 1.0)


def _resized(data: TrainingData, height: int, width: int) -> ImageDataset:
    if not isinstance(data, ImageDataset):
        raise InvalidArgumentError(f"image_size: expected a data set of pictures, got {data!r}; leave it out")
    count, channels = len(data), data.image_shape[2]
    images: Array = np.empty((count, height, width, channels), np.uint8)
    for begin in range(0, count, AT_ONCE):
        for channel in range(channels):
            part = data.images[begin : begin + AT_ONCE, :, :, channel]
            images[begin : begin + AT_ONCE, :, :, channel] = resize_bilinear(part, height, width)
    return replace(data, images=images)
