"""CPU devices: worker threads for streams, anonymous pages for memory.

They are virtual: `/cpu:0` to `/cpu:N-1` share the machine's cores and memory, but each has its own streams,
allocators and names, so that programs for several devices run, and are tested, on one machine.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from allocators import PartitionedMemory
from tensorbow.devices.cpu_stream import CpuStream
from tensorbow.devices.device import Device, DeviceDescription
from tensorbow.devices.host_memory import HostMemory, host_memory_nbytes
from tensorbow.devices.names import DeviceName
from tensorbow.errors import InvalidArgumentError

__all__ = ["CpuDevice", "describe_cpu"]


class CpuDevice(Device):
    """One virtual CPU device.

    limit_nbytes: bound of its memory; by default the memory of the machine or container.
    delay: called on the stream's thread before each unit of work: it stands for a slow device, or shows in
    tests that results do not depend on timing.
    """

    kind = "cpu"

    def __init__(
        self,
        name: DeviceName | str = "/cpu:0",
        *,
        limit_nbytes: int | None = None,
        delay: Callable[[], object] | None = None,
    ) -> None:
        parsed = DeviceName.parse(name)
        if parsed.kind != "CPU" or not parsed.is_complete:
            raise InvalidArgumentError(
                f"CPU device: expected a name such as '/cpu:0', got {str(name)!r}; give kind CPU and an index"
            )
        self._source = HostMemory()
        if limit_nbytes is None:
            limit_nbytes = host_memory_nbytes() or sys.maxsize
        self._delay = delay
        super().__init__(parsed, PartitionedMemory(self._source, limit_nbytes))

    def _make_stream(self, name: str, priority: int = 0) -> CpuStream:
        return CpuStream(self, name, delay=self._delay)

    def view(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
    ) -> npt.NDArray[Any]:
        """An array over device memory; it keeps its region mapped while it lives.

        Raises InvalidArgumentError if the array exceeds its region, FailedPreconditionError if the device is
        closed, which frees all regions; see Device.view.
        """
        try:
            return self._source.view(address, shape, dtype, strides)
        except InvalidArgumentError:
            self._require_open("view")
            raise

    def lend(self, array: npt.NDArray[Any]) -> int | None:
        """See Device.lend."""
        return self._source.lend(array)

    def take_back(self, array: npt.NDArray[Any]) -> None:
        """See Device.take_back."""
        self._source.take_back(array)

    def describe(self) -> DeviceDescription:
        """The row of this device in a table of devices."""
        return describe_cpu(self.name, self.memory.limit_nbytes)

    def _release(self) -> None:
        self._source.free_all()


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_cpu(name: DeviceName, limit_nbytes: int | None = None) -> DeviceDescription:
    """The table row of CPU device `name`, unopened; `limit_nbytes` None means the machine's memory."""
    cores = usable_cores()
    return DeviceDescription(
        name=str(name),
        kind="cpu",
        memory_limit_nbytes=host_memory_nbytes() if limit_nbytes is None else limit_nbytes,
        description=f"{platform.machine()}, {cores} core{'' if cores == 1 else 's'}; virtual, any index",
    )
