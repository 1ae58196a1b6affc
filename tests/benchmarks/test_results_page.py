"""The page of results: that it is what the files give, and how tables are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

RESULT: dict[str, Any] = {
    "name": "tau",
    "date": "2026-11-21",
    "machine": {"processor": "a processor", "cores": 2, "system": "Linux", "thread_variables": {"OMP": "1"}},
    "versions": {"Python": "3.11.7", "jax": None},
    "command": "python benchmarks/tau.py",
    "columns": ["tau", "rate", "reached"],
    "rows": [[1, 1234.5, "missed"], [16, 0.00125, None]],
    "remarks": ["One seed."],
    "details": {"settings": {"small": False}, "cells": [{"seed": 0}, {"seed": 1}], "none": []},
}


def test_the_page_is_what_the_renderer_gives_from_the_results() -> None:
    from results_page import PAGE, main, page

    assert PAGE.read_text() == page(), "run python benchmarks/results_page.py"
    assert main(["--check"]) == 0


def test_every_result_is_of_an_experiment_and_has_the_same_members() -> None:
    from experiments import EXPERIMENTS
    from results_page import RESULTS

    for path in RESULTS.glob("*.json"):
        assert path.stem in {experiment.name for experiment in EXPERIMENTS}
        result = json.loads(path.read_text())
        assert list(result) == list(RESULT), path
        assert result["name"] == path.stem
        assert all(len(row) == len(result["columns"]) for row in result["rows"])


def test_a_result_is_a_table_with_remarks_and_where_it_was_measured(tmp_path: Path) -> None:
    from results_page import as_json, page

    assert "tau.py" in page(tmp_path)
    text = as_json(RESULT)
    assert json.loads(text) == RESULT
    assert '\n[1, 1234.5, "missed"],\n' in text
    assert '\n{"seed": 0},\n' in text
    (tmp_path / "tau.json").write_text(text)
    (tmp_path / "tau.png").touch()
    shown = page(tmp_path)
    for part in (
        "| tau | rate | reached |\n| --- | --- | --- |\n| 1 | 1,234 | **missed** |\n| 16 | 0.00125 | - |\n",
        "\n- One seed.\n",
        "`python benchmarks/tau.py`, 2026-11-21; 2 cores of a processor, Linux, Python 3.11.7, OMP=1.\n",
        "[Picture](results/tau.png)",
    ):
        assert part in shown
    (tmp_path / "tau.json").write_text(as_json({"unfinished": True}))
    assert "Not finished." in page(tmp_path)


@pytest.mark.parametrize("content", ["{", '{"settings": {"small": false}}'])
def test_results_that_cannot_be_read_are_named(content: str, tmp_path: Path) -> None:
    from results_page import page

    (tmp_path / "tau.json").write_text(content)
    with pytest.raises(SystemExit, match=r"tau\.json is not as tau\.py writes it .*run it again"):
        page(tmp_path)


def test_a_page_that_is_out_of_date_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import results_page

    monkeypatch.setattr(results_page, "PAGE", tmp_path / "RESULTS.md")
    assert results_page.main(["--check"]) == 1
    assert not results_page.PAGE.exists()
    assert results_page.main([]) == 0
    assert results_page.main(["--check"]) == 0


def test_an_ablation_leaves_the_choice_of_threads_as_it_was_and_shows_what_it_has() -> None:
    pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")
    from ablation import AGAIN, each_its_own, table

    from scheduler.replicas import thread_choice

    usual = thread_choice.SHORT
    training: Any = lambda seconds: thread_choice.SHORT + seconds  # noqa: E731
    assert each_its_own(training, 0.5) == 0.5
    assert usual == thread_choice.SHORT
    rows = [{"model": "lenet", "batch_size": 4, "command": "", "ratios": {AGAIN: [1.0, 0.98]}}]
    rows.append({**rows[0], "ratios": {"factored_gradients": [1.1, 1.2]}})
    shown = table({"windows": 1, "seconds_per_window": 1.0, "rows": rows})
    assert shown.rows == [[AGAIN, "1.00 (0.98)", None], ["factored gradients", None, "1.10 (1.20)"]]


def test_one_thread_for_all_replicas_is_told_by_its_time() -> None:
    from round_profile import by_one_thread

    row = {"round_us": 100.0, "driver_us": 10.0, "by_stream_us": {"replica 0": 80.0, "replica 1": 70.0}}
    assert not by_one_thread(row)
    assert by_one_thread({**row, "driver_us": 1.0, "by_stream_us": {"replica 0": 90.0, "replica 1": 1.0}})
    assert by_one_thread({**row, "driver_us": 95.0, "by_stream_us": {"replica 0": 1.0, "replica 1": 1.0}})
