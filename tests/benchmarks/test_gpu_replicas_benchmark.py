"""The GPU benchmark without a GPU: it runs on the emulated one, refuses in one line, and sums up rightly."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_rig.runtimes import needs_compiler, why_no_gpu

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "gpu_replicas.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@needs_compiler
def test_a_dry_run_measures_everything_and_writes_nothing(tmp_path: Path) -> None:
    files = "--output", str(tmp_path)
    sizes = "--counts=1,2", "--seconds=0.02", "--windows=1", "--case=logreg:8"
    done = run("--emulated", *sizes, *files)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in (
        "device: Emulated GPU",
        "logistic regression b=8",
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


@pytest.mark.slow
def test_without_a_gpu_it_says_so_in_one_line() -> None:
    if not why_no_gpu():
        pytest.skip("there is a GPU")
    done = run("--case=logreg:8")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "--emulated" in done.stderr


@pytest.mark.slow
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gpu_replicas_contestant import Case
    from gpu_replicas_report import draw, summary, table

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
    gpu = {"device": "none", "compute": "fp32"}
    case = {"model": "lenet", "batch_size": 4, "rows": rows, "summary": found, "absent": ["JAX jit: none"]}
    shown = table({"gpu": gpu, "cases": [case]})
    assert shown.rows[1] == ["LeNet b=4", "TensorBow none", 4, 400.0]
    assert (
        "LeNet b=4: best count 4, averaged: 2.00 times JAX vmap x 8, the best peer (goal 2)." in shown.remarks
    )
    assert shown.remarks[-1] == "LeNet b=4: left out: JAX jit: none."
    if find_spec("matplotlib") is not None:
        from matplotlib.figure import Figure

        draw(Figure(), {"details": {"gpu": gpu, "cases": [case]}})


def test_a_contestant_that_fails_is_closed_at_once_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gpu_replicas import WARM_WINDOWS, measure
    from gpu_replicas_contestant import Contestant, Settings

    said: list[str] = []

    def contestant(name: str, lasts: int) -> Contestant:
        windows = iter(range(lasts))

        def window(seconds: float) -> float:
            said.append(name)
            if next(windows, None) is None:
                raise MemoryError("full\nup")
            return seconds

        return Contestant(name, 2, window, lambda: said.append(f"{name} closed"))

    contestants = [contestant("warm", 1), contestant("timed", WARM_WINDOWS), contestant("good", 9)]
    absent: list[str] = []
    settings = Settings(None, [], "fp32", seconds=0.25, windows=2, emulated=True)  # type: ignore[arg-type]
    (row,) = measure(contestants, settings, absent)
    assert (row["name"], row["windows"], row["images_per_second"]) == ("good", [0.25, 0.25], 0.25)
    assert absent == ["warm x 2: MemoryError: full", "timed x 2: MemoryError: full"]
    assert [contestant.name for contestant in contestants] == ["good"]
    for name in ("warm", "timed"):
        assert said[said.index(f"{name} closed") - 1] == name
        assert said.count(f"{name} closed") == 1
