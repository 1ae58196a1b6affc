"""Sums over the workers of a job whose gradients count: with backup workers, which leave others out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler.averaging.transport import OuterTransport, Transport
from scheduler.workers.letters import Letters
from tensorbow.devices import Event


class MemberTransport(OuterTransport):
    """The transport of a worker's devices, and then, through the host's memory, the sum over `members`.

    The first of them adds what the others send, in their order, and sends the sum to all. So their results
    have equal bits, and no other worker takes part.

    members: the numbers of the workers, in order, of which this is one; set before each post.
    """

    def __init__(self, rank: int, letters: Letters, local: Transport | None):
        """local: see OuterTransport."""
        super().__init__(local)
        self._rank, self._letters = rank, letters
        self.members: Sequence[int] = (rank,)

    def post(self, exchange: int, ready: Sequence[Event]) -> Event:
        """See Transport; waits until the sum is there. Raises AbortedError where a worker has ended."""
        done = self.post_local(exchange, ready)
        for event in (*ready, done):
            event.synchronize()
        if len(self.members) == 1:
            return done
        letters, (first, *others) = self._letters, self.members
        for crossing in self.exchanges[exchange]:
            array = crossing.read()
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
            crossing.write(array)
        return done
