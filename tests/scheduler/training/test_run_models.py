"""One replica's model of a run, and the mean of all replicas' predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler import Ensemble, TrainedModel, Trainer, TrainingConfig
from tensorbow.data import load
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.training import RollingCheckpoints, load_arrays


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of runs with three replicas, and of one with one."""
    folder = tmp_path_factory.mktemp("runs")
    for sync, replicas in (("none", 3), ("sma", 3), ("one", 1)):
        options: dict[str, Any] = {"model": "logreg", "dataset": "synthetic", "epochs": 1, "batch_size": 32}
        config = TrainingConfig(
            **options,
            sync="sma" if sync == "one" else sync,
            replicas_per_device=replicas,
            output=str(folder / sync),
        )
        with Trainer(config) as trainer:
            trainer.train()
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", ["none", "sma"])
def test_a_replica_s_model_has_its_values_of_the_checkpoint(runs: dict[str, Path], sync: str) -> None:
    run = runs[sync]
    checkpoint, _ = RollingCheckpoints(run).newest()
    assert checkpoint is not None
    found = set()
    for replica in range(3):
        with TrainedModel(run, replica=replica) as classifier:
            exported, _ = load_arrays(
                Path(classifier.export(run / f"of-{replica}")) / "variables.safetensors"
            )
        assert exported.keys() == {"weights", "biases"}
        for name, value in exported.items():
            assert value.tobytes() == checkpoint.arrays[f"replica{replica}/{name}"].tobytes()
        found.add(exported["weights"].tobytes())
    assert len(found) == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", ["none", "sma"])
def test_an_ensemble_predicts_the_mean_of_its_members(runs: dict[str, Path], sync: str) -> None:
    _, test = load("synthetic")
    each = []
    for replica in range(3):
        with TrainedModel(runs[sync], replica=replica) as classifier:
            each.append(classifier.probabilities(test.images))
    expected = np.mean(each, axis=0)
    with Ensemble(runs[sync]) as ensemble:
        assert len(ensemble) == 3
        probabilities = ensemble.probabilities(test.images)
        evaluation = ensemble.evaluate(test)
        assert ensemble.probabilities(test.images[:0]).shape == (0, test.classes)
        with pytest.raises(InvalidArgumentError, match=r"expected pictures uint8 .*, 1\]$"):
            ensemble.probabilities(np.zeros((1, 3, 3, 1), np.uint8))
        for shape, dtype, hint in (
            ((1, 1, 28, 28), np.uint8, r"28\]; channels are last, as by numpy\.transpose"),
            ((28, 28, 1), np.uint8, r"1\]; give a batch, of one example x\[None\]"),
            ((2, 28, 28, 1), np.float32, "give raw pixels"),
        ):
            with pytest.raises(InvalidArgumentError, match=hint):
                ensemble.probabilities(np.zeros(shape, dtype))
    np.testing.assert_allclose(probabilities, expected, rtol=1e-6)
    assert not any(np.array_equal(probabilities, own) for own in each)
    own = expected[np.arange(len(test)), test.labels]
    assert evaluation.loss == pytest.approx(-np.log(own.astype(np.float64)).mean(), rel=1e-5)
    assert evaluation.accuracy == np.mean(expected.argmax(1) == test.labels)


def test_what_a_folder_does_not_hold_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="replica: expected a number from 0 to 2"):
        TrainedModel(runs["sma"], replica=3)
    with pytest.raises(InvalidArgumentError, match=r"expected several replicas, .* has one"):
        Ensemble(runs["one"])
    with pytest.raises(InvalidArgumentError, match="ensemble: expected the folder of a run, got"):
        Ensemble(runs["sma"] / "model.safetensors")
    with pytest.raises(InvalidArgumentError, match="one of replica, ema and best, got replica 0 and ema"):
        TrainedModel(runs["sma"], replica=0, ema=True)
    (tmp_path / "model.safetensors").write_bytes((runs["sma"] / "model.safetensors").read_bytes())
    with pytest.raises(NotFoundError, match=r"replica: .* has no checkpoint"):
        TrainedModel(tmp_path, replica=0)
