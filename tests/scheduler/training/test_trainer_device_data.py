"""Whole runs with data kept on the devices: the same files, also after an interruption; and the messages."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import scheduler.training.configuration.option_kinds
import tensorbow.devices.registry as devices
from scheduler import Trainer, TrainingConfig, TrainingResult
from tensorbow.devices import DeviceName, GpuDevice, get_device
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.kept_lines import Lines

Options = Callable[..., TrainingConfig]
Run = Callable[..., TrainingResult]
DATA_NBYTES = 240 * 28 * 28


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    """An emulated GPU is found as /gpu:0."""
    name = DeviceName(kind="gpu", index=0)
    with emulated_runtime() as runtime:
        monkeypatch.setattr(
            scheduler.training.configuration.option_kinds, "gpu_status", lambda: SimpleNamespace(problem="")
        )
        monkeypatch.delitem(devices._devices, name, raising=False)
        kind = devices.DeviceKind(
            "gpu", lambda name: GpuDevice(name, runtime), lambda: 1, lambda name: get_device(name).describe()
        )
        monkeypatch.setitem(devices._kinds, "gpu", kind)
        yield runtime
        device = devices._devices.pop(name, None)
        if device is not None:
            device.close()
        gc.collect()


def files(folder: Path, metrics: Any) -> tuple[bytes, list[dict[str, Any]]]:
    return (folder / "model.safetensors").read_bytes(), metrics(folder)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu:0", pytest.param("gpu:0", marks=needs_compiler)])
def test_the_same_files(tmp_path: Path, run: Run, metrics: Any, gpu: Any, device: str) -> None:
    host, kept, resumed = (tmp_path / name for name in ("host", "kept", "resumed"))
    run(output=host, devices=device, epochs=3, data_on_device="never")
    run(output=kept, devices=device, epochs=3, data_on_device="always")
    assert files(kept, metrics) == files(host, metrics)
    run(output=resumed, devices=device, epochs=1, data_on_device="always")
    run(output=resumed, devices=device, epochs=2, data_on_device="never", resume="auto")
    run(output=resumed, devices=device, epochs=3, data_on_device="auto", resume="auto")
    assert files(resumed, metrics) == files(host, metrics)


@pytest.mark.slow
@needs_compiler
def test_where_the_data_are(options: Options, gpu: EmulatedCuda) -> None:
    device, held = get_device("/gpu:0"), {}
    for when in ("never", "auto", "always"):
        progress = Lines()
        with Trainer(options(devices="gpu:0", data_on_device=when), progress) as trainer:
            held[when] = device.memory.held_nbytes
            trainer.train()
        assert not any("batches" in line for line in progress.said)
        assert device.memory.held_nbytes == 0
    assert held["auto"] == held["always"]
    assert DATA_NBYTES < held["auto"] - held["never"] < DATA_NBYTES + 4096


@pytest.mark.slow
@needs_compiler
def test_no_room_is_said_once(options: Options, gpu: EmulatedCuda) -> None:
    device = get_device("/gpu:0")
    with Trainer(options(devices="gpu:0", data_on_device="never")):
        held = device.memory.held_nbytes
    others = device.stream_group(
        "others", planned_nbytes=(device.memory.limit_nbytes - held - 180_000) & -256
    )
    progress = Lines()
    with Trainer(options(devices="gpu:0"), progress):
        pass
    (line,) = progress.said
    assert line.startswith("batches are made on the host, in pinned memory: data set synthetic/train takes ")
    with pytest.raises(
        ResourceExhaustedError, match=r"^data_on_device: data set synthetic/train takes .* /gpu:0"
    ):
        Trainer(options(devices="gpu:0", data_on_device="always"))
    others.close()
    assert device.memory.held_nbytes == 0
    gc.collect()


def test_other_words_are_refused(options: Options) -> None:
    with pytest.raises(
        InvalidArgumentError, match="data_on_device: expected one of auto, always, never, got 'on'"
    ):
        options(data_on_device="on")
