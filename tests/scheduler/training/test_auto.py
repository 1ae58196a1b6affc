"""Runs that find their number of replicas: changes between rounds, data order, resume, limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow.data.registry as registry
from scheduler import DatasetBatches, ReadyLaunch, RoundResults, Trainer, TrainingConfig
from scheduler.replicas.thread_choice import ThreadChoice
from scheduler.training.configuration.schedule_choice import build_schedule
from scheduler.training.models.classifier_step import build_engine
from scheduler.training.tuning.auto import OnlineTuning
from tensorbow.data import BatchRecipe, BatchRun
from tensorbow.training import load_arrays
from tests.scheduler_rig.auto_runs import MadeUp, auto, trained
from tests.scheduler_rig.kept_lines import Lines

Options = Callable[..., TrainingConfig]

pytestmark = pytest.mark.usefixtures("made_up")


def counts_in(changes: list[dict[str, int]]) -> list[int]:
    return [change["replicas_per_device"] for change in changes]


@pytest.mark.slow
def test_it_tries_more_and_steps_back(tmp_path: Path, options: Options, metrics: Any) -> None:
    progress = Lines()
    result = trained(auto(options, output=tmp_path, epochs=8), progress)
    facts = json.loads((tmp_path / "tuning.json").read_text())
    assert counts_in(facts["changes"]) == [1, 2, 3, 4, 8, 4, 2]
    assert MadeUp.runs >= 8, "one for each epoch"
    assert facts["decided"]
    assert facts["complete"]
    assert facts["replicas_per_device"] == 2
    assert {m["replicas_per_device"]: len(m["windows"]) for m in facts["measurements"]} == {
        1: 3, 2: 6, 3: 3, 4: 6, 8: 3,
    }  # fmt: skip
    assert result.replicas == 2
    assert result.tuning is not None
    assert result.to_dict()["tuning"]["replicas_per_device"] == 2
    assert result.tuning.decision.complete
    assert "1 replica per device: 100 images/s; trying 2" in progress.said
    assert any(line.startswith("2 replicas per device from now on: 4 bring ") for line in progress.said)
    last = metrics(tmp_path)[-1]
    assert (last["replicas"], last["alpha"], last["epoch"]) == (2, 0.5, 8)
    single = TrainingConfig(model="logreg", dataset="synthetic")
    assert last["learning_rate"] == pytest.approx(0.01 * 2**0.5)
    assert single.replicas == 2


@pytest.mark.slow
def test_launches_have_as_many_steps_while_it_is_timed_as_afterwards(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(MadeUp, "waits", True)
    monkeypatch.setattr(ThreadChoice, "settled", True)  # which threads do them is another thing
    for given in (None, 3):
        MadeUp.steps.clear()
        with Trainer(auto(options, epochs=60, steps_per_launch=given, sync="none")) as trainer:
            result = trainer.train()
            steps = trainer.engine.steps_per_launch
            assert trainer._batches.steps_per_launch == steps == MadeUp.steps[2]
        assert result.tuning is not None
        assert (result.replicas, result.tuning.decision.complete) == (2, True)
        assert sorted(MadeUp.steps) == [1, 2, 3, 4, 8]
        assert all(found == given if given else found > 1 for found in MadeUp.steps.values())


@pytest.mark.slow
def test_half_of_the_run_is_the_longest_it_looks(
    tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It then returns to the best number so far; a run that is extended resumes tuning."""
    monkeypatch.setattr(MadeUp, "curve", {1: 100.0, 2: 200.0, 3: 90.0})
    config = auto(options, output=tmp_path, epochs=2, steps_per_launch=1)
    result = trained(config)
    assert MadeUp.seen[-1] != 2
    assert result.tuning is not None
    assert (result.replicas, result.tuning.decision.complete) == (2, False)
    assert result.tuning.decision.reason.endswith("it takes a longer one")
    facts = json.loads((tmp_path / "tuning.json").read_text())
    last = facts["changes"][-1]
    assert last["replicas_per_device"] == 2
    assert last["round"] < result.steps
    windows = len(MadeUp.seen)
    longer = trained(replace(config, epochs=40, resume="auto"))
    assert len(MadeUp.seen) > windows
    assert longer.tuning is not None
    assert (longer.replicas, longer.tuning.decision.complete) == (2, True)


@pytest.mark.slow
def test_a_given_learning_rate_stays(tmp_path: Path, options: Options, metrics: Any) -> None:
    trained(auto(options, output=tmp_path, epochs=6, learning_rate=0.03))
    assert {record["learning_rate"] for record in metrics(tmp_path)} == {0.03}
    assert len({record["replicas"] for record in metrics(tmp_path)}) > 1


class Recording(DatasetBatches):
    """Looks at the examples of every batch that is given out."""

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> Any:
        steps = self.steps_per_launch

        def ready(batch: Any) -> None:
            first = start + (batch.launch - start) * steps
            if isinstance(batch, ReadyLaunch):
                for replica in range(self.replicas):
                    self.look(first, replica, batch.inputs[replica])
            else:
                self.look(first, batch.batch_number, batch.inputs)
            on_ready(batch)

        return super().open(start, stop, ready, on_error)

    def look(self, round: int, replica: int, inputs: Any) -> None:
        for index, batch in enumerate(inputs if isinstance(inputs, BatchRun) else [inputs]):
            epoch, first = self.positions.at(round + index)
            images = (batch.arrays() if isinstance(batch, BatchRecipe) else batch)[0]
            expected, labels = np.empty_like(images), np.empty(len(images), np.int64)
            self.dataset.fill(self.order.indices(epoch, first + replica), expected, labels)
            assert np.array_equal(images, expected)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [("cpu:0",), ("cpu:0", "cpu:1")])
def test_no_example_is_lost_or_doubled(
    options: Options, monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...]
) -> None:
    monkeypatch.setattr("scheduler.training.running.trainer.DatasetBatches", Recording)
    used: dict[int, list[int]] = {}
    with Trainer(auto(options, epochs=5, devices=devices)) as trainer:
        count = trainer._trace.on_results

        def on_results(results: RoundResults) -> None:
            for result in results:
                epoch, first = trainer._batches.positions.at(result.round)
                used.setdefault(epoch, []).append(first + result.replica)
            count(results)

        trainer._trace.on_results = on_results  # type: ignore[method-assign]
        trainer.train()
        counts = [replicas for _, replicas in trainer._batches.positions.counts]
    assert len(counts) > 3
    assert sorted(used) == [0, 1, 2, 3, 4]
    for numbers in used.values():
        assert numbers == list(range(len(numbers)))
        assert 60 - len(numbers) < max(counts)


def test_a_change_may_end_an_epoch(
    tmp_path: Path, options: Options, metrics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of 60 batches does not fill a round of twelve."""

    def on_results(tuning: OnlineTuning, results: RoundResults) -> bool:
        if 54 in results.rounds:
            tuning.wanted = 12
        return tuning.wanted != tuning.current

    monkeypatch.setattr(OnlineTuning, "on_results", on_results)
    result = trained(auto(options, output=tmp_path, epochs=3, steps_per_launch=1))
    records = metrics(tmp_path)
    assert [record["epoch"] for record in records] == [1, 2, 3]
    first = records[0]
    assert first["images"] == 16 * first["round"] < 16 * 60
    assert 0 < first["accuracy"] <= 1
    assert [record["round"] - first["round"] for record in records] == [0, 5, 10]
    assert result.replicas == 12


def replayed(config: TrainingConfig, changes: list[list[int]], rounds: int) -> dict[str, Any]:
    """State of an engine that is resized by hand in the rounds that a run has recorded."""
    data, _ = registry.DATASETS["synthetic"](None)
    devices = len(config.devices)
    batches = DatasetBatches(data, config.batch_size, devices, config.seed)
    positions = batches.positions
    schedule = build_schedule(config, devices, positions)
    with build_engine(config, data, schedule, config.synchronisation_for(positions.first_round)) as engine:
        engine.initialize()
        edges = [round for round, _ in changes[1:]] + [rounds]
        engine.run(batches.open, 0, edges[0])
        for (round, count), stop in zip(changes[1:], edges[1:], strict=True):
            positions = batches.positions.resized(round, count * devices)
            schedule = build_schedule(config, count * devices, positions)
            ssgd_from = config.synchronisation_for(positions.first_round).ssgd_from
            engine.resize(count, schedule=schedule, ssgd_from=ssgd_from)
            batches.resize(round, engine.learners)
            engine.run(batches.open, round, stop)
        return engine.learners.values.state_arrays()


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"devices": ("cpu:0", "cpu:1"), "tau": 2, "mu": 0.2, "staleness": 1},
        {"learning_rate_drops": ((1, 0.5), (2, 0.1)), "clear_velocity": True},
        {"sync": "none"},
        {"sync": "ssgd"},
        {"sync": "easgd", "tau": 2, "learning_rate_drops": ((1, 0.5), (2, 0.1))},
        {"ssgd_epoch": 2, "learning_rate_drops": ((3, 0.5),)},
        {"schedule": "cosine", "warmup_epochs": 0.5, "optimizer": "adamw", "clip_norm": 1.0},
        {"checkpoint_rounds": 5},
        {"data_on_device": "always"},
    ],
    ids=str,
)
def test_the_bits_are_those_of_the_recorded_changes(
    tmp_path: Path, options: Options, given: dict[str, Any]
) -> None:
    config = auto(options, output=tmp_path, epochs=5, **given)
    result = trained(config)
    arrays, metadata = load_arrays(tmp_path / f"checkpoint-{result.steps:09d}.safetensors")
    changes = metadata["tuning"]["counts"]
    assert len(changes) > 3
    expected = replayed(config, changes, result.steps)
    assert arrays.keys() == expected.keys()
    assert all(np.array_equal(value, expected[name]) for name, value in arrays.items())
