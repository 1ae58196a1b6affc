"""Exchanges between the devices of several processes: in the process first, then between workers.

By NCCL where it joins the GPUs of all workers; else by MPI, through the host's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from scheduler.averaging.transport import DeviceExchange, Transport
from scheduler.workers.lockstep import Lockstep
from tensorbow.devices import Event, Stream
from tensorbow.errors import AbortedError


class WorkerTransport(Transport):
    """The transport of a worker's devices, and then, through the host's memory, `MPI_Allreduce` of the sums.

    `post` waits for what is to be exchanged, and for the other workers; where NCCL joins the GPUs of all, the
    rest is enqueued. halves: sums of float32 are sent as bfloat16 between workers, by MPI.
    """

    halves = False

    def __init__(self, lockstep: Lockstep, local: Transport | None, joined: bool = False):
        """local: between this worker's devices, if there are several; closed with this one. joined: it is
        between the GPUs of all workers.
        """
        self._lockstep, self._local = lockstep, local
        self._is_joined = joined
        self._exchanges: list[list[DeviceExchange]] = []
        self._parts: list[list[list[range]]] = []  # by exchange and vector, each worker's elements

    def connect(self, exchanges: Sequence[Sequence[DeviceExchange]]) -> None:
        """See Transport; collective over the workers."""
        if self._local is not None:
            self._local.connect(exchanges)
        self._exchanges = [[*crossings] for crossings in exchanges]
        if self._is_joined:
            return
        own = [[_owned(crossing) for crossing in crossings] for crossings in exchanges]
        parts = self._lockstep.all_gather("parts of exchanges", own)
        self._parts = [
            [[worker[n][m] for worker in parts] for m in range(len(crossings))]
            for n, crossings in enumerate(exchanges)
        ]

    def post(self, exchange: int, ready: Sequence[Event]) -> Event:
        """See Transport. Raises AbortedError where another worker has failed."""
        own = None if self._is_joined else self._local
        done = ready[-1] if own is None else own.post(exchange, ready)
        try:
            for event in (*ready, done):
                event.synchronize()
        except BaseException:
            with suppress(AbortedError):
                self._lockstep.begin_exchange(failed=True)
            raise
        self._lockstep.begin_exchange()
        if self._is_joined and self._local is not None:
            return self._local.post(exchange, ready)
        workers = self._lockstep.exchanges
        for crossing, parts in zip(self._exchanges[exchange], self._parts[exchange], strict=True):
            first = crossing.vectors[0]
            array = first.device.read(first.address, (first.size,), first.dtype.as_numpy_dtype)
            if crossing.owned is None:
                workers.all_sum(array, self.halves)
            else:
                workers.share(array, parts)
            for vector in crossing.vectors:
                vector.device.write(vector.address, array)
        return done

    @property
    def streams(self) -> Sequence[Stream]:
        """Those between this worker's devices."""
        return () if self._local is None else self._local.streams

    def close(self) -> None:
        """Closes the transport of this worker's devices."""
        if self._local is not None:
            self._local.close()
        self._exchanges = []


def _owned(crossing: DeviceExchange) -> range:
    """Elements that a worker's devices give, which follow one another; none of a sum."""
    owned = [elements for _, elements in crossing.parts()]
    return range(owned[0].start, owned[-1].stop) if owned else range(0)
