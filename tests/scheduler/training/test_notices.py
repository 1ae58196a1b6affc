from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scheduler import RoundResults, Trainer, TrainingConfig
from scheduler.training.folders.run_data import warn_of_data
from scheduler.training.measures.tally import Tally
from scheduler.training.running.notices import (
    LossWatch,
    epoch_line,
    epoch_text,
    ignored_options,
    metric_text,
)
from tensorbow.data import ArrayDataset
from tensorbow.errors import DataLossError
from tests.scheduler_rig.kept_lines import Lines

Options = Callable[..., TrainingConfig]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, []),
        ({"alpha": 0.1, "tau": 2, "staleness": 1, "mu": 0.1}, []),
        ({"alpha": 0.1, "sync": "ssgd"}, ["--alpha"]),
        ({"tau": 2, "staleness": 1, "mu": 0.1, "sync": "none"}, ["--tau", "--mu", "--staleness"]),
        ({"tau": 2, "replicas_per_device": 1}, ["--tau"]),
        ({"clear_velocity": True}, ["--clear-velocity"]),
        ({"clear_velocity": True, "learning_rate_drops": ((1, 0.1),)}, []),
        ({"clear_velocity": True, "learning_rate_drops": ((1, 0.1),), "sync": "easgd"}, ["--clear-velocity"]),
        ({"tau": 2, "staleness": 1, "alpha": 0.1, "sync": "easgd", "dispatch": "fcfs"}, []),
        ({"dispatch": "fcfs", "replicas_per_device": 1}, ["--dispatch"]),
        ({"dispatch": "fcfs", "replicas_per_device": "auto", "sync": "none"}, []),
        ({"ssgd_epoch": 1}, []),
        ({"ssgd_epoch": 2}, ["--ssgd-epoch"]),
        ({"ssgd_epoch": 1, "replicas_per_device": 1}, ["--ssgd-epoch"]),
        ({"learning_rate_drops": ((1, 0.1), (2, 0.1), (9, 0.01))}, ["--learning-rate-drops"]),
        ({"data_dir": "there"}, ["--data-dir"]),
        ({"data_dir": "there", "dataset": "mnist"}, []),
        ({"decay_all": True}, ["--decay-all"]),
        ({"decay_all": True, "weight_decay": 0.1}, []),
    ],
    ids=str,
)
def test_options_that_are_ignored(options: Options, given: dict[str, Any], names: list[str]) -> None:
    lines = ignored_options(options(**given))
    assert [line.split()[0] for line in lines] == names
    assert all("ignored: " in line for line in lines)


def test_a_model_s_own_late_drops_are_no_option_of_the_user() -> None:
    assert ignored_options(TrainingConfig(model="resnet20", epochs=1)) == []


def test_an_epoch_in_text() -> None:
    assert [epoch_text(epoch) for epoch in (3.0, 3.65625, 12.5, 1e6)] == ["3", "3.66", "12.5", "1000000"]


def test_the_line_of_an_epoch_has_its_own_rate(options: Options) -> None:
    tally = Tally(round=7, seconds=10.0, images=1000, epoch_images=100, epoch_seconds=2.0)
    tally.test_metrics = {"loss": 0.25, "accuracy": 0.5}
    line = epoch_line(options(), tally, 1.0, "test", "examples")
    assert line.startswith("epoch   1/2  loss nan")
    assert line.endswith("test accuracy  50.00%  50 examples/s")
    tally.test_metrics["loss"] = 3.5170442e31
    assert "test loss 3.517e+31  " in epoch_line(options(), tally, 1.0, "test", "examples")
    assert "test accuracy  50.00% (mean)" in epoch_line(options(sync="none"), tally, 1.0, "test", "images")


def test_hopeless_losses_are_told_once_an_epoch() -> None:
    watch = LossWatch(classes=10, epoch_of=lambda round: round // 7)
    limit = 1e6 * math.log(10)

    def warnings(round: int, *losses: float) -> list[str]:
        return watch.warnings(RoundResults(range(round, round + 1), range(len(losses)), losses, (), losses))

    assert warnings(0, limit * 0.99, math.inf, math.nan) == []
    (line,) = warnings(3, math.nan, limit * 1.01)
    assert "the loss of replica 1 is 2.33e+06 at step 3" in line
    assert warnings(6, limit * 2) == []
    assert len(warnings(7, limit * 2, limit * 2)) == 1


def test_a_run_with_a_hopeless_loss_says_so(options: Options) -> None:
    progress = Lines()
    with Trainer(options(learning_rate=1e7, momentum=0.0), progress) as trainer:
        trainer.train()
    assert 1 <= len([line for line in progress.said if line.startswith("warning: the loss of replica")]) <= 2


@pytest.mark.slow
def test_weight_decay_of_biases(options: Options) -> None:
    models = []
    for given in ({}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decay_all": True}):
        with Trainer(options(replicas_per_device=1, learning_rate=0.5, momentum=0.0, **given)) as trainer:
            trainer.engine.run(trainer._batches.open, 0, 1)
            trainer.engine.run(trainer._batches.open, 1, 2)
            models.append(trainer.engine.learners.values.replica_values(0))
    plain, some, every = models
    assert not np.array_equal(plain["weights"], some["weights"])
    assert np.array_equal(some["weights"], every["weights"])
    assert not np.array_equal(some["biases"], every["biases"])


@pytest.mark.slow
def test_ssgd_follows_after_its_epoch(options: Options) -> None:
    with Trainer(options(ssgd_epoch=1)) as trainer:
        learners = trainer.engine.learners
        trainer.train()
        values = [learners.values.replica_values(index) for index in range(2)]
    assert learners.mean_gradient_from == 7
    assert all(np.array_equal(value, values[1][name]) for name, value in values[0].items())


def test_accuracies_of_a_strange_checkpoint_are_refused() -> None:
    for value in ([1, "x"], [-1.0], 3.0, "x", [float("nan")]):
        with pytest.raises(DataLossError, match="test_accuracies cannot be"):
            Tally.from_metadata({**vars(Tally()), "test_accuracies": value})


def test_f1_is_shown_as_accuracies_are() -> None:
    for share in ("test_f1", "accuracy", "test top5", "top1"):
        assert metric_text(share, 0.8985) == " 89.85%"
    assert [metric_text("stop1", value) for value in (0.5, 999.4, 41626.6992, 2.5e9)] == [
        *("0.5000", "999.4000", "41626.7", "2.5e+09")
    ]


def test_numbers_that_are_not_finite_are_told_of_held_out_examples_too(
    options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    inputs, labels = np.zeros((3, 2)), np.array([1.0, 2.0, np.nan])
    good, bad = (ArrayDataset(inputs, each, name="own/test") for each in (labels[[0, 1, 1]], labels))
    warn_of_data(options(model="linear"), good, None, bad)
    (record,) = caplog.records
    assert record.getMessage().startswith("own/test: labels: 1 of 3 examples have NaN or infinite numbers")
