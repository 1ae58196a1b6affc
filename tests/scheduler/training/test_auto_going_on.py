"""Runs that find their number of replicas: going on from a checkpoint, memory, what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scheduler.training.tuning.auto
import tensorbow.data.registry as registry
from scheduler import DatasetBatches, Trainer, TrainingConfig
from scheduler.batches.positions import RoundPositions
from scheduler.engine.learning_engine import LearningEngine
from scheduler.training.configuration.schedule_choice import build_schedule
from scheduler.training.models.classifier_step import build_engine
from scheduler.training.tuning.auto import TuningState
from tensorbow.data import BatchOrder, make_synthetic
from tensorbow.errors import DataLossError, InvalidArgumentError, ResourceExhaustedError
from tensorbow.training import load_arrays, save_arrays
from tests.scheduler_rig.auto_runs import MadeUp, auto, trained
from tests.scheduler_rig.interrupted import train_until
from tests.scheduler_rig.kept_lines import Lines
from tests.scheduler_rig.running import same_bits
from tests.scheduler_rig.ticking_clock import TickingClock

Options = Callable[..., TrainingConfig]
Model = Callable[[Path], dict[str, Any]]

pytestmark = pytest.mark.usefixtures("made_up")


@pytest.mark.slow
def test_a_stop_while_tuning_and_going_on(tmp_path: Path, options: Options, made_up: type[MadeUp]) -> None:
    config = auto(options, output=tmp_path, epochs=8, resume="auto")
    first = train_until(config, 20)
    assert first.interrupted
    assert first.tuning is not None
    assert not first.tuning.decision.complete
    known = json.loads((tmp_path / "tuning.json").read_text())
    assert not known["decided"]
    before, made_up.seen = list(made_up.seen), []
    _, metadata = load_arrays(tmp_path / f"checkpoint-{first.steps:09d}.safetensors")
    with Trainer(config) as trainer:
        assert trainer.engine.learners.count == metadata["tuning"]["counts"][-1][1]
        result = trainer.train()
    facts = json.loads((tmp_path / "tuning.json").read_text())
    assert facts["complete"]
    assert result.replicas == 2
    windows = {m["replicas_per_device"]: len(m["windows"]) for m in facts["measurements"]}
    assert sum(windows.values()) == len(before) + len(made_up.seen)
    assert 1 not in made_up.seen


@pytest.mark.slow
def test_resume_after_the_decision_changes_no_bit(
    tmp_path: Path, options: Options, model: Model, made_up: type[MadeUp], metrics: Any
) -> None:
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    trained(auto(options, output=whole, epochs=8, keep_checkpoints=20))
    for path in sorted(whole.glob("checkpoint-*")):
        metadata = load_arrays(path)[1]
        if metadata["tuning"]["decision"] is not None and metadata["tuning"]["counts"][-1][1] == 2:
            break
    pieces.mkdir()
    shutil.copy(path, pieces)
    shutil.copy(whole / "metrics.jsonl", pieces)
    made_up.seen = []
    config = auto(options, output=pieces, epochs=8, resume="auto")
    assert train_until(config, metadata["round"] + 11).interrupted
    newest = load_arrays(sorted(pieces.glob("checkpoint-*"))[-1])[1]
    assert metadata["round"] < newest["round"] < metadata["round"] + 30, "within an epoch"
    trained(config)
    assert made_up.seen == []
    assert (pieces / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert metrics(pieces) == metrics(whole)


@pytest.mark.slow
def test_another_batch_size_begins_another_tuning(tmp_path: Path, options: Options, metrics: Any) -> None:
    """z, replicas and slots go on, behind the examples taken; the first count tried is the one it had."""
    given: dict[str, Any] = {"output": tmp_path, "epochs": 12, "resume": "auto", "keep_checkpoints": 1000}
    config = auto(options, steps_per_launch=1, **given)
    first = train_until(config, 100)
    (path,) = tmp_path.glob(f"checkpoint-*{first.steps}.safetensors")
    arrays, metadata = load_arrays(path)
    before, taken = metadata["tuning"]["counts"], MadeUp.seen[:]
    count = before[-1][1]
    larger, progress = replace(config, batch_size=24, epochs=30), Lines()
    with Trainer(larger, progress) as trainer:
        position = trainer._batches.positions.at(first.steps)
        assert same_bits(trainer.engine.learners.values.state_arrays(), arrays)
        assert trainer.engine.learners.count == count
        result = trainer.train()
    old = RoundPositions(BatchOrder(960, 16, 0), 1, before[1:]).at(first.steps)
    assert (position.epoch, position.number) == (old.epoch, -(-old.number * 16 // 24))
    assert old.number > 0
    (said,) = [line for line in progress.said if line.startswith("batch size 16 before, 24 from now on: ")]
    assert f"anew with {count} replica" in said
    assert said.endswith(f"at example {position.number * 24} of epoch {position.epoch + 1}")
    assert MadeUp.seen[len(taken)] == count
    facts = json.loads((tmp_path / "tuning.json").read_text())
    assert (facts["batch_size"], facts["complete"]) == (24, True)
    assert facts["earlier"] == [{"batch_size": 16, "changes": as_facts(before)}]
    assert facts["changes"][0] == {"round": first.steps, "replicas_per_device": count}
    assert (result.replicas, result.batch_size) == (2, 24)
    assert metrics(tmp_path)[-1]["epoch"] == 30
    middle = next(
        p for p in sorted(tmp_path.glob("checkpoint-*")) if load_arrays(p)[1]["round"] > first.steps
    )
    assert load_arrays(middle)[1]["tuning"]["earlier"] == [[16, before]]
    assert same_bits(gone_on_by_hand(path, larger, load_arrays(middle)[1]), load_arrays(middle)[0])
    assert "24" in (tmp_path / "config.yaml").read_text()
    third = trained(replace(larger, batch_size=16, epochs=40))
    again = json.loads((tmp_path / "tuning.json").read_text())
    assert [former["batch_size"] for former in again["earlier"]] == [16, 24]
    assert third.epochs == 40


def test_without_auto_another_batch_size_is_another_run(tmp_path: Path, options: Options) -> None:
    trained(options(output=tmp_path, epochs=1))
    with pytest.raises(InvalidArgumentError, match="batch_size was 16, is 24"):
        Trainer(options(output=tmp_path, resume="auto", epochs=2, batch_size=24))


def gone_on_by_hand(path: Path, config: TrainingConfig, metadata: dict[str, Any]) -> dict[str, Any]:
    """State of an engine that continues from a checkpoint of another batch size, with these changes."""
    data, _ = registry.DATASETS["synthetic"](None)
    arrays, before = load_arrays(path)
    begun, counts = before["tuning"]["counts"], metadata["tuning"]["counts"]
    old = RoundPositions(BatchOrder(len(data), before["config"]["batch_size"], config.seed), 1, begun[1:])
    (start, count), *changes = counts
    batches = DatasetBatches(data, config.batch_size, count, config.seed, earlier=(old, start))
    schedule = build_schedule(config, count, batches.positions)
    now = replace(config, replicas_per_device=count)
    with build_engine(now, data, schedule, config.synchronisation) as engine:
        engine.initialize()
        engine.learners.values.load_state_arrays(arrays)
        for stop, following in [*changes, (metadata["round"], None)]:
            engine.run(batches.open, start, stop)
            if following is not None:
                positions = batches.positions.resized(stop, following)
                engine.resize(following, stop, build_schedule(config, following, positions))
                batches.resize(stop, engine.learners)
            start = stop
        return engine.learners.values.state_arrays()


def as_facts(counts: list[list[int]]) -> list[dict[str, int]]:
    return [{"round": round, "replicas_per_device": count} for round, count in counts]


def test_the_most_is_what_fits(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "scheduler.training.running.replica_changes.most_that_fit",
        lambda learners, options, most: (2, "no memory"),
    )
    monkeypatch.setattr(MadeUp, "curve", {1: 100.0, 2: 200.0})
    result = trained(auto(options, epochs=3))
    assert result.replicas == 2
    assert result.tuning is not None
    assert result.tuning.decision.reason.endswith("2 is the most that may be tried (no memory)")


def test_what_does_not_fit_after_all_is_done_without(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize = LearningEngine.resize

    def full(engine: LearningEngine, count: Any, *rest: Any) -> None:
        if count > 3:
            raise ResourceExhaustedError(f"{count} replicas do not fit: 3 fit")
        resize(engine, count, *rest)

    monkeypatch.setattr(LearningEngine, "resize", full)
    monkeypatch.setattr(MadeUp, "curve", {1: 100.0, 2: 200.0, 3: 300.0, 4: 400.0})
    progress = Lines()
    result = trained(auto(options, epochs=4), progress)
    assert result.replicas == 3
    assert "4 replicas per device have no room: 4 replicas do not fit: 3 fit" in progress.said
    assert result.tuning is not None
    assert "4 did not fit into memory beside all else" in result.tuning.decision.reason


@pytest.mark.slow
def test_a_choice_that_has_no_room_any_more(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    resize, seen = LearningEngine.resize, MadeUp.seen
    monkeypatch.setattr(MadeUp, "curve", {1: 100.0, 2: 200.0, 3: 206.0, 4: 207.0})

    def full(engine: LearningEngine, count: Any, *rest: Any) -> None:
        if 8 in seen:
            raise ResourceExhaustedError("somebody else took it")
        resize(engine, count, *rest)

    monkeypatch.setattr(LearningEngine, "resize", full)
    result = trained(auto(options, epochs=12))
    assert result.tuning is not None
    assert result.replicas == result.tuning.decision.replicas == 8
    assert result.tuning.decision.reason == "there is no room any more for 4"


def test_a_given_alpha_limits_the_number(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MadeUp, "curve", {1: 100.0, 2: 200.0, 3: 300.0})
    result = trained(auto(options, epochs=3, alpha=0.55))
    assert result.replicas == 2
    assert result.tuning is not None
    assert result.tuning.decision.reason.endswith("2 is the most that may be tried (alpha is 0.55)")


@pytest.mark.slow
def test_independent_replicas_are_all_evaluated_and_saved(
    tmp_path: Path, options: Options, metrics: Any
) -> None:
    for replica in (2, 3):  # as if it had been interrupted with four
        (tmp_path / f"model-replica{replica}.safetensors").write_bytes(b"")
    result = trained(auto(options, output=tmp_path, epochs=6, sync="none"))
    assert len(list(tmp_path.glob("model*.safetensors"))) == result.replicas == 2
    for record in metrics(tmp_path):
        assert len(record["test_accuracies"]) == record["replicas"]


@pytest.mark.slow
def test_what_is_refused(tmp_path: Path, options: Options) -> None:
    with pytest.raises(InvalidArgumentError, match="one for each device, as 3,1, or auto, got 'many'"):
        options(replicas_per_device="many")
    trained(auto(options, output=tmp_path, epochs=1))
    with pytest.raises(InvalidArgumentError, match="replicas_per_device was 'auto', is 2"):
        Trainer(options(output=tmp_path, resume="auto", epochs=2))
    newest = sorted(tmp_path.glob("checkpoint-*"))[-1]
    arrays, metadata = load_arrays(newest)
    for broken in (
        None,
        {},
        {**metadata["tuning"], "counts": [[0, 1], [10**9, 2]]},
        {**metadata["tuning"], "counts": [[0, 0]]},
        {**metadata["tuning"], "counts": []},
        {**metadata["tuning"], "windows": [[1, [-1.0]]]},
        {**metadata["tuning"], "windows": [[0, [1.0]]]},
        {**metadata["tuning"], "decision": {"replicas": 1}},
        {**metadata["tuning"], "earlier": [[0, [[0, 1]]]]},
        {**metadata["tuning"], "earlier": [[16, []]]},
        {**metadata["tuning"], "seconds_before": -1.0},
        {**metadata["tuning"], "decision": {**vars(DECISION), "replicas": 99}},
    ):
        save_arrays(newest, arrays, {**metadata, "tuning": broken})
        with pytest.raises(DataLossError, match="no sound state of the auto-tuner"):
            Trainer(auto(options, output=tmp_path, resume="auto", epochs=2))


DECISION = scheduler.training.tuning.auto.Decision(2, 180.0, "why", complete=True)


def test_the_state_survives_json() -> None:
    windows = {1: [100.0], 2: [180.0, 181.0]}
    state = TuningState([(7, 1), (9, 2)], windows, DECISION, [(16, [(0, 1), (5, 3)])], 1.5)
    metadata = json.loads(json.dumps({"round": 9, "tuning": state.to_metadata()}))
    assert TuningState.from_metadata(metadata) == state


@pytest.mark.slow
def test_real_windows_end_too(monkeypatch: pytest.MonkeyPatch, options: Options) -> None:
    monkeypatch.undo()
    data = make_synthetic(train_examples=960, test_examples=60)
    monkeypatch.setitem(registry.DATASETS, "synthetic", lambda data_dir: data)
    quick = scheduler.training.tuning.auto.TuningOptions(max_replicas=2, windows=1, window_seconds=0.01)
    monkeypatch.setattr(scheduler.training.tuning.auto, "TuningOptions", lambda: quick)
    monkeypatch.setattr("scheduler.training.running.trainer.time", TickingClock(0.001))
    result = trained(auto(options, epochs=100_000, max_seconds=3.0))
    assert result.tuning is not None
    assert [known.replicas for known in result.tuning.measurements] == [1, 2]
    assert result.replicas in (1, 2)
