"""The default data set trains on shifted digits, and tests on digits as they are."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from tensorbow.data import BatchKey, CropAndFlip, load

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="digits come with scikit-learn")


def test_training_batches_move_by_up_to_two_pixels_and_are_not_mirrored():
    train, test = load("digits")
    assert test.augmentation is None
    rows = np.arange(200)
    plain, labels = train.batch(rows)
    moved, again = np.empty_like(plain), np.empty_like(plain)
    train.fill(rows, moved, labels.copy(), key=BatchKey(1, 2, 3))
    train.fill(rows, again, labels.copy(), key=BatchKey(1, 2, 3))
    np.testing.assert_array_equal(moved, again)
    (moves,), (mirrored,) = CropAndFlip(padding=2, flip=False).draw(200, [BatchKey(1, 2, 3)])
    assert set(np.unique(moves)) == {-2, -1, 0, 1, 2}
    assert not mirrored.any()
    for before, after, (down, right) in zip(plain, moved, moves, strict=True):
        inner = before[2:-2, 2:-2]
        np.testing.assert_array_equal(after[2 + down : 26 + down, 2 + right : 26 + right], inner)
