"""NVML's figures of GPUs while they train: memory, power, clock, utilisation, temperature.

Lack of the library or driver, or a question that a GPU does not answer, is a normal state: the figure is
left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from tensorbow.devices.device import Device
from tensorbow.devices.gpu import GpuDevice

__all__ = ["GpuMonitor"]

INTERVAL_S = 1.0  # about the window of NVML's own utilisation


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 1)


class _Figure(NamedTuple):
    """A figure. ask: (NVML, its handle of a GPU) -> sample. of: combines many samples into one."""

    ask: Callable[[Any, Any], float]
    of: Callable[[list[float]], float]


FIGURES = {
    "memory_used_nbytes": _Figure(lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used, max),
    "power_watts": _Figure(lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3, _mean),
    "sm_clock_mhz": _Figure(lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM), _mean),
    "utilisation_percent": _Figure(lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu, _mean),
    "temperature_celsius": _Figure(
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU), max
    ),
}


class GpuMonitor:
    """Figures of the GPUs among some devices; each is of the whole GPU, other programs included.

    State: `_nvml` is None if there is nothing to query; `_samples` by device and figure since the last
    `take`, guarded by `_lock`.
    """

    def __init__(self, devices: Sequence[Device], interval_s: float = INTERVAL_S) -> None:
        """interval_s: seconds between two samples."""
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._samples: dict[str, dict[str, list[float]]] = {}
        self._gpus: dict[str, Any] = {}  # NVML's handles by the device's short name
        self._nvml: Any = None
        gpus = {d.name.short: d.runtime.properties.pci_bus_id for d in devices if isinstance(d, GpuDevice)}
        if any(gpus.values()):
            self._open({name: bus for name, bus in gpus.items() if bus})

    def _open(self, gpus: dict[str, str]) -> None:
        try:
            import pynvml
        except ImportError:
            return
        nvml: Any = pynvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return
        self._nvml = nvml
        for name, bus in gpus.items():
            with suppress(nvml.NVMLError):
                self._gpus[name] = nvml.nvmlDeviceGetHandleByPciBusId(bus)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Samples within the block, on its own thread: once each interval, and at the end."""
        if not self._gpus:
            yield
            return
        ended = threading.Event()

        def sample_until_ended() -> None:
            while not ended.wait(self._interval_s):
                self._sample()
            self._sample()

        thread = threading.Thread(target=sample_until_ended, name="tensorbow GPU figures", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _sample(self) -> None:
        for name, gpu in self._gpus.items():
            for figure, question in FIGURES.items():
                with suppress(self._nvml.NVMLError):
                    value = question.ask(self._nvml, gpu)
                    with self._lock:
                        self._samples.setdefault(name, {}).setdefault(figure, []).append(value)

    def take(self) -> dict[str, dict[str, float]]:
        """Figures by device since the last call: maxima of memory and temperature, means of the others.

        Bytes, watts, megahertz, per cent and degrees Celsius, as the names say; empty without GPUs or NVML.
        """
        with self._lock:
            samples, self._samples = self._samples, {}
        return {
            name: {figure: FIGURES[figure].of(values) for figure, values in figures.items()}
            for name, figures in samples.items()
        }

    def close(self) -> None:
        """Shuts NVML down; idempotent."""
        nvml, self._nvml, self._gpus = self._nvml, None, {}
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
