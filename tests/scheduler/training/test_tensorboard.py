"""Event files of a training run, read back."""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler import TensorBoard, Trainer, TrainingConfig
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tests.scheduler_rig.interrupted import train_until

pytest.importorskip("tensorboardX")
Options = Callable[..., TrainingConfig]


def events(folder: Path) -> Iterator[Any]:
    """Events of a folder's files, in order of time."""
    from tensorboardX.proto.event_pb2 import Event

    for file in sorted(folder.iterdir()):
        blob = memoryview(file.read_bytes())
        while blob:
            (length,) = struct.unpack("<Q", blob[:8])
            event = Event()
            event.ParseFromString(bytes(blob[12 : 12 + length]))
            yield event
            blob = blob[16 + length :]


def points(folder: Path, tag: str) -> list[tuple[int, float]]:
    """(round, value) of a curve."""
    return [
        (event.step, value.simple_value)
        for event in events(folder)
        for value in event.summary.value
        if value.tag == tag
    ]


@pytest.mark.slow
def test_it_has_the_figures_of_the_metrics_the_weights_and_the_graph(
    options: Options, metrics: Callable[[Path], list[dict[str, Any]]], tmp_path: Path
) -> None:
    assert train_until(options(output=tmp_path, epochs=3, tensorboard=True), 10).interrupted
    with Trainer(options(output=tmp_path, epochs=3, tensorboard=True, resume="auto")) as trainer:
        trainer.train()
    folder, records = tmp_path / "tensorboard", metrics(tmp_path)
    for tag in ("test_accuracy", "loss"):
        found = dict(points(folder, f"evaluation/{tag}"))
        assert found == pytest.approx({record["round"]: record[tag] for record in records}, rel=1e-6)
    (histogram, *_) = [
        value for event in events(folder) for value in event.summary.value if value.tag == "weights"
    ]
    assert histogram.histo.num == 28 * 28 * 10
    graph = next(event.graph_def for event in events(folder) if event.graph_def)
    assert b"SparseSoftmaxCrossEntropy" in graph


def test_training_is_averaged_over_so_many_rounds(options: Options, tmp_path: Path) -> None:
    losses: list[float] = []

    class Watched(TensorBoard):
        def on_round(self, run: Any, report: Any) -> None:
            losses.append(sum(report.losses) / len(report.losses))
            super().on_round(run, report)

    with Trainer(options(), callbacks=[Watched(tmp_path, every=4)]) as trainer:
        trainer.train()
    expected = [(stop, sum(losses[stop - 4 : stop]) / 4) for stop in range(4, len(losses) + 1, 4)]
    assert len(expected) == 3
    found = points(tmp_path, "training/loss")
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected], rel=1e-6)


@pytest.mark.slow
def test_further_metrics_are_curves_and_the_confusion_matrix_of_each_evaluation_is_an_image(
    options: Options, metrics: Callable[[Path], list[dict[str, Any]]], tmp_path: Path
) -> None:
    image = pytest.importorskip("matplotlib.image")
    asked = ("f1", "top3", "confusion")
    given = options(output=tmp_path, tensorboard=True, metrics=asked, validation_split=0.25)
    with Trainer(given) as trainer:
        trainer.train()
    folder, records = tmp_path / "tensorboard", metrics(tmp_path)
    for tag in ("validation_loss", "validation_f1", "validation_top3"):
        found = dict(points(folder, f"evaluation/{tag}"))
        assert found == pytest.approx({record["round"]: record[tag] for record in records}, rel=1e-6)
    images = [
        (event.step, value.image.encoded_image_string)
        for event in events(folder)
        for value in event.summary.value
        if value.tag == "evaluation/validation_confusion"
    ]
    assert [step for step, _ in images] == [record["round"] for record in records]
    for _, blob in images:
        pixels = image.imread(io.BytesIO(blob), "png")
        assert pixels.shape[0] > 400
        assert len(np.unique(pixels[..., 0])) > 20  # of shades: not an empty page
    assert images[0][1] != images[1][1]


def test_what_is_missing_is_said(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    with Trainer(options(tensorboard=True)) as trainer, pytest.raises(Exception) as caught:
        trainer.train()
    assert isinstance(caught.value.__cause__, InvalidArgumentError)
    assert "the run has no output folder; give TensorBoard(folder)" in str(caught.value)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'tensorbow\[tensorboard\]'"):
        Trainer(options(tensorboard=True))
