"""Runs to an accuracy: kept cells, medians with runs that did not get there, the search, PyTorch's side."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def options(folder: Path, *words: str) -> argparse.Namespace:
    import harness
    from time_to_accuracy import add_goal_options

    parser = harness.parser(None, "tried")
    add_goal_options(parser)
    return parser.parse_args(["--output", str(folder), *words])


def small_goal(target: float | None) -> Any:
    from time_to_accuracy import Goal

    from tensorbow.data import make_synthetic

    train, test = make_synthetic(96, 32, height=28, width=28, channels=1, classes=10)
    return Goal(train, test, target, epochs=1, checks=3)


def test_kept_cells_are_not_measured_again(tmp_path: Path) -> None:
    from cells import Cells

    goal, measured = {"target": 0.9}, []

    def measure() -> dict[str, float]:
        measured.append(1)
        return {"seconds_to_target": 2.0}

    cells = Cells(options(tmp_path), goal)
    cells.get({"batch_size": 4}, 0, measure)
    assert json.loads((tmp_path / "tried.json").read_text())["unfinished"]
    again = Cells(options(tmp_path), goal)
    assert again.get({"batch_size": 4}, 0, measure)["seconds_to_target"] == 2.0
    assert len(measured) == 1
    again.get({"batch_size": 4}, 1, measure)
    again.get({"batch_size": 8}, 0, measure)
    assert len(measured) == 3
    assert [cell["seed"] for cell in again.of({"batch_size": 4})] == [0, 1]


@pytest.mark.parametrize("why", ["--fresh", "goal", "machine", "damaged"])
def test_cells_that_no_longer_hold_are_measured_again(tmp_path: Path, why: str) -> None:
    from cells import Cells

    Cells(options(tmp_path), {"target": 0.9}).get({}, 0, dict)
    path = tmp_path / "tried.json"
    if why == "machine":
        found = json.loads(path.read_text())
        found["machine"]["processor"] = "another"
        path.write_text(json.dumps(found))
        assert Cells(options(tmp_path), {"target": 0.9}, timed=False).all
    elif why == "damaged":
        path.write_text("{")
    words = ["--fresh"] if why == "--fresh" else []
    assert not Cells(options(tmp_path, *words), {"target": 0.8 if why == "goal" else 0.9}).all


def test_results_name_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cells import Cells

    words = ["--data", str(tmp_path / "pictures")]
    monkeypatch.setattr(sys, "argv", ["tried.py", "--output", str(tmp_path), *words])
    Cells(options(tmp_path, *words), {}).get({}, 0, dict)
    text = (tmp_path / "tried.json").read_text()
    assert str(tmp_path) not in text
    assert json.loads(text)["command"] == "python benchmarks/tried.py --output OUTPUT --data DATA"


def test_medians_with_runs_that_did_not_get_there() -> None:
    from medians import median_range, ranged

    found = median_range([3.0, None, 1.0])
    assert (found.median, found.least, found.greatest) == (3.0, 1.0, math.inf)
    assert found.as_json() == {"median": 3.0, "least": 1.0, "greatest": None}
    assert ranged(median_range([None, None, 250.0]).as_json()) == "- (250 to -)"


def test_the_search_ends_at_the_best_rate_between_worse_ones() -> None:
    from learning_rates import GRID, climb

    for best in range(len(GRID)):
        tried: list[float] = []

        def score(rate: float, best: int = best, tried: list[float] = tried) -> tuple[float, float]:
            tried.append(rate)
            return float(abs(GRID.index(rate) - best)), 0.0

        assert climb(GRID[3], score) == GRID[best]
        assert len(tried) == len(set(tried))


@pytest.mark.slow
def test_a_course_stops_at_the_target() -> None:
    from time_to_accuracy import CHECK, Replicas, RunSetting, course

    setting = RunSetting(batch_size=8, learning_rate=0.01, replicas=2)
    easy, hard = small_goal(target=0.0), small_goal(target=1.01)
    first = course(Replicas(setting, easy, seed=0), easy)
    assert len(first["checks"]) == 1
    assert first["epochs_to_target"] == pytest.approx(1 / 3, abs=0.01)
    assert first["seconds_to_target"] == first["checks"][0][CHECK.index("seconds")]
    whole = course(Replicas(setting, hard, seed=0), hard)
    assert [check[0] for check in whole["checks"]] == pytest.approx([1 / 3, 2 / 3, 1], abs=1e-3)
    assert (whole["epochs_to_target"], whole["seconds_to_target"]) == (None, None)


def test_a_rate_that_diverges_is_not_chosen() -> None:
    from one_cycle import OURS, tuned_setting

    scores = {0.0125: (0.8, -0.9), 0.025: (0.7, -0.9), 0.05: (0.7, -0.95), 0.1: (0.7, -0.95), 0.2: (0.8, 0.0)}
    assert tuned_setting(OURS, lambda tried: scores[tried.learning_rate]).learning_rate == 0.05


def same_course(side: str, choice: dict[str, Any], **of_goal: Any) -> None:
    """A peer has our losses and values, over the border of an epoch."""
    from time_to_accuracy import Replicas, RunSetting

    goal = replace(small_goal(target=None), **of_goal)
    setting = RunSetting(batch_size=8, learning_rate=0.01)
    ours = Replicas(setting, goal, seed=3)
    if side == "torch":
        from time_to_accuracy_torch import TorchLearner as Learner
    else:
        from time_to_accuracy_jax import JaxLearner as Learner
    theirs = Learner(setting, goal, 3, choice)
    for epochs in (0.5, 1.5):  # into the second epoch's order
        mine, other = ours.train_until(epochs), theirs.train_until(epochs)
        assert mine[0] == other[0]
        assert mine[1] == pytest.approx(other[1], rel=1e-4)
    (values,) = ours.models()
    for name, value in theirs.model().items():
        np.testing.assert_allclose(values[name], value, atol=1e-4)
    ours.close()


@pytest.mark.slow  # importing PyTorch takes seconds
@pytest.mark.parametrize("variant", ["eager", "channels-last"])
def test_pytorch_trains_the_same_model_on_the_same_batches(variant: str) -> None:
    torch = pytest.importorskip("torch")
    try:
        for schedule in ("constant", "one_cycle"):
            choice = {"variant": variant, "optimizer": "foreach", "threads": 1}
            same_course("torch", choice, epochs=1.5, schedule=schedule)
    finally:
        torch.set_flush_denormal(False)  # which a peer sets for the whole thread


@pytest.mark.parametrize("steps_per_call", [1, 4])
@pytest.mark.slow
def test_jax_trains_the_same_model_on_the_same_batches(steps_per_call: int) -> None:
    pytest.importorskip("jax")
    same_course("jax", {"steps_per_call": steps_per_call})


@pytest.mark.skipif(find_spec("jax") is not None, reason="JAX is installed")
def test_a_peer_that_is_not_installed_says_so() -> None:
    from peers import PeerError
    from time_to_accuracy import RunSetting
    from time_to_accuracy_peers import PeerLearner

    setting = RunSetting(batch_size=8, learning_rate=0.01, side="JAX")
    with pytest.raises(PeerError, match=r"^JAX: ModuleNotFoundError: .*jax"):
        PeerLearner(setting, small_goal(target=None), 0, {"threads": 1, "steps_per_call": 1})


def test_jax_is_tried_with_few_steps_a_call_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import peers
    from time_to_accuracy_peers import EAGER, ways

    monkeypatch.setattr(peers, "find_spec", lambda name: name)
    assert {setting.steps_per_call for setting in ways("JAX", EAGER)} == {1, peers.UNROLLED_STEPS}
    assert {setting.variant for setting in ways("PyTorch", EAGER)} == {"eager", "channels-last"}
    assert {setting.steps_per_call for setting in ways("PyTorch", EAGER)} == {1}


def test_a_rate_that_was_not_searched_for_is_that_of_the_nearest_batch_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import harness
    from learning_rates import GUESSES, chosen_rate

    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    assert chosen_rate(1, 32) == GUESSES[1, 32]
    assert "the first guess" in capsys.readouterr().out
    found = [(1, 16, 0.005), (1, 64, 0.02), (1, 128, 0.04), (4, 256, 0.08)]
    rows = [dict(zip(("replicas", "batch_size", "learning_rate"), row, strict=True)) for row in found]
    (tmp_path / "learning_rates.json").write_text(json.dumps({"details": {"chosen": rows}}))
    assert chosen_rate(1, 64) == 0.02
    assert capsys.readouterr().out == ""
    assert chosen_rate(1, 32) == 0.005  # as near to 16 as to 64
    assert chosen_rate(1, 256) == 0.04
    assert "that of b=128" in capsys.readouterr().out


def test_peers_that_are_slow_after_two_seeds_get_no_more(tmp_path: Path) -> None:
    from cells import Cells
    from fig_5_4_and_5_5 import slow_ones
    from time_to_accuracy import RunSetting, described

    cells = Cells(options(tmp_path), {})
    seconds: dict[RunSetting, list[float | None]] = {
        RunSetting(16, 0.01, 2): [1.0, 1.0],  # ours, which no peer is dropped for
        RunSetting(64, 0.01, side="PyTorch"): [10.0, 14.0],
        RunSetting(128, 0.01, side="PyTorch"): [20.0, 28.0],
        RunSetting(16, 0.01, side="PyTorch"): [24.0, 26.0],
        RunSetting(32, 0.01, side="JAX"): [9.0, None],
    }
    for setting, found in seconds.items():
        for seed, value in enumerate(found):
            cell = {"seconds_to_target": value, "epochs_to_target": value, "examples_per_second": 1.0}
            cells.get(described(setting), seed, lambda cell=cell: cell)  # type: ignore[misc]
    named = [(setting.side, setting.batch_size) for setting in slow_ones(list(seconds), cells)]
    assert named == [("PyTorch", 16), ("JAX", 32)]
