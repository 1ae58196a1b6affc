"""Protocol of a device: streams, stream groups, memory and views of it."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from allocators import (
    GRANULE_NBYTES,
    Allocation,
    Allocator,
    BestFitAllocator,
    OutOfMemory,
    Partition,
    PartitionedMemory,
)
from tensorbow.devices.names import DeviceName
from tensorbow.devices.stream import Stream
from tensorbow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
)

__all__ = ["Device", "DeviceDescription", "StreamGroup"]

LONGEST_END_S = 10.0  # longest wait at closing: the closing thread may itself run the work that has to end


class DeviceDescription(TypedDict):
    """One row of a table of devices; `memory_limit_nbytes` is None without a limit."""

    name: str
    kind: str
    memory_limit_nbytes: int | None
    description: str


class _Resources:
    """Stream, allocator and partition of a group. The device refers to these, not to the group."""

    def __init__(
        self, name: str, device: Device, compute: Stream, allocator: Allocator, partition: Partition
    ) -> None:
        self.name = name
        self.device = device
        self.compute = compute
        self.allocator = allocator
        self.partition = partition
        self.at_close: list[Callable[[], None]] = []
        self._ending: threading.Thread | None = None  # runs once the group is garbage

    def close(self, *, drain: bool = True) -> None:
        """See StreamGroup.close."""
        self.compute.close(drain=drain)
        while self.at_close:
            self.at_close.pop()()
        self.allocator.close(discard=True)
        self.partition.close()
        self.device._forget_group(self)

    def abandon(self) -> None:
        """Closes in a new thread: the last reference to a group may go away anywhere, even in the work of its
        stream, or while this thread holds some lock.
        """
        name = f"tensorbow end of {self.device.name.short} {self.name}"
        ending = threading.Thread(target=self.close, name=name, daemon=True)
        with suppress(RuntimeError):  # no more threads can start: the device closes it
            ending.start()
            self._ending = ending

    def close_or_await_end(self, *, drain: bool) -> None:
        """Closes the group for a device that closes, or waits for its closing thread."""
        if self._ending is None:
            self.close(drain=drain)
        else:
            self._ending.join(LONGEST_END_S)


class StreamGroup:
    """Execution resources of one replica: a stream and an allocator.

    Copies run on the compute stream too: a GPU has 32 hardware queues at most, which the streams share.
    A garbage-collected group closes by itself once its stream is drained.
    """

    def __init__(
        self,
        name: str,
        device: Device,
        compute: Stream,
        allocator: Allocator,
        partition: Partition,
    ) -> None:
        self.name = name
        self.device = device
        self.compute = compute
        self.allocator = allocator
        self.partition = partition
        self._resources = resources = _Resources(name, device, compute, allocator, partition)
        self._finalizer = weakref.finalize(self, resources.abandon)
        self._finalizer.atexit = False

    def at_close(self, release: Callable[[], None]) -> None:
        """Registers `release()`, called at closing when the stream has ended and the memory still exists.

        It must hold no reference to the group.
        """
        self._resources.at_close.append(release)

    def allocate(self, nbytes: int, owner: str = "") -> Allocation | None:
        """A block from the group's allocator, aligned to 256 bytes; None for 0 bytes.

        Raises ResourceExhaustedError with the text of the allocator's OutOfMemory.
        """
        try:
            return self.allocator.allocate(nbytes, owner=owner)
        except OutOfMemory as error:
            raise ResourceExhaustedError(str(error)) from error

    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks until the stream is drained, for at most `timeout` seconds; raises its error."""
        self.compute.synchronize(timeout)

    def close(self, *, drain: bool = True) -> None:
        """Closes the stream, then frees all memory, including blocks in use; idempotent."""
        self._resources.close(drain=drain)
        self._finalizer.detach()

    def __repr__(self) -> str:
        return f"<StreamGroup {self.name} of {self.device.name.short}>"


class Device(ABC):
    """Memory and streams under one name. `kind` is the lower-case word that kernels register under.

    The device holds streams and groups weakly: a garbage-collected one ends by itself once it is drained, and
    its memory is freed.
    """

    kind: str
    compute: str = "fp32"
    """Precision of float32 matmuls and convolutions: fp32, bf16, or on GPUs tf32, which CPUs take for fp32.

    Read when a step is compiled, and on a GPU when a stream group gets its first plan.
    """

    def __init__(self, name: DeviceName, memory: PartitionedMemory) -> None:
        self.name = name
        self.memory = memory
        self._closed = False
        self._lock = threading.Lock()  # guards the two tables below
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._groups: dict[str, _Resources] = {}  # of groups not yet closed

    @property
    def closed(self) -> bool:
        """True if the device refuses new streams."""
        return self._closed

    def new_stream(self, name: str) -> Stream:
        """A new stream; `name` appears in logs and errors. Raises FailedPreconditionError if closed."""
        with self._lock:
            self._require_open(f"stream {name!r}")
            stream = self._make_stream(name)
            self._streams.add(stream)
        return stream

    def stream_group(
        self,
        name: str,
        limit_nbytes: int | None = None,
        *,
        guaranteed_nbytes: int = 0,
        planned_nbytes: int = 0,
        priority: int = 0,
    ) -> StreamGroup:
        """A new group with its own memory partition of at most `limit_nbytes` (None: the device's).

        guaranteed_nbytes: reserved at once.
        planned_nbytes: sum of the known blocks, each rounded up to 256 bytes; it is guaranteed, and taken as
        one region that is split to the last granule (growth by doubling could hold twice as much).
        priority: of the group's stream, if the device has priorities: a lower number goes first.

        Raises AlreadyExistsError while a group of that name is open, InvalidArgumentError for limits beyond
        the device's, FailedPreconditionError if closed.
        """
        with self._lock:
            self._require_open(f"stream group {name!r}")
            if name in self._groups:
                raise AlreadyExistsError(
                    f"stream group of {self.name.short}: expected a new name, got {name!r}, which is open; "
                    "close that group first, or take another name"
                )
            try:
                guaranteed_nbytes = max(guaranteed_nbytes, planned_nbytes)
                partition = self.memory.partition(name, limit_nbytes, guaranteed_nbytes=guaranteed_nbytes)
            except ValueError as error:
                raise InvalidArgumentError(
                    f"stream group {name!r}: expected limits that {self.name.short} can keep, got {error}; "
                    "lower limit_nbytes or guaranteed_nbytes, or close other groups"
                ) from error
            try:
                allocator = self._make_allocator(partition, f"{self.name.short} {name}", planned_nbytes)
                group = StreamGroup(name, self, self._make_stream(name, priority), allocator, partition)
            except BaseException:
                partition.close()
                raise
            self._groups[name] = group._resources
            self._streams.add(group.compute)
        return group

    def _make_allocator(self, partition: Partition, name: str, planned_nbytes: int) -> Allocator:
        """The allocator of a new group."""
        if not planned_nbytes:
            return BestFitAllocator(partition, name=name)
        return BestFitAllocator(
            partition,
            name=name,
            first_region_nbytes=planned_nbytes,
            largest_waste_nbytes=GRANULE_NBYTES,
        )

    @abstractmethod
    def _make_stream(self, name: str, priority: int = 0) -> Stream:
        """A new stream, with a priority if the device has any; called with the device's lock held."""

    @abstractmethod
    def view(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
    ) -> npt.NDArray[Any]:
        """An array over device memory at `address`; `strides` in bytes, by default C order.

        Raises InvalidArgumentError if the array exceeds the allocated memory, UnimplementedError
        on a device whose memory the host cannot address.
        """

    def read(self, address: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A copy of device memory; blocks until it is complete. No running work may write that memory.

        Raises InvalidArgumentError if the array exceeds the allocated memory.
        """
        copy: npt.NDArray[Any] = self.view(address, shape, dtype).copy()
        return copy

    def write(self, address: int, value: npt.NDArray[Any]) -> None:
        """Copies an array to device memory; blocks until it is there. No running work may use that memory.

        Raises InvalidArgumentError if the array exceeds the allocated memory.
        """
        self.view(address, value.shape, value.dtype)[...] = value

    def clear(self, address: int, nbytes: int) -> None:
        """Sets bytes of device memory to zero. No running work may use that memory."""
        self.view(address, (nbytes,), np.uint8)[...] = 0

    def lend(self, array: npt.NDArray[Any]) -> int | None:
        """Address at which the device reads an array of the caller's, in C order, until `take_back`.

        None on a device that does not address the host's memory: copy the array to it.
        """
        return None

    def take_back(self, array: npt.NDArray[Any]) -> None:  # noqa: B027 - most devices lend nothing
        """Ends one successful `lend` of an array, which nothing reads any more."""

    def host_array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A new, uninitialised array in host memory that this device's copies can access.

        Raises ResourceExhaustedError.
        """
        return np.empty(shape, dtype)

    def mailbox(self, sender: Device, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """Memory through which a value comes here from another device: for `copy_out` of the sender's plan
        and `copy_in` of this device's. Between two GPUs a `PeerArray`, else an array of the host.

        Raises ResourceExhaustedError.
        """
        lender = max((sender, self), key=lambda device: device.kind != "cpu")  # may need special memory
        return lender.host_array(shape, dtype)

    @abstractmethod
    def describe(self) -> DeviceDescription:
        """The row of this device in a table of devices."""

    def begin_close(self, *, drain: bool = True) -> None:
        """Refuses new streams, and makes open streams refuse work, without waiting for them."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            stream.begin_close(drain=drain)

    def close(self, *, drain: bool = True) -> None:
        """Closes all streams and groups and frees all memory; idempotent.

        All streams refuse work before the first is waited for, so no stream waits for another in vain.
        drain: see Stream.close.
        """
        self.begin_close(drain=drain)
        with self._lock:
            streams, groups = list(self._streams), list(self._groups.values())
        for stream in streams:
            stream.close(drain=drain)
        for group in groups:
            group.close_or_await_end(drain=drain)
        self._release()

    def _release(self) -> None:  # noqa: B027 - most kinds hold nothing else
        """Frees other things the device holds; called by every `close`."""

    def _forget_group(self, group: _Resources) -> None:
        with self._lock:
            if self._groups.get(group.name) is group:
                del self._groups[group.name]

    def _require_open(self, what: str) -> None:
        if self._closed:
            raise FailedPreconditionError(
                f"{what}: expected {self.name.short} to be open, got a closed device; open it again by name"
            )

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close(drain=exception[0] is None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name.short}{' (closed)' if self._closed else ''}>"
