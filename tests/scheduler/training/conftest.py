"""Short training runs on made-up data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scheduler.training.tuning.auto
import tensorbow.data.registry as registry
from scheduler import Trainer, TrainingConfig, TrainingResult
from tensorbow.data import make_synthetic
from tensorbow.specs import Array
from tensorbow.training import load_arrays
from tests.scheduler_rig.auto_runs import CURVE, MadeUp


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """`synthetic` with 240 examples to train on and 60 to test: 15 batches of 16, 7 rounds of 2 replicas."""
    data = make_synthetic(train_examples=240, test_examples=60)
    monkeypatch.setitem(registry.DATASETS, "synthetic", lambda data_dir: data)


@pytest.fixture
def options() -> Callable[..., TrainingConfig]:
    def make(**given: Any) -> TrainingConfig:
        values = {"model": "logreg", "dataset": "synthetic", "epochs": 2, **given}
        return TrainingConfig(**{name: str(v) if isinstance(v, Path) else v for name, v in values.items()})

    return make


@pytest.fixture
def run(options: Callable[..., TrainingConfig]) -> Callable[..., TrainingResult]:
    def train(**given: Any) -> TrainingResult:
        with Trainer(options(**given)) as trainer:
            return trainer.train()

    return train


@pytest.fixture
def metrics() -> Callable[[Path], list[dict[str, Any]]]:
    """Metrics of a run, without those that depend on the clock."""

    def read(folder: Path) -> list[dict[str, Any]]:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if "second" not in k} for line in lines]

    return read


@pytest.fixture
def model() -> Callable[[Path], dict[str, Array]]:
    return lambda folder: load_arrays(folder / "model.safetensors")[0]


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> type[MadeUp]:
    """Replaces the tuner's measurements by made-up ones; `synthetic` has 960 examples, 60 batches of 16."""
    data = make_synthetic(train_examples=960, test_examples=60)
    monkeypatch.setitem(registry.DATASETS, "synthetic", lambda data_dir: data)
    monkeypatch.setattr(MadeUp, "seen", [])
    monkeypatch.setattr(MadeUp, "steps", {})
    monkeypatch.setattr(MadeUp, "runs", 0)
    monkeypatch.setattr(MadeUp, "curve", CURVE)
    monkeypatch.setattr(scheduler.training.tuning.auto, "ThroughputWindows", MadeUp)
    return MadeUp
