"""`tb.fit`, and metrics and label smoothing in training."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Callback, RoundReport, TrainedModel, Trainer, TrainingConfig, TrainingRun
from scheduler.training.configuration.config_file import read_config_file
from scheduler.training.folders.run_data import data_of_run
from tensorbow.errors import InvalidArgumentError

Options = Callable[..., TrainingConfig]
Metrics = Callable[[Path], list[dict[str, Any]]]


@pytest.mark.slow
def test_fit_is_a_trainer_and_its_model_at_once(tmp_path: Path, options: Options) -> None:
    with tb.fit("logreg", "synthetic", epochs=2, seed=3, progress=False) as fitted:
        config = options(seed=3, output=tmp_path / "run")
        with Trainer(config) as trainer:
            assert trainer.train().test_accuracy == fitted.result.test_accuracy
            expected = trainer.engine.central_values()
            test = trainer.data.test
        assert fitted.values.keys() == expected.keys()
        assert all(np.array_equal(fitted.values[name], expected[name]) for name in expected)
        assert fitted.curve("epoch") == [1, 2]
        assert repr(fitted).startswith(f"<FittedModel: logreg, {fitted.result.steps} steps, test_loss ")
        assert [record["test_accuracy"] for record in fitted.history] == fitted.curve("test_accuracy")
        assert fitted.evaluate().accuracy == fitted.result.test_accuracy
        assert fitted.evaluate(test).loss == fitted.curve("test_loss")[-1]
        logits = fitted.predict(test.images)
        with (
            TrainedModel(fitted.save(tmp_path / "saved")) as loaded,
            TrainedModel(tmp_path / "run") as of_run,
        ):
            assert np.array_equal(loaded.predict(test.images), logits)
            assert np.array_equal(of_run.predict(test.images), logits)
        assert (logits.argmax(1) == test.labels).mean() == pytest.approx(fitted.result.test_accuracy)
        assert np.array_equal(fitted.probabilities(test.images).argmax(1), logits.argmax(1))
        with pytest.raises(InvalidArgumentError, match="curve: expected one of round, epoch, "):
            fitted.curve("f1")


@pytest.mark.slow
def test_fit_takes_any_model_and_arrays() -> None:
    """A line through points, by a function without options; z is the line."""

    def line(inputs: Any, labels: Any, training: bool) -> Any:
        weights = tb.Variable(np.zeros((2, 1), np.float32), name="weights")
        bias = tb.Variable(np.zeros(1, np.float32), name="bias")
        predicted = tb.reshape(tb.matmul(inputs, weights) + bias, [-1])
        error = tb.reduce_mean(tb.square(predicted - labels))
        return error, predicted, {"root": tb.sqrt(error)}

    random = np.random.default_rng(0)
    x = random.normal(size=(512, 2)).astype(np.float32)
    y = (x @ np.array([2, -1], np.float32) + 0.5).astype(np.float32)
    fitted = tb.fit(
        line, ((x[:400], y[:400]), (x[400:], y[400:])), epochs=8, learning_rate=0.05, progress=False
    )
    assert fitted.values["weights"] == pytest.approx(np.array([[2.0], [-1.0]]), abs=0.02)
    assert fitted.predict(x[:3]) == pytest.approx(y[:3], abs=0.05)
    assert fitted.curve("test_root")[-1] < 0.05
    fitted.close()
    with pytest.raises(InvalidArgumentError, match="metrics: expected a classifier, whose outputs"):
        tb.fit(line, ((x, y), (x, y)), epochs=1, metrics="f1", progress=False)


def test_ctrl_c_ends_fit_with_a_model() -> None:
    class Interrupts(Callback):
        def on_round(self, run: TrainingRun, report: RoundReport) -> None:
            if report.round == 9:
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        fitted = tb.fit("logreg", "synthetic", epochs=50, callbacks=[Interrupts()], progress=False)
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert fitted.result.interrupted
    assert 9 < fitted.result.steps < 50 * 7
    assert fitted.values
    assert f"{fitted.result.steps} steps, interrupted, test_loss" in repr(fitted)
    assert repr(fitted.model) == "<TrainedModel 'the trained model': probabilities of " + (
        f"pictures uint8 [n, {', '.join(map(str, fitted.model.image_shape))}]>"
    )
    with pytest.raises(InvalidArgumentError, match="an array as in the training data, got a dictionary with"):
        fitted.predict({"images": np.zeros((1, 28, 28, 1), np.uint8)})


def test_a_run_that_has_ended_leaves_no_compiled_step_behind(options: Options) -> None:
    """Its code and graph would otherwise stay for the whole process, as in a loop over many runs."""
    pytest.importorskip("llvmlite")
    with Trainer(options(epochs=1)) as trainer:
        trainer.train()
        steps = [weakref.ref(replica.step) for replica in trainer.engine.learners.replicas]
    assert steps[0]() is not None
    del trainer
    gc.collect()
    assert [step() for step in steps] == [None, None]


def test_independent_replicas_and_the_moving_average() -> None:
    fitted = tb.fit("logreg", "synthetic", replicas=3, sync="none", epochs=1, progress=False)
    assert len(fitted.replica_values) == 3
    first, second, _ = (values["dense/kernel"] for values in map(dict, _named(fitted.replica_values)))
    assert not np.array_equal(first, second)
    assert fitted.ema_values is None
    averaged = tb.fit("logreg", "synthetic", ema=0.9, epochs=1, progress=False)
    assert averaged.ema_values is not None
    assert averaged.ema_values.keys() == averaged.values.keys()


def _named(replicas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Values with the largest variable under one name, whatever the model calls it."""
    return [{"dense/kernel": max(values.values(), key=np.size)} for values in replicas]


def test_what_fit_refuses() -> None:
    with pytest.raises(InvalidArgumentError, match="unknown option 'lr'; did you mean learning_rate"):
        tb.fit("logreg", "synthetic", lr=0.1)
    with pytest.raises(InvalidArgumentError, match="fit: expected callbacks to be a list of"):
        tb.fit("logreg", "synthetic", callbacks=[print])


@pytest.mark.slow
def test_further_metrics_of_evaluations(tmp_path: Path, options: Options, metrics: Metrics) -> None:
    config = options(
        output=tmp_path,
        metrics="top3,f1,confusion",
        early_stopping="test_f1:1",
        epochs=20,
        replicas_per_device=1,
    )
    with Trainer(config) as trainer:
        result = trainer.train()
        data = trainer.data.test
    records = metrics(tmp_path)
    assert all(record["test_accuracy"] <= record["test_top3"] <= 1 for record in records)
    values = [record["test_f1"] for record in records]
    assert result.stop_reason is not None
    assert values[-1] <= max(values[:-1])
    with TrainedModel(tmp_path) as model:
        predicted = model.predict(data.images).argmax(1)
    lines = (tmp_path / "confusion.csv").read_text().splitlines()
    counts = np.array([[int(word) for word in line.split(",")[1:]] for line in lines[1:]])
    expected = np.zeros_like(counts)
    np.add.at(expected, (data.labels, predicted), 1)
    assert np.array_equal(counts, expected)
    assert lines[0].startswith("label,0,1,")


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5]])
def test_label_smoothing(weights: list[float] | None) -> None:
    """-(1 - s) log p[label] - s mean(log p), of each example."""
    model, random = tb.models.get_model("logreg"), np.random.default_rng(0)
    images, labels = random.normal(size=(4, 2, 2, 1)).astype(np.float32), np.array([0, 2, 1, 1])
    with tb.Graph().as_default(), tb.Session() as session:
        given = {} if weights is None else {"class_weights": tb.constant(weights)}
        built = model(tb.constant(images), tb.constant(labels), True, classes=3, label_smoothing=0.2, **given)
        session.run(tb.global_variables_initializer())
        loss, logits = session.run((built.loss, built.outputs))
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    losses = -0.8 * logs[np.arange(4), labels] - 0.2 * logs.mean(1)
    assert loss == pytest.approx((losses * np.array(weights or [1, 1, 1])[labels]).mean(), rel=1e-5)


@pytest.mark.slow
def test_label_smoothing_is_of_training_alone(options: Options) -> None:
    plain, smooth = (
        tb.fit("logreg", "synthetic", label_smoothing=share, epochs=3, progress=False) for share in (0.0, 0.5)
    )
    assert smooth.curve("loss")[-1] > plain.curve("loss")[-1] + 0.5
    assert smooth.evaluate().loss == smooth.curve("test_loss")[-1]
    assert math.isfinite(json.loads(json.dumps(smooth.history))[-1]["test_loss"])


@pytest.mark.slow
def test_a_run_says_where_its_data_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of a program are no data set; a file is found from another folder."""
    arrays = np.arange(400, dtype=np.uint8).reshape(100, 2, 2, 1), np.arange(100) % 2
    np.savez(tmp_path / "own.npz", x=arrays[0], y=arrays[1])
    monkeypatch.chdir(tmp_path)
    about = {}
    for name, data in (("program", arrays), ("file", "own.npz")):
        with tb.fit("logreg", data, epochs=1, output=name, progress=False) as fitted:
            about[name] = fitted.model.about
    assert read_config_file("program/config.yaml")["dataset"] == "given by a program"
    assert read_config_file("file/config.yaml")["dataset"] is None
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    name, splits = data_of_run(tmp_path / "file", about["file"], {})
    assert (name, len(splits.test)) == ("own", 20)
    with pytest.raises(InvalidArgumentError, match="a program gave the data of this run; give --data"):
        data_of_run(tmp_path / "program", about["program"], {})
