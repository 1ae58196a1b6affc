from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow.data.registry as registry
from scheduler import Trainer, TrainingConfig, TrainingResult
from tensorbow.data import make_synthetic
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.kernels import ReferenceBackend, backends
from tensorbow.training import load_arrays, save_arrays
from tests.scheduler_rig.interrupted import train_until
from tests.scheduler_rig.kept_lines import Lines

Options = Callable[..., TrainingConfig]
Run = Callable[..., TrainingResult]
Metrics = Callable[[Path], list[dict[str, Any]]]

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one replica": {"replicas_per_device": 1},
    "two devices": {"devices": ("cpu:0", "cpu:1"), "tau": 2, "staleness": 1, "mu": 0.2, "alpha": 0.1},
    "uneven": {"devices": ("cpu:0", "cpu:1"), "replicas_per_device": (2, 1)},
    "drops": {"learning_rate_drops": ((1, 0.5), (1.7, 0.1)), "tau": 3, "staleness": 2},
    "independent": {"sync": "none", "replicas_per_device": 3},
    "ssgd": {"sync": "ssgd"},
    "to ssgd": {"ssgd_epoch": 2, "clear_velocity": True, "learning_rate_drops": ((1, 0.5),)},
    "decay": {"weight_decay": 0.01, "decay_all": True},
    "far ahead": {"launch_ahead": 5, "staleness": 3},
    "cosine": {
        "schedule": "cosine",
        "warmup_epochs": 1.5,
        "devices": ("cpu:0", "cpu:1"),
        "evaluate_every": 0.4,
    },
    "adam": {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5, "clip_value": 0.1},
    "diloco": {"sync": "diloco", "tau": 4, "staleness": 1, "ema": 0.9},
    "easgd": {"sync": "easgd", "tau": 3, "learning_rate_drops": ((1, 0.5), (2, 0.1))},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_interruptions_change_no_bit(
    name: str, tmp_path: Path, options: Options, run: Run, metrics: Metrics
) -> None:
    variant = VARIANTS[name]
    run(output=tmp_path / "whole", epochs=6, **variant)
    pieces = tmp_path / "pieces"
    stops = []
    for at in (1, 4, 6):
        config = options(output=pieces, epochs=6, resume="auto", checkpoint_rounds=2, **variant)
        result = train_until(config, at)
        assert result.interrupted
        assert load_arrays(pieces / "model.safetensors")[1]["round"] == result.steps
        stops.append(result.steps)
    assert stops == sorted(stops)
    result = run(output=pieces, epochs=6, resume="auto", **variant)
    assert not result.interrupted
    for file in (tmp_path / "whole").glob("model*.safetensors"):
        assert (pieces / file.name).read_bytes() == file.read_bytes()
    assert metrics(pieces) == metrics(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("drops", [(), ((1, 0.5),)], ids=["one rate", "a drop"])
def test_momentum_of_an_earlier_version_is_divided_by_the_last_rate(
    tmp_path: Path, options: Options, run: Run, drops: Any
) -> None:
    """It was -learning_rate times the sum of gradients. Powers of two keep the division exact."""
    common = {"learning_rate": 0.0625, "learning_rate_drops": drops, "epochs": 3}
    run(output=tmp_path / "whole", **common)
    stopped = train_until(options(output=tmp_path / "run", checkpoint_rounds=2, **common), 10)
    rate = 0.0625 * (drops[0][1] if drops else 1)
    make_older(tmp_path / "run" / f"checkpoint-{stopped.steps:09d}.safetensors", rate)
    run(output=tmp_path / "run", resume="auto", **common)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert models[0] == models[1]


def make_older(checkpoint: Path, rate: float) -> None:
    """Rewrites a checkpoint as an earlier version wrote it, with momentum's slots multiplied by that rate."""
    arrays, metadata = load_arrays(checkpoint)
    del metadata["momentum"]
    slots = [name for name in arrays if name.endswith("/Momentum")]
    assert slots
    older = {name: arrays[name] * np.float32(-rate) for name in slots}
    save_arrays(checkpoint, {**arrays, **older}, metadata)


@pytest.mark.slow
def test_momentum_of_an_earlier_version_is_divided_by_the_rate_that_it_had(
    tmp_path: Path, options: Options, run: Run
) -> None:
    """Not by the one that the run goes on with."""
    folders = [tmp_path / name for name in ("now", "earlier")]
    for folder in folders:
        stopped = train_until(options(output=folder, checkpoint_rounds=2, learning_rate=0.0625, epochs=3), 10)
    make_older(folder / f"checkpoint-{stopped.steps:09d}.safetensors", 0.0625)
    models = []
    for folder in folders:
        run(output=folder, resume="auto", learning_rate=0.25, epochs=3)
        models.append((folder / "model.safetensors").read_bytes())
    assert models[0] == models[1]


def test_a_stop_comes_within_the_lead_of_the_scheduler(tmp_path: Path, options: Options) -> None:
    result = train_until(options(output=tmp_path, epochs=50, launch_ahead=2), 20)
    assert 20 <= result.steps <= 24
    assert (tmp_path / f"checkpoint-{result.steps:09d}.safetensors").exists()


def test_a_stop_before_the_first_round(tmp_path: Path, options: Options, run: Run) -> None:
    with Trainer(options(output=tmp_path)) as trainer:
        trainer.request_stop()
        result = trainer.train()
    assert (result.steps, result.interrupted, result.test_accuracy) == (0, True, None)
    assert run(output=tmp_path, resume="auto").steps == 14


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["constant", "one_cycle"])
def test_a_run_ends_within_an_epoch_and_goes_on_to_the_same_bits(
    tmp_path: Path, options: Options, run: Run, metrics: Metrics, schedule: str
) -> None:
    whole = run(output=tmp_path / "whole", epochs=1.5, schedule=schedule)
    assert (whole.steps, whole.epochs) == (11, round(11 / 7, 3))  # 7 rounds an epoch: 10.5, rounded up
    assert metrics(tmp_path / "whole")[-1]["test_accuracy"] == whole.test_accuracy
    train_until(options(output=tmp_path / "run", epochs=1.5, schedule=schedule), 4)
    run(output=tmp_path / "run", epochs=1.5, schedule=schedule, resume="auto")
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert models[0] == models[1]


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 3], ids=["the last", "one of several"])
def test_a_stop_while_evaluating_leaves_no_hole(
    tmp_path: Path,
    options: Options,
    run: Run,
    metrics: Metrics,
    monkeypatch: pytest.MonkeyPatch,
    epochs: int,
) -> None:
    run(output=tmp_path / "whole", epochs=epochs)
    with Trainer(options(output=tmp_path / "run", epochs=epochs)) as trainer, monkeypatch.context() as patch:

        def stop(round: int) -> dict[str, Any]:
            trainer.request_stop()
            values = trainer.engine.learners.values
            return type(values).central_values(values, round)

        patch.setattr(trainer.engine.learners.values, "central_values", stop)
        result = trainer.train()
    assert (result.interrupted, result.steps) == (True, 7)
    assert metrics(tmp_path / "run") == []
    about = load_arrays(tmp_path / "run" / "model.safetensors")[1]
    assert (about["round"], about["test_accuracy"]) == (7, None)
    run(output=tmp_path / "run", epochs=epochs, resume="auto")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


@pytest.mark.slow
def test_a_kill_between_metrics_and_checkpoint_leaves_no_duplicate(
    tmp_path: Path, options: Options, run: Run, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(output=tmp_path / "whole", epochs=3)
    for resume in (None, "auto", "auto"):
        with Trainer(options(output=tmp_path / "run", epochs=3, resume=resume)) as trainer:
            save, calls = trainer._checkpoint, []

            def killed(save: Callable[[], None] = save, calls: list[int] = calls) -> None:
                calls.append(1)
                if len(calls) == 2:
                    raise KeyboardInterrupt
                save()

            monkeypatch.setattr(trainer, "_checkpoint", killed)
            if resume is None or trainer._tally.round < 14:
                with pytest.raises(KeyboardInterrupt):
                    trainer.train()
    run(output=tmp_path / "run", epochs=3, resume="auto")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


@pytest.mark.slow
def test_a_finished_run_can_be_asked_again_and_made_longer(
    tmp_path: Path, run: Run, metrics: Metrics
) -> None:
    first = run(output=tmp_path)
    model = (tmp_path / "model.safetensors").read_bytes()
    again = run(output=tmp_path, resume="auto")
    assert (again.steps, again.test_accuracy) == (first.steps, first.test_accuracy)
    assert (tmp_path / "model.safetensors").read_bytes() == model
    run(output=tmp_path, resume="auto", epochs=5)
    assert [record["epoch"] for record in metrics(tmp_path)] == [1, 2, 3, 4, 5]


def test_a_run_that_is_done_says_so_and_keeps_its_configuration(
    tmp_path: Path, options: Options, run: Run
) -> None:
    run(output=tmp_path, epochs=3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    listening = Lines()
    with Trainer(options(output=tmp_path, epochs=2, resume="auto"), listening) as trainer:
        assert trainer.train().steps == 21
    assert listening.said[1] == "already at epoch 3; --epochs 2 asks for no more"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_second_run_is_refused_before_it_says_anything(tmp_path: Path, options: Options, run: Run) -> None:
    run(output=tmp_path)
    listening = Lines()
    config = options(output=tmp_path, epochs=3, resume="auto")
    with Trainer(config), pytest.raises(FailedPreconditionError, match="another run is writing there"):
        Trainer(config, listening)
    assert listening.said == []


@pytest.mark.slow
def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path: Path, options: Options, run: Run) -> None:
    run(output=tmp_path / "whole", epochs=3)
    run(output=tmp_path / "run", epochs=2)
    newest = tmp_path / "run" / "checkpoint-000000014.safetensors"
    newest.write_bytes(newest.read_bytes()[:5000])
    listening = Lines()
    with Trainer(options(output=tmp_path / "run", epochs=3, resume="auto"), listening) as trainer:
        trainer.train()
    lines = listening.said
    assert lines[0].startswith("passed over an unusable checkpoint: ")
    assert str(newest) in lines[0]
    assert "at round 7" in lines[1]
    name = "model.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_checkpoint_that_does_not_fit_leaves_all_as_it_was(
    tmp_path: Path, options: Options, run: Run
) -> None:
    run(output=tmp_path)
    newest = tmp_path / "checkpoint-000000014.safetensors"
    arrays, metadata = load_arrays(newest)
    del arrays["replica1/weights"]
    save_arrays(newest, arrays, metadata)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InvalidArgumentError, match=r"checkpoint-.* does not fit .* missing replica1/weights"):
        Trainer(options(output=tmp_path, resume="auto", epochs=9))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_data_of_the_same_name_is_refused(
    tmp_path: Path, options: Options, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(output=tmp_path)
    other = make_synthetic(train_examples=241, test_examples=60)
    monkeypatch.setitem(registry.DATASETS, "synthetic", lambda data_dir: other)
    with pytest.raises(InvalidArgumentError, match="a run on other data"):
        Trainer(options(output=tmp_path, resume="auto"))


@pytest.mark.slow
def test_a_branch_goes_on_elsewhere(tmp_path: Path, run: Run, metrics: Metrics) -> None:
    run(output=tmp_path / "whole", epochs=3, keep_checkpoints=3)
    old = tmp_path / "whole" / "checkpoint-000000007.safetensors"
    run(output=tmp_path / "branch", epochs=3, resume=old)
    assert metrics(tmp_path / "branch") == metrics(tmp_path / "whole")


@pytest.mark.slow
def test_other_kernels_than_the_checkpoint_s_are_told(
    tmp_path: Path, options: Options, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(ReferenceBackend):
        title = "other kernels"

    def told(epochs: int) -> list[str]:
        listening = Lines()
        with Trainer(options(output=tmp_path, epochs=epochs, resume="auto"), listening) as trainer:
            trainer.train()
        return [line for line in listening.said if "was made with" in line]

    run(output=tmp_path, epochs=1)
    assert told(2) == []
    title = backends.backend_of_kind("cpu").title
    monkeypatch.setitem(backends._backends, "cpu", Other())
    (line,) = told(3)
    assert (
        f"other kernels or libraries: CPU kernels was '{title}', is 'other kernels'; the run goes on" in line
    )
    assert told(3) == []  # nothing is left to train
    assert told(4) == []  # the checkpoint is of these


@pytest.mark.parametrize("made_with", [None, "x", ["x"], {"CPU kernels": 3}], ids=str)
@pytest.mark.sampled(1)
def test_a_checkpoint_may_say_anything_of_what_it_was_made_with(
    tmp_path: Path, run: Run, made_with: Any
) -> None:
    run(output=tmp_path, epochs=1)
    path = tmp_path / "checkpoint-000000007.safetensors"
    arrays, metadata = load_arrays(path)
    save_arrays(path, arrays, {**metadata, "made_with": made_with})
    assert run(output=tmp_path, epochs=2, resume="auto").steps == 14
