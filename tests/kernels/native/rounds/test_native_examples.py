"""Batches made by native code have the bits of those that the data set makes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

from tensorbow.data import BatchKey, BatchRecipe, CropAndFlip, Dataset, example_arrays
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.kernels.native.rounds.examples import NativeExamples
from tests.native_rig.targets import narrow_target


def made(dataset, indices, key, target):
    recipe = BatchRecipe(dataset, np.asarray(indices, np.int64), key)
    expected = recipe.arrays()
    images, labels = np.full_like(expected[0], 7), np.full_like(expected[1], -1)
    kept = NativeExamples(example_arrays(dataset), target, None)
    make = kept.batches(None, len(indices), images.ctypes.data, labels.ctypes.data)
    make(recipe.picks())
    return (images, labels), expected


@pytest.mark.parametrize("target", [host_target, narrow_target])
@settings(max_examples=15, deadline=None)
@given(
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    channels=st.integers(1, 4),
    batch=st.integers(1, 7),
    padding=st.integers(0, 10),
    augmented=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_batches_have_the_bits_of_the_data_set(
    target, height, width, channels, batch, padding, augmented, seed
):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (11, height, width, channels), np.uint8)
    dataset = Dataset(
        "pictures",
        images,
        generator.integers(0, 10, 11),
        10,
        mean=0.4,
        std=0.3,
        augmentation=CropAndFlip(padding) if augmented else None,
    )
    result, expected = made(dataset, generator.integers(0, 11, batch), BatchKey(seed, 1, 2), target())
    np.testing.assert_array_equal(result[0].view(np.int32), expected[0].view(np.int32))
    np.testing.assert_array_equal(result[1], expected[1])
