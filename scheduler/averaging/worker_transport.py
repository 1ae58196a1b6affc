"""Exchanges between the devices of several processes: in the process first, then between workers.

By NCCL where it joins the GPUs of all workers; else by MPI, through the host's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from scheduler.averaging.transport import DeviceExchange, OuterTransport, Transport
from scheduler.workers.lockstep import Lockstep
from tensorbow.devices import Event
from tensorbow.devices.gpu_events import GpuEvent
from tensorbow.errors import AbortedError


class WorkerTransport(OuterTransport):
    """The transport of a worker's devices, and then a sum over the workers.

    That is made by MPI through the host's memory, or by NCCL between the GPUs of all.

    `post` waits for what is to be exchanged, and for the other workers. Where NCCL joins the GPUs of all, it
    only meets the other workers' hosts, to know that none has failed, and enqueues the exchange.
    """

    def __init__(self, lockstep: Lockstep, local: Transport | None, joined: bool = False):
        """local: see OuterTransport. joined: it is between the GPUs of all workers."""
        super().__init__(local)
        self._lockstep, self._is_joined = lockstep, joined
        self._parts: list[list[list[range]]] = []  # by exchange and vector, each worker's elements

    def connect(self, exchanges: Sequence[Sequence[DeviceExchange]]) -> None:
        """See Transport; collective over the workers."""
        if self.local is not None:
            self.local.halves = self.halves and self._is_joined
        super().connect(exchanges)
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
        if self._is_joined:
            self._meet(ready, enqueued=True)
            return self.post_local(exchange, ready)
        done = self.post_local(exchange, ready)
        self._meet((*ready, done))
        workers = self._lockstep.exchanges
        for crossing, parts in zip(self.exchanges[exchange], self._parts[exchange], strict=True):
            array = crossing.read()
            if crossing.owned is None:
                workers.all_sum(array, self.halves)
            else:
                workers.share(array, parts)
            crossing.write(array)
        return done

    def _meet(self, events: Sequence[Event], enqueued: bool = False) -> None:
        """Begins an exchange with the other workers when some events are done; tells them of a failure.

        enqueued: when they are enqueued on their GPUs. What has failed by then is known; a GPU that fails
        later is lost with its process, and the others' watch of the job ends them.
        """
        try:
            for event in events:
                if not enqueued or not isinstance(event, GpuEvent) or not event.is_enqueued:
                    event.synchronize()
                elif event.failure is not None:
                    raise event.failure
        except BaseException:
            with suppress(AbortedError):
                self._lockstep.begin_exchange(failed=True)
            raise
        self._lockstep.begin_exchange()


def _owned(crossing: DeviceExchange) -> range:
    """Elements that a worker's devices give, which follow one another; none of a sum."""
    owned = [elements for _, elements in crossing.parts()]
    return range(owned[0].start, owned[-1].stop) if owned else range(0)
