"""The GPU benchmark without a GPU: it runs on the emulated one, refuses in one line, and sums up rightly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_rig.runtimes import needs_compiler, why_no_gpu

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "gpu_replicas.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@needs_compiler
def test_a_dry_run_measures_everything_and_writes_nothing(tmp_path: Path) -> None:
    files = f"--json={tmp_path}/figures.json", f"--picture={tmp_path}/picture.png"
    sizes = "--counts=1,2", "--seconds=0.02", "--windows=1", "--case=logreg:8"
    done = run("--emulated", *sizes, *files)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in (
        "device: Emulated GPU",
        "logreg, batch size 8",
        "TensorBow none",
        "TensorBow sma",
        "kernels in 2 graphs",
        "us (goal under 10)",
        "synchronisation costs",
        "no file was written",
    ):
        assert part in done.stdout
    assert "left out" not in done.stdout
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_it_says_so_in_one_line() -> None:
    if not why_no_gpu():
        pytest.skip("there is a GPU")
    done = run("--case=logreg:8")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "--emulated" in done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "wrong", ["--case=vgg:4", "--case=lenet:0", "--case=lenet", "--counts=0", "--counts=x"]
)
def test_wrong_arguments(wrong: str) -> None:
    done = run("--emulated", wrong)
    assert done.returncode == 2
    assert wrong.partition("=")[0] in done.stderr


def row(name: str, replicas: int, rate: float, **facts: Any) -> dict[str, Any]:
    return {"name": name, "replicas": replicas, "images_per_second": rate, **facts}


def test_its_summary_holds_the_best_averaged_count_against_the_best_peer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from gpu_replicas_contestant import Case
    from gpu_replicas_report import draw, save, summary

    rows = [
        row("TensorBow none", 1, 100.0, host_us_per_graph_launch=5.0),
        row("TensorBow none", 4, 400.0, host_us_per_graph_launch=7.0),
        row("TensorBow none", 8, 390.0, host_us_per_graph_launch=None),
        row("TensorBow sma", 4, 380.0),
        row("TensorBow sma", 8, 351.0),
        row("PyTorch eager", 1, 50.0),
        row("JAX vmap", 8, 190.0),
    ]
    found = summary(Case("lenet", 4), rows)
    assert (found["best_count"], found["best_rate"]) == (4, 380.0)
    assert (found["best_peer"], found["ratio"], found["ratio_goal"]) == ("JAX vmap x 8", 2.0, 2.0)
    assert found["sync_cost"] == pytest.approx({4: 0.05, 8: 0.1})
    assert found["host_us_per_graph_launch"] == 6.0
    assert "ratio" not in summary(Case("lenet", 4), rows[:5])
    machine = {"device": "none", "compute": "fp32", "date": "2026-01-01T00:00"}
    results = [{"model": "lenet", "batch_size": 4, "rows": rows, "summary": found}]
    save(tmp_path / "new" / "figures.json", machine, results)
    assert json.loads((tmp_path / "new" / "figures.json").read_text())["cases"][0]["summary"]["ratio"] == 2.0
    draw(tmp_path / "picture.png", machine, results)
    assert (tmp_path / "picture.png").exists() == (find_spec("matplotlib") is not None)
