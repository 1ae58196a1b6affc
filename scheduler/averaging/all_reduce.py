"""Sums between devices: one interface, one implementation per transport."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensorbow.devices import Access, Device, Event, Stream
from tensorbow.specs import Array, DType

CHUNK = 1 << 15  # elements


@dataclass(frozen=True)
class FlatVector:
    """A flat vector on a device that takes part in an all-reduce."""

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


class AllReduce(ABC):
    """Sums equal vectors of several devices, in the order of the devices, into all of them."""

    @abstractmethod
    def connect(self, vectors: Sequence[Sequence[FlatVector]]) -> None:
        """Fixes what is summed: each device's vectors, in one order. Called once, before the first post."""

    @abstractmethod
    def post(self, ready: Sequence[Event]) -> Event:
        """Enqueues one all-reduce, to start when all `ready` are done.

        Collectives run in the order of posting. The event is done when every device has the sum.
        """

    @property
    @abstractmethod
    def streams(self) -> Sequence[Stream]:
        """Its streams, for whoever drains them or makes them usable after a failure."""

    @abstractmethod
    def close(self) -> None:
        """Ends it; what is posted completes first. Idempotent."""


class InProcessAllReduce(AllReduce):
    """Between devices whose memory this process can address: one stream does all of them, in order."""

    def __init__(self, device: Device, name: str):
        """`device` lends the stream; the sums run on its thread."""
        self._stream = device.new_stream(name)
        self._columns: list[list[Array]] = []
        self._accesses: list[Access] = []

    def connect(self, vectors: Sequence[Sequence[FlatVector]]) -> None:
        """See AllReduce."""
        self._accesses = [vector.access for device in vectors for vector in device]
        self._columns = [[vector.view() for vector in column] for column in zip(*vectors, strict=True)]

    def post(self, ready: Sequence[Event]) -> Event:
        """See AllReduce."""
        for event in ready:
            self._stream.wait(event)
        self._stream.enqueue(self._sum, label="all-reduce", reads=self._accesses, writes=self._accesses)
        return self._stream.record()

    def _sum(self) -> None:
        for column in self._columns:
            _sum_into_all(column)

    @property
    def streams(self) -> Sequence[Stream]:
        """Its one stream."""
        return (self._stream,)

    def close(self) -> None:
        """Closes the stream."""
        self._stream.close()
        self._columns = []


def _sum_into_all(vectors: Sequence[Array]) -> None:
    first, *others = vectors
    for start in range(0, first.size, CHUNK):
        piece = slice(start, start + CHUNK)
        for other in others:
            np.add(first[piece], other[piece], out=first[piece])
        for other in others:
            np.copyto(other[piece], first[piece])
