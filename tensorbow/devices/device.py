"""What every kind of device offers: streams, stream groups, memory and views of it."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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

LONGEST_END_S = 10.0  # for which a device waits: it may be closed by the very work that is to end


class DeviceDescription(TypedDict):
    """One row of a table of devices; `memory_limit_nbytes` is None where nothing limits it."""

    name: str
    kind: str
    memory_limit_nbytes: int | None
    description: str


class _Resources:
    """The streams, allocator and partition of a group. The device knows them, and not the group."""

    def __init__(
        self, name: str, device: Device, streams: Sequence[Stream], allocator: Allocator, partition: Partition
    ) -> None:
        self.name = name
        self.device = device
        self.streams = tuple(dict.fromkeys(streams))
        self.allocator = allocator
        self.partition = partition
        self.at_close: list[Callable[[], None]] = []
        self._ending: threading.Thread | None = None  # once nobody holds the group any more

    def close(self, *, drain: bool = True) -> None:
        """See StreamGroup.close."""
        for stream in self.streams:
            stream.begin_close(drain=drain)
        for stream in self.streams:
            stream.close(drain=drain)
        while self.at_close:
            self.at_close.pop()()
        self.allocator.close(discard=True)
        self.partition.close()
        self.device._forget_group(self)

    def abandon(self) -> None:
        """Closes in a thread of its own: the last reference to a group may go anywhere, in the work of one of
        its streams too, or while this thread holds any lock."""
        name = f"tensorbow end of {self.device.name.short} {self.name}"
        ending = threading.Thread(target=self.close, name=name, daemon=True)
        with suppress(RuntimeError):  # there are no more threads: the device closes it
            ending.start()
            self._ending = ending

    def close_or_await_end(self, *, drain: bool) -> None:
        """For the device that closes."""
        if self._ending is None:
            self.close(drain=drain)
        else:
            self._ending.join(LONGEST_END_S)


class StreamGroup:
    """What one replica runs on: a compute stream, two copy streams and an allocator of its own.

    On a device that needs no copies (the CPU) the copy streams are the compute stream. A group that nobody
    holds any more closes by itself, once its streams are drained.
    """

    def __init__(
        self,
        name: str,
        device: Device,
        compute: Stream,
        host_to_device: Stream,
        device_to_host: Stream,
        allocator: Allocator,
        partition: Partition,
    ) -> None:
        self.name = name
        self.device = device
        self.compute = compute
        self.host_to_device = host_to_device
        self.device_to_host = device_to_host
        self.allocator = allocator
        self.partition = partition
        streams = host_to_device, compute, device_to_host
        self._resources = resources = _Resources(name, device, streams, allocator, partition)
        self._finalizer = weakref.finalize(self, resources.abandon)
        self._finalizer.atexit = False

    def at_close(self, release: Callable[[], None]) -> None:
        """Has `release()` called when the group closes: its streams have ended, its memory is still there.

        It must not know the group.
        """
        self._resources.at_close.append(release)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The group's streams, each once."""
        return self._resources.streams

    def allocate(self, nbytes: int, owner: str = "") -> Allocation | None:
        """A block from the group's allocator, aligned to 256; None for 0 bytes.

        Raises ResourceExhaustedError where the allocator raises its OutOfMemory, with the same account.
        """
        try:
            return self.allocator.allocate(nbytes, owner=owner)
        except OutOfMemory as error:
            raise ResourceExhaustedError(str(error)) from error

    def synchronize(self, timeout: float | None = None) -> None:
        """Block until every stream is drained; raise the first error. `timeout` (seconds) is per stream."""
        for stream in self.streams:
            stream.synchronize(timeout)

    def close(self, *, drain: bool = True) -> None:
        """Close the streams, then give the memory back, blocks in use included; idempotent."""
        self._resources.close(drain=drain)
        self._finalizer.detach()

    def __repr__(self) -> str:
        return f"<StreamGroup {self.name} of {self.device.name.short}>"


class Device(ABC):
    """Memory and streams under one name. `kind` is the lower-case word that kernels register under.

    The device knows streams and groups only weakly: one that nobody holds any more ends by itself, once it is
    drained, and what a group held goes back.
    """

    kind: str
    compute: str = "fp32"
    """In what matrix products and convolutions of float32 are computed by stream groups that get their first
    plan from now on: fp32, or on GPUs tf32 or bf16. CPUs do not look at it."""

    def __init__(self, name: DeviceName, memory: PartitionedMemory) -> None:
        self.name = name
        self.memory = memory
        self._closed = False
        self._lock = threading.Lock()  # owns the two tables below
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._groups: dict[str, _Resources] = {}  # of those that are not closed

    @property
    def closed(self) -> bool:
        """Whether the device refuses new streams."""
        return self._closed

    def new_stream(self, name: str) -> Stream:
        """An open stream; `name` is for logs and errors. Raises FailedPreconditionError if closed."""
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
        """A new group with a memory partition of its own, of at most `limit_nbytes` (None: the device's).

        `guaranteed_nbytes` of it are set aside at once. `planned_nbytes` is what the group is known to need,
        each block rounded up to 256 bytes: so much is guaranteed, and taken as one region that is split to
        the last granule, where growth by doubling would hold up to twice as much. `priority` is that of the
        group's streams, where the device has priorities: a lower number goes first.

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
                streams = self._make_group_streams(name, priority)
                group = StreamGroup(name, self, *streams, allocator, partition)
            except BaseException:
                partition.close()
                raise
            self._groups[name] = group._resources
            self._streams.update(group.streams)
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
    def _make_stream(self, name: str) -> Stream:
        """A new stream; called with the device's lock held."""

    @abstractmethod
    def _make_group_streams(self, name: str, priority: int) -> tuple[Stream, Stream, Stream]:
        """New streams of a group: compute, host to device, device to host."""

    @abstractmethod
    def view(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
    ) -> npt.NDArray[Any]:
        """An array over device memory at `address`; `strides` in bytes, C order without.

        Raises InvalidArgumentError where the array would leave the allocated memory, UnimplementedError
        on a device whose memory the host cannot address.
        """

    def read(self, address: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A copy of device memory, for while nothing runs that writes it. Blocks until it is there.

        Raises InvalidArgumentError where the array would leave the allocated memory.
        """
        copy: npt.NDArray[Any] = self.view(address, shape, dtype).copy()
        return copy

    def write(self, address: int, value: npt.NDArray[Any]) -> None:
        """Copies an array to device memory that nothing running touches; it is there on return.

        Raises InvalidArgumentError where the array would leave the allocated memory.
        """
        self.view(address, value.shape, value.dtype)[...] = value

    def clear(self, address: int, nbytes: int) -> None:
        """Sets bytes of device memory that nothing running touches to zero."""
        self.view(address, (nbytes,), np.uint8)[...] = 0

    def host_array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A new array in host memory that this device's copies can reach, of any content.

        Raises ResourceExhaustedError.
        """
        return np.empty(shape, dtype)

    @abstractmethod
    def describe(self) -> DeviceDescription:
        """A row for a table of devices."""

    def begin_close(self, *, drain: bool = True) -> None:
        """Refuse new streams, and let none of the old ones take more work, without waiting for them."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            stream.begin_close(drain=drain)

    def close(self, *, drain: bool = True) -> None:
        """Close all streams and groups, and give all memory back; idempotent.

        All streams stop taking work before the first is waited for, so none of them waits for another in
        vain. `drain` is as for Stream.close.
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
        """Give back what the device holds beside streams and groups; called by every `close`."""

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
