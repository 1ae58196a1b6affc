"""Models and data of users on the command line, and the project that `tensorbow init` writes."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow.data.registry as registry
from tensorbow.data import make_synthetic

Call = Callable[..., Any]
MODEL = """
import tensorbow as tb


class Net:
    def __init__(self, width: int = 4):
        self.width = width

    def __call__(self, inputs, labels, training):
        outputs = tb.layers.dense(tb.layers.dense(inputs, self.width, tb.nn.relu), 1)[:, 0]
        return tb.reduce_mean(tb.square(outputs - labels)), outputs, {"bias": tb.reduce_mean(labels)}
"""
MASKED = MODEL.replace(
    "tb.square(outputs - labels)", "tb.boolean_mask(tb.square(outputs - labels), labels < 12.0)"
)
QUICK = ("--epochs", 1, "--learning-rate", 0.01)


@pytest.fixture
def project(tmp_path: Path, call: Call) -> Path:
    """The folder of the calls, with a model, and a table of numbers."""
    (tmp_path / "my_model.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    with (tmp_path / "t.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["a", "b", "price"])
        rows.writerows([*row, row.sum()] for row in rng.normal(5, 2, (60, 2)))
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("reference_kernels")
def test_the_project_of_init_trains_by_the_command_that_it_prints(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = call("init", "my project")
    assert {path.name for path in (tmp_path / "my project").iterdir()} == {
        "README.md",
        "config.yaml",
        "data.py",
        "model.py",
    }
    command = ended.out.splitlines()[-1].strip()
    cd, folder, then, program, *words = shlex.split(command)
    assert (cd, folder, then, program) == ("cd", "my project", "&&", "tensorbow")
    assert "'my project/model.py' is there already" in call("init", "my project").line
    monkeypatch.chdir(tmp_path / "my project")
    further = ("--class-weights", "1,1.5", "--label-smoothing", 0.1)
    ended = call(*words, "--epochs", 2, "--json", *further)
    assert (ended.status, ended.err) == (0, "")
    result = json.loads(ended.out.splitlines()[-1])
    assert (result["model"], result["dataset"], result["replicas"]) == ("model.py:Network", "make_data", 2)
    assert result["test_accuracy"] > 0.6
    evaluated = call("evaluate", "runs/Network-make_data")
    assert f"accuracy  {result['test_accuracy']:.2%}" in evaluated.out


@pytest.mark.slow
@pytest.mark.usefixtures("reference_kernels")
def test_a_model_and_a_table_from_train_to_predict(call: Call, project: Path) -> None:
    words = ("my_model.py:Net", "--data", "t.csv", "--target", "price")
    trained = call("train", *words, *QUICK, "--model.width", 8, "--output", "run")
    assert trained.status == 0
    assert "examples/s" in trained.out
    assert "images/s" not in trained.out, "rows of a table are no images"
    assert "width: 8" in (project / "run" / "config.yaml").read_text()
    evaluated = json.loads(call("evaluate", "run", "--json").out)
    assert {"loss", "bias"} < evaluated.keys()
    assert (evaluated["dataset"], evaluated["examples"]) == ("t", 12)
    for words_of_classes in (("--metrics", "f1"), ("--picture", "p.png")):
        refused = (
            f"{words_of_classes[0]}: expected a classifier, got run, which predicts no classes; leave it out"
        )
        assert refused in call("evaluate", "run", *words_of_classes).line
    lines = call("predict", "run", "t.csv", "--output", "p.npy").out.splitlines()
    assert [float(line.split("\t")[1]) for line in lines] == pytest.approx(
        np.load(project / "p.npy").reshape(-1), rel=1e-4
    )
    assert json.loads(call("predict", "run", "t.csv", "--json").out.splitlines()[0]).keys() == {
        "input",
        "outputs",
    }
    exported = call("export", "run").out.strip()
    again = call("evaluate", exported, "--data", "t.csv", "--target", "price", "--json")
    assert json.loads(again.out)["loss"] == pytest.approx(evaluated["loss"], rel=1e-6)
    resumed = call("train", *words, "--model.width=8", "--output", "run", "--resume", "auto", "--epochs", 2)
    assert "resumed from" in resumed.out
    assert "my_model.py:Net, batch 16: 2 on cpu:0" in call("explain", *words).out
    assert "the folder of a run, run; --config run/config.yaml shows its step" in call("explain", "run").line


REFUSED = [
    (
        ("train", "my_model.py:Net", "--model.widht", 3),
        2,
        "--model.widht: my_model.py:Net has no such option",
    ),
    (("train", "my_model.py:Net", "--model.width", "x"), 2, "--model.width: expected a whole number"),
    (("train", "my_model.py:Net", "--model.width"), 2, "--model.width: expected a value"),
    (("train", "my_model.py:Net", "--data", "none.npz"), 1, "data: there is no file or folder"),
    (("train", "my_model.py:Net", "--data", "t.csv"), 1, "expected a column of"),
    (("train", "my_model.py:Net", "--label-smoothing", 0.1), 1, "; add label_smoothing=0.0 (a number"),
    (("train", "my_model.py:Nett"), 1, "did you mean my_model.py:Net?"),
    (("explain", "lenet", "--model.width", 3), 2, "--model.width: lenet has no options"),
    (("train", "lenet", "--dataset", "digits", "--data", "t.csv"), 2, "--data: expected without"),
]


def test_a_model_whose_loss_depends_on_a_mask_is_explained_and_trained(project: Path, call: Call) -> None:
    (project / "my_model.py").write_text(MASKED)
    words = ("my_model.py:Net", "--data", "t.csv", "--target", "price", "--replicas-per-device", 2)
    text = call("explain", *words).out
    assert "mode: dynamic: the forward and backward pass by each replica's executor" in text
    assert "why: Where boolean_mask/Where is control flow or an op of the host (made at " in text
    assert "test loss" in call("train", *words, *QUICK).out


@pytest.mark.parametrize(("words", "status", "text"), REFUSED)
def test_what_is_refused_in_one_line(
    call: Call, project: Path, words: tuple[object, ...], status: int, text: str
) -> None:
    ended = call(*words)
    assert text in ended.line
    assert ended.status == status


@pytest.mark.usefixtures("reference_kernels")
def test_evaluate_finds_the_folder_and_the_splits_of_the_run(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Any] = []
    data = make_synthetic(64, 32)

    def loader(data_dir: Any) -> Any:
        folders.append(data_dir)
        return data

    monkeypatch.setitem(registry.DATASETS, "mnist", loader)
    words = ("--dataset", "mnist", "--data-dir", "there", "--validation-split", 0.25, "--split-seed", 3)
    ended = call("train", "logreg", *words, "--augmentation", "flip", "--epochs", 1, "--output", "run")
    assert ended.status == 0
    assert "validation accuracy" in ended.out
    facts = json.loads(call("evaluate", "run", "--split", "validation", "--json").out)
    assert facts["examples"] == 16
    assert f"{facts['accuracy']:.2%}" in ended.out.partition("validation accuracy  ")[2]
    assert folders == ["there", "there"]


def test_prices_of_a_table_by_a_model_of_the_zoo(call: Call, project: Path) -> None:
    options = ("--data", "t.csv", "--target", "price")
    ended = call("train", "linear", *options, "--epochs", 20, "--learning-rate", 0.05, "--output", "run")
    assert re.search(r"test r2 +0\.9", ended.out)
    found = json.loads(call("evaluate", "run", "--json").out)
    assert found["rmse"] == pytest.approx(found["mse"] ** 0.5)
    assert found["r2"] > 0.9
    rows = call("predict", "run", "t.csv").out.splitlines()
    with (project / "t.csv").open(newline="") as file:
        prices = [float(row["price"]) for row in csv.DictReader(file)]
    assert [float(row.split("\t")[1]) for row in rows] == pytest.approx(prices, abs=1.5)
    call("train", "linear", "--data", "t.csv", "--target", "a,b", "--epochs", 1, "--output", "two")
    assert len(call("predict", "two", "t.csv").out.splitlines()[0].split("\t")) == 3


def test_a_table_with_texts_and_missing_numbers(call: Call, project: Path) -> None:
    towns, area = ("Ulm", "Bonn", "Kiel"), np.random.default_rng(0).uniform(1, 2, 300).round(3)
    rows = [f"{n},{'NA' if n % 20 == 5 else area[n]},{towns[n % 3]},{area[n] + n % 3}" for n in range(300)]
    (project / "h.csv").write_text("\n".join(["id,area,town,price", *rows]))
    words = ("linear", "--data", "h.csv", "--target", "price", "--ignore-columns", "id", "--epochs", 30)
    ended = call("train", *words, "--learning-rate", 0.05, "--output", "h")
    assert (
        "'h.csv': area (15 missing), town (3 texts); texts become columns of 0 and 1" in ended.err + ended.out
    )
    assert json.loads(call("evaluate", "h", "--json").out)["r2"] > 0.9
    # A table of other columns and fewer texts is read by the features of the first.
    (project / "few.csv").write_text("town,price,area\nUlm,1.5,1.5\nUlm,1.5,\nJena,1.5,1.5\n")
    found = call("evaluate", "h", "--data", "few.csv", "--split", "train", "--json")
    assert json.loads(found.out)["examples"] == 2
    found = call("predict", "h", "few.csv")
    assert "texts that were not in the training data: Jena" in found.err
    assert float(found.out.split()[1]) == pytest.approx(1.5, abs=0.2)
    (project / "none.csv").write_text("town,area\nUlm,\n")
    assert np.isfinite(float(call("predict", "h", "none.csv").out.split()[1]))


def test_a_target_of_several_columns_must_be_there(call: Call, project: Path) -> None:
    ended = call("train", "mlp", "--data", "t.csv", "--target", "a,cost")
    assert "--target: expected a column of 't.csv', one of a, b, price; got 'a,cost'" in ended.err
