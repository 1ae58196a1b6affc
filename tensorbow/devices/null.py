"""The null device: accepts all calls of a device, computes nothing, and logs the calls.

It measures the cost of scheduling and dispatch, and lets tests check the order of enqueued work and the
absence of races (race_checker.py). With `hold=True` events stay pending until the test completes them, in
any order possible for first-in first-out streams.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from allocators import PartitionedMemory, VirtualSource
from tensorbow.devices.device import Device, DeviceDescription
from tensorbow.devices.launch_log import LaunchLog
from tensorbow.devices.names import DeviceName
from tensorbow.devices.null_stream import NullEvent, NullStream
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError

__all__ = ["NullDevice", "describe_null"]


class NullDevice(Device):
    """A device without memory or arithmetic, under any name: one called `/gpu:0` stands in for a GPU.

    hold: events wait for `complete`. log: receives the calls; several devices can share one.
    limit_nbytes: bound of its pretended memory (1 TiB).
    """

    kind = "null"

    def __init__(
        self,
        name: DeviceName | str = "/null:0",
        *,
        hold: bool = False,
        log: LaunchLog | None = None,
        limit_nbytes: int = 1 << 40,
    ) -> None:
        parsed = DeviceName.parse(name)
        if not parsed.is_complete:
            raise InvalidArgumentError(
                f"null device: expected a name such as '/null:0', got {str(name)!r}; give a kind and an index"
            )
        self.hold = hold
        self.log = LaunchLog() if log is None else log
        super().__init__(parsed, PartitionedMemory(VirtualSource(limit_nbytes), limit_nbytes))

    def _make_stream(self, name: str, priority: int = 0) -> NullStream:
        return NullStream(self, name, self.log, hold=self.hold)

    def view(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
    ) -> npt.NDArray[Any]:
        """A new array of zeros: there is no memory, so what is written to it is lost."""
        return np.zeros(shape, dtype)

    def pending(self) -> list[NullEvent]:
        """The events that are not done, oldest first."""
        with self._lock:
            streams = list(self._streams)
        found = [event for stream in streams if isinstance(stream, NullStream) for event in stream.pending()]
        return sorted(found, key=lambda event: event.sequence)

    def completable(self) -> list[NullEvent]:
        """Pending events that `complete` accepts now: first of their stream, with no wait before them."""
        return [event for event in self.pending() if event.stream.first_completable() is event]

    def complete(self, *events: NullEvent, error: BaseException | None = None) -> None:
        """Completes `events` in this order, or, without any, all that can be, oldest first.

        error: makes the work before the first event fail, and so its stream; needs an event.
        Raises FailedPreconditionError for an event that a stream could not have reached: an earlier event of
        its stream, or one that the stream waits for, is not done. Raises InvalidArgumentError for an event
        of another device.
        """
        if not events:
            if error is not None:
                raise InvalidArgumentError(
                    "complete: expected an event for `error`, got none; name the event"
                )
            while ready := self.completable():
                for event in ready:
                    event.stream.complete(event)
            return
        for event in events:
            if not isinstance(event, NullEvent) or event.stream.device is not self:
                raise InvalidArgumentError(
                    f"complete: expected an event of {self.name.short}, got {event!r}; ask its own device"
                )
            if event.done():
                raise FailedPreconditionError(
                    f"complete: expected a pending event, got {event!r}; see pending()"
                )
            event.stream.complete(event, error)
            error = None

    def describe(self) -> DeviceDescription:
        """The row of this device in a table of devices."""
        return describe_null(self.name, self.memory.limit_nbytes)


def describe_null(name: DeviceName, limit_nbytes: int | None = None) -> DeviceDescription:
    """The table row of null device `name`, without opening it."""
    return DeviceDescription(
        name=str(name),
        kind="null",
        memory_limit_nbytes=limit_nbytes,
        description="records launches, computes nothing",
    )
