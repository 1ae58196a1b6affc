"""`tensorbow sweep`: its table, files and errors; killed at any moment it goes on with the same bits."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler import TrainingConfig
from scheduler.sweeps.members import Member
from scheduler.sweeps.report import ensemble_lines
from tests.cli.conftest import ROOT

Call = Callable[..., Any]
QUICK = ("sweep", "logreg", "--dataset", "synthetic", "--epochs", "1", "--batch-size", "500")


@pytest.mark.slow
def test_a_sweep_ends_with_a_table_its_files_and_one_json_object(call: Call, tmp_path: Path) -> None:
    ended = call(
        *QUICK, "--grid", "learning-rate=0.01,0.1", "--seeds", "2", "--output", "out", "--ensemble", "--json"
    )
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    facts = json.loads(lines[-1])
    rows = list(csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines()))
    assert [row["learning_rate"] for row in rows] == ["0.01", "0.01", "0.1", "0.1"]
    assert [row["seed"] for row in rows] == ["0", "1", "0", "1"]
    assert {row["status"] for row in rows} == {"finished"}
    best = max(rows, key=lambda row: (float(row["validation_accuracy"]), -float(row["validation_loss"])))
    assert facts["best"] == int(best["member"])
    assert (
        f"test           accuracy {float(best['test_accuracy']):.2%}, of examples that chose nothing" in lines
    )
    assert len((tmp_path / "out" / "curves.jsonl").read_text().splitlines()) == 4
    assert "it is the folder of a sweep, whose best member is out/best" in call("evaluate", "out").line
    evaluated = call("evaluate", "out/best", "--json")
    assert json.loads(evaluated.out)["accuracy"] == pytest.approx(float(best["test_accuracy"]))
    compared = json.loads(call("compare", "out/best", "--metric", "test_accuracy", "--json").out)
    assert compared["test_accuracy"] == pytest.approx(float(best["test_accuracy"]))
    together = json.loads(call("evaluate", "out/ensemble", "--json").out)
    assert together["accuracy"] == pytest.approx(facts["ensemble"]["test_accuracy"])
    assert "ensemble       out/ensemble, the mean of 4 members" in lines
    told = facts["ensemble"]["validation_accuracy"], facts["ensemble"]["test_accuracy"]
    assert f"  validation   accuracy {told[0]:.2%}" in lines
    assert f"  test         accuracy {told[1]:.2%}" in lines
    again = call("sweep", "--resume", "--output", "out")
    assert again.status == 0
    assert [json.dumps(row) for row in rows] == [
        json.dumps(row) for row in csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines())
    ]


@pytest.mark.slow
def test_members_stopped_early_are_shown_with_their_last_accuracy(call: Call, tmp_path: Path) -> None:
    rates = ("--grid", "learning_rate=1e-9,1e-8,0.1", "--epochs", "3", "--halving", "--output", "out")
    shown = [line.split() for line in call(*QUICK, *rates).out.splitlines()]
    rows = csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines())
    stopped = {float(row["learning_rate"]): row for row in rows if row["status"] == "stopped"}
    assert len(stopped) == 2
    for words in (words for words in shown if "epoch" in words and "1:" in words):
        assert words[3] == f"{float(stopped.pop(float(words[0]))['validation_accuracy']):.2%}"
    assert not stopped


@pytest.mark.parametrize("best", [0.75, 0.25])
def test_an_ensemble_worse_than_its_best_member_is_warned_of(best: float) -> None:
    config = TrainingConfig(model="logreg", dataset="synthetic")
    member = Member(0, {}, config, figures={"validation_accuracy": best, "test_accuracy": 0.5})
    figures = {"validation_accuracy": 0.5, "test_accuracy": 0.625}
    lines = ensemble_lines(Path("out/ensemble"), 3, figures, member, "accuracy")
    assert lines[:3] == [
        "ensemble       out/ensemble, the mean of 3 members",
        "  validation   accuracy 50.00%",
        "  test         accuracy 62.50%",
    ]
    warning = "warning: on validation data the ensemble's accuracy, 50.00%, is worse than that of its best"
    assert [line.startswith(warning) for line in lines[3:]] == [True] * (best > 0.5)


def test_an_ensemble_has_no_metric_of_its_model() -> None:
    config = TrainingConfig(model="logreg", dataset="synthetic")
    member = Member(0, {}, config, figures={"validation_own": 1.0, "test_own": 1.0})
    figures = {"validation_accuracy": 0.5, "test_accuracy": 0.625}
    lines = ensemble_lines(Path("out/ensemble"), 3, figures, member, "own")
    assert lines[1:] == ["  validation   accuracy 50.00%", "  test         accuracy 62.50%"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--grid", "learning_rate"), "--grid: expected NAME=VALUES, as learning_rate=0.01,0.03, got"),
        (("--grid", "lerning_rate=1,2"), "did you mean 'learning_rate'?"),
        (("--grid", "lr=1,2"), "members can differ; did you mean 'learning_rate'?"),
        (("--grid", "width=1,2"), "and arguments of your model, as model.width"),
        (("--grid", "seed=1,2"), "vary it by seeds"),
        (
            ("--random", "3"),
            "--random: expected a number of draws together with ranges, as --random 20",
        ),
        (("--grid", "momentum=2"), "momentum: expected a momentum in [0, 1), got 2"),
        (("--halving-factor", "4"), "expected with halving"),
        (("--resume",), "--resume: expected with --output"),
        (("--resume", "--output", "nowhere"), "nowhere holds no sweep to go on with"),
    ],
)
def test_a_wrong_option_is_one_line(words: tuple[str, ...], said: str, call: Call) -> None:
    assert said in call(*QUICK, *words).line


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0])
def test_a_sweep_that_is_killed_goes_on_with_the_same_bits(seconds: float, tmp_path: Path) -> None:
    words = ["sweep", "mlp", "--dataset", "digits", "--grid", "learning_rate=0.003,0.01,0.03", "--seeds", "8"]
    words += ["--epochs", "8", "--at-once", "6", "--checkpoint-seconds", "0", "--keep", "100"]
    command = [sys.executable, "-m", "tensorbow", *words, "--output"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*command, tmp_path / "whole"], check=True, env=environment, capture_output=True)
    killed = tmp_path / "killed"
    process = subprocess.Popen([*command, killed], env=environment, stdout=subprocess.DEVNULL)
    while not (killed / "state.safetensors").exists():
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = [sys.executable, "-m", "tensorbow", "sweep", "--resume", "--output", killed]
    subprocess.run(again, check=True, env=environment, capture_output=True)
    names = ["results.csv", "curves.jsonl", "best/model.safetensors"]
    names += [f"members/{file.name}" for file in (tmp_path / "whole" / "members").iterdir()]
    assert len(names) == 27
    for name in names:
        assert (killed / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
