"""Models of the zoo on labels that are numbers: loss in units of their spread, outputs in their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.models.model_outputs import outputs_of_numbers

pytestmark = pytest.mark.usefixtures("graph")

RNG = np.random.default_rng(4)
VALUES, LABELS = RNG.normal(size=(7, 3)).astype(np.float32), RNG.normal(50, 9, (7, 3)).astype(np.float32)
SCALE = np.array([50.0, 51, 52]), np.array([9.0, 8, 7])


@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("scaled", [False, True])
def test_loss_and_metrics_of_numbers(columns: int | None, scaled: bool) -> None:
    values, labels = (array if columns else array[:, 0] for array in (VALUES, LABELS))
    scale = tuple(part if columns else part[0] for part in SCALE) if scaled else None
    found = outputs_of_numbers(tb.constant(values), tb.constant(labels), scale)
    with tb.Session() as session:
        loss, outputs, mse, mae = session.run(
            [found.loss, found.outputs, found.metrics["mse"], found.metrics["mae"]]
        )
    mean, std = (np.asarray(part, np.float64) for part in (scale or (0.0, 1.0)))
    expected = values * std + mean
    assert outputs == pytest.approx(expected, rel=1e-5)
    assert mse == pytest.approx(((expected - labels) ** 2).mean(), rel=1e-4)
    assert mae == pytest.approx(abs(expected - labels).mean(), rel=1e-4)
    assert loss == pytest.approx((((expected - labels) / std) ** 2).mean(), rel=1e-4)


@pytest.mark.parametrize(("columns", "shape"), [((), (None,)), ((2,), (None, 2)), ((1,), (None, 1))])
@pytest.mark.parametrize("name", ["linear", "mlp", "lenet"])
def test_outputs_have_the_shape_of_the_labels(name: str, columns: Any, shape: Any) -> None:
    images = tb.placeholder(tb.float32, [None, 28, 28, 1])
    labels = tb.placeholder(tb.float32, [None, *columns])
    made = tb.models.get_model(name)(images, labels, training=True)
    assert made.outputs.spec.shape == shape
    assert {*made.metrics} == {"mse", "mae"}


def test_options_of_classes_and_models_of_sequences_refuse_numbers() -> None:
    images, labels = tb.placeholder(tb.float32, [None, 4]), tb.placeholder(tb.float32, [None])
    weights = tb.constant([1.0, 2.0])
    linear = tb.models.get_model("linear")
    for options, name in (
        ({"class_weights": weights}, "class_weights"),
        ({"label_smoothing": 0.1}, "label_s"),
    ):
        with pytest.raises(InvalidArgumentError, match=rf"{name}.*: model linear predicts numbers"):
            linear(images, labels, **options)
    with pytest.raises(InvalidArgumentError, match="char-rnn classifies the steps of sequences"):
        tb.models.get_model("char-rnn")(tb.placeholder(tb.int32, [None, 6]), labels)
    with pytest.raises(InvalidArgumentError, match=r"or numbers to predict, floats \[batch\]"):
        linear(images, tb.placeholder(tb.float32, [None, 2, 2]))
