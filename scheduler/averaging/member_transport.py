"""Sums over the workers of a job whose gradients count: with backup workers, which leave others out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler.averaging.transport import DeviceExchange, Transport
from scheduler.workers.letters import Letters
from tensorbow.devices import Event, Stream


class MemberTransport(Transport):
    """The transport of a worker's devices, and then, through the host's memory, the sum over `members`.

    The first of them adds what the others send, in their order, and sends the sum to all. So their results
    have equal bits, and no other worker takes part.

    members: the numbers of the workers, in order, of which this is one; set before each post.
    """

    def __init__(self, rank: int, letters: Letters, local: Transport | None):
        """local: between this worker's devices, if there are several; closed with this one."""
        self._rank, self._letters, self._local = rank, letters, local
        self._exchanges: list[list[DeviceExchange]] = []
        self.members: Sequence[int] = (rank,)

    def connect(self, exchanges: Sequence[Sequence[DeviceExchange]]) -> None:
        """See Transport."""
        if self._local is not None:
            self._local.connect(exchanges)
        self._exchanges = [[*crossings] for crossings in exchanges]

    def post(self, exchange: int, ready: Sequence[Event]) -> Event:
        """See Transport; waits until the sum is there. Raises AbortedError where a worker has ended."""
        done = ready[-1] if self._local is None else self._local.post(exchange, ready)
        for event in (*ready, done):
            event.synchronize()
        if len(self.members) == 1:
            return done
        letters, (first, *others) = self._letters, self.members
        for crossing in self._exchanges[exchange]:
            vector = crossing.vectors[0]
            array = vector.device.read(vector.address, (vector.size,), vector.dtype.as_numpy_dtype)
            if self._rank == first:
                theirs = np.empty_like(array)
                for other in others:
                    letters.take_vector(other, theirs)
                    np.add(array, theirs, out=array)
                for other in others:
                    letters.send_vector(other, array)
            else:
                letters.send_vector(first, array)
                letters.take_vector(first, array)
            for vector in crossing.vectors:
                vector.device.write(vector.address, array)
        return done

    @property
    def streams(self) -> Sequence[Stream]:
        """Streams between this worker's devices."""
        return () if self._local is None else self._local.streams

    def close(self) -> None:
        """Closes the transport of this worker's devices."""
        if self._local is not None:
            self._local.close()
        self._exchanges = []
