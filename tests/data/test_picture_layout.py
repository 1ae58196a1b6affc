"""Warnings of pictures with their channels first."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Trainer, TrainingConfig
from tensorbow.data.picture_layout import warn_of_channels_first


@pytest.mark.parametrize(
    ("dims", "warns"),
    [
        ((3, 32, 32), True),
        ((1, 28, 28), True),
        ((3, 48, 64), True),
        ((32, 32, 3), False),
        ((28, 28, 1), False),
        ((3, 3, 3), False),
        ((1, 4, 4), False),
        ((3, 32, 4), False),
        ((1, 100, 40), False),  # one row, as of a sequence
        ((2, 32, 32), False),
        ((3, 32), False),
        ((32,), False),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_shapes_of_which_channels_seem_to_be_first(
    dims: tuple[int, ...], warns: bool, dtype: type, caplog: pytest.LogCaptureFixture
) -> None:
    inputs, labels = np.zeros((5, *dims), dtype), np.arange(5) % 2
    warn_of_channels_first(tb.data.splits_of((inputs, labels), "own").train)
    assert len(caplog.records) == warns


def test_the_input_is_named_with_a_remedy(caplog: pytest.LogCaptureFixture) -> None:
    inputs = {"size": np.zeros((5, 2)), "photo": np.zeros((5, 3, 16, 24))}
    warn_of_channels_first(tb.data.ArrayDataset(inputs, np.zeros(5), name="own/train"))
    (record,) = caplog.records
    assert record.getMessage() == (
        "own/train: inputs['photo'] [examples, 3, 16, 24] look like pictures with channels first, and are "
        "taken as 3 rows of 16 columns with 24 channels: give them as [examples, 16, 24, 3], by "
        "numpy.transpose(x, (0, 2, 3, 1)), unless the model itself expects channels first"
    )


@pytest.mark.usefixtures("reference_kernels")
def test_a_run_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    split = np.zeros((20, 3, 8, 8), np.uint8), np.arange(20) % 2
    config = TrainingConfig(model="logreg", epochs=1, batch_size=4)
    with Trainer(config, data=(split, split)):
        pass
    assert [record.levelname for record in caplog.records] == ["WARNING"]
