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
    row = {"model": "lenet", "batch_size": 16, "images_per_second": rates, "command": "cpu_floors.py"}
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


def test_cases_of_another_run_are_named(places: Path) -> None:
    found = floors(2.5)
    (row,) = found["rows"]
    found["rows"].append({**row, "batch_size": 32, "command": "cpu_floors.py --only lenet:32"})
    (places / "benchmarks" / "results" / "cpu_floors.json").write_text(json.dumps(found))
    assert run(places) == 0
    assert "are of one run; not of that of the first case: LeNet b=32." in (places / "README.md").read_text()
    (places / "benchmarks" / "results" / "cpu_floors.json").write_text(json.dumps(floors(2.5)))
    assert run(places) == 0
    assert "the first case" not in (places / "README.md").read_text()


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


def test_misses_stand_beside_their_profile(places: Path) -> None:
    from report_misses import missed, profile, rows_of_profile
    from round_profile import shares

    row: dict[str, Any] = {"model": "lenet", "batch_size": 16, "sync": "sma", "steps_per_launch": 1}
    row |= {"cores": 2, "replicas": 2, "round_us": 8000.0, "streams_us": 9000.0, "driver_us": 1000.0}
    row["by_stream_us"] = {"replica 0": 4500.0, "replica 1": 4500.0}
    row |= {"images_per_second": 4000.0, "ready_without_a_core_us": 0.0, "native_step_us": 4000.0}
    row["parts"] = shares(row, 4000.0, row)
    profiled = {"rows": [row], "settings": {"small": False}}
    found = missed({"cpu_floors": floors(1.5), "round_profile": profiled})
    case = "LeNet b=16, TensorBow sma"
    # of 16,000 us of cores 8,000 are native steps; 2 x 16 images in 4 ms are 8 times the peer's 1,000
    assert found.rates == [
        [case, "1.50", "floor 1.9", "4,000 images/s", "50%", "6%", "0%", "6%", "38%", "8.00"]
    ]
    assert len(found.header) == len(found.rates[0])
    assert missed({"cpu_floors": floors(1.5)}).rates[0][3:] == ["-"] * 7
    assert missed({"cpu_floors": floors(2.0), "round_profile": profiled}).count == 0
    header, sentences = profile(profiled)
    assert len(header) == len(rows_of_profile(profiled)[0])
    assert (
        "native steps have 50% of the cores' time, the most of the rest goes to cores waiting" in sentences[1]
    )
    alone = {**row, "by_stream_us": {"replica 0": 7900.0, "replica 1": 20.0}, "driver_us": 90.0}
    assert "one thread does the steps of both replicas" in profile({**profiled, "rows": [alone]})[1][1]


def test_a_missed_limit_of_the_scheduler_and_of_compiling_is_said(places: Path) -> None:
    from report_figures import compile_time, null_steps
    from report_misses import missed

    task = {"devices": 1, "replicas_per_device": 2, "sync": "sma"}
    tasks = [{**task, "us": 23.5, "us_with_synchronisation_tasks": 15.7, "parts": {"launching": 0.6}}]
    sessions = [{"call": "session.run", "fetches": 0, "us": 90.0}]
    steps = {"limit_us": 20.0, "tasks": tasks, "sessions": sessions, "bare_stream": {"us": 0.7}}
    cell, _ = null_steps(steps)
    assert "23.5 to 23.5 us per learning task<br>15.7 to 15.7 us per task of any kind" in cell
    assert "**missed** by 1 x 2 sma (23.5 us)" in cell
    assert null_steps({**steps, "limit_us": 24.0})[0].endswith("limit 24 us per learning task: met")
    phases = {"graph_s": 0.05, "compile_s": 0.1, "initial_values_s": 0.1, "first_round_s": 0.05}
    row = {"model": "lenet", "batch_size": 4, "cache": "cached", **phases, "total_s": 0.3, "limit_s": 0.2}
    row["graph_and_compile_s"] = 0.15
    cell, _ = compile_time({"rows": [row]})
    assert "cached, graph, compile and bind: 0.15 s at most (LeNet b=4), limit 0.2 s: met" in cell
    assert "cached, to the first step: 0.30 s at most (LeNet b=4), limit 0.2 s: **missed**" in cell
    found = missed({"null_steps": steps, "compile_time": {"rows": [row]}})
    assert [line.split(",")[0] for line in found.others] == ["`null_steps.py`", "`compile_time.py`"]
    assert "to the first step 0.30 s, limit 0.2 s" in found.others[1]


def test_a_tuner_that_is_too_far_behind_is_said(places: Path) -> None:
    from report_misses import missed

    case = {"model": "lenet", "batch_size": 4, "ratio_to_best": 1.0, "tuned_to_best": 0.96}
    assert missed({"auto_tuner": {"floor": 0.95, "cases": [case]}}).count == 0
    (line,) = missed({"auto_tuner": {"floor": 0.97, "cases": [case]}}).others
    assert "LeNet b=4: 96.0% of the best fixed number's throughput, floor 97%" in line


def test_what_a_paper_says_is_held_against_our_result(places: Path) -> None:
    from experiments import EXPERIMENTS
    from report_papers import CONCLUSIONS

    assert set(CONCLUSIONS) <= {experiment.name for experiment in EXPERIMENTS}

    def course(name: str, value: object, seconds: float | None, epochs: float | None) -> dict[str, Any]:
        figures = {"seconds": seconds, "epochs": epochs, "rate": 1000.0}
        ends = ("least", "median", "greatest")
        return {name: value, **{key: dict.fromkeys(ends, figure) for key, figure in figures.items()}}

    def summed(name: str, **courses: tuple[float | None, float | None]) -> dict[str, Any]:
        return {"summary": [course(name, value, *figures) for value, figures in courses.items()]}

    verdict = CONCLUSIONS["synchronisers"].verdict
    found = verdict(summed("sync", sma=(10.0, 1.0), ssgd=(15.0, 2.0)))
    assert found.startswith("ours agree: S-SGD took 2.00 times the epochs of SMA and 1.50 times the time, at")
    assert verdict(summed("sync", sma=(10.0, 1.0), ssgd=(5.0, 2.0))).startswith("ours do not agree")
    slower = verdict(summed("sync", sma=(10.0, 1.0), ssgd=(15.0, 1.0)))
    assert slower.startswith("ours agree on the time, but not on the epochs")
    assert "not to be told" in verdict(summed("sync", sma=(10.0, 1.0), ssgd=(None, None)))
    verdict = CONCLUSIONS["fig_5_1_to_5_3"].verdict

    def of_sizes(**epochs: float | None) -> dict[str, Any]:
        return {"summary": [course("batch_size", int(size[1:]), 1.0, n) for size, n in epochs.items()]}

    assert verdict(of_sizes(b4=1.0, b16=1.0, b256=3.0)).startswith(
        "ours agree: in every seed more epochs than b=4: b=256;"
    )
    assert verdict(of_sizes(b4=3.0, b16=1.0, b256=1.0)).startswith("ours do not agree")
    assert verdict(of_sizes(b4=1.0, b16=1.0, b256=1.0)).startswith("ours do not agree")
    assert "b=256" in verdict(of_sizes(b4=1.0, b16=1.0, b256=None))


def test_a_factor_is_said_with_the_cost_at_which_it_is(places: Path) -> None:
    from report_papers import CONCLUSIONS

    costs = [{"driver_us": cost, "step_factor": factor} for cost, factor in ((10, 1.0), (20, 3.0), (40, 5.0))]
    found = CONCLUSIONS["fig_4_2"].verdict({"rows": [{"model": "lenet", "by_driver_cost": costs}]})
    assert "not to be told" in found
    assert "LeNet at 30 us" in found
