from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler import Trainer, TrainingConfig, TrainingResult
from tensorbow.devices import get_device
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.specs import Array
from tensorbow.training import TrainingProgress, load_arrays
from tests.scheduler_rig.ticking_clock import TickingClock

Options = Callable[..., TrainingConfig]
Run = Callable[..., TrainingResult]
Metrics = Callable[[Path], list[dict[str, Any]]]
Model = Callable[[Path], dict[str, Array]]

ROUNDS = 7  # of an epoch with two replicas; see conftest.py


def held() -> int:
    return get_device("/cpu:0").memory.held_nbytes


def test_a_run_from_end_to_end(tmp_path: Path, run: Run, metrics: Metrics) -> None:
    result = run(output=tmp_path, epochs=3)
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.9
    assert (result.steps, result.epochs, result.replicas) == (3 * ROUNDS, 3.0, 2)
    assert not result.interrupted
    records = metrics(tmp_path)
    assert [(record["round"], record["epoch"]) for record in records] == [(7, 1), (14, 2), (21, 3)]
    expected = {"loss", "accuracy", "test_loss", "test_accuracy", "learning_rate", "alpha", "images"}
    assert expected < records[0].keys()
    assert records[-1]["test_accuracy"] == result.test_accuracy
    assert records[0]["alpha"] == 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-000000014.safetensors",
        "checkpoint-000000021.safetensors",
        "config.yaml",
        "metrics.jsonl",
        "model-best.safetensors",
        "model.safetensors",
    ]


def test_the_result_has_the_keys_of_the_command_line(run: Run) -> None:
    assert list(run(epochs=1).to_dict()) == [
        "model",
        "dataset",
        "devices",
        "replicas",
        "batch_size",
        "sync",
        "epochs",
        "steps",
        "images_per_second",
        "seconds",
        "test_accuracy",
        "seconds_to_target",
        "metrics",
    ]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, run: Run) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(output=tmp_path / name, seed=seed)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert files[0] == files[1] != files[2]


def test_the_model_file_says_how_to_use_it(tmp_path: Path, run: Run) -> None:
    result = run(output=tmp_path)
    arrays, metadata = load_arrays(tmp_path / "model.safetensors")
    assert {name: array.shape for name, array in arrays.items()} == {"weights": (784, 10), "biases": (10,)}
    assert (metadata["model"], metadata["classes"], metadata["image_shape"]) == ("logreg", 10, [28, 28, 1])
    assert (metadata["round"], metadata["test_accuracy"]) == (result.steps, result.test_accuracy)


def test_without_averaging_every_replica_s_model_is_saved(tmp_path: Path, run: Run, metrics: Metrics) -> None:
    run(output=tmp_path, sync="none", replicas_per_device=3)
    models = [load_arrays(path)[0] for path in sorted(tmp_path.glob("model*.safetensors"))]
    assert len(models) == 3
    assert not np.array_equal(models[0]["weights"], models[1]["weights"])
    record = metrics(tmp_path)[-1]
    assert len(record["test_accuracies"]) == 3
    assert record["test_accuracy"] == pytest.approx(sum(record["test_accuracies"]) / 3)
    names = ["model.safetensors", "model-replica1.safetensors", "model-replica2.safetensors"]
    own = [load_arrays(tmp_path / name)[1]["test_accuracy"] for name in names]
    assert own == record["test_accuracies"]
    files = [(tmp_path / name).read_bytes() for name in names]
    run(output=tmp_path, sync="none", replicas_per_device=3, resume="auto")
    assert [(tmp_path / name).read_bytes() for name in names] == files


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run().steps == 2 * ROUNDS
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_target_stops_the_run(tmp_path: Path, run: Run, metrics: Metrics) -> None:
    result = run(output=tmp_path, epochs=50, target_accuracy=0.9)
    assert [record["round"] for record in metrics(tmp_path)][:2] == [2, 4]  # quarters of an epoch
    assert result.test_accuracy is not None
    assert result.test_accuracy >= 0.9
    assert result.epochs < 50
    assert result.seconds_to_target is not None
    assert 0 < result.seconds_to_target <= result.seconds
    assert (tmp_path / "model.safetensors").exists()
    again = run(output=tmp_path, epochs=50, target_accuracy=0.9, resume="auto")
    assert again.steps == result.steps
    higher = run(output=tmp_path, epochs=10, target_accuracy=1.0, resume="auto")
    assert higher.steps > result.steps


def test_the_time_limit_stops_the_run_and_it_is_evaluated(
    tmp_path: Path, run: Run, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.training.running.trainer.time", TickingClock(tick_s=0.01))
    result = run(output=tmp_path, epochs=100_000, max_seconds=0.2)
    assert 0.2 <= result.seconds < 0.25
    assert 0 < result.steps < 100 * ROUNDS
    assert not result.interrupted
    records = metrics(tmp_path)
    assert records[-1]["round"] == result.steps
    assert records[-1]["test_accuracy"] == result.test_accuracy
    assert (tmp_path / "model.safetensors").exists()


def test_evaluation_time_is_no_training_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from scheduler import Evaluator

    evaluate, clock = Evaluator.evaluate, TickingClock(tick_s=0.0)

    def slow(self: Evaluator, *args: Any) -> Any:
        clock.now_s += 0.3
        return evaluate(self, *args)

    monkeypatch.setattr(Evaluator, "evaluate", slow)
    monkeypatch.setattr("scheduler.training.running.trainer.time", clock)
    result = run(epochs=3, max_seconds=0.6)
    assert result.steps == 3 * ROUNDS
    assert result.seconds == 0


def test_the_rate_drops_at_an_epoch_and_averaging_restarts_there(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Trainer(options(epochs=4, learning_rate=0.1, learning_rate_drops=((1, 0.5), (3, 0.1)))) as trainer:
        restarts: list[int] = []
        restart = trainer.engine.learners.tasks.restart
        monkeypatch.setattr(
            trainer.engine.learners.tasks, "restart", lambda round: (restarts.append(round), restart(round))
        )
        trainer.train()
        rates = [trainer.schedule(round) for round in range(4 * ROUNDS)]
    assert rates == pytest.approx([0.1] * 7 + [0.05] * 14 + [0.01] * 7)
    assert restarts == [ROUNDS - 1, 3 * ROUNDS - 1]  # after these rounds, before the next ones


@pytest.mark.slow
def test_closing_gives_everything_back(options: Options, tmp_path: Path) -> None:
    gc.collect()
    memory, threads = held(), threading.active_count()
    trainer = Trainer(options(output=tmp_path, devices=("cpu:0", "cpu:1"), staleness=1))
    assert held() > memory
    trainer.train()
    trainer.close()
    trainer.close()
    assert held() == memory
    assert get_device("/cpu:1").memory.held_nbytes == 0
    assert threading.active_count() == threads


@pytest.mark.slow
def test_a_constructor_that_fails_gives_everything_back(options: Options, tmp_path: Path) -> None:
    gc.collect()
    memory, threads = held(), threading.active_count()
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match="a file is in the way"):
        Trainer(options(output=tmp_path / "file" / "run"))
    assert held() == memory
    assert threading.active_count() == threads


@pytest.mark.slow
def test_one_after_the_other_and_side_by_side(tmp_path: Path, options: Options, model: Model) -> None:
    for name in ("a", "b"):
        with Trainer(options(output=tmp_path / name, seed=5)) as trainer:
            trainer.train()
    trainers = [Trainer(options(output=tmp_path / name, seed=5)) for name in ("c", "d")]
    threads = [threading.Thread(target=trainer.train) for trainer in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for trainer in trainers:
        trainer.close()
    models = [model(tmp_path / name)["weights"] for name in "abcd"]
    assert all(np.array_equal(models[0], other) for other in models[1:])


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"batch_size": 1000}, InvalidArgumentError, "do not fill one batch of 1000"),
        ({"replicas_per_device": 99}, InvalidArgumentError, "use a smaller batch_size or fewer replicas"),
        ({"devices": ("gpu:0",)}, InvalidArgumentError, "got 'gpu:0': "),
        ({"devices": ("null:0",)}, InvalidArgumentError, "computes nothing"),
        ({"dataset": "mnist", "data_dir": "/nowhere"}, NotFoundError, "does not exist"),
    ],
)
def test_what_cannot_work(
    options: Options, tmp_path: Path, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Trainer(options(output=tmp_path / "run", **given))
    assert not (tmp_path / "run").exists()


def test_output_that_fails_stops_the_run_with_a_checkpoint(options: Options, tmp_path: Path) -> None:
    class Broken(TrainingProgress):
        def line(self, text: str) -> None:
            self.failure = BrokenPipeError("gone")

    with Trainer(options(output=tmp_path, epochs=5), Broken()) as trainer:
        result = trainer.train()
    assert (result.steps, result.interrupted) == (ROUNDS, True)
    assert (tmp_path / "checkpoint-000000007.safetensors").exists()


@pytest.mark.slow
def test_lenet_learns_the_digits(run: Run) -> None:
    result = run(model="lenet", dataset="digits", epochs=15)
    assert result.test_accuracy is not None
    assert result.test_accuracy >= 0.98
