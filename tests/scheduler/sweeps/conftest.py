from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensorbow.data.registry as registry
from scheduler.sweeps.options import SweepOptions
from scheduler.sweeps.sweep import Sweep
from tensorbow.data import make_synthetic

FILES = ("results.csv", "curves.jsonl")


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """`synthetic` with 160 examples to train on and 40 to test."""
    data = make_synthetic(train_examples=160, test_examples=40)
    monkeypatch.setitem(registry.DATASETS, "synthetic", lambda data_dir: data)


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[..., Sweep]:
    def make(
        folder: str = "sweep",
        grid: dict[str, Any] | None = None,
        ranges: dict[str, Any] | None = None,
        resume: bool = False,
        base: dict[str, Any] | None = None,
        **options: Any,
    ) -> Sweep:
        given = {"model": "logreg", "dataset": "synthetic", "epochs": 3, **(base or {})}
        options = {"keep": 1000, "checkpoint_seconds": 0, **options}
        return Sweep(
            given, grid or {}, ranges or {}, SweepOptions(**options), tmp_path / folder, resume=resume
        )

    return make


def content(folder: Path) -> dict[str, bytes]:
    """Results, curves and all weights of a sweep."""
    members = sorted((folder / "members").iterdir()) if (folder / "members").exists() else []
    files = [*(folder / name for name in FILES), *members, folder / "best" / "model.safetensors"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if file.exists()}
