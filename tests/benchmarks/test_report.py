"""Results in the README files: what is written between the markers, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
BEGIN, END = "<!-- {}: begin, written by benchmarks/report.py -->", "<!-- {}: end -->"
MACHINE = {
    "processor": "a processor",
    "cores": 2,
    "system": "Linux x86_64",
    "python": "3.11.7",
    "numpy": "2.4",
    "llvmlite": None,
    "torch": None,
    "jax": None,
    "cpu_backend": "NativeBackend",
    "date": "2026-11-21",
}


def floors(ratio: float, small: bool = False) -> dict[str, Any]:
    """A result of cpu_floors.py with one case and one target."""
    rates = {"TensorBow sma": {"median": 1000.0 * ratio}, "JAX jit, 2 processes": {"median": 1000.0}}
    target = {"ours": "TensorBow sma", "best_peer": "JAX jit, 2 processes", "ratio": ratio, "floor": 1.9}
    row = {"model": "lenet", "batch_size": 16, "images_per_second": rates}
    left_out = {"PyTorch compile, 2 threads": "no compiler"}
    rows = [{**row, "targets": [{**target, "reached": ratio >= 1.9}], "left_out": left_out}]
    settings = {"small": small, "windows": 7, "seconds": 2.0, "replicas": 2}
    return {"settings": settings, "machine": MACHINE, "rows": rows}


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A repository with two READMEs and a folder of results, `report` pointed at it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import report

    markers = {name: f"{BEGIN.format(name)}\nold\n{END.format(name)}" for name in ("experiments", "floors")}
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    inner, outer = tmp_path / "benchmarks" / "README.md", tmp_path / "README.md"
    inner.write_text(f"before\n{markers['experiments']}\nbetween\n{markers['floors']}\nafter\n")
    outer.write_text(f"top\n{markers['floors']}\nbottom\n")
    monkeypatch.setattr(report, "PLACES", ((inner, ("experiments", "floors")), (outer, ("floors",))))
    return tmp_path


def run(root: Path, *arguments: str) -> int:
    from report import main

    return int(main(["--results", str(root / "benchmarks" / "results"), *arguments]))


def test_results_stand_between_the_markers(places: Path) -> None:
    (places / "benchmarks" / "results" / "cpu_floors.json").write_text(json.dumps(floors(2.5)))
    assert run(places, "--check") == 1
    assert run(places) == 0
    outer = (places / "README.md").read_text()
    assert outer.startswith("top\n<!--")
    assert outer.endswith("-->\nbottom\n")
    assert "old" not in outer
    row = "| LeNet b=16 | TensorBow sma | 2,500 | JAX jit, 2 processes | 1,000 | 2.50 | floor 1.9 | yes |"
    assert row in outer
    assert "(benchmarks/results/cpu_floors.png)" in outer
    assert "Left out: LeNet b=16: PyTorch compile, 2 threads (no compiler)." in outer
    assert (
        "2 cores of a processor, Linux x86_64, Python 3.11.7, numpy 2.4; NativeBackend; 2026-11-21" in outer
    )
    inner = (places / "benchmarks" / "README.md").read_text()
    assert row in inner
    assert "(results/cpu_floors.png)" in inner
    assert "1 of 1 floors reached" in inner
    assert "| `tau.py` |" in inner
    assert "not run yet" in inner
    assert run(places, "--check") == 0


def test_what_is_missed_and_what_is_small_is_said(places: Path) -> None:
    (places / "benchmarks" / "results" / "cpu_floors.json").write_text(json.dumps(floors(1.5, small=True)))
    assert run(places) == 0
    text = (places / "benchmarks" / "README.md").read_text()
    assert "| 1.50 | floor 1.9 | **no** |" in text
    assert text.count("no figure to quote") == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "is no JSON"), ('{"settings": {"small": false}}', "not as cpu_floors.py writes")],
)
def test_results_that_cannot_be_read_are_named(
    places: Path, content: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (places / "benchmarks" / "results" / "cpu_floors.json").write_text(content)
    before = (places / "README.md").read_text()
    assert run(places) == 1
    shown = capsys.readouterr().err
    assert "cpu_floors" in shown
    assert says in shown
    assert (places / "README.md").read_text() == before


def test_a_readme_without_markers_is_named(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (places / "README.md").write_text("nothing\n")
    assert run(places) == 1
    assert "no markers for 'floors'" in capsys.readouterr().err
