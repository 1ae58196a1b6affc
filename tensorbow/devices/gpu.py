"""GPU devices: CUDA streams, device memory, and copies between it and the host.

Several devices may share one physical GPU (virtual GPUs); each has its own limit, partitions and streams.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from allocators import Allocator, DriverAllocator, Partition, PartitionedMemory
from tensorbow.devices.cuda_runtime import CopyKind, CudaError, CudaRuntime
from tensorbow.devices.device import Device, DeviceDescription
from tensorbow.devices.gpu_events import EventPool
from tensorbow.devices.gpu_stream import GpuStream
from tensorbow.devices.gpu_timeline import GpuTimeline
from tensorbow.devices.names import DeviceName
from tensorbow.devices.stream import Access
from tensorbow.errors import InvalidArgumentError, TensorBowError, UnimplementedError

__all__ = ["GpuDevice", "PeerArray", "mail_access"]

STAGING_NBYTES = 4 << 20  # pinned memory for copies to and from the host
MAIL = "mail"  # pseudo device name of host memory through which values are sent
ALLOCATORS = ("bfc", "cuda_malloc")
COMPUTE = ("fp32", "tf32", "bf16")
HEADROOM = 0.06  # share of the free memory left to CUDA's modules, graphs and library handles


def one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    """The value of an option. Raises InvalidArgumentError if it is not one of `known`."""
    if value not in known:
        raise InvalidArgumentError(f"{option}: expected one of {', '.join(known)}, got {value!r:.60}")
    return value


class _GpuMemory:
    """A memory source over a runtime."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self._runtime = runtime

    def allocate(self, nbytes: int) -> int:
        return self._runtime.allocate(nbytes)

    def free(self, address: int, nbytes: int) -> None:
        try:
            self._runtime.free(address)
        except CudaError as error:
            if not error.sticky:  # a lost GPU has lost its memory too
                raise


class _CollectedMemory:
    """Memory that is freed after its owner is garbage.

    Not at once, but at the next allocation or when the device closes: the garbage collector may run anywhere,
    even during a capture, which freeing memory would break.
    """

    def __init__(self, allocate: Callable[[int], int], free: Callable[[int], None]) -> None:
        self._allocate, self._free = allocate, free
        self._dropped: deque[int] = deque()
        self._closed = False

    def allocate(self, nbytes: int) -> int:
        self._give_back()
        return self._allocate(nbytes)

    def drop(self, address: int) -> None:
        self._dropped.append(address)
        if self._closed:
            self._give_back()

    def close(self) -> None:
        self._closed = True
        self._give_back()

    def _give_back(self) -> None:
        with suppress(IndexError):
            while True:
                address = self._dropped.popleft()
                with suppress(TensorBowError):  # after a sticky error nothing can be freed
                    self._free(address)


class PeerArray:
    """A contiguous array in a GPU's memory, to which another GPU copies what it sends."""

    def __init__(self, device: GpuDevice, address: int, nbytes: int) -> None:
        self.address, self.nbytes, self.device = address, nbytes, device


class GpuDevice(Device):
    """One GPU, or a share of one.

    limit_nbytes: memory limit; by default the free memory when it opens, less some headroom.
    allocator: `bfc` (best fit with coalescing), or `cuda_malloc`, one driver call per tensor, for comparison
    (Budea 2019, figure 4.2). compute: see `Device.compute`. description: text for a table of devices.

    Raises InvalidArgumentError for a name that is no GPU's, and for an unknown allocator or precision.
    """

    kind = "gpu"

    def __init__(
        self,
        name: DeviceName | str,
        runtime: CudaRuntime,
        *,
        limit_nbytes: int | None = None,
        allocator: str = "bfc",
        compute: str = "fp32",
        description: str = "",
    ) -> None:
        parsed = DeviceName.parse(name)
        if parsed.kind != "GPU" or not parsed.is_complete:
            raise InvalidArgumentError(
                f"GPU device: expected a name such as '/gpu:0', got {str(name)!r}; give kind GPU and an index"
            )
        self.runtime = runtime
        self.allocator = one_of("allocator", allocator, ALLOCATORS)
        self.compute = one_of("compute", compute, COMPUTE)
        if limit_nbytes is None:
            limit_nbytes = int(runtime.memory_info()[0] * (1 - HEADROOM))
        self._description = description
        self._events = EventPool(runtime)
        self._timeline = GpuTimeline(runtime)
        self._pinned = _CollectedMemory(runtime.allocate_pinned, runtime.free_pinned)
        self._mail = _CollectedMemory(runtime.allocate, runtime.free)
        self._copies = threading.Lock()  # guards the staging memory and its stream
        self._staging: npt.NDArray[np.uint8] | None = None
        self._copy_stream = 0
        super().__init__(parsed, PartitionedMemory(_GpuMemory(runtime), limit_nbytes))

    def _make_allocator(self, partition: Partition, name: str, planned_nbytes: int) -> Allocator:
        if self.allocator == "cuda_malloc":
            return DriverAllocator(partition, name=name)
        return super()._make_allocator(partition, name, planned_nbytes)

    def _make_stream(self, name: str, priority: int = 0) -> GpuStream:
        return GpuStream(self, name, self._events, self._timeline, priority)

    def new_gpu_stream(self, name: str, priority: int) -> GpuStream:
        """A new stream with a priority: a lower number goes first."""
        with self._lock:
            self._require_open(f"stream {name!r}")
            stream = self._make_stream(name, priority)
            self._streams.add(stream)
        return stream

    def view(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
    ) -> npt.NDArray[Any]:
        """Raises UnimplementedError: the host cannot address a GPU's memory."""
        raise UnimplementedError(
            f"view: expected a device whose memory the host can address, got {self.name.short}; "
            "copy with read() and write()"
        )

    def read(self, address: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A copy of device memory, in C order; see Device.read."""
        result = np.empty(shape, dtype)
        flat = result.reshape(-1).view(np.uint8)
        self._copy(flat, address, to_device=False)
        return result

    def write(self, address: int, value: npt.NDArray[Any]) -> None:
        """Copies an array to device memory; see Device.write."""
        self._copy(np.ascontiguousarray(value).reshape(-1).view(np.uint8), address, to_device=True)

    def clear(self, address: int, nbytes: int) -> None:
        """Sets device memory to zero; see Device.clear."""
        with self._copies:
            stream = self._ready()
            self.runtime.fill(address, 0, nbytes, stream)
            self.runtime.synchronize_stream(stream)

    def host_array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A new array in pinned memory, which is freed after the array is garbage."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        address = self._pinned.allocate(max(nbytes, 1))
        memory = (ctypes.c_uint8 * max(nbytes, 1)).from_address(address)
        weakref.finalize(memory, self._pinned.drop, address)
        flat: npt.NDArray[Any] = np.ctypeslib.as_array(memory)[:nbytes]
        return flat.view(dtype).reshape(shape)

    def mailbox(self, sender: Device, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """Direct mailbox from another GPU, in memory that is left to CUDA. See Device.mailbox."""
        if not isinstance(sender, GpuDevice):
            return super().mailbox(sender, shape, dtype)
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        address = self._mail.allocate(max(nbytes, 1))
        made = PeerArray(self, address, nbytes)
        weakref.finalize(made, self._mail.drop, address)
        return made

    def _ready(self) -> int:
        """The copy stream; the caller holds `_copies`."""
        if not self._copy_stream:
            self._copy_stream = self.runtime.make_stream()
        return self._copy_stream

    def _copy(self, host: npt.NDArray[np.uint8], address: int, *, to_device: bool) -> None:
        with self._copies:
            stream = self._ready()
            if self._staging is None:
                self._staging = self.host_array((STAGING_NBYTES,), np.uint8)
            staging = self._staging
            staging_address = staging.ctypes.data
            for start in range(0, host.size, STAGING_NBYTES):
                piece = host[start : start + STAGING_NBYTES]
                if to_device:
                    staging[: piece.size] = piece
                    ends, kind = (address + start, staging_address), CopyKind.HOST_TO_DEVICE
                else:
                    ends, kind = (staging_address, address + start), CopyKind.DEVICE_TO_HOST
                self.runtime.copy(*ends, piece.size, kind, stream)
                self.runtime.synchronize_stream(stream)
                if not to_device:
                    piece[...] = staging[: piece.size]

    def describe(self) -> DeviceDescription:
        """The row of this device in a table of devices."""
        properties = self.runtime.properties
        major, minor = divmod(properties.architecture, 10)
        what = f"{properties.name}, compute capability {major}.{minor}"
        return DeviceDescription(
            name=str(self.name),
            kind="gpu",
            memory_limit_nbytes=self.memory.limit_nbytes,
            description=f"{what}; {self._description}" if self._description else what,
        )

    def _release(self) -> None:
        with self._copies:
            if self._copy_stream:
                with suppress(TensorBowError):
                    self.runtime.destroy_stream(self._copy_stream)
            self._copy_stream, self._staging = 0, None
        self._pinned.close()
        self._mail.close()
        self._timeline.close()
        self._events.close()


def mail_access(mailbox: npt.NDArray[Any] | PeerArray) -> Access:
    """The memory of a mailbox, for the race checker."""
    if isinstance(mailbox, PeerArray):
        return Access(mailbox.address, mailbox.nbytes, str(mailbox.device.name))
    return Access(mailbox.ctypes.data, mailbox.nbytes, MAIL)
