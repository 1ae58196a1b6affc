"""`tensorbow compare`, and the curves that `train` draws."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensorbow.cli.compare_table import Column, fitted

Call = Callable[..., Any]
RUN = ("train", "logreg", "--dataset", "synthetic")


def recorded(folder: Path, name: str, accuracies: list[float | None], **options: Any) -> Path:
    """A run's folder with these test accuracies, one after each epoch of 2 s."""
    path = folder / name
    path.mkdir()
    given = {"model": "lenet", "learning_rate": None, "devices": ["cpu:0"], "output": name, **options}
    (path / "config.yaml").write_text("".join(f"{key}: {json.dumps(given[key])}\n" for key in given))
    lines = [
        {
            **{"round": 10 * epoch, "epoch": epoch, "seconds": 2.0 * epoch, "images_per_second": 1234.5},
            **{"loss": 1 / epoch, "test_loss": 2 / epoch, "test_accuracy": value, "learning_rate": 0.25},
        }
        for epoch, value in enumerate(accuracies, 1)
    ]
    (path / "metrics.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines) + '{"round": 99, "ep'
    )
    return path


def test_runs_are_ordered_by_their_best_and_show_the_options_that_differ(call: Call, tmp_path: Path) -> None:
    recorded(tmp_path, "a", [0.5, 0.75, None], batch_size=16)
    recorded(tmp_path, "b", [0.5, 0.875, 0.625], batch_size=16, learning_rate=0.5, seed=3)
    ended = call("compare", "a", "b", "a")
    assert (ended.status, ended.err) == (0, "")
    head, best, other = (line.split("  ") for line in ended.out.splitlines())
    names = [name.strip() for name in head if name.strip()]
    assert names[:4] == ["run", "learning rate", "seed", "test_accuracy"]  # neither output nor batch size
    assert [word.strip() for word in best if word.strip()][:5] == ["b", "0.5", "3", "62.50%", "87.50%"]
    assert [word.strip() for word in other if word.strip()][:5] == ["a", "0.25", "0", "75.00%", "75.00%"]

    rows = [
        json.loads(line) for line in call("compare", "a", "b", "--target", 0.7, "--json").out.splitlines()
    ]
    assert [(row["run"], row["best"], row["at_epoch"]) for row in rows] == [("b", 0.875, 2), ("a", 0.75, 2)]
    assert [row["seconds_to_target"] for row in rows] == [4.0, 4.0]
    rows = [
        json.loads(line)
        for line in call(
            "compare", "a", "b", "--metric", "test_loss", "--target", 0.7, "--json"
        ).out.splitlines()
    ]
    assert [(row["best"], row["epochs_to_target"]) for row in rows] == [(2 / 3, 3), (2 / 3, 3)]


@pytest.mark.slow
def test_options_that_an_older_run_lacks_are_at_their_defaults(call: Call, tmp_path: Path) -> None:
    of_model = {"dataset": "digits", "batch_size": 16, "learning_rate_drops": [], "weight_decay": 0.0}
    recorded(tmp_path, "old", [0.5], epochs=3, **of_model)
    assert call("train", "logreg", "--epochs", 1, "--output", "new").status == 0
    head = call("compare", "old", "new").out.splitlines()[0].split("  ")
    names = [name.strip() for name in head if name.strip()]
    assert names[: names.index("test_accuracy")] == ["run", "model", "epochs"]


def test_runs_with_a_validation_split_are_ordered_by_their_accuracy_on_it(call: Call, tmp_path: Path) -> None:
    for name, accuracies in (("a", [0.5, 0.75]), ("b", [0.5, 0.875, 0.625])):
        file = recorded(tmp_path, name, accuracies) / "metrics.jsonl"
        file.write_text(file.read_text().replace("test_", "validation_"))
    lines = call("compare", "a", "b").out.splitlines()
    assert "validation_accuracy" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["b", "a"]


def test_a_metric_has_the_direction_that_the_runs_were_trained_with(call: Call, tmp_path: Path) -> None:
    """Options that only change what a run writes are no differences of runs."""
    for name, score in (("a", 0.5), ("b", 0.25)):
        options = {"best_metric": "test_score:min", "metrics": [name], "tensorboard": name == "a"}
        file = recorded(tmp_path, name, [0.5, score, 0.75], **options) / "metrics.jsonl"
        file.write_text(file.read_text().replace("test_accuracy", "test_score"))
    head, *lines = call("compare", "a", "b").out.splitlines()
    assert head.split()[:3] == ["run", "test_score", "best"]
    assert [line.split()[:3] for line in lines] == [["b", "0.75", "0.25"], ["a", "0.75", "0.5"]]
    turned = call("compare", "a", "b", "--metric", "test_score:max", "--json").out.splitlines()
    assert [json.loads(line)["best"] for line in turned] == [0.75, 0.75]
    config = tmp_path / "b" / "config.yaml"
    config.write_text(config.read_text().replace(":min", ":max"))
    line = call("compare", "a", "b", "--metric", "test_score").line
    assert "a was trained with test_score:min, b with test_score:max; give one" in line


def test_what_cannot_be_compared_is_said(call: Call, tmp_path: Path) -> None:
    recorded(tmp_path, "a", [0.5])
    recorded(tmp_path, "begun", [])
    assert "nowhere is no folder of a run: it has no config.yaml" in call("compare", "a", "nowhere").line
    assert "give one that `train` wrote, such as a, begun" in call("compare", ".").line
    assert (
        "--metric: expected one of a's (loss, test_loss, test_accuracy), got 'f1'"
        in call("compare", "a", "--metric", "f1").line
    )
    assert "begun has no evaluation yet" in call("compare", "a", "begun").line
    assert "--picture: expected a file that ends in one of" in call("compare", "a", "--picture", "p.gif").line


@pytest.mark.slow
@pytest.mark.draws_curves
def test_pictures_of_a_run_and_of_several(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options = ("--learning-rate-drops", "1:0.1", "--ema", 0.9)
    ended = call(*RUN, "--epochs", 2, *options, "--output", "run")
    assert ended.status == 0
    assert ended.out.splitlines()[-1] == "curves in run/curves.png"
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
    recorded(tmp_path, "other", [0.5, 0.75])
    assert call("compare", "run", "other", "--picture", "both.svg").status == 0
    text = (tmp_path / "both.svg").read_text()
    assert text.startswith("<?xml")
    assert "seconds of training" in text


def columns_of(names: dict[str, list[str]]) -> list[Column]:
    return [Column(name, name.replace("_", " "), texts, False) for name, texts in names.items()]


WIDE = {
    "run": ["runs/first", "runs/second"],
    "learning_rate": ["0.01", "0.1"],
    "model_options": ["hidden=300,activation=relu,rate=0.5", "hidden=500,activation=relu,rate=0.5"],
    "test_accuracy": ["97.00%", "97.00%"],
    "epochs": ["3", "3"],
}


@pytest.mark.parametrize(
    ("width", "tables", "lines"),
    [
        (90, [("run", "learning rate", "model options", "test accuracy", "epochs")], []),
        (80, [("run", "learning\nrate", "model options", "test\naccuracy", "epochs")], []),
        (
            70,
            [("run", "learning\nrate", "model options", "test\naccuracy")],
            ["equal in all runs: epochs 3"],
        ),
        (
            53,
            [("run", "learning\nrate", "model options", "test\naccuracy")],
            ["equal in all runs: epochs 3", "runs in runs"],
        ),
        (
            30,
            [("run", "learning\nrate"), ("run", "model options"), ("run", "test\naccuracy")],
            ["equal in all runs: epochs 3", "runs in runs"],
        ),
    ],
)
def test_a_table_is_fitted_to_a_width(width: int, tables: list[Any], lines: list[str]) -> None:
    found, said = fitted(columns_of(WIDE), width, ["test_accuracy"])
    assert [tuple(column.header for column in table) for table in found] == tables
    assert said == lines
    for table in found:
        assert sum(column.width + 2 for column in table) - 2 <= max(width, 31)
    (options,) = (column for table in found for column in table if column.name == "model_options")
    assert [text[:10] for text in options.texts] == ["hidden=300", "hidden=500"]


def test_a_table_on_a_terminal_is_as_wide_as_that(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal there is one line for each run."""
    for name in ("a", "b"):
        recorded(tmp_path, name, [0.5], batch_size=16 + ord(name), weight_decay=ord(name), momentum=ord(name))
    assert call("compare", "a", "b").out.count("\n") == 3
    monkeypatch.setenv("COLUMNS", "60")
    *table, line = call("compare", "a", "b").out.splitlines()
    assert max(map(len, table)) <= 60
    assert line == "equal in all runs: at epoch 1, epochs 1, seconds 2.0, examples/s 1,234"
