from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler import Evaluation, Evaluator, Trainer, TrainingConfig, TrainingResult
from scheduler.training.measures.tally import Tally
from tensorbow.errors import NumericsError, ResourceExhaustedError

Options = Callable[..., TrainingConfig]
Run = Callable[..., TrainingResult]
Metrics = Callable[[Path], list[dict[str, Any]]]

DIVERGING = {"learning_rate": 1e37, "momentum": 0.99}


def test_a_loss_that_is_not_finite_names_step_and_replica(tmp_path: Path, run: Run) -> None:
    with pytest.raises(NumericsError, match=r"loss of replica \d+ is not finite at step \d+") as caught:
        run(output=tmp_path, epochs=20, **DIVERGING)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.slow
def test_checkpoints_of_before_stay_usable(tmp_path: Path, run: Run) -> None:
    run(output=tmp_path, epochs=1)
    with pytest.raises(NumericsError):
        run(output=tmp_path, epochs=20, resume="auto", **DIVERGING)
    assert run(output=tmp_path, epochs=2, resume="auto").steps == 14


def test_skipping_goes_on_and_counts(tmp_path: Path, run: Run) -> None:
    result = run(output=tmp_path, epochs=6, on_nan="skip", **DIVERGING)
    assert result.steps == 42
    assert result.skipped_updates > 0
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line, parse_constant=lambda constant: pytest.fail(constant))
    assert record["skipped_updates"] == result.skipped_updates
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_a_test_loss_that_is_not_finite_stops_before_a_checkpoint(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, metrics: Metrics
) -> None:
    monkeypatch.setattr(Evaluator, "evaluate", lambda *_: Evaluation(float("nan"), {"accuracy": 0.1}))
    with pytest.raises(NumericsError, match="test loss of the central model is nan after step 7"):
        run(output=tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))
    result = run(output=tmp_path, on_nan="skip")
    assert result.test_accuracy == 0.1
    assert metrics(tmp_path)[-1]["test_loss"] is None


@pytest.mark.slow
def test_a_disk_that_fills_up_loses_nothing(
    tmp_path: Path, run: Run, options: Options, monkeypatch: pytest.MonkeyPatch, metrics: Metrics
) -> None:
    run(output=tmp_path / "whole", epochs=3)
    fsync, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ResourceExhaustedError, match="No space left on device"):
            run(output=tmp_path / "run", epochs=3)
    assert not list((tmp_path / "run").glob(".*"))
    assert list((tmp_path / "run").glob("checkpoint-*"))
    run(output=tmp_path / "run", epochs=3, resume="auto")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    name = "model.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_interrupt_in_the_constructor_lets_the_folder_go(
    tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Evaluator, *_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "__init__", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Trainer(options(output=tmp_path))
    with Trainer(options(output=tmp_path)) as trainer:
        assert trainer.train().steps == 14


def test_a_tally_leaves_bad_losses_out() -> None:
    tally = Tally()
    tally.add([1.0, float("nan")], {"accuracy": [0.5, 0.5]}, 16)
    tally.add([2.0], {"accuracy": [0.5]}, 16)
    tally.add([float("inf")], {"accuracy": [0.5]}, 16)
    assert (tally.loss, tally.metrics, tally.images) == (1.5, {"accuracy": 0.5}, 64)
    tally.begin_epoch()
    assert str(tally.loss) == "nan"
