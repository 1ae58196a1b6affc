"""NVML's figures, from a made-up library."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest

from tensorbow.devices import CpuDevice, GpuDevice, GpuMonitor
from tests.gpu_rig.runtimes import emulated_runtime


class FakeNvml(ModuleType):
    """A GPU on each bus of `buses`; what is in `broken` raises. Clocks rise with each question."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    class NVMLError(Exception):
        pass

    def __init__(self, *buses):
        super().__init__("pynvml")
        self.buses, self.broken, self.open, self.clock = buses, set(), 0, 1000
        self.asked = threading.Event()

    def _ask(self, name):
        if name in self.broken:
            raise self.NVMLError(name)
        if not self.open:
            raise self.NVMLError("not initialised")

    def nvmlInit(self):  # noqa: N802
        if "driver" in self.broken:
            raise self.NVMLError("driver")
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByPciBusId(self, bus):  # noqa: N802
        self._ask("handle")
        if bus not in self.buses:
            raise self.NVMLError("not found")
        return bus

    def nvmlDeviceGetMemoryInfo(self, gpu):  # noqa: N802
        self._ask("memory")
        return SimpleNamespace(used=len(gpu) << 20)

    def nvmlDeviceGetPowerUsage(self, gpu):  # noqa: N802
        self._ask("power")
        return 251_500

    def nvmlDeviceGetClockInfo(self, gpu, kind):  # noqa: N802
        assert kind == 1
        self._ask("clock")
        self.clock += 100
        return self.clock

    def nvmlDeviceGetUtilizationRates(self, gpu):  # noqa: N802
        self._ask("utilisation")
        return SimpleNamespace(gpu=87, memory=3)

    def nvmlDeviceGetTemperature(self, gpu, sensor):  # noqa: N802
        assert sensor == 0
        self.asked.set()
        self._ask("temperature")
        return 61


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml("0:1", "0:22")
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.fixture
def device():
    """An emulated GPU that NVML knows as the second one."""
    with emulated_runtime() as runtime:
        runtime.properties = replace(runtime.properties, pci_bus_id="0:22")
        with GpuDevice("/gpu:0", runtime) as made:
            yield made


def figures(monitor):
    with monitor.sampling():
        pass
    return monitor.take()


WHOLE = {
    "memory_used_nbytes": 4 << 20,
    "power_watts": 251.5,
    "sm_clock_mhz": 1100,
    "utilisation_percent": 87,
    "temperature_celsius": 61,
}


def test_the_figures_are_those_of_the_gpu_on_the_device_bus(nvml, device):
    with CpuDevice() as host:
        monitor = GpuMonitor([host, device])
    assert figures(monitor) == {"/gpu:0": WHOLE}
    assert monitor.take() == {}
    assert nvml.open == 1
    monitor.close()
    monitor.close()
    assert nvml.open == 0
    assert figures(monitor) == {}


def test_many_samples_become_means(nvml, device):
    monitor = GpuMonitor([device], interval_s=0.001)
    with monitor.sampling():
        assert nvml.asked.wait(60)
    found = monitor.take()["/gpu:0"]
    monitor.close()
    samples = (nvml.clock - 1000) // 100
    assert samples >= 2
    assert found["sm_clock_mhz"] == round(1000 + 100 * (samples + 1) / 2, 1)


@pytest.mark.parametrize(
    ("broken", "missing"),
    [
        ("memory", "memory_used_nbytes"),
        ("power", "power_watts"),
        ("clock", "sm_clock_mhz"),
        ("utilisation", "utilisation_percent"),
        ("temperature", "temperature_celsius"),
    ],
)
def test_a_question_without_an_answer_is_left_out(nvml, device, broken, missing):
    nvml.broken.add(broken)
    monitor = GpuMonitor([device])
    found = figures(monitor)["/gpu:0"]
    monitor.close()
    assert set(WHOLE) - set(found) == {missing}


@pytest.mark.parametrize("broken", ["driver", "handle"])
def test_no_driver_and_no_such_gpu_are_normal(nvml, device, broken):
    nvml.broken.add(broken)
    monitor = GpuMonitor([device])
    assert figures(monitor) == {}
    monitor.close()
    assert nvml.open == 0


def test_no_library_is_normal(device, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it raises ImportError
    monitor = GpuMonitor([device])
    assert figures(monitor) == {}
    monitor.close()


def test_nothing_is_asked_without_gpus(nvml):
    with CpuDevice() as host:
        monitor = GpuMonitor([host])
    assert figures(monitor) == {}
    assert nvml.open == 0
    monitor.close()
