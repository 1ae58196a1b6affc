"""Whole runs on GPU devices from the command line, with emulated GPUs that the program discovers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorbow.data import load
from tensorbow.devices import close_devices
from tensorbow.devices import gpu_discovery as discovery
from tensorbow.devices import registry as devices
from tensorbow.training import load_arrays
from tests.cli.conftest import Call
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

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


def test_tune_measures_on_the_gpu(found: EmulatedCuda, call: Call) -> None:
    quick = ("--max-replicas", 2, "--windows", 1, "--window-seconds", 0.05, "--threshold", 0.9)
    shown = call("tune", *RUN[1:4], "--devices", "gpu:0", *quick)
    assert "--devices gpu:0" in shown.out
    assert found.counts["launch_graph"] > 20


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
