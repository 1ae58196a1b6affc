from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler import Trainer, TrainingConfig
from tensorbow.specs import Array
from tensorbow.training import load_arrays

Call = Callable[..., Any]
QUICK = ("train", "logreg", "--dataset", "synthetic", "--epochs", 1)
KEYS = (
    "model dataset devices replicas batch_size sync epochs steps images_per_second seconds "
    "test_accuracy seconds_to_target metrics"
)


def weights(folder: Path) -> Array:
    return load_arrays(folder / "model.safetensors")[0]["weights"]


def test_the_program_s_own_help_and_version(call: Call) -> None:
    assert all(name in call("--help").out for name in ("train", "devices", "explain", "--version"))
    assert call("--version").out.startswith("tensorbow, version ")
    without = call()
    assert without.status == 2
    assert "Usage: tensorbow" in without.out + without.err


@pytest.mark.slow
def test_train_ends_with_a_table_and_one_json_object(call: Call, tmp_path: Path) -> None:
    ended = call(*QUICK, "--output", "run", "--json")
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    result = json.loads(lines[-1])
    assert list(result) == KEYS.split()
    assert (result["model"], result["devices"], result["replicas"]) == ("logreg", ["cpu:0"], 2)
    assert (result["steps"], result["seconds_to_target"]) == (128, None)
    assert lines[0].startswith("logreg: 7,850 parameters, 15.7 k flop forward per example, ")
    assert lines[1].startswith("epoch   1/1  loss ")
    assert any(line.startswith("test accuracy") for line in lines)
    assert all(c.isprintable() or c == "\n" for c in ended.out)
    assert not any(line != line.rstrip() for line in lines)


@pytest.mark.slow
def test_json_lines_are_those_of_the_evaluations_and_the_result(call: Call, tmp_path: Path) -> None:
    ended = call(*QUICK, "--evaluate-every", 0.5, "--output", "run", "--json-lines")
    assert ended.status == 0
    *events, result = map(json.loads, ended.out.splitlines())
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert events == [{"event": "evaluation", **record} for record in records]
    assert [event["epoch"] for event in events] == [0.5, 1]
    assert list(result) == KEYS.split()
    assert "epoch   1/1  loss " in ended.err
    assert "saved in " in ended.err


@pytest.mark.slow
def test_both_names_of_replicas_per_device(call: Call) -> None:
    for name in ("--replicas-per-gpu", "--replicas-per-device"):
        ended = call(*QUICK, name, 3, "--json", "--output", name.strip("-"))
        assert json.loads(ended.out.splitlines()[-1])["replicas"] == 3


@pytest.mark.slow
def test_runs_are_numbered_when_no_folder_is_given(call: Call, tmp_path: Path) -> None:
    call(*QUICK)
    call(*QUICK)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "logreg-synthetic",
        "logreg-synthetic-2",
    ]
    ended = call(*QUICK, "--resume", "auto", "--epochs", 2)
    assert f"saved in         {Path('runs') / 'logreg-synthetic-2'}\n" in ended.out


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_resumed_run_keeps_its_options(call: Call, tmp_path: Path) -> None:
    extra = ("--seed", 7, "--learning-rate", 0.003, "--replicas-per-gpu", 3)
    call(*QUICK, *extra, "--output", "a")
    call(*QUICK, *extra, "--epochs", 2, "--output", "b")
    call("train", "logreg", "--output", "a", "--resume", "auto", "--epochs", 2)
    assert (weights(tmp_path / "a") == weights(tmp_path / "b")).all()


@pytest.mark.slow
def test_a_run_without_averaging_says_mean(call: Call) -> None:
    ended = call(*QUICK, "--sync", "none", "--output", "run")
    assert re.search(r"test accuracy    [\d.]+% \(mean of 2 replicas\)", ended.out)
    assert "model-replicaN.safetensors" in "".join(call("train", "--help").out.split())
    (first, *_) = call("evaluate", "run").out.splitlines()
    assert first.endswith("; replica 0 of 2, which are independent)")


def test_the_help_shows_choices(call: Call) -> None:
    text = " ".join(call("train", "--help").out.split())
    for part in ("--dataset [digits|", "--sync [sma|ssgd|easgd|diloco|none]", "--on-nan [stop|skip]"):
        assert part in text
    assert "its output, resume and trace are ignored" in text.lower()


@pytest.mark.slow
def test_options_that_change_nothing_are_told(call: Call) -> None:
    given = {"--alpha": 0.2, "--mu": 0.1, "--tau": 2, "--staleness": 1}
    words = [word for pair in given.items() for word in pair]
    extra = ("--data-dir", "nowhere", "--learning-rate-drops", "1:0.5", "--decay-all")
    ended = call(*QUICK, "--sync", "none", *words, *extra)
    assert ended.status == 0
    reason = "--sync none averages nothing"
    assert {line.removeprefix("tensorbow: ") for line in ended.err.splitlines()} == {
        *(f"{name} is ignored: {reason}" for name in given),
        "--data-dir is ignored: the data set synthetic needs no files",
        "--learning-rate-drops is ignored: the run ends with epoch 1, before drops at 1",
        "--decay-all is ignored: the weight decay is 0",
    }
    ended = call(*QUICK, "--replicas-per-gpu", 1, "--tau", 2, "--clear-velocity")
    assert ended.err.count("is ignored: there is one replica") == 2


@pytest.mark.slow
def test_a_file_may_name_the_model(call: Call, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("model: logreg\ndataset: synthetic\nepochs: 1\nlearning_rate: 1e-2\n")
    ended = call("train", "--config", "c.yaml", "--output", "run", "--json")
    assert (ended.status, ended.err) == (0, "")
    assert json.loads(ended.out.splitlines()[-1])["model"] == "logreg"
    assert "learning_rate: 0.01" in (tmp_path / "run" / "config.yaml").read_text()
    ended = call("train", "--resume", "auto", "--output", "run")
    assert "already at epoch 1; --epochs 1 asks for no more" in ended.out
    (tmp_path / "c.yaml").write_text("model: lenet\ndataset: synthetic\nepochs: 1\n")
    ended = call("train", "logreg", "--config", "c.yaml")
    assert ended.err == "tensorbow: MODEL logreg is trained, not the lenet of --config c.yaml\n"


@pytest.mark.slow
def test_further_options_are_saved(call: Call, tmp_path: Path) -> None:
    words = ("--ssgd-epoch", 1, "--clear-velocity", "--weight-decay", "0.001", "--decay-all")
    assert call(*QUICK[:5], 2, *words, "--output", "a").err == ""
    saved = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    assert (saved["ssgd_epoch"], saved["clear_velocity"], saved["decay_all"]) == (1, True, True)
    call(*QUICK[:5], 2, "--output", "b")
    call("train", "--config", "a/config.yaml", "--output", "c")
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert models[0] == models[2] != models[1]


@pytest.mark.slow
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


OF_SYMBOLS = ("transformer-tiny", "--model.width", 8, "--model.depth", 1)


@pytest.mark.parametrize("model", [("logreg",), ("lenet",), OF_SYMBOLS], ids=lambda model: model[0])
def test_explain(call: Call, model: tuple[object, ...]) -> None:
    ended = call("explain", *model, "--staleness", 1, "--batch-size", 4, "--full")
    assert ended.status == 0
    for part in ("segment gradient", "segment update", "bytes at peak", "the synchronisation of 2 replicas"):
        assert part in ended.out


def test_explain_is_short_without_the_plan(call: Call) -> None:
    ended = call("explain", "lenet")
    assert len(ended.out.splitlines()) < 45
    assert re.search(r"^conv2 +1x4x4x64 +51,264 ", ended.out, re.MULTILINE)
    assert re.search(r"^  Conv2DBackpropFilter +2$", ended.out, re.MULTILINE)
    assert ended.out.endswith("add --full\n")


def test_explain_without_averaging(call: Call) -> None:
    assert "synchronisation" not in call("explain", "logreg", "--full", "--replicas-per-gpu", 1).out
    assert "synchronisation" not in call("explain", "logreg", "--full", "--sync", "none").out


def test_explain_begins_with_what_it_takes(call: Call) -> None:
    """The figures are those of the replicas that a run with the same options makes."""
    ended = call("explain", "logreg", "--batch-size", 4, "--tau", 3, "--devices", "cpu:0,cpu:1")
    lines = ended.out.splitlines()
    assert lines[0].startswith("logreg, batch 4: 2 on cpu:0 and 2 on cpu:1 (4 replicas); one step in 3 ends")
    config = TrainingConfig(model="logreg", batch_size=4, dataset="synthetic")
    with Trainer(config) as trainer:
        learners = trainer.engine.learners
        held = [learners.replicas[0].group, learners.central[0].group]
        nbytes = [group.allocator.statistics().pool_nbytes for group in held]
    told = [int(line.split()[-2].replace(",", "")) for line in lines[1:3]]
    assert told == nbytes


@pytest.mark.parametrize("model", ["lenet", "resnet8"])
def test_explain_answers_from_arithmetic(call: Call, model: str) -> None:
    ended = call("explain", model, "--batch-size", 99_999_989)  # a prime
    assert (ended.status, ended.err) == (0, "")
    assert re.search(r"first device  +[\d,]{17,} bytes .* without the batches; /cpu:0 has only ", ended.out)
    ended = call("explain", model, "--batch-size", 1 << 40)
    assert "--batch-size: expected a whole number from 1 to 2147483647, got 10995" in ended.line


@pytest.mark.parametrize("compile_pass", ["fold", "plan_memory"])
def test_an_interrupt_ends_explain(call: Call, monkeypatch: pytest.MonkeyPatch, compile_pass: str) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"tensorbow.compiler.compile.{compile_pass}", interrupted)
    ended = call("explain", "logreg")
    assert (ended.status, ended.out, ended.line) == (130, "", "tensorbow: interrupted\n")


@pytest.mark.usefixtures("reference_kernels")
def test_explain_follows_its_options(call: Call) -> None:
    ssgd = call("explain", "logreg", "--sync", "ssgd").out
    name = "update, mean gradient"
    for part in (f"segment {name}:", f"segment {name}: exchange:", f"'{name}'"):
        assert part in ssgd
    assert "[16, 32, 32, 3]" in call("explain", "logreg", "--full", "--dataset", "cifar10").out
    assert "as 1 to 2 of segment update" in call("explain", "logreg", "--full").out


@pytest.mark.usefixtures("reference_kernels")
def test_explain_reads_the_options_of_a_run(call: Call, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "model: logreg\nbatch_size: 4\nreplicas_per_device: 3\nlearning_rate: 0.1\n"
    )
    first = call("explain", "--config", "c.yaml").out.splitlines()[0]
    assert first.startswith("logreg, batch 4: 3 on cpu:0 ")
    first = call("explain", "--config", "c.yaml", "--batch-size", 8).out.splitlines()[0]
    assert first.startswith("logreg, batch 8: 3 on cpu:0 ")
    assert "MODEL is missing: give it, or a --config file" in call("explain").line
