"""Transports: how the devices of a process complete an exchange, one implementation per kind of device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tensorbow.devices import Access, Device, Event, Stream
from tensorbow.specs import Array, DType

CHUNK = 1 << 15  # elements


@dataclass(frozen=True)
class FlatVector:
    """A flat vector on a device that takes part in an exchange."""

    device: Device
    address: int
    size: int  # elements
    dtype: DType

    @property
    def access(self) -> Access:
        """Its memory, for the race checker."""
        return Access(self.address, self.size * self.dtype.size, str(self.device.name))

    def view(self) -> Array:
        """Its elements."""
        return self.device.view(self.address, (self.size,), self.dtype.as_numpy_dtype)


@dataclass(frozen=True)
class DeviceExchange:
    """Vectors of one size, one per device, that become equal.

    To the sum of all, in the order of the devices; with `owned`, each device gives the elements that it owns.
    """

    vectors: Sequence[FlatVector]
    owned: Sequence[range] | None = None

    def parts(self) -> Iterator[tuple[int, range]]:
        """The device that owns each part that is not empty, by its index, and the elements."""
        for device_index, elements in enumerate(self.owned or ()):
            if elements:
                yield device_index, elements

    def read(self) -> Array:
        """The first device's vector, as an array of the host's."""
        first = self.vectors[0]
        return first.device.read(first.address, (first.size,), first.dtype.as_numpy_dtype)

    def write(self, array: Array) -> None:
        """Sets the vectors of all devices."""
        for vector in self.vectors:
            vector.device.write(vector.address, array)


class Transport(ABC):
    """Carries exchanges between the devices of a process.

    halves: sums of float32 go to other workers as the upper 16 bits of each element, where there are others.
    """

    halves = False  # set before `connect`

    @abstractmethod
    def connect(self, exchanges: Sequence[Sequence[DeviceExchange]]) -> None:
        """Fixes what crosses in each exchange. Called before the first post, and when there are more."""

    @abstractmethod
    def post(self, exchange: int, ready: Sequence[Event]) -> Event:
        """Enqueues one exchange, by its number, to start when all `ready` are done.

        Exchanges run in the order of posting. The event is done when every device has the results.
        """

    @property
    @abstractmethod
    def streams(self) -> Sequence[Stream]:
        """Its streams, for whoever drains them or makes them usable after a failure."""

    @abstractmethod
    def close(self) -> None:
        """Ends it; what is posted completes first. Idempotent."""


class OuterTransport(Transport):
    """Base of transports to other processes, behind the one between this process's devices."""

    def __init__(self, local: Transport | None):
        """local: between this process's devices, if there are several; closed with this one."""
        self.local = local
        self.exchanges: list[list[DeviceExchange]] = []  # by number

    def connect(self, exchanges: Sequence[Sequence[DeviceExchange]]) -> None:
        """See Transport."""
        if self.local is not None:
            self.local.connect(exchanges)
        self.exchanges = [[*crossings] for crossings in exchanges]

    def post_local(self, exchange: int, ready: Sequence[Event]) -> Event:
        """Posts an exchange between this process's devices."""
        return ready[-1] if self.local is None else self.local.post(exchange, ready)

    @property
    def streams(self) -> Sequence[Stream]:
        """Streams between this process's devices."""
        return () if self.local is None else self.local.streams

    def close(self) -> None:
        """Closes the transport of this process's devices."""
        if self.local is not None:
            self.local.close()
        self.exchanges = []


class InProcessTransport(Transport):
    """Transport between devices whose memory this process can address: all exchanges on one stream."""

    def __init__(self, device: Device, name: str):
        """`device` lends the stream; the exchanges run on its thread."""
        self._stream = device.new_stream(name)
        self._exchanges: list[list[tuple[DeviceExchange, list[Array]]]] = []
        self._accesses: list[list[Access]] = []

    def connect(self, exchanges: Sequence[Sequence[DeviceExchange]]) -> None:
        """See Transport."""
        self._exchanges = [
            [(crossing, [vector.view() for vector in crossing.vectors]) for crossing in crossings]
            for crossings in exchanges
        ]
        self._accesses = [
            [vector.access for crossing in crossings for vector in crossing.vectors]
            for crossings in exchanges
        ]

    def post(self, exchange: int, ready: Sequence[Event]) -> Event:
        """See Transport."""
        for event in ready:
            self._stream.wait(event)
        accesses = self._accesses[exchange]
        self._stream.enqueue(
            partial(self._exchange, exchange),
            label="exchange between devices",
            reads=accesses,
            writes=accesses,
        )
        return self._stream.record()

    def _exchange(self, exchange: int) -> None:
        for crossing, arrays in self._exchanges[exchange]:
            if crossing.owned is None:
                _sum_into_all(arrays)
            for owner, elements in crossing.parts():
                piece = slice(elements.start, elements.stop)
                for device_index, array in enumerate(arrays):
                    if device_index != owner:
                        np.copyto(array[piece], arrays[owner][piece])

    @property
    def streams(self) -> Sequence[Stream]:
        """Its one stream."""
        return (self._stream,)

    def close(self) -> None:
        """Closes the stream."""
        self._stream.close()
        self._exchanges = []


def _sum_into_all(vectors: Sequence[Array]) -> None:
    first, *others = vectors
    for start in range(0, first.size, CHUNK):
        piece = slice(start, start + CHUNK)
        for other in others:
            np.add(first[piece], other[piece], out=first[piece])
        for other in others:
            np.copyto(other[piece], first[piece])
