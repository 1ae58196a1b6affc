"""Bookkeeping of prefetching: chooses the slot that is filled next. No threads, locks or arrays.

The states of a slot are free -> filling -> ready -> lent -> free. Step s of replica r (its s-th batch, from
0) goes into the slot that has been free longest, and steps become ready in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tensorbow.errors import FailedPreconditionError, InternalError


@dataclass(frozen=True)
class Claim:
    """One slot reserved for one batch. step: number of the replica's batch, from 0."""

    replica: int
    slot: int
    step: int


class _Lane:
    """Slots of one replica. next_step: the step that is claimed next."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.next_step = 0
        self.free = deque(range(depth))
        self.filling: deque[Claim] = deque()
        self.ready: deque[Claim] = deque()
        self.lent: dict[int, Claim] = {}


class SlotRing:
    """Slots of several replicas, `depths[r]` for replica r; each gets `steps` batches, or (None) endless."""

    def __init__(self, depths: Sequence[int], steps: int | None = None) -> None:
        self.steps = steps
        self._lanes = [_Lane(depth) for depth in depths]

    def claim(self) -> Claim | None:
        """Reserves a slot of the replica that is furthest behind (among equals, the lowest number).

        None if no replica with batches left has a free slot.
        """
        behind: tuple[int, int] | None = None
        for replica, lane in enumerate(self._lanes):
            if lane.free and lane.next_step != self.steps and (behind is None or lane.next_step < behind[0]):
                behind = lane.next_step, replica
        if behind is None:
            return None
        step, replica = behind
        lane = self._lanes[replica]
        claim = Claim(replica, lane.free.popleft(), step)
        lane.filling.append(claim)
        lane.next_step += 1
        return claim

    def filled(self, claim: Claim) -> None:
        """Marks a claimed slot as filled. Raises InternalError if it is not the replica's oldest claim."""
        lane = self._lanes[claim.replica]
        if not lane.filling or lane.filling[0] != claim:
            raise InternalError(f"prefetch: {claim} was filled, but {list(lane.filling)} are being filled")
        lane.ready.append(lane.filling.popleft())

    def lend(self, replica: int) -> Claim | None:
        """Lends the replica's oldest ready slot; None if there is none."""
        lane = self._lanes[replica]
        if not lane.ready:
            return None
        claim = lane.ready.popleft()
        lane.lent[claim.slot] = claim
        return claim

    def give_back(self, claim: Claim) -> None:
        """Frees a lent slot. Raises FailedPreconditionError if it is not lent for this claim."""
        lane = self._lanes[claim.replica]
        if lane.lent.get(claim.slot) != claim:
            raise FailedPreconditionError(
                f"slot {claim.slot} of replica {claim.replica} is not lent for its batch {claim.step}: "
                "a batch is released once, by the prefetcher it came from"
            )
        del lane.lent[claim.slot]
        lane.free.append(claim.slot)

    def lent_count(self, replica: int) -> int:
        """Number of the replica's slots that are lent."""
        return len(self._lanes[replica].lent)

    def finished(self, replica: int) -> bool:
        """True if the replica has been lent its last batch."""
        lane = self._lanes[replica]
        return lane.next_step == self.steps and not lane.filling and not lane.ready

    @property
    def all_claimed(self) -> bool:
        """True if all steps of all replicas have been claimed."""
        return all(lane.next_step == self.steps for lane in self._lanes)

    def check_invariants(self) -> None:
        """Raises InternalError unless every slot is in exactly one state and steps are in order."""
        for replica, lane in enumerate(self._lanes):
            waiting = [*lane.ready, *lane.filling]
            slots = [*lane.free, *lane.lent, *(claim.slot for claim in waiting)]
            if sorted(slots) != list(range(lane.depth)):
                raise InternalError(f"prefetch: replica {replica} has the slots {slots}, not {lane.depth}")
            steps = [claim.step for claim in waiting]
            if steps != list(range(lane.next_step - len(steps), lane.next_step)):
                raise InternalError(f"prefetch: replica {replica} has {steps} before step {lane.next_step}")
