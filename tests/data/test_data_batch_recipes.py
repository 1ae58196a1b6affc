"""Recipes of batches: the batch that a prefetcher fills, and the picks that say the same to a device."""

import numpy as np
import pytest

from tensorbow.data import (
    BatchKey,
    BatchOrder,
    BatchRecipe,
    CropAndFlip,
    ImageDataset,
    PictureChanges,
    Prefetcher,
    why_host_only,
)

IMAGES = np.random.default_rng(0).integers(0, 256, (60, 9, 7, 2), np.uint8)
LABELS = np.arange(60, dtype=np.int64) % 6


def dataset(augmentation=None, kind=ImageDataset):
    return kind("made", IMAGES, LABELS, 6, 0.47, 0.25, augmentation)


def recipe(data, number, epoch=0):
    return BatchRecipe(data, BatchOrder(60, 8, 5).indices(epoch, number), BatchKey(5, epoch, number))


def made(data, picks):
    """Expected output of a device, pixel by pixel from the picks."""
    _, height, width, _ = data.images.shape
    images = np.full((len(picks), *data.images.shape[1:]), np.float32(0) * data.scale - data.shift)
    for (chosen, down, right, mirrored, *more), image in zip(picks, images, strict=True):
        for y, x in np.ndindex(height, width):
            row, column = y - down, x - right
            if 0 <= row < height and 0 <= column < width:
                column = width - 1 - column if mirrored else column
                pixel = data.images[chosen, row, column].astype(np.float32)
                image[y, x] = pixel * data.scale - data.shift
            top, left, bottom, end, level = more[:5] or (0, 0, 0, 0, 0)
            if top <= y < bottom and left <= x < end:
                image[y, x] = np.float32(level) * data.scale - data.shift
    return images, data.labels[picks[:, 0]]


@pytest.mark.parametrize(
    "augmentation",
    [
        None,
        CropAndFlip(3),
        CropAndFlip(2, flip=False),
        CropAndFlip(11),
        PictureChanges(CropAndFlip(2), cutout=4, level=99),
        PictureChanges(cutout=30),
    ],
)
def test_picks_say_what_the_batch_is(augmentation):
    data = dataset(augmentation)
    for epoch, number in ((0, 0), (0, 6), (3, 1)):
        wanted = recipe(data, number, epoch)
        images, labels = wanted.arrays()
        assert images.dtype == np.float32
        expected_images, expected_labels = made(data, wanted.picks())
        assert images.tobytes() == expected_images.tobytes()
        assert labels.tobytes() == expected_labels.tobytes()


def test_the_batches_are_the_prefetchers():
    data = dataset(PictureChanges(CropAndFlip(3), True, 30, 0.2, 0.2, erase=0.5))
    with Prefetcher(data, BatchOrder(60, 8, 5), 2, max_rounds=7) as prefetcher:  # an epoch has three rounds
        for _ in range(7):
            for replica in range(2):
                batch = prefetcher.take(replica)
                images, labels = recipe(data, batch.number, batch.epoch).arrays()
                assert images.tobytes() == batch.images.tobytes()
                assert labels.tobytes() == batch.labels.tobytes()
                prefetcher.release(batch)


def test_zeros_like_a_batch_have_its_shapes_and_no_memory():
    wanted = recipe(dataset(), 0)
    for zeros, array in zip(wanted.zeros_like_batch(), wanted.arrays(), strict=True):
        assert (zeros.shape, zeros.dtype) == (array.shape, array.dtype)
        assert not any(zeros.strides)


class Darker(CropAndFlip):
    """Does more than it draws."""

    def __call__(self, images, key):
        super().__call__(images, key)
        images >>= 1


class Own(ImageDataset):
    """Fills in its own way."""

    def fill(self, *arguments, **more):
        super().fill(*arguments, **more)


def test_what_only_the_host_can_do():
    for augmentation in (None, CropAndFlip(), PictureChanges(cutout=2)):
        assert why_host_only(dataset(augmentation)) == ""
    assert "Darker" in why_host_only(dataset(Darker()))
    assert "Own" in why_host_only(dataset(kind=Own))
