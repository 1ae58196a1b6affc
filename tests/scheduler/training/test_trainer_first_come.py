"""Whole runs by first come, first served: data order, interruptions, the auto-tuner, the messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler import RoundResults, Trainer, TrainingConfig
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.auto_runs import MadeUp, auto, trained
from tests.scheduler_rig.interrupted import train_until
from tests.scheduler_rig.kept_lines import Lines

Options = Callable[..., TrainingConfig]

LINE = "dispatch fcfs: each batch goes to the replica that is free first; not reproducible"


def recorded(config: TrainingConfig, progress: Any = None) -> tuple[Any, dict[int, list[int]]]:
    """A run's result, and by epoch the numbers of the batches that were trained, as they were reported."""
    used: dict[int, list[int]] = {}
    with Trainer(config, progress) as trainer:
        count = trainer._trace.on_results

        def on_results(results: RoundResults) -> None:
            for result in results:
                assert 0 <= result.replica < len(results.replicas)
                epoch, first = trainer._batches.positions.at(result.round)
                used.setdefault(epoch, []).append(first + result.batch_number)
            count(results)

        trainer._trace.on_results = on_results  # type: ignore[method-assign]
        return trainer.train(), used


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"tau": 3, "launch_ahead": 1},
        {"sync": "none", "replicas_per_device": 3},
        {"sync": "easgd", "devices": ("cpu:0", "cpu:1"), "tau": 2},
        {"data_on_device": "always", "staleness": 1, "learning_rate_drops": ((1, 0.5),)},
    ],
    ids=str,
)
def test_every_batch_once_and_in_order(options: Options, given: dict[str, Any]) -> None:
    progress = Lines()
    config = options(dispatch="fcfs", epochs=3, **given)
    result, used = recorded(config, progress)
    assert sorted(used) == [0, 1, 2]
    whole = 15 // config.replicas * config.replicas
    assert all(numbers == list(range(whole)) for numbers in used.values())
    assert result.steps == 3 * (15 // config.replicas)
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.9
    assert any(line.startswith(LINE) and "depends on timing" in line for line in progress.said)


@pytest.mark.slow
def test_an_interrupted_run_goes_on(tmp_path: Path, options: Options) -> None:
    for at in (3, 9):
        given = {"output": tmp_path, "epochs": 4, "tau": 4, "resume": "auto"}
        result = train_until(options(dispatch="fcfs", **given), at)
        assert result.interrupted
        assert (tmp_path / f"checkpoint-{result.steps:09d}.safetensors").exists()
    result = trained(options(**given))  # by round_robin, which the state is as good for
    assert (result.steps, result.interrupted) == (4 * 7, False)
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.9


@pytest.mark.slow
@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("devices", [("cpu:0",), ("cpu:0", "cpu:1")])
def test_replicas_come_and_go(options: Options, devices: tuple[str, ...]) -> None:
    progress = Lines()
    config = auto(options, dispatch="fcfs", epochs=8, tau=2, devices=devices)
    result, used = recorded(config, progress)
    assert result.replicas == 2  # of which the made-up speed is near the best
    assert MadeUp.seen[0] == len(devices)
    for numbers in used.values():
        assert numbers == list(range(len(numbers)))
        assert 60 - len(numbers) < 8 * len(devices)
    assert any(line.startswith(LINE) for line in progress.said)


def test_one_replica_has_nothing_to_say(options: Options) -> None:
    progress = Lines()
    trained(options(dispatch="fcfs", replicas_per_device=1), progress)
    assert not any("fcfs" in line for line in progress.said)


def test_a_run_goes_on_by_its_synchroniser_only(tmp_path: Path, options: Options) -> None:
    train_until(options(output=tmp_path, epochs=4, sync="easgd"), 4)
    with pytest.raises(InvalidArgumentError, match="of another run: sync was 'easgd', is 'sma'"):
        trained(options(output=tmp_path, epochs=4, resume="auto"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dispatch": "lifo"}, "dispatch: expected one of round_robin, fcfs, got 'lifo'"),
        ({"dispatch": "fcfs", "sync": "ssgd"}, "dispatch: expected round_robin with ssgd"),
        ({"dispatch": "fcfs", "ssgd_epoch": 1}, "ssgd_epoch: expected dispatch round_robin"),
        ({"sync": "easgd", "mu": 0.5}, "mu: expected 0 with sync 'easgd'"),
        ({"sync": "easgd", "ssgd_epoch": 1}, "ssgd_epoch: expected sync sma, which ssgd follows, got"),
        ({"sync": "easgd", "alpha": 0.9}, "alpha: expected 0 < alpha < 0.6667 for 2 replicas"),
    ],
)
def test_options_that_do_not_go_together(options: Options, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        options(**given)
