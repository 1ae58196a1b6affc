"""Warnings of pictures with their channels first, and of one-hot labels."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Trainer, TrainingConfig
from scheduler.training.folders.run_data import warn_of_data
from tensorbow.data.doubtful_data import warn_of_doubts


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
    warn_of_doubts(tb.data.splits_of((inputs, labels), "own").train, any_labels=False)
    assert len(caplog.records) == warns


def test_numbers_that_are_not_finite_and_classes_that_do_not_begin_with_0(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x, classes = np.zeros((30, 2), np.float32), np.arange(30) % 3
    bad = x.copy()
    bad[4, 1], bad[7, 0] = np.nan, np.inf
    doubts = [
        (
            x,
            classes + 1,
            "own: labels are numbered from 1 to 3, and are taken as 4 classes from 0: give labels - 1",
        ),
        (x, classes * 0 + 2, "own: all labels are 2: there is nothing to learn"),
        (bad, classes, "own: inputs: 2 of 30 examples have NaN or infinite numbers"),
        (x, bad[:, 1], "own: labels: 1 of 30 examples have NaN or infinite numbers"),
        (x, classes, ""),
        (x, classes + 2, ""),  # as some numbers of words
        (x, np.repeat(classes[:, None] + 1, 2, 1), ""),
    ]
    for inputs, labels, message in doubts:
        caplog.clear()
        warn_of_doubts(tb.data.ArrayDataset(inputs, labels, name="own"), any_labels=True)
        assert caplog.text.count("WARNING") == (message != "")
        assert message in caplog.text
    table = tb.data.ArrayDataset(bad[:, 1:], classes, standardisation=(np.zeros(1), np.ones(1)))
    caplog.clear()
    warn_of_doubts(table, any_labels=True)
    assert not caplog.records  # a missing number


def test_the_input_is_named_with_a_remedy(caplog: pytest.LogCaptureFixture) -> None:
    inputs = {"size": np.zeros((5, 2)), "photo": np.zeros((5, 3, 16, 24))}
    warn_of_doubts(tb.data.ArrayDataset(inputs, np.zeros(5), name="own/train"), any_labels=False)
    (record,) = caplog.records
    assert record.getMessage() == (
        "own/train: inputs['photo'] [examples, 3, 16, 24] look like pictures with channels first, and are "
        "taken as pictures of 3 x 16 with 24 channels: give them as [examples, 16, 24, 3], by "
        "numpy.transpose(x, (0, 2, 3, 1)), unless the model itself expects channels first"
    )


@pytest.mark.usefixtures("reference_kernels")
def test_a_run_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    split = np.zeros((20, 3, 8, 8), np.uint8), np.arange(20) % 2
    config = TrainingConfig(model="logreg", epochs=1, batch_size=4)
    with Trainer(config, data=(split, split)):
        pass
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_labels_that_the_options_mean_as_numbers(caplog: pytest.LogCaptureFixture) -> None:
    train = tb.data.ArrayDataset(np.zeros((20, 2)), np.arange(20) % 2 + 0.0)
    for options in ({"model": "linear"}, {"task": "regression"}, {"model": tb.models.LeNet}):
        warn_of_data(TrainingConfig(**{"model": "mlp", **options}), train)
        assert not caplog.records
    warn_of_data(TrainingConfig(model="mlp"), train)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_one_hot_labels_for_a_model_of_the_zoo(dtype: type, caplog: pytest.LogCaptureFixture) -> None:
    one_hot = np.eye(3)[np.arange(6) % 3]
    for labels in (one_hot, one_hot[:, :2], one_hot + one_hot[::-1], one_hot[:, :1], np.arange(6)):
        warn_of_doubts(
            tb.data.ArrayDataset(np.zeros((6, 2)), labels.astype(dtype), name="own/train"), any_labels=False
        )
    (record,) = caplog.records
    assert record.getMessage() == (
        "own/train: labels [examples, 3] look like classes in one-hot form, and are taken as 3 numbers to "
        "regress: give numpy.argmax(labels, 1)"
    )
    warn_of_doubts(tb.data.ArrayDataset(np.zeros((6, 2)), one_hot), any_labels=True)
    assert len(caplog.records) == 1


def test_classes_as_floats_for_a_model_of_the_zoo(caplog: pytest.LogCaptureFixture) -> None:
    classes = np.arange(20) % 3
    others = classes + 0.5, classes + 1.0, classes * 2.0, np.arange(20.0)
    for labels in (classes, *others):
        warn_of_doubts(tb.data.ArrayDataset(np.zeros((20, 2)), labels, name="own/train"), any_labels=False)
    assert not caplog.records
    own = tb.data.ArrayDataset(np.zeros((20, 2)), classes.astype(np.float64), name="own/train")
    warn_of_doubts(own, any_labels=False)
    (record,) = caplog.records
    assert record.getMessage() == (
        "own/train: labels float32 [examples] are whole numbers from 0 to 2, and are taken as numbers to "
        "regress: for classes give integers, or task='classification' (--task classification)"
    )
