"""Commands on GPU devices: emulated ones that are found as if they were there, and where there are none."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tensorbow.devices import close_devices, gpu_status
from tensorbow.devices import gpu_discovery as discovery
from tensorbow.devices import registry as devices
from tests.cli.conftest import Call
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_runtime() as runtime:
        monkeypatch.setattr(discovery, "_status", discovery.GpuStatus((runtime,)))
        monkeypatch.setattr(discovery, "_opened", False)
        monkeypatch.setattr(discovery, "_configuration", type(discovery._configuration)())
        monkeypatch.setattr(devices, "_devices", {})
        yield runtime
        close_devices()


def test_explain_shows_graphs_and_merged_updates(found: EmulatedCuda, call: Call) -> None:
    text = call("explain", "lenet", "--full", "--devices", "gpu:0", "--batch-size", 4).out
    assert "on /device:GPU:0" in text
    assert "segment gradient: " in text
    lines = text.splitlines()
    for place, line in enumerate(lines):
        if line.startswith("segment ") and not line.endswith(" 0 kernel calls"):
            assert lines[place + 1].endswith(" captured as one CUDA graph"), line
    assert " updates in one pass: " in text
    assert text.count("workspace: 8,388,608 bytes") == 2  # of a replica, and of z
    assert "launched" not in text
    assert "  replica mode: captured, side by side; can be fused\n" in text


def test_explain_says_whether_replicas_are_fused(found: EmulatedCuda, call: Call) -> None:
    words = ("explain", "logreg", "--devices", "gpu:0", "--replica-mode", "fused")
    assert "  replica mode: fused, all replicas of a GPU in each kernel\n" in call(*words).out
    alone = "  replica mode: each replica takes the next batch when it is free, and launches alone\n"
    assert alone in call(*words, "--dispatch", "fcfs").out
    assert "replica mode: " not in call("explain", "logreg").out


def test_without_a_gpu_explain_says_what_is_missing(call: Call) -> None:
    if not gpu_status().problem:
        pytest.skip("there is a GPU")
    ended = call("explain", "lenet", "--devices", "gpu:0")
    assert gpu_status().problem in ended.line


@pytest.mark.slow
@needs_compiler
def test_train_and_tune_take_a_precision(found: EmulatedCuda, call: Call) -> None:
    seen: list[str] = []
    own = found.library("cublas")
    gemm = own.cublasGemmEx

    def spied(*arguments: object) -> int:
        seen.append(str(getattr(arguments[-2], "value", arguments[-2])))
        return int(gemm(*arguments))

    own.cublasGemmEx = spied
    quick = ("logreg", "--devices", "gpu:0", "--compute", "tf32", "--max-seconds", 60)
    ended = call("train", *quick, "--epochs", 1, "--output", "run", "--json")
    assert json.loads(ended.out.splitlines()[-1])["steps"] > 0
    assert set(seen) == {"77"}  # 32F_FAST_TF32
    seen.clear()
    ended = call("tune", *quick, "--max-replicas", 1, "--window-seconds", 0.05)
    assert "--compute tf32" in ended.out
    assert set(seen) == {"77"}


def test_a_wrong_precision_is_one_line(call: Call) -> None:
    assert (
        "--compute: expected one of fp32, tf32, bf16, got 'half'"
        in call("train", "logreg", "--compute", "half").line
    )
