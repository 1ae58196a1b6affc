"""Whole runs on GPU devices from the command line, with emulated GPUs that the program discovers."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scheduler.training.tuning.auto
from scheduler import Measurement
from scheduler.decisions.mode_tuner import ModeTuner
from tensorbow.data import load
from tensorbow.devices import close_devices
from tensorbow.devices import gpu_discovery as discovery
from tensorbow.devices import registry as devices
from tensorbow.errors import UnimplementedError
from tensorbow.kernels.gpu.fused.plan import FusedPlan
from tensorbow.training import load_arrays
from tests.cli.conftest import Call
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.ticking_clock import TickingClock

pytestmark = needs_compiler
RUN = ("train", "logreg", "--dataset", "digits", "--batch-size", 40, "--output", "run")  # 17 steps an epoch


def find(runtime: EmulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has an emulated GPU be the one of this machine, shared by two devices."""
    close_devices(drain=False)
    monkeypatch.setattr(discovery, "_status", discovery.GpuStatus((runtime,)))
    monkeypatch.setattr(discovery, "_opened", False)
    monkeypatch.setattr(devices, "_devices", {})
    monkeypatch.setenv(discovery.VIRTUAL_VARIABLE, "2")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_runtime() as runtime:
        find(runtime, monkeypatch)
        yield runtime
        close_devices()


def metrics(folder: str = "run") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_from_training_to_a_prediction(found: EmulatedCuda, call: Call) -> None:
    on = ("--devices", "gpu:0,gpu:1", "--replicas-per-gpu", 2)
    assert call(*RUN, *on, "--epochs", 1).status == 0
    resumed = call(*RUN, *on, "--epochs", 2, "--resume", "auto")
    assert re.search(r"resumed from run/checkpoint-0*(\d+)\.safetensors at round \1\n", resumed.out)
    assert found.counts["launch_graph"] > 40
    straight = [*RUN[:-1], "straight"]
    assert call(*straight, *on, "--epochs", 2).status == 0
    left, right = (load_arrays(Path(name) / "model.safetensors")[0] for name in ("run", "straight"))
    assert all(value.tobytes() == right[name].tobytes() for name, value in left.items())
    timeless = ("seconds", "images_per_second")
    for mine, other in zip(metrics(), metrics("straight"), strict=True):
        assert {k: v for k, v in mine.items() if k not in timeless} == {
            k: v for k, v in other.items() if k not in timeless
        }
    result = json.loads(call("evaluate", "run", "--device", "gpu:1", "--json").out)
    assert result["accuracy"] == pytest.approx(metrics()[-1]["test_accuracy"])
    assert result["loss"] == pytest.approx(metrics()[-1]["test_loss"], rel=1e-5)
    np.save("x.npy", load("digits")[1].images[:5])
    before = found.counts["launch"]
    on_gpu = call("predict", "run", "x.npy", "--device", "gpu:0").out
    assert found.counts["launch"] > before
    assert [row.split("\t")[1] for row in on_gpu.splitlines()] == [
        row.split("\t")[1] for row in call("predict", "run", "x.npy").out.splitlines()
    ]


QUICK = ("--max-replicas", 2, "--windows", 1, "--window-seconds", 0.01, "--json")
TUNE = ("tune", *RUN[1:6], "--devices", "gpu:0", *QUICK)
RATES = {"captured": {1: 100.0, 2: 180.0}, "fused": {1: 90.0, 2: 300.0}}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[int, float]]:
    """Made-up throughput of the measured rounds, by mode and count."""
    record, rates = ModeTuner.record, {mode: {**curve} for mode, curve in RATES.items()}

    def made_up(tuner: ModeTuner, replicas: int, rate: float) -> Measurement:
        assert rate > 0
        return record(tuner, replicas, rates[tuner.mode or ""][replicas])

    monkeypatch.setattr(ModeTuner, "record", made_up)
    return rates


def rows(facts: dict[str, Any]) -> list[tuple[str, int]]:
    return [(row["replica_mode"], row["replicas_per_device"]) for row in facts["measurements"]]


@pytest.mark.slow
def test_tune_measures_both_modes_on_the_gpu(
    found: EmulatedCuda, call: Call, told: dict[str, dict[int, float]]
) -> None:
    lines = call(*TUNE).out.splitlines()
    assert found.counts["launch_graph"] > 20
    assert lines[1].split()[:4] == ["replicas", "per", "device", "mode"]
    assert [tuple(line.split()[:3]) for line in lines[2:6]] == [
        ("1", "captured", "100"),
        ("2", "captured", "180"),
        ("1", "fused", "90"),
        ("2", "fused", "300"),
    ]
    assert [line.split()[-1] == "chosen" for line in lines[2:6]] == [False, False, False, True]
    assert lines[6].startswith("2 fused replicas per device: throughput grows up to it; ")
    assert lines[6].endswith("; captured replicas reach 180 images/s, with 2 per device")
    command = "tensorbow train logreg --replicas-per-gpu 2 --dataset digits --batch-size 40 --devices gpu:0"
    assert lines[7] == f"{command} --replica-mode fused"
    facts = json.loads(lines[8])
    assert (facts["replica_mode"], facts["replicas_per_device"], facts["complete"]) == ("fused", 2, True)
    assert rows(facts) == [("captured", 1), ("captured", 2), ("fused", 1), ("fused", 2)]
    assert [row["gain"] for row in facts["measurements"]] == [None, 0.8, None, 2.3333]
    before = found.counts["launch"]
    assert call(*lines[7].split()[1:], "--epochs", 1, "--output", "run").status == 0
    assert "replica_mode: fused" in Path("run/config.yaml").read_text()
    assert found.counts["launch"] > before
    told["fused"][2] = 170.0
    ended = json.loads(call(*TUNE).out.splitlines()[-1])
    assert (ended["replica_mode"], ended["replicas_per_device"]) == ("captured", 2)
    assert "--replica-mode" not in ended["command"]


@pytest.mark.parametrize("mode", ["captured", "fused"])
@pytest.mark.usefixtures("told")
@pytest.mark.slow
def test_tune_measures_a_given_mode_only(found: EmulatedCuda, call: Call, mode: str) -> None:
    facts = json.loads(call(*TUNE, "--replica-mode", mode).out.splitlines()[-1])
    assert rows(facts) == [(mode, 1), (mode, 2)]
    assert facts["command"].endswith(f" --replica-mode {mode}")
    assert "not_fused" not in facts


@pytest.mark.usefixtures("told")
@pytest.mark.slow
def test_tune_says_why_it_has_not_measured_fused_replicas(
    found: EmulatedCuda, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = call(*TUNE, "--dispatch", "fcfs").out.splitlines()
    assert "fused replicas were not measured: dispatch is 'fcfs'" in lines
    facts = json.loads(lines[-1])
    assert facts["not_fused"] == "dispatch is 'fcfs'"
    assert rows(facts) == [("captured", 1), ("captured", 2)]

    def refused(plan: FusedPlan, *arguments: object) -> None:
        raise UnimplementedError("found out when it is bound")

    monkeypatch.setattr(FusedPlan, "_check_launched", refused)
    facts = json.loads(call(*TUNE).out.splitlines()[-1])
    assert (rows(facts), facts["complete"]) == ([("captured", 1), ("captured", 2)], True)
    assert "found out when it is bound" in facts["not_fused"]
    ended = call(*TUNE, "--replica-mode", "fused")
    assert "found out when it is bound" in ended.line
    gc.collect()  # errors hold frames with pinned memory


@pytest.mark.slow
@pytest.mark.usefixtures("told", "found")
def test_a_run_that_finds_number_and_mode(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = scheduler.training.tuning.auto.TuningOptions(max_replicas=2, windows=1, window_seconds=1e-6)
    monkeypatch.setattr(scheduler.training.tuning.auto, "TuningOptions", lambda: quick)
    words = (*RUN, "--devices", "gpu:0", "--replicas-per-gpu", "auto", "--steps-per-launch", 1)
    lines = call(*words, "--epochs", 20).out.splitlines()
    (row,) = [line for line in lines if line.startswith("auto   ")]
    facts = json.loads(Path("run/tuning.json").read_text())
    assert row == f"auto             2 fused per device: {facts['reason']}"
    assert rows(facts) == [("captured", 1), ("captured", 2), ("fused", 2)]


@pytest.mark.usefixtures("told")
@pytest.mark.slow
def test_captured_replicas_have_half_of_the_time(
    found: EmulatedCuda, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.training.tuning.throughput_tuning.time", TickingClock(0.01))
    ended = call(*TUNE, "--windows", 100_000, "--max-seconds", 4)
    facts = json.loads(ended.out.splitlines()[-1])
    assert rows(facts) == [("captured", 1), ("fused", 1)]
    assert (facts["replica_mode"], facts["complete"]) == ("captured", False)
    assert "half of --max-seconds 4 was over; fused replicas reach 90 images/s" in facts["reason"]


@pytest.mark.slow
def test_a_gpu_that_is_lost_ends_the_run_with_one_line_and_it_goes_on_later(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = EmulatedCuda(), EmulatedCuda()
    try:
        find(first, monkeypatch)
        first.fail_next("launch_graph", "cudaErrorDevicesUnavailable", sticky=True, after=45)
        ended = call(*RUN, "--devices", "gpu:0", "--epochs", 4)
        assert ended.status == 1
        said = re.search(
            r"stream /gpu:0 .*cudaErrorDevicesUnavailable.*; the last copy of the central model on the host "
            r"is of step (\d+); the last checkpoint is of step (\d+), run/checkpoint-0*\2\.safetensors; "
            r"go on with --resume auto --output run$",
            ended.line,
        )
        assert said is not None, ended.line
        assert said[1] == said[2] == str(metrics()[-1]["round"])
        find(second, monkeypatch)
        resumed = call(*RUN, "--devices", "gpu:0", "--epochs", 4, "--resume", "auto")
        assert resumed.status == 0
        assert f"at round {said[2]}\n" in resumed.out
        close_devices()
        second.check_clean()
    finally:
        close_devices(drain=False)
        first.close()
        second.close()


@pytest.mark.slow
def test_a_gpu_that_is_lost_before_the_first_checkpoint(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = EmulatedCuda()
    try:
        find(runtime, monkeypatch)
        runtime.fail_next("launch_graph", "cudaErrorIllegalAddress", sticky=True, after=9)
        ended = call(*RUN, "--devices", "gpu:0", "--epochs", 4)
        assert "there is no copy of the central model on the host; no checkpoint had been" in ended.line
    finally:
        close_devices(drain=False)
        runtime.close()


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_wrong_device_is_one_line(call: Call, command: str) -> None:
    words = ("run", "x.npy") if command == "predict" else ("run",)
    ended = call(command, *words, "--device", "cuda:0")
    assert ended.status == 2
    assert "--device: expected names such as cpu:0,cpu:1; got 'cuda:0': this version has no" in ended.line
