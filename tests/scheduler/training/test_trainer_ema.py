"""The moving average of z in a run: metrics, models, resuming, and use of the trained model."""

from __future__ import annotations

import json

import pytest

from scheduler import TrainedModel, Trainer, TrainingConfig
from tensorbow.data import load
from tensorbow.errors import InvalidArgumentError, NotFoundError

OPTIONS = {"model": "logreg", "dataset": "synthetic", "epochs": 3, "batch_size": 32}


def train(folder, **options):
    with Trainer(TrainingConfig(output=str(folder), **{**OPTIONS, "ema": 0.9, **options})) as trainer:
        return trainer.train()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"replicas_per_device": 1}, {"sync": "ssgd"}], ids=str)
def test_its_accuracy_and_model_are_beside_those_of_z(tmp_path, options):
    result = train(tmp_path / "run", **options)
    plain = train(tmp_path / "plain", ema=None, **options)
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    before = [json.loads(line) for line in (tmp_path / "plain/metrics.jsonl").read_text().splitlines()]
    assert [r["test_loss"] for r in records] == [r["test_loss"] for r in before]
    assert all("ema_loss" not in r for r in before)
    assert result.to_dict()["ema_accuracy"] == records[-1]["ema_accuracy"]
    assert "ema_accuracy" not in plain.to_dict()
    _, test = load("synthetic")
    with TrainedModel(tmp_path / "run", ema=True) as classifier:
        evaluation = classifier.evaluate(test)
        assert classifier.about["test_accuracy"] == evaluation.accuracy == records[-1]["ema_accuracy"]
        assert evaluation.loss == pytest.approx(records[-1]["ema_loss"], rel=1e-5)
    with TrainedModel(tmp_path / "run") as classifier:
        assert classifier.evaluate(test).loss != evaluation.loss


@pytest.mark.slow
def test_a_resumed_run_has_the_same_average(tmp_path):
    train(tmp_path / "whole")
    train(tmp_path / "parts", epochs=1)
    train(tmp_path / "parts", resume="auto")
    names = ("model.safetensors", "model-ema.safetensors")
    whole, parts = ([(tmp_path / run / name).read_bytes() for name in names] for run in ("whole", "parts"))
    assert whole == parts
    with pytest.raises(InvalidArgumentError, match=r"ema was 0.9, is 0.5"):
        train(tmp_path / "parts", resume="auto", ema=0.5, epochs=4)


def test_runs_without_a_central_model_are_refused(tmp_path):
    for replicas in (2, "auto"):
        with pytest.raises(InvalidArgumentError, match="ema: expected a central model"):
            TrainingConfig(**OPTIONS, sync="none", replicas_per_device=replicas, ema=0.9)
    train(tmp_path, ema=None, epochs=1)
    with pytest.raises(NotFoundError, match=r"no moving average of z.*--ema"):
        TrainedModel(tmp_path, ema=True)
