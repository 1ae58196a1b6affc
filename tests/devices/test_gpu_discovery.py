"""Messages about missing or mismatched GPUs, drivers and packages; and virtual GPUs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tensorbow.devices import gpu_discovery as discovery
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.devices.names import DeviceName
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from tests.gpu_rig.emulated_cuda import EmulatedCuda


class FakeNvml(ModuleType):
    """The package `pynvml` of a machine with so many GPUs and a driver for that CUDA version."""

    class NVMLError(Exception):
        pass

    def __init__(self, gpus: int = 1, cuda: int = 12, failing: str = "") -> None:
        super().__init__("pynvml")
        self.gpus, self.cuda, self.failing = gpus, cuda, failing
        self.__spec__ = object()  # type: ignore[assignment] # `find_spec` wants one

    def _answer(self, call: str, value: Any = None) -> Any:
        if call == self.failing:
            raise self.NVMLError("Driver Not Loaded")
        return value

    def nvmlInit(self) -> None:  # noqa: N802
        self._answer("init")

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Nothing."""

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return int(self._answer("version", 1000 * self.cuda + 80))

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return int(self._answer("count", self.gpus))


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known or configured yet."""
    monkeypatch.setattr(discovery, "_status", None)
    monkeypatch.setattr(discovery, "_opened", False)
    monkeypatch.setattr(discovery, "_configuration", type(discovery._configuration)())
    monkeypatch.delenv(discovery.VIRTUAL_VARIABLE, raising=False)


def problem(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None, packages: set[str]) -> str:
    """Message on a machine with this NVML and these packages."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(discovery, "_is_installed", lambda name: name in packages)
    found = {"pynvml": nvml is not None, "cupy": any(name.startswith("cupy") for name in packages)}
    monkeypatch.setattr(discovery, "find_spec", lambda name: found[name] or None)
    status = discovery.gpu_status()
    assert "\n" not in status.problem
    assert not (status.problem and status.runtimes)
    return status.problem


ALL_12 = {"cupy-cuda12x", "nvidia-cudnn-cu12", "nvidia-nccl-cu12"}


@pytest.mark.parametrize(
    ("nvml", "packages", "said"),
    [
        (None, set(), r"no GPU support installed; .*pip install 'tensorbow\[cuda12\]'"),
        (FakeNvml(failing="init"), ALL_12, "no NVIDIA driver: Driver Not Loaded"),
        (FakeNvml(failing="count"), ALL_12, "the NVIDIA driver does not answer"),
        (FakeNvml(gpus=0), ALL_12, "no GPU: the NVIDIA driver is there, but shows none"),
        (FakeNvml(), set(), r"CuPy is not installed: pip install 'tensorbow\[cuda12\]'"),
        (FakeNvml(cuda=13), set(), r"CuPy is not installed: pip install 'tensorbow\[cuda13\]'"),
        (FakeNvml(), {*ALL_12, "cupy-cuda13x"}, "pip uninstall cupy-cuda12x cupy-cuda13x"),
        (FakeNvml(), {"cupy-cuda13x"}, "CUDA 13, the driver is for CUDA 12: pip uninstall cupy-cuda13x"),
        (
            FakeNvml(cuda=13),
            {"cupy-cuda12x", "nvidia-cudnn-cu13", "nvidia-nccl-cu12"},
            "CuPy is for CUDA 12, but nvidia-cudnn is installed for CUDA 13",
        ),
    ],
)
def test_one_line_says_what_is_missing_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None, packages: set[str], said: str
) -> None:
    text = problem(monkeypatch, nvml, packages)
    assert re.search(said, text), text
    assert discovery.count_gpus() == 0
    with pytest.raises(NotFoundError, match="or run on /cpu:0"):
        discovery.open_gpu(DeviceName.parse("/gpu:0"))


def test_a_broken_library_is_a_problem_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("cupy_runtime")
    fake.gpu_count = lambda: 2  # type: ignore[attr-defined]

    def broken(index: int) -> Any:
        raise CudaError("libcudnn is of another CUDA")

    fake.CupyRuntime = broken  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorbow.devices.cupy_runtime", fake)
    assert "1 GPU, not usable: libcudnn is of another CUDA" in problem(monkeypatch, FakeNvml(), ALL_12)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EmulatedCuda]]:
    runtimes = [EmulatedCuda(memory_nbytes=1 << 28) for _ in range(2)]
    monkeypatch.setattr(discovery, "_status", discovery.GpuStatus(tuple(runtimes)))
    yield runtimes
    for runtime in runtimes:
        runtime.close()


def test_virtual_gpus_share_a_physical_one(two_gpus: list[EmulatedCuda]) -> None:
    discovery.configure_gpus(virtual_per_gpu=2)
    assert discovery.count_gpus() == 4
    devices = [discovery.open_gpu(DeviceName.parse(f"/gpu:{index}")) for index in range(4)]
    assert [device.runtime for device in devices] == [two_gpus[0], two_gpus[0], two_gpus[1], two_gpus[1]]
    assert 2 * devices[0].memory.limit_nbytes < 1 << 28
    assert "2 of 2 virtual GPUs on it" in devices[1].describe()["description"]
    assert "2 of 2 virtual GPUs on it" in discovery.describe_gpu(DeviceName.parse("/gpu:3"))["description"]
    with pytest.raises(NotFoundError, match="there are 4 GPU devices, up to /gpu:3"):
        discovery.open_gpu(DeviceName.parse("/gpu:4"))
    with pytest.raises(FailedPreconditionError, match="call it first of all"):
        discovery.configure_gpus(virtual_per_gpu=1)
    for device in devices:
        device.close()


def test_the_environment_configures_too(
    two_gpus: list[EmulatedCuda], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(discovery.VIRTUAL_VARIABLE, "3")
    assert discovery.count_gpus() == 6
    monkeypatch.setenv(discovery.VIRTUAL_VARIABLE, "none")
    with pytest.raises(InvalidArgumentError, match="expected a number of at least 1, got 'none'"):
        discovery.count_gpus()


def test_a_limit_is_kept(two_gpus: list[EmulatedCuda]) -> None:
    discovery.configure_gpus(memory_limit_nbytes=1 << 20)
    with discovery.open_gpu(DeviceName.parse("/gpu:1")) as device:
        assert device.memory.limit_nbytes == 1 << 20
    with pytest.raises(
        InvalidArgumentError,
        match="expected virtual_per_gpu to be a whole number of at least 1 or None, got int 0",
    ):
        discovery.configure_gpus(virtual_per_gpu=0)
