"""Runs that find number and mode of their replicas, on an emulated GPU whose speed is made up."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scheduler.training.tuning.auto
from scheduler import Decision, Measurement, Trainer, TrainingConfig, TuningOptions
from scheduler.decisions.mode_tuner import ModeTuner
from scheduler.training.tuning.auto import TuningState
from tensorbow.devices import close_devices
from tensorbow.devices import gpu_discovery as discovery
from tensorbow.devices import registry as devices
from tensorbow.errors import DataLossError, UnimplementedError
from tensorbow.kernels.gpu.backend import GpuBackend
from tensorbow.kernels.gpu.fused.plan import FusedPlan
from tensorbow.training import load_arrays, save_arrays
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.auto_runs import MadeUp, auto, trained
from tests.scheduler_rig.interrupted import train_until
from tests.scheduler_rig.kept_lines import Lines

Options = Callable[..., TrainingConfig]
Rates = dict[str, dict[int, float]]

pytestmark = [needs_compiler, pytest.mark.usefixtures("made_up", "gpu", "rates")]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with emulated_runtime() as runtime:
        monkeypatch.setattr(discovery, "_status", discovery.GpuStatus((runtime,)))
        monkeypatch.setattr(discovery, "_opened", False)
        monkeypatch.setattr(devices, "_devices", {})
        yield
        close_devices()


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> Rates:
    """Made-up throughput, by mode and count: 2 captured replicas are enough, and 3 fused ones."""
    record = ModeTuner.record
    curves = {"captured": {1: 100.0, 2: 180.0}, "fused": {2: 190.0, 3: 280.0}}
    flat = {"captured": 181.0, "fused": 281.0}

    def made_up(tuner: ModeTuner, count: int, _: float) -> Measurement:
        mode = tuner.mode or ""
        return record(tuner, count, curves[mode].get(count, flat[mode]))

    monkeypatch.setattr(ModeTuner, "record", made_up)
    quick = TuningOptions(max_replicas=4, windows=1)
    monkeypatch.setattr(scheduler.training.tuning.auto, "TuningOptions", lambda: quick)
    return curves


def on_gpu(options: Options, folder: Path, **given: Any) -> TrainingConfig:
    values = {"epochs": 6, "steps_per_launch": 1, "output": folder, **given}
    return auto(options, devices=("gpu:0",), sync="none", **values)


def facts_in(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "tuning.json").read_text())
    return facts


def newest(folder: Path) -> Path:
    return sorted(folder.glob("checkpoint-*"))[-1]


def counts(measurements: list[dict[str, Any]], mode: str) -> list[int]:
    return [each["replicas_per_device"] for each in measurements if each["replica_mode"] == mode]


@pytest.mark.slow
def test_fused_replicas_are_tried_from_the_count_that_was_chosen(tmp_path: Path, options: Options) -> None:
    progress = Lines()
    with Trainer(on_gpu(options, tmp_path), progress) as trainer:
        result = trainer.train()
        assert trainer.engine.options.fused
        assert trainer.engine.learners.count == result.replicas == 3
    facts = facts_in(tmp_path)
    assert counts(facts["measurements"], "captured") == [1, 2, 3, 4]
    assert counts(facts["measurements"], "fused") == [2, 3, 4]
    assert (facts["replica_mode"], facts["replicas_per_device"], facts["complete"]) == ("fused", 3, True)
    (change,) = facts["mode_changes"]
    assert change["replica_mode"] == "fused"
    before = [each for each in facts["changes"] if each["round"] <= change["round"]]
    assert before[-1]["replicas_per_device"] == 2
    assert any(
        line.endswith("captured replicas per device: 180 images/s; trying 2 fused") for line in progress.said
    )
    (said,) = [line for line in progress.said if "from now on" in line]
    assert said.startswith("3 fused replicas per device from now on: ")
    assert said.endswith("; captured replicas reach 180 images/s, with 2 per device")


@pytest.mark.slow
def test_where_they_are_slower_the_run_goes_back(
    tmp_path: Path, options: Options, rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates["fused"] = dict.fromkeys(range(1, 17), 100.0)
    with Trainer(on_gpu(options, tmp_path)) as trainer:
        assert trainer.train().replicas == 2
        assert trainer.engine.options.replica_mode == "captured"
    facts = facts_in(tmp_path)
    assert (facts["replica_mode"], facts["complete"]) == ("captured", True)
    assert [change["replica_mode"] for change in facts["mode_changes"]] == ["fused", "captured"]


@pytest.mark.slow
def test_a_stop_among_fused_replicas_and_going_on(tmp_path: Path, options: Options) -> None:
    config = on_gpu(options, tmp_path, resume="auto")
    stop = 12
    while True:
        stop += 3
        train_until(config, stop)
        tuning = load_arrays(newest(tmp_path))[1]["tuning"]
        if tuning["fused_windows"]:
            break
    assert (tuning["modes"][-1][1], tuning["captured"]["replicas"]) == ("fused", 2)
    assert tuning["decision"] is None
    MadeUp.seen = []
    with Trainer(config) as trainer:
        assert trainer.engine.options.fused
        assert trainer.engine.learners.count == tuning["counts"][-1][1]
        assert trainer.train().replicas == 3
    facts = facts_in(tmp_path)
    assert (facts["replica_mode"], len(facts["mode_changes"])) == ("fused", 1)
    assert MadeUp.seen
    assert 1 not in MadeUp.seen
    MadeUp.seen = []
    longer = replace(config, epochs=7)
    with Trainer(longer) as trainer:
        assert trainer.engine.options.fused
        trainer.train()
        assert trainer.engine.options.fused
    assert MadeUp.seen == []
    given = replace(config, epochs=10, replica_mode="captured")
    with Trainer(given) as trainer:
        trainer.train()
        assert trainer.engine.options.replica_mode == "captured"
    assert facts_in(tmp_path)["replica_mode"] == "captured"


@pytest.mark.slow
def test_a_checkpoint_from_before_goes_on_captured(tmp_path: Path, options: Options) -> None:
    config = on_gpu(options, tmp_path, replica_mode="captured")
    assert trained(config).replicas == 2
    arrays, metadata = load_arrays(newest(tmp_path))
    for name in ("modes", "captured", "fused_windows"):
        del metadata["tuning"][name]
    del metadata["tuning"]["decision"]["mode"]
    save_arrays(newest(tmp_path), arrays, metadata)
    MadeUp.seen = []
    with Trainer(replace(config, replica_mode="auto", epochs=7, resume="auto")) as trainer:
        assert trainer.train().replicas == 2
        assert not trainer.engine.options.fused
    assert MadeUp.seen == []


@pytest.mark.slow
def test_another_batch_size_begins_with_captured_replicas(tmp_path: Path, options: Options) -> None:
    config = on_gpu(options, tmp_path, resume="auto")
    assert trained(config).replicas == 3
    with Trainer(replace(config, batch_size=24, epochs=16)) as trainer:
        assert trainer.engine.options.replica_mode == "captured"
        assert trainer.train().replicas == 3
        assert trainer.engine.options.fused
    modes = load_arrays(newest(tmp_path))[1]["tuning"]["modes"]
    assert [mode for _, mode in modes] == ["fused", "captured", "fused"]


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True])
def test_replicas_that_cannot_be_fused_stay_captured(
    tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """known: before the step is bound."""

    def refused(plan: FusedPlan, *arguments: object) -> None:
        raise UnimplementedError("this kernel does not do it")

    def reason(backend: GpuBackend, *arguments: object) -> str:
        return "this kernel does not do it"

    if known:
        monkeypatch.setattr(GpuBackend, "why_not_fused", reason)
    else:
        monkeypatch.setattr(FusedPlan, "_check_launched", refused)
    progress = Lines()
    assert trained(on_gpu(options, tmp_path), progress).replicas == 2
    facts = facts_in(tmp_path)
    assert (facts["replica_mode"], facts["complete"]) == ("captured", True)
    assert "this kernel does not do it" in facts["not_fused"]
    assert "mode_changes" not in facts
    said = [line for line in progress.said if line.startswith("replicas are not fused: ")]
    assert len(said) == (not known)
    gc.collect()  # errors hold frames with pinned memory


@pytest.mark.slow
def test_each_mode_has_a_quarter_of_the_run(tmp_path: Path, options: Options, rates: Rates) -> None:
    rates["captured"] = {count: 100.0 * count for count in range(1, 17)}
    trained(on_gpu(options, tmp_path, epochs=1))
    facts = facts_in(tmp_path)
    assert counts(facts["measurements"], "fused")
    assert not facts["complete"]
    captured = load_arrays(newest(tmp_path))[1]["tuning"]["captured"]
    assert captured["reason"].endswith("; a quarter of the run was over")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["captured", "fused"])
def test_a_given_mode_is_the_only_one(tmp_path: Path, options: Options, rates: Rates, mode: str) -> None:
    rates["fused"][1] = 100.0
    with Trainer(on_gpu(options, tmp_path, replica_mode=mode)) as trainer:
        assert trainer.train().replicas == (3 if mode == "fused" else 2)
        assert trainer.engine.options.replica_mode == mode
    facts = facts_in(tmp_path)
    assert {each["replica_mode"] for each in facts["measurements"]} == {mode}


def test_the_state_of_modes_survives_json_and_is_checked() -> None:
    captured, fused = (
        Decision(2, rate, "why", True, mode) for rate, mode in ((180.0, "captured"), (190.0, "fused"))
    )
    state = TuningState(
        [(0, 1), (5, 2)],
        {1: [100.0], 2: [180.0]},
        fused,
        modes=[(9, "fused")],
        captured=captured,
        fused_windows={2: [190.0]},
    )
    metadata = json.loads(json.dumps({"round": 9, "tuning": state.to_metadata()}))
    assert TuningState.from_metadata(metadata) == state
    for broken in (
        {"modes": [[9, "both"]]},
        {"modes": [[-1, "fused"]]},
        {"modes": 3},
        {"captured": {"replicas": 1}},
        {"captured": {**vars(captured), "replicas": 3}},
        {"fused_windows": [[2, [-1.0]]]},
        {"fused_windows": []},
    ):
        with pytest.raises(DataLossError, match="no sound state of the auto-tuner"):
            TuningState.from_metadata({"round": 9, "tuning": {**metadata["tuning"], **broken}})
