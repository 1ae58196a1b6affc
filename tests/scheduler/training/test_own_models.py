"""Training, evaluation and use of models and data of users: regression, several inputs, sequences."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Ensemble, TrainedModel, Trainer, TrainingConfig, TrainingResult
from tensorbow.data import splits_of
from tensorbow.errors import DataLossError, InvalidArgumentError
from tensorbow.training import TrainingProgress, load_arrays
from tests.scheduler_rig.interrupted import train_until
from tests.scheduler_rig.kept_lines import Lines

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)).astype(np.float32)
Y = X @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 1
REGRESSION = (X[:96], Y[:96]), (X[96:], Y[96:])


@pytest.fixture(autouse=True)
def quick_kernels(request: pytest.FixtureRequest) -> None:
    """Reference kernels, since compiling native code would take most of the time, but for tests of it."""
    request.getfixturevalue(f"{'native' if 'native' in request.node.name else 'reference'}_kernels")


class Regression:
    """A dense layer; mean squared error, and the share of the variance that it explains."""

    def __init__(self, width: int = 0):
        self.width = width

    def __call__(self, inputs: Any, labels: Any, training: bool) -> Any:
        hidden = tb.layers.dense(inputs, self.width, tb.nn.relu) if self.width else inputs
        outputs = tb.layers.dense(hidden, 1)
        error = tb.reduce_mean(tb.square(outputs - labels))
        spread = tb.reduce_mean(tb.square(labels - tb.reduce_mean(labels)))
        return error, outputs, {"r2": 1.0 - error / spread}


def mixture(inputs: Any, labels: Any, training: bool, classes: int) -> tb.models.ModelOutputs:
    """Predicts a nest from a dictionary of numbers and codes."""
    codes = tb.one_hot(inputs["code"], 4)
    logits = tb.layers.dense(tb.concat([inputs["x"], codes], 1), classes)
    losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tb.models.ModelOutputs(tb.reduce_mean(losses), {"logits": logits, "best": tb.argmax(logits, 1)})


def tokens(inputs: Any, labels: Any, training: bool, classes: int) -> Any:
    """The next symbol of a sequence, from the one before."""
    logits = tb.layers.dense(tb.one_hot(inputs, classes), classes)
    losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tb.reduce_mean(losses), logits


def of_three_layers(inputs: Any, labels: Any, training: bool) -> Any:
    """Many inputs, more than devices keep; no labels: the loss alone."""
    parts = [tb.layers.dense(part, 1) for part in inputs]
    return tb.reduce_mean(tb.square(tb.add_n(parts) - 1.0))


def trained(
    model: Any, data: Any, progress: TrainingProgress | None = None, **options: Any
) -> TrainingResult:
    values = {"epochs": 4, "batch_size": 8, "learning_rate": 0.05, **options}
    with Trainer(TrainingConfig(**values), progress, model=model, data=data) as trainer:
        return trainer.train()


def weights(folder: Path) -> dict[str, Any]:
    return load_arrays(folder / "model.safetensors")[0]


def test_a_regression_is_trained_recorded_and_used(tmp_path: Path) -> None:
    result = trained(Regression, REGRESSION, output=str(tmp_path / "run"), epochs=8)
    assert (result.test_accuracy, result.dataset) == (None, "data")
    assert result.metrics["test_r2"] > 0.95
    record = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert record["test_r2"] == result.metrics["test_r2"]
    assert {"loss", "r2", "test_loss"} < record.keys()
    assert "accuracy" not in record
    with tb.train.load_model(tmp_path / "run") as model:
        test = REGRESSION[1]
        predicted = model.predict(test[0])
        assert predicted == pytest.approx(test[1], abs=0.5)
        assert model.predict(test[0].astype(np.float64)) == pytest.approx(predicted)
        evaluation = model.evaluate(tb.data.ArrayDataset(*test))
        assert evaluation.metrics["r2"] == pytest.approx(result.metrics["test_r2"], rel=1e-5)
        assert evaluation.accuracy is None
        model.export(tmp_path / "export")
        for wrong in (test[0][:, :2], {"x": test[0]}, np.array([["a"] * 3])):
            with pytest.raises(InvalidArgumentError, match=r"expected inputs float32\[\?, 3\]"):
                model.predict(wrong)
        with pytest.raises(InvalidArgumentError, match="predicts no classes; predict gives"):
            model.probabilities(test[0])
        with pytest.raises(InvalidArgumentError, match=r"the model is for inputs float32 3 with labels"):
            model.evaluate(tb.data.ArrayDataset(test[0]))
    with TrainedModel(tmp_path / "export") as exported:
        assert (exported.predict(test[0]) == predicted).all()


@pytest.mark.slow
@pytest.mark.parametrize(("kept", "steps"), [("never", 1), ("always", 3)])
def test_arrays_give_the_same_native_bits_on_the_host_and_on_devices(
    tmp_path: Path, kept: str, steps: int
) -> None:
    for name, options in (("a", {}), ("b", {"data_on_device": kept, "steps_per_launch": steps})):
        trained(Regression, REGRESSION, output=str(tmp_path / name), epochs=2, **options)
    first, second = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert all((first[name] == second[name]).all() for name in first)


def test_several_inputs_and_a_nest_of_outputs(tmp_path: Path) -> None:
    inputs = {"x": X.astype(np.float16), "code": RNG.integers(0, 4, 120).astype(np.int16)}
    result = trained(mixture, (inputs, (X[:, 0] > 0).astype(np.uint8)), output=str(tmp_path))
    assert result.metrics.keys() == {"test_loss"}
    with TrainedModel(tmp_path) as model:
        found = model.predict({"code": inputs["code"][:5], "x": X[:5]})
        assert (found["logits"].shape, found["best"].shape) == ((5, 2), (5,))
        assert model.predict({name: array[:0] for name, array in inputs.items()})["best"].shape == (0,)


def test_sequences_and_labels_for_each_step() -> None:
    sequences = (RNG.integers(0, 5, (60, 1)) + np.arange(7)) % 5  # each symbol has one that follows
    splits = (sequences[:, :-1], sequences[:, 1:]), (sequences[:8, :-1], sequences[:8, 1:])
    assert trained(tokens, splits, learning_rate=0.5).metrics["test_loss"] < 0.5  # of log(5) without learning


def test_more_inputs_than_devices_keep_and_no_labels(tmp_path: Path) -> None:
    progress = Lines()
    parts = tuple(np.full((40, 2), number, np.float32) for number in range(9))
    trained(of_three_layers, ((parts, None), (parts, None)), progress, output=str(tmp_path), epochs=1)
    assert any("it has 9 arrays, of which devices keep at most 8" in line for line in progress.said)
    with TrainedModel(tmp_path) as model, pytest.raises(InvalidArgumentError, match="has no outputs"):
        model.predict(parts)


@pytest.mark.slow
def test_a_validation_split_is_evaluated_and_the_test_split_at_the_end(tmp_path: Path) -> None:
    result = trained(Regression(4), (X, Y), validation_split=0.25, output=str(tmp_path))
    assert {"validation_loss", "validation_r2", "test_loss", "test_r2"} == result.metrics.keys()
    record = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert "validation_loss" in record
    assert "test_loss" not in record
    chosen = {"dataset": "digits", "validation_split": 0.1, "epochs": 1, "learning_rate": 0.01}
    result = trained("logreg", None, output=str(tmp_path / "digits"), best_metric="loss", **chosen)
    assert result.test_accuracy == result.metrics["test_accuracy"] != result.metrics["validation_accuracy"]
    for name in ("model.safetensors", "model-best.safetensors"):
        about = load_arrays(tmp_path / "digits" / name)[1]
        assert about["validation_accuracy"] == result.metrics["validation_accuracy"]
        assert "test_accuracy" not in about


@pytest.mark.slow
def test_a_run_goes_on_bit_for_bit_and_refuses_other_options(
    tmp_path: Path, made: Callable[..., TrainingConfig]
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    with Trainer(made(output=whole)) as trainer:
        trainer.train()
    train_until(made(output=parts), 5)
    with pytest.raises(InvalidArgumentError, match=r"model\.width was 4, is 5; use the same"):
        Trainer(made(output=parts, resume="auto", model_options={"width": 5}))
    progress = Lines()
    file = Path(made().model.rpartition(":")[0])
    file.write_text(f"{file.read_text()}\n# changed\n")
    with Trainer(made(output=parts, resume="auto"), progress) as trainer:
        trainer.train()
    assert any("mine.py has changed since the checkpoint; the run goes on" in line for line in progress.said)
    assert (parts / "mine.py").read_text().endswith("# changed\n")
    first, second = weights(whole), weights(parts)
    assert all((first[name] == second[name]).all() for name in first)
    file.unlink()  # the folder of the run is enough
    with TrainedModel(parts) as model:
        assert model.predict(X).shape == (120, 1)
    (parts / "model-graph.json").write_text("{}")
    with pytest.raises(DataLossError, match="is damaged, or of another model"):
        TrainedModel(parts)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., TrainingConfig]:
    """Options of a run of a model and data in files."""
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom tests.scheduler.training.test_own_models import Regression, REGRESSION\n"
        "class Mine(Regression): pass\n"
    )
    np.savez(tmp_path / "xy.npz", x_train=X[:96], y_train=Y[:96], x_test=X[96:], y_test=Y[96:])

    def options(**given: Any) -> TrainingConfig:
        values = {
            "model": f"{tmp_path}/mine.py:Mine",
            "model_options": {"width": 4},
            "data": str(tmp_path / "xy.npz"),
            "epochs": 2,
            "batch_size": 8,
            "learning_rate": 0.05,
            **given,
        }
        return TrainingConfig(**{name: str(v) if isinstance(v, Path) else v for name, v in values.items()})

    return options


def test_a_run_with_losses_below_0_is_resumed(tmp_path: Path) -> None:
    def model(inputs: Any, labels: Any, training: bool) -> Any:
        outputs = tb.layers.dense(inputs, 1)
        return tb.reduce_mean(tb.square(outputs - labels)) - 100.0, outputs

    trained(model, REGRESSION, output=str(tmp_path), epochs=1)
    result = trained(model, REGRESSION, output=str(tmp_path), epochs=2, resume="auto")
    assert result.epochs == 2
    assert result.metrics["test_loss"] < 0


def test_independent_replicas_are_evaluated_by_their_means(tmp_path: Path) -> None:
    result = trained(Regression, REGRESSION, sync="none", output=str(tmp_path))
    assert result.metrics.keys() == {"test_loss", "test_r2"}
    with Ensemble(tmp_path) as ensemble:
        members = [TrainedModel(tmp_path, replica=index) for index in (0, 1)]
        mean = sum(member.predict(X[:5]) for member in members) / 2
        for member in members:
            member.close()
        assert ensemble.predict(X[:5]) == pytest.approx(mean, rel=1e-6)
        error = ensemble.predict(X) - Y
        found = ensemble.evaluate(tb.data.ArrayDataset(X, Y))
        assert found.loss == pytest.approx(np.mean(error**2), rel=1e-5)
        assert found.metrics["r2"] != result.metrics["test_r2"]


def test_a_metric_that_is_not_finite_ends_no_run(tmp_path: Path) -> None:
    def model(inputs: Any, labels: Any, training: bool) -> Any:
        loss = tb.reduce_mean(tb.square(tb.layers.dense(inputs, 1) - labels))
        return loss, None, {"odd": loss / tb.constant(0.0)}

    trained(model, REGRESSION, output=str(tmp_path), epochs=1)
    result = trained(model, REGRESSION, output=str(tmp_path), epochs=2, resume="auto")
    assert result.epochs == 2
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["odd"] is None
    assert result.to_dict()["metrics"]["test_odd"] is None


def test_the_zoo_on_features_with_weights_of_classes(tmp_path: Path) -> None:
    labels = (X[:, 0] > 1).astype(np.int64)
    trained("mlp", (X, labels), class_weights="balanced", output=str(tmp_path))
    with TrainedModel(tmp_path) as model:
        assert model.probabilities(X).sum(1) == pytest.approx(1, rel=1e-5)
    for options, words in (
        ({"class_weights": (1.0,)}, "class_weights: expected one for each of 2 classes, got 1"),
        ({"augmentation": "flip"}, "augmentation: expected pictures"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            trained("mlp", (X, labels), **options)


def figures(result: TrainingResult) -> dict[str, float]:
    """Metrics of the test split, without the loss."""
    tested = {name.removeprefix("test_"): v for name, v in result.metrics.items() if name.startswith("test_")}
    return {name: value for name, value in tested.items() if name != "loss"}


PRICES = (X, 1e5 + 3e4 * Y[:, 0])


def test_the_zoo_predicts_numbers_of_any_unit(tmp_path: Path) -> None:
    """The least-squares solution, whose errors evaluation, trained model and export agree on."""
    result = trained("linear", PRICES, epochs=30, learning_rate=0.05, output=str(tmp_path / "run"))
    test = splits_of(PRICES).test
    assert isinstance(test, tb.data.ArrayDataset)
    measured = figures(result)
    assert set(measured) == {"mse", "mae", "rmse", "r2"}
    with TrainedModel(tmp_path / "run") as model:
        predictions = model.predict(test.inputs)
        again = model.evaluate(test)
        model.export(tmp_path / "export")
    assert predictions == pytest.approx(test.labels, rel=1e-3)
    errors = predictions.astype(np.float64) - test.labels
    expected = {
        "mse": (errors**2).mean(),
        "mae": abs(errors).mean(),
        "rmse": (errors**2).mean() ** 0.5,
        "r2": 1 - (errors**2).mean() / test.labels.astype(np.float64).var(),
    }
    assert again.metrics == pytest.approx(measured, rel=1e-5)
    assert again.metrics == pytest.approx(expected, rel=0.02)
    with TrainedModel(tmp_path / "export") as model:
        assert model.evaluate(test).metrics == again.metrics


def test_the_task_decides_what_whole_numbers_are(tmp_path: Path) -> None:
    counts = (X[:, 0] > 0).astype(np.int64) + 2 * (X[:, 1] > 0)
    as_floats = X, counts.astype(np.float32)
    quick: dict[str, Any] = {"epochs": 1, "learning_rate": 0.01}
    assert {*figures(trained("mlp", as_floats, **quick))} == {"mse", "mae", "rmse", "r2"}
    assert {*figures(trained("mlp", as_floats, task="classification", **quick))} == {"accuracy"}
    assert "r2" in figures(trained("mlp", (X, counts), task="regression", **quick))
    with pytest.raises(InvalidArgumentError, match=r"task: expected whole numbers .* got 10\d"):
        trained("mlp", (X, Y[:, 0] + 100.5), task="classification")
    with pytest.raises(InvalidArgumentError, match=r"one array .* for regression, got 2 classes with"):
        trained("mlp", (X, np.array(["no", "yes"])[counts % 2]), task="regression")


def test_several_columns_of_numbers(tmp_path: Path) -> None:
    both = np.concatenate([Y, 100 - 7 * X[:, 1:2]], 1)
    trained("linear", (X, both), epochs=30, learning_rate=0.05, output=str(tmp_path))
    with TrainedModel(tmp_path) as model:
        assert model.predict(X) == pytest.approx(both, abs=0.1)


def test_errors_of_a_model_are_not_said_to_be_of_an_argument(tmp_path: Path) -> None:
    """The only text among the arguments is the name of the data."""

    def wrong(inputs: Any, labels: Any, training: bool) -> Any:
        return tb.reduce_mean(tb.layers.dense(tb.layers.flatten(inputs), 3, activation="relu"))

    with pytest.raises(InvalidArgumentError, match=r"^model .*wrong: dense: expected activation to be a fun"):
        tb.fit(wrong, "synthetic", epochs=1, progress=False)
    with pytest.raises(InvalidArgumentError, match=r"^model .*wrong: dense: expected activation to be a fun"):
        tb.sweep(wrong, "synthetic", seeds=2, progress=False, output=tmp_path / "sweep")
    with pytest.raises(InvalidArgumentError, match=r"^learning_rate: expected a positive number"):
        tb.fit("logreg", "synthetic", learning_rate="much", progress=False)
