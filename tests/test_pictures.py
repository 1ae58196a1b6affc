"""Pictures of the product: what they say, and that they can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorbow import pictures
from tests.picture_faults import faults

pytest.importorskip("matplotlib")


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Figures that the test draws, which must be without faults."""
    drawn: list[Any] = []
    styled_figure = pictures.styled_figure

    @contextmanager
    def noted(width: float, height: float) -> Iterator[Any]:
        with styled_figure(width, height) as figure:
            yield figure
            assert faults(figure) == []
            drawn.append(figure)

    monkeypatch.setattr(pictures, "styled_figure", noted)
    return drawn


def test_faults_of_a_picture_are_found() -> None:
    with pictures.styled_figure(8.0, 4.5) as figure:
        axes = figure.add_subplot()
        axes.set_xticks([0, 0.1, 1], ["a long text", "another long text", "1"])
        axes.text(0.5, 0.5, "tiny", fontsize=6)
        axes.text(0.98, 0.3, "a text that leaves the picture", in_layout=False)
        assert faults(figure) == [
            "'tiny' is too small",
            "'a text that leaves the picture' is cut off",
            "'a long text' covers 'another long text'",
        ]


@pytest.mark.slow
def test_a_runs_curves_have_one_colour_for_each_data_set(tmp_path: Path, figures: list[Any]) -> None:
    from scheduler.training.folders.run_curves import draw_run

    (tmp_path / "config.yaml").write_text("model: mlp\ndata: my table.csv\n")
    names = ("loss", "validation_loss", "validation_f1", "validation_top5", "validation_auc", "learning_rate")
    records = [{"round": n, "epoch": n, "seconds": n, **dict.fromkeys(names, 0.5**n)} for n in range(1, 30)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert draw_run(tmp_path) == tmp_path / "curves.png"
    assert figures[0].get_suptitle().startswith("mlp on my table.csv, ")
    drawn = [line for axes in figures[0].axes for line in axes.get_lines()]
    marks = [line for line in drawn if line.get_label() == "best evaluation"]
    assert [line.get_xdata()[0] for line in marks] == [29] * 5  # least validation_loss, in all panels
    lines = [(line.get_label(), line.get_color()) for line in drawn if line not in marks]
    assert lines[:2] == [("training", pictures.BLUE), ("validation", pictures.GREEN)]
    assert lines[2:5] == [("validation", pictures.GREEN)] * 3
    assert lines[5][1] == pictures.GREY


def test_the_title_of_a_single_panel_is_not_cut_off(tmp_path: Path, figures: list[Any]) -> None:
    from scheduler.training.folders.run_curves import draw_run

    options = "model: my_model.py:Regression\ndata: a_table_of_measurements.csv\nreplicas_per_device: 2\n"
    (tmp_path / "config.yaml").write_text(f"{options}batch_size: 32\n")
    records = [{"round": n, "epoch": n, "seconds": n, "loss": 1 / n} for n in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert draw_run(tmp_path) == tmp_path / "curves.png"
    assert sum(axes.get_visible() for axes in figures[0].axes) == 1
    assert faults(figures[0]) == []


def test_logarithmic_axes_have_plain_labels_and_narrow_ranges_stay() -> None:
    with pictures.styled_figure(4.0, 3.0) as figure:
        axes = figure.add_subplot()
        axes.plot([0.3, 30.0], [4.0, 7.0])
        pictures.make_logarithmic(axes, "x", 0.3, 30.0)
        pictures.make_logarithmic(axes, "y", 4.0, 7.0)
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
        axes.set_xlim(0.3, 30.0)
        figure.canvas.draw()
        texts = [text.get_text() for text in axes.get_xticklabels()]
        assert {"1", "10"} <= {*texts}


def test_a_metric_that_is_the_loss_has_no_panel_of_its_own(tmp_path: Path, figures: list[Any]) -> None:
    from scheduler.training.folders.run_curves import draw_run

    (tmp_path / "config.yaml").write_text("model: mlp\ndata: table.csv\n")
    figure = {"loss": 4.0, "mse": 4.0, "mae": 1.0, "test_loss": 9.0, "test_mse": 9.0, "test_mae": 2.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"round": 9, "epoch": 1, "seconds": 1, **figure}))
    assert draw_run(tmp_path) == tmp_path / "curves.png"
    assert [axes.get_ylabel() for axes in figures[0].axes] == ["loss = mse", "mae"]
    assert all(axes.get_xlim()[0] == 0 for axes in figures[0].axes), "one evaluation is at its place"


@pytest.mark.slow
@pytest.mark.parametrize("classes", [10, 24])
def test_a_confusion_matrix_can_be_read(tmp_path: Path, figures: list[Any], classes: int) -> None:
    from scheduler.training.measures.classification_metrics import report_of

    labels = np.arange(4 * classes) % classes
    scores = np.random.default_rng(0).random((4 * classes, classes))
    report_of(scores, labels).draw(tmp_path / "confusion.png", "mlp on digits")
    assert len(figures) == 1
