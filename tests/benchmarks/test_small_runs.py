"""Experiments as they are, run small: they end well, draw, and have a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
QUICK = (  # those without peers and data of their own
    "ablation",
    "against_commit",
    "auto_tuner",
    "bf16_accuracy",
    "cifar10_course",
    "cluster_null_steps",
    "compile_time",
    "defaults",
    "fig_4_2",
    "fig_5_11_and_5_12",
    "fig_5_13",
    "fig_5_6_to_5_9",
    "language_model",
    "loops_over_tasks",
    "members_at_once",
    "null_steps",
    "quantised_inference",
    "replicator_launches",
    "replicator_overhead",
    "round_profile",
    "table_5_1",
    "zoo",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_small_run(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("llvmlite")
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent), "TENSORBOW_EMULATE_BF16": "1"}
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--small", "--output", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / f"{name}.json").read_text())
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert result["rows"]
    assert all(len(row) == len(result["columns"]) for row in result["rows"])


@pytest.mark.slow
def test_an_unknown_model_is_a_wrong_option() -> None:
    pytest.importorskip("llvmlite")
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    command = [sys.executable, str(FOLDER / "native_step.py"), "--model", "vgg"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "error: model: expected one of logreg" in done.stderr
