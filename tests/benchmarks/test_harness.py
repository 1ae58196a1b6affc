"""Shared parts of the experiments: alternating windows, results on disk, tables, options."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_contestants_run_in_turn_after_a_warm_up() -> None:
    from harness import interleave

    calls: list[tuple[str, float]] = []
    rates = {"a": iter([9.0, 1.0, 2.0, 6.0]), "b": iter([9.0, 4.0, 4.0, 4.0])}

    def contestant(name: str) -> object:
        def window(seconds: float) -> float:
            calls.append((name, seconds))
            return next(rates[name])

        return window

    measured = interleave({name: contestant(name) for name in rates}, 3.0, 3)
    assert calls == [("a", 1.0), ("b", 1.0)] + [(name, 3.0) for name in "abbaab"]
    assert measured["a"].samples == [1.0, 2.0, 6.0]
    assert measured["a"].as_json() == {"median": 2.0, "spread": 2.5, "samples": [1.0, 2.0, 6.0]}
    assert measured["b"].spread == 0.0


def test_a_window_makes_as_many_steps_as_its_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    import harness

    clock = 0.0
    made: list[int] = []

    def run_steps(steps: int) -> None:
        nonlocal clock
        made.append(steps)
        clock += steps * 0.01

    monkeypatch.setattr(harness.time, "perf_counter", lambda: clock)
    window = harness.paced(run_steps, units=8, per_second=20.0)
    assert window(1.0) == pytest.approx(800.0)
    assert window(1.0) == pytest.approx(800.0)
    assert made[0] == 20
    assert made[1] in (99, 100)
    assert window(0.001) == pytest.approx(800.0)
    assert made[2] == harness.LEAST_STEPS


def test_results_have_machine_settings_and_a_command_without_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from harness import parser, save
    from results_page import Table

    pytest.importorskip("matplotlib")
    arguments = ["--small", "--output", str(tmp_path / "made"), f"--data={tmp_path}"]
    monkeypatch.setattr(sys, "argv", [str(FOLDER / "some.py"), *arguments])
    made = parser("Something.", "some")
    made.add_argument("--data", type=Path)
    table = Table(["n", "who"], [[1, "ours"]], ["All of it."])
    save(made.parse_args(), "some", {"all": [1]}, table, lambda figure, _: figure.subplots().plot([1, 2]))
    text = (tmp_path / "made" / "some.json").read_text()
    found = json.loads(text)
    assert (found["name"], found["columns"], found["rows"]) == ("some", ["n", "who"], [[1, "ours"]])
    assert found["remarks"] == ["All of it."]
    assert found["details"] == {"settings": {"small": True, "data": "DATA"}, "all": [1]}
    assert found["command"] == "python benchmarks/some.py --small --output OUTPUT --data=DATA"
    assert str(tmp_path) not in text
    assert found["machine"]["cores"] >= 1
    assert found["versions"]["CPU backend"].endswith("Backend")
    assert (tmp_path / "made" / "some.png").stat().st_size > 1000


def test_without_matplotlib_the_json_is_written_and_a_line_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness import parser, save
    from results_page import Table

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    options = parser("Something.", "some").parse_args(["--output", str(tmp_path)])
    save(options, "some", {}, Table([], []), lambda figure, _: pytest.fail("there is no figure"))
    assert [path.name for path in tmp_path.iterdir()] == ["some.json"]
    assert "matplotlib is not installed" in capsys.readouterr().out


def test_where_results_go(tmp_path: Path) -> None:
    from harness import output_path, parser
    from results_page import RESULTS

    made = parser("Something.", "some")
    assert output_path(made.parse_args([]), "some.json") == RESULTS / "some.json"
    assert output_path(made.parse_args(["--small"]), "some.json") == RESULTS / "small" / "some.json"
    chosen = made.parse_args(["--small", "--output", str(tmp_path / "a" / "b")])
    assert output_path(chosen, "some.json") == tmp_path / "a" / "b" / "some.json"


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many"])
def test_counts_are_whole_and_positive(text: str) -> None:
    from harness import positive_int

    with pytest.raises(argparse.ArgumentTypeError, match="whole number of at least 1"):
        positive_int(text)
    assert positive_int("3") == 3


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "long"])
def test_times_are_positive_and_finite(text: str) -> None:
    from harness import positive_float

    with pytest.raises(argparse.ArgumentTypeError, match="above 0"):
        positive_float(text)
    assert positive_float("0.5") == 0.5


def test_tables_have_figures_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    from harness import print_table

    print_table(["name", "rate", "best"], [["a", "1,000", "one"], ["longer", "-", "another"]])
    lines = ["name     rate  best", "a       1,000  one", "longer      -  another"]
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(("load", "more_s"), [(1.0, 0.0), (6.0, 20.0)])
def test_the_end_of_a_process_is_awaited_longer_on_a_crowded_machine(
    monkeypatch: pytest.MonkeyPatch, load: float, more_s: float
) -> None:
    from harness import await_end

    waited: list[float] = []

    class Late:
        def wait(self, seconds: float) -> None:
            waited.append(seconds)
            raise subprocess.TimeoutExpired("late", seconds)

    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(subprocess.TimeoutExpired):
        await_end(Late(), 10.0)
    assert waited == [10.0, more_s]
