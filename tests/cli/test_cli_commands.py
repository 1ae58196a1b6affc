from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler import TrainingConfig
from tensorbow.specs import Array
from tensorbow.training import load_arrays

Call = Callable[..., Any]
QUICK = ("train", "logreg", "--dataset", "synthetic", "--epochs", 1)
KEYS = (
    "model dataset devices replicas batch_size sync epochs steps images_per_second seconds "
    "test_accuracy seconds_to_target"
)
ISSUE_OPTIONS = [
    "--dataset",
    "--data-dir",
    "--batch-size",
    "--replicas-per-gpu",
    "--replicas-per-device",
    "--devices",
    "--sync",
    "--tau",
    "--alpha",
    "--mu",
    "--momentum",
    "--learning-rate",
    "--weight-decay",
    "--epochs",
    "--max-seconds",
    "--target-accuracy",
    "--seed",
    "--output",
    "--resume",
    "--json",
    "--config",
    "--staleness",
    "--learning-rate-drops",
    "--launch-ahead",
    "--on-nan",
    "--checkpoint-rounds",
    "--keep-checkpoints",
    "--debug",
]


def weights(folder: Path) -> Array:
    return load_arrays(folder / "model.safetensors")[0]["weights"]


def test_help_has_every_option_with_its_default(call: Call) -> None:
    ended = call("train", "--help")
    assert ended.status == 0
    text = " ".join(ended.out.split())
    for option in ISSUE_OPTIONS:
        assert re.search(rf"{option}[ ,]", text), option
    entries = re.split(r" (?=--[a-z])", text.split("Options:")[1])
    told = " ".join(entries)
    assert told.count("[default:") == len(TrainingConfig().to_dict()) - 1 + len(("config", "json", "debug"))


def test_the_program_s_own_help_and_version(call: Call) -> None:
    assert all(name in call("--help").out for name in ("train", "devices", "explain", "--version"))
    assert call("--version").out.startswith("tensorbow, version ")
    without = call()
    assert without.status == 2
    assert "Usage: tensorbow" in without.out + without.err


def test_train_ends_with_a_table_and_one_json_object(call: Call, tmp_path: Path) -> None:
    ended = call(*QUICK, "--output", "run", "--json")
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    result = json.loads(lines[-1])
    assert list(result) == KEYS.split()
    assert (result["model"], result["devices"], result["replicas"]) == ("logreg", ["cpu:0"], 2)
    assert (result["steps"], result["seconds_to_target"]) == (128, None)
    assert lines[0].startswith("epoch   1/1  loss ")
    assert any(line.startswith("test accuracy") for line in lines)
    assert all(c.isprintable() or c == "\n" for c in ended.out)
    assert not any(line != line.rstrip() for line in lines)


def test_both_names_of_replicas_per_device(call: Call) -> None:
    for name in ("--replicas-per-gpu", "--replicas-per-device"):
        ended = call(*QUICK, name, 3, "--json", "--output", name.strip("-"))
        assert json.loads(ended.out.splitlines()[-1])["replicas"] == 3


def test_runs_are_numbered_when_no_folder_is_given(call: Call, tmp_path: Path) -> None:
    call(*QUICK)
    call(*QUICK)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "logreg-synthetic",
        "logreg-synthetic-2",
    ]
    ended = call(*QUICK, "--resume", "auto", "--epochs", 2)
    assert f"saved in         {Path('runs') / 'logreg-synthetic-2'}\n" in ended.out


def test_the_saved_configuration_repeats_the_run(call: Call, tmp_path: Path) -> None:
    call(*QUICK, "--output", "a", "--seed", 5, "--tau", 2, "--learning-rate-drops", "1:0.5")
    call("train", "logreg", "--config", "a/config.yaml", "--output", "b")
    call("train", "logreg", "--config", "a/config.yaml", "--output", "c", "--seed", 6)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert models[0] == models[1] != models[2]


def test_the_command_line_wins_over_the_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("dataset: synthetic\nbatch-size: 8\nreplicas-per-gpu: 1\nepochs: 1\n")
    ended = call("train", "logreg", "--config", "c.yaml", "--batch-size", 16, "--json")
    result = json.loads(ended.out.splitlines()[-1])
    assert (result["batch_size"], result["replicas"]) == (16, 1)


def test_a_resumed_run_keeps_its_options(call: Call, tmp_path: Path) -> None:
    extra = ("--seed", 7, "--learning-rate", 0.003, "--replicas-per-gpu", 3)
    call(*QUICK, *extra, "--output", "a")
    call(*QUICK, *extra, "--epochs", 2, "--output", "b")
    call("train", "logreg", "--output", "a", "--resume", "auto", "--epochs", 2)
    assert (weights(tmp_path / "a") == weights(tmp_path / "b")).all()


def test_resume_takes_a_checkpoint_s_path(call: Call, tmp_path: Path) -> None:
    call(*QUICK, "--output", "a")
    path = tmp_path / "a" / "checkpoint-000000128.safetensors"
    ended = call("train", "logreg", "--resume", path, "--epochs", 2, "--output", "b")
    assert ended.status == 0
    assert "at round 128" in ended.out
    assert (tmp_path / "b" / "model.safetensors").exists()


def test_resume_without_a_run_starts_anew(call: Call) -> None:
    ended = call(*QUICK, "--output", "a", "--resume", "auto")
    assert ended.status == 0
    assert "resumed" not in ended.out


def test_devices(call: Call) -> None:
    assert "/device:CPU:0" in call("devices").out
    rows = json.loads(call("devices", "--json").out)
    assert rows[0]["kind"] == "cpu"


@pytest.mark.parametrize("model", ["logreg", "lenet"])
def test_explain(call: Call, model: str) -> None:
    ended = call("explain", model, "--staleness", 1, "--batch-size", 4)
    assert ended.status == 0
    for part in ("segment gradient", "segment update", "bytes at peak", "the synchronisation of 2 replicas"):
        assert part in ended.out


def test_explain_without_averaging(call: Call) -> None:
    assert "synchronisation" not in call("explain", "logreg", "--replicas-per-gpu", 1).out
