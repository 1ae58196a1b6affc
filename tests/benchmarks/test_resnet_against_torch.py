"""Comparison with PyTorch's loss curve: the first rounds count too, and curves keep their settings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow  # importing PyTorch takes seconds


@pytest.fixture
def script() -> Any:
    pytest.importorskip("torch")
    import resnet_against_torch

    return resnet_against_torch


def curves() -> tuple[Any, Any]:
    """Losses [runs, rounds, replicas] of TensorBow and of PyTorch."""
    random = np.random.default_rng(0)
    noise = 1e-3 * random.standard_normal((4, 200, 2)) * (np.arange(200) > 2)[:, None]
    return np.full((2, 200, 2), 2.0), 2.0 + noise


@pytest.mark.parametrize("wrong", [0.0, 1.0])
def test_the_first_rounds_must_agree_one_by_one(script: Any, wrong: float) -> None:
    mine, torchs = curves()
    mine[0, :3] += wrong * np.array([[1], [-1], [0]])  # which smoothing hides
    details = script.compare(mine, torchs)
    assert details["first_rounds_agree"] is (wrong == 0)
    details |= {"model": "resnet32", "rounds": 200, "replicas": 2, "batch_size": 4}
    assert ("missed" in script.table(details).remarks[1]) is (wrong != 0)


def test_curves_are_compared_by_the_settings_stored_with_them(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    mine, torchs = curves()
    path = tmp_path / "curves.npz"
    monkeypatch.setattr(sys, "argv", ["", "--from-curves", str(path), "--output", str(tmp_path)])
    np.savez(path, tensorbow=mine, torch=torchs)
    with pytest.raises(SystemExit):
        script.main()
    assert "lacks model, batch_size, seed" in capsys.readouterr().err
    np.savez(path, tensorbow=mine, torch=torchs, model="resnet20", batch_size=8, seed=3)
    script.main()
    details = json.loads((tmp_path / "resnet_against_torch.json").read_text())["details"]
    found = [details[name] for name in ("model", "batch_size", "seed", "rounds", "replicas")]
    assert found == ["resnet20", 8, 3, 200, 2]
    assert details["settings"]["batch_size"] == 8
