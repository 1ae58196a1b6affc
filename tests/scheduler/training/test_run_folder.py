from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from scheduler import TrainingConfig
from scheduler.options import options_of
from scheduler.training.folders.output_folders import find_checkpoint
from scheduler.training.folders.run_folder import RunFolder
from scheduler.training.measures.tally import Tally
from tensorbow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from tensorbow.training import save_arrays

Options = Callable[..., TrainingConfig]


def write(config: TrainingConfig, *rounds: int) -> None:
    folder = RunFolder(config)
    folder.begin(evaluated_at=0)
    for round in rounds:
        folder.record({"round": round})
        folder.save_checkpoint({"w": np.zeros(2)}, asdict(Tally(round=round, evaluated_at=round)))
    folder.close()


def test_the_resolved_configuration_is_saved(tmp_path: Path, options: Options) -> None:
    config = options(output=tmp_path / "deep" / "run", seed=3)
    write(config)
    saved = yaml.safe_load((tmp_path / "deep" / "run" / "config.yaml").read_text())
    assert TrainingConfig.from_dict(saved) == config


def test_looking_writes_nothing(tmp_path: Path, options: Options) -> None:
    RunFolder(options(output=tmp_path / "run"))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path: Path, options: Options) -> None:
    write(options(output=tmp_path), 5)
    with pytest.raises(FailedPreconditionError, match=r"add --resume auto \(in a program resume='auto'\)"):
        RunFolder(options(output=tmp_path))


def test_a_run_that_saved_nothing_is_no_obstacle(tmp_path: Path, options: Options) -> None:
    write(options(output=tmp_path))
    write(options(output=tmp_path, seed=4), 5)
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["seed"] == 4


def test_two_runs_do_not_share_a_folder(tmp_path: Path, options: Options) -> None:
    first = RunFolder(options(output=tmp_path))
    for resume in (None, "auto"):
        with pytest.raises(FailedPreconditionError, match="another run is writing there"):
            RunFolder(options(output=tmp_path, resume=resume))
    first.begin(0)
    first.close()
    first.close()
    RunFolder(options(output=tmp_path)).close()


def test_two_runs_do_not_make_the_same_folder(tmp_path: Path, options: Options) -> None:
    """Neither found a folder to claim when it looked."""
    config = options(output=tmp_path / "run", resume="auto")
    first, second, third = RunFolder(config), RunFolder(config), RunFolder(config)
    first.begin(0)
    with pytest.raises(FailedPreconditionError, match="another run is writing there"):
        second.begin(0)
    first.save_checkpoint({"w": np.zeros(2)}, asdict(Tally(round=5)))
    first.close()
    with pytest.raises(FailedPreconditionError, match="another run has written there meanwhile"):
        third.begin(0)
    for folder in (second, third):
        folder.close()
    RunFolder(config).close()


def test_a_refused_run_lets_the_folder_go(tmp_path: Path, options: Options) -> None:
    write(options(output=tmp_path), 5)
    with pytest.raises(FailedPreconditionError, match="holds a run already") as caught:
        RunFolder(options(output=tmp_path))
    RunFolder(options(output=tmp_path, resume="auto")).close()
    assert caught.value is not None  # its traceback kept the refused one alive


def test_auto_takes_the_newest_and_drops_later_metrics(tmp_path: Path, options: Options) -> None:
    write(options(output=tmp_path), 5, 10)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"round": 12}\n')
    folder = RunFolder(options(output=tmp_path, resume="auto"))
    assert folder.checkpoint is not None
    folder.begin(evaluated_at=10)
    folder.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [5, 10]


def test_options_of_a_run_that_adds_nothing_are_not_kept(tmp_path: Path, options: Options) -> None:
    write(options(output=tmp_path, epochs=8), 5)
    folder = RunFolder(options(output=tmp_path, epochs=4, resume="auto"))
    folder.begin(evaluated_at=5, keep_config=True)
    folder.save_checkpoint({"w": np.zeros(2)}, asdict(Tally(round=5, evaluated_at=5)))
    folder.close()
    checkpoint, _ = find_checkpoint(str(tmp_path), "auto")
    assert checkpoint is not None
    assert checkpoint.metadata["config"]["epochs"] == 8
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["epochs"] == 8


def test_auto_without_a_run_starts_anew(tmp_path: Path, options: Options) -> None:
    folder = RunFolder(options(output=tmp_path / "none", resume="auto"))
    assert folder.checkpoint is None
    assert folder.warnings == [f"--resume auto: {tmp_path / 'none'} holds no checkpoint, so a new run begins"]


def test_auto_needs_a_folder(options: Options) -> None:
    with pytest.raises(InvalidArgumentError, match="--resume auto needs --output"):
        RunFolder(options(resume="auto"))


def test_resume_takes_a_file_or_a_folder(tmp_path: Path, options: Options) -> None:
    write(options(output=tmp_path / "a"), 5, 10)
    for resume, round in ((tmp_path / "a", 10), (tmp_path / "a" / "checkpoint-000000005.safetensors", 5)):
        checkpoint, warnings = find_checkpoint(None, str(resume))
        assert checkpoint is not None
        assert (checkpoint.metadata["round"], warnings) == (round, [])


def test_branching_off_takes_the_metrics_along(tmp_path: Path, options: Options) -> None:
    write(options(output=tmp_path / "a"), 5, 10)
    old = tmp_path / "a" / "checkpoint-000000005.safetensors"
    folder = RunFolder(options(output=tmp_path / "b", resume=old))
    folder.begin(evaluated_at=5)
    folder.close()
    assert (tmp_path / "b" / "metrics.jsonl").read_text() == '{"round": 5}\n'


def test_going_back_within_a_folder_is_refused(tmp_path: Path, options: Options) -> None:
    write(options(output=tmp_path / "a"), 5, 10)
    write(options(output=tmp_path / "b"), 5)
    old = tmp_path / "a" / "checkpoint-000000005.safetensors"
    with pytest.raises(FailedPreconditionError, match="holds a later checkpoint, checkpoint-000000010"):
        RunFolder(options(output=tmp_path / "a", resume=old))
    with pytest.raises(FailedPreconditionError, match="holds another run"):
        RunFolder(options(output=tmp_path / "b", resume=old))


def test_what_is_not_there(tmp_path: Path, options: Options) -> None:
    with pytest.raises(NotFoundError, match="there is no file"):
        RunFolder(options(resume=tmp_path / "none"))
    with pytest.raises(NotFoundError, match="the folder holds no checkpoint"):
        RunFolder(options(resume=tmp_path))


def test_another_run_s_checkpoint(tmp_path: Path, options: Options) -> None:
    write(options(output=tmp_path), 5)
    with pytest.raises(InvalidArgumentError, match=r"another run: model was 'logreg', is 'lenet'; seed was"):
        RunFolder(options(output=tmp_path, resume="auto", model="lenet", seed=9))


def test_checkpoints_of_two_runs_in_one_folder(tmp_path: Path, options: Options) -> None:
    write(options(output=tmp_path / "a"), 5)
    write(options(output=tmp_path / "b", seed=9, learning_rate=0.5), 10)
    newest = tmp_path / "b" / "checkpoint-000000010.safetensors"
    newest.rename(copy := tmp_path / "a" / newest.name)
    with pytest.raises(
        FailedPreconditionError, match=r"005.safetensors is of another run than .*: seed was 0"
    ):
        RunFolder(options(output=tmp_path / "a", resume="auto", seed=9))
    assert RunFolder(options(output=tmp_path / "c", resume=copy, seed=9)).checkpoint is not None
    copy.write_bytes(copy.read_bytes()[:-1])
    folder = RunFolder(options(output=tmp_path / "a", resume="auto"))
    assert folder.checkpoint is not None
    assert folder.checkpoint.metadata["round"] == 5
    folder.close()


# For each option another value than that of the run to go on with.
OF_DILOCO = ("outer_learning_rate", "outer_momentum", "exchange_dtype")
OTHERS: dict[str, Any] = {
    "optimizer": "adam",
    "optimizer_options": (),
    "schedule": "cosine",
    "final_rate": 0.5,
    "warmup_epochs": 0.5,
    "clip_norm": 1.0,
    "clip_value": 1.0,
    "label_smoothing": 0.1,
    "mixup": 0.2,
    "evaluate_every": 0.5,
    "metrics": ("f1",),
    "early_stopping": ("loss", 3, 0.0),
    "best_metric": "test_loss",
    "tensorboard": True,
    "model": "lenet",
    "data": "x.npz",
    "target": "y",
    "ignore_columns": ("z",),
    "task": "regression",
    "weights": "w.npz",
    "weights_skip": ("fc.*",),
    "weights_names": (("conv1", "features.0"),),
    "weights_flattened": (("fc/kernel", (7, 7, 64)),),
    "image_size": (8, 8),
    "validation_split": 0.5,
    "test_split": 0.5,
    "split_seed": 1,
    "augmentation": "flip",
    "class_weights": "balanced",
    "dataset": "digits",
    "data_dir": "there",
    "batch_size": 8,
    "replicas_per_device": 3,
    "devices": ("cpu:0", "cpu:1"),
    "sync": "easgd",
    "tau": 2,
    "alpha": 0.25,
    "mu": 0.5,
    "outer_learning_rate": 0.5,
    "outer_momentum": 0.5,
    "exchange_dtype": "bfloat16",
    "backup": 0,
    "staleness": 1,
    "momentum": 0.5,
    "learning_rate": 0.5,
    "learning_rate_drops": ((1, 0.5),),
    "weight_decay": 0.5,
    "epochs": 9,
    "max_seconds": 9.0,
    "target_accuracy": 0.9,
    "seed": 1,
    "launch_ahead": 3,
    "steps_per_launch": 2,
    "on_nan": "skip",
    "checkpoint_rounds": 3,
    "keep_checkpoints": 5,
    "clear_velocity": True,
    "ssgd_epoch": 1,
    "decay_all": True,
    "trace": "trace.json",
    "trace_rounds": (0, 2),
    "data_on_device": "never",
    "recompute": "cheap",
    "swap": "hidden",
    "compute": "tf32",
    "dispatch": "fcfs",
    "replica_mode": "captured",
    "ema": 0.9,
}


@pytest.mark.slow
def test_options_that_a_run_goes_on_with_may_be_others_or_are_refused(
    tmp_path: Path, options: Options
) -> None:
    assert {field.name for field in fields(TrainingConfig)} == OTHERS.keys() | {
        "output",
        "resume",
        "model_options",
    }
    for name, value in OTHERS.items():
        given = {"trace_rounds": {"trace": "trace.json"}, "data": {"dataset": None}}.get(name, {})
        given |= {"sync": "diloco"} if name in OF_DILOCO else {}
        given |= {"weights": "w.npz"} if name.startswith("weights_") else {}
        same = {key: given[key] for key in given if key in ("sync", "weights")}
        folder = tmp_path / name
        write(options(output=folder, **same), 5)
        config = options(output=folder, resume="auto", **{name: value}, **given)
        before, after = options(output=folder, **same).to_dict()[name], config.to_dict()[name]
        if not options_of(TrainingConfig)[name].fixed or name == "optimizer_options":  # momentum has none
            RunFolder(config).close()
            continue
        with pytest.raises(InvalidArgumentError) as caught:
            RunFolder(config)
        assert f"{name} was {before!r}, is {after!r}; " in str(caught.value)
        assert "is of another run: " in str(caught.value)


STRANGE: list[dict[str, Any]] = [
    {"round": -1},
    {"round": None},
    {"round": "5"},
    {"round": 5.0},
    {"round": True},
    {"round": 10**4000},
    {"seconds": -1.0},
    {"seconds": "long"},
    {"images": []},
    {"evaluated_at": 6},
    {"test_accuracy": "high"},
    {"config": None},
    {"config": [1]},
]


@pytest.mark.parametrize("change", STRANGE, ids=[str(change)[:40] for change in STRANGE])
def test_a_whole_file_with_strange_content(tmp_path: Path, options: Options, change: dict[str, Any]) -> None:
    config = options(output=tmp_path)
    metadata = {**asdict(Tally(round=5)), "config": config.to_dict(), **change}
    path = tmp_path / "checkpoint-000000005.safetensors"
    save_arrays(path, {"w": np.zeros(2)}, metadata)
    for resume in (str(path), "auto"):
        with pytest.raises(DataLossError, match=r"no checkpoint of a training run|is truncated") as caught:
            RunFolder(options(output=tmp_path, resume=resume))
        assert len(str(caught.value)) < 700
