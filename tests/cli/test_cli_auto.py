"""`tensorbow train --replicas-per-gpu auto`: what it says, its JSON, its files, and going on."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import yaml

import scheduler.training.tuning.auto
from tests.cli.conftest import Call
from tests.scheduler_rig.ticking_clock import TickingClock

AUTO = ("train", "logreg", "--dataset", "synthetic", "--replicas-per-gpu", "auto", "--output", "run")


@pytest.mark.slow
def test_a_run_that_finds_its_number_of_replicas(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = scheduler.training.tuning.auto.TuningOptions(windows=1, window_seconds=0.02)
    monkeypatch.setattr(scheduler.training.tuning.auto, "TuningOptions", lambda: quick)
    monkeypatch.setattr("scheduler.training.running.trainer.time", TickingClock(0.005))
    ended = call(*AUTO, "--epochs", 100_000, "--max-seconds", 2, "--mu", 0.1, "--json")
    assert (ended.status, ended.err) == (0, "")
    *lines, last = ended.out.splitlines()
    result = json.loads(last)
    tuning = result["tuning"]
    assert tuning["measurements"][0]["replicas_per_device"] == 1
    (row,) = [line for line in lines if line.startswith("auto   ")]
    assert row == f"auto             {tuning['replicas_per_device']} per device: {tuning['reason']}"
    warned = [line.removeprefix("warning          ") for line in lines if line.startswith("warning   ")]
    assert "; ".join(warned) == "; ".join(tuning["doubts"])
    facts = json.loads((tmp_path / "run" / "tuning.json").read_text())
    assert facts["changes"][0] == {"round": 0, "replicas_per_device": 1}
    assert facts["changes"][-1]["replicas_per_device"] == result["replicas"]
    assert facts["measurements"] == tuning["measurements"]
    drawn = importlib.util.find_spec("matplotlib") is not None
    assert (tmp_path / "run" / "tuning.png").exists() == drawn
    assert any(line.startswith("picture of the tuning in ") for line in lines) == drawn
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["replicas_per_device"] == "auto"
    again = call("train", "--resume", "auto", "--output", "run", "--max-seconds", 2.2, "--json")
    assert again.status == 0
    assert json.loads(again.out.splitlines()[-1])["steps"] > result["steps"]


@pytest.mark.slow
def test_a_run_that_is_over_before_it_has_decided_says_so(call: Call) -> None:
    ended = call(*AUTO, "--epochs", 1, "--max-seconds", 0.001)
    assert ended.status == 0
    row = "auto             not decided: the run was over before 1 per device was measured"
    assert row in ended.out.splitlines()


@pytest.mark.slow
def test_a_run_that_was_not_sure_of_its_number_says_so(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = scheduler.training.tuning.auto.TuningOptions(windows=60, window_seconds=0.02)
    monkeypatch.setattr(scheduler.training.tuning.auto, "TuningOptions", lambda: quick)
    monkeypatch.setattr("scheduler.training.running.trainer.time", TickingClock(0.005))
    lines = call(*AUTO, "--epochs", 100_000, "--max-seconds", 1).out.splitlines()
    (row,) = [line for line in lines if line.startswith("warning   ")]
    assert row.startswith("warning          not sure: it was ended early")


def test_the_plan_of_such_a_run_is_that_of_its_beginning(call: Call) -> None:
    ended = call("explain", "logreg", "--replicas-per-gpu", "auto", "--devices", "cpu:0,cpu:1")
    assert ended.status == 0
    assert "1 on cpu:0 and 1 on cpu:1 (2 replicas)" in ended.out
