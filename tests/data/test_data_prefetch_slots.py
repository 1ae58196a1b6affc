import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tensorbow.data import Claim, SlotRing
from tensorbow.errors import FailedPreconditionError, InternalError


class RingMachine(RuleBasedStateMachine):
    """Holds the ring against lists: what each slot is used for, and how far each replica is."""

    @initialize(
        depths=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        steps=st.one_of(st.none(), st.integers(0, 5)),
    )
    def start(self, depths, steps):
        self.ring, self.depths, self.steps = SlotRing(depths, steps), depths, steps
        self.claimed = [0] * len(depths)
        self.lent_steps = [0] * len(depths)
        self.used = set()
        self.filling, self.lent = [], []

    @rule()
    def claim(self):
        free = [
            replica
            for replica, depth in enumerate(self.depths)
            if sum(used[0] == replica for used in self.used) < depth and self.claimed[replica] != self.steps
        ]
        claim = self.ring.claim()
        if not free:
            assert claim is None
            return
        assert claim.replica == min(free, key=lambda replica: (self.claimed[replica], replica))
        assert claim.step == self.claimed[claim.replica]
        assert (claim.replica, claim.slot) not in self.used
        self.claimed[claim.replica] += 1
        self.used.add((claim.replica, claim.slot))
        self.filling.append(claim)

    @precondition(lambda self: self.filling)
    @rule()
    def filled(self):
        self.ring.filled(self.filling.pop(0))

    @rule(data=st.data())
    def lend(self, data):
        replica = data.draw(st.integers(0, len(self.depths) - 1))
        claim = self.ring.lend(replica)
        if claim is not None:
            assert claim.step == self.lent_steps[replica]
            self.lent_steps[replica] += 1
            self.lent.append(claim)

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def give_back(self, data):
        claim = self.lent.pop(data.draw(st.integers(0, len(self.lent) - 1)))
        self.ring.give_back(claim)
        self.used.remove((claim.replica, claim.slot))
        with pytest.raises(FailedPreconditionError, match="is not lent for its batch"):
            self.ring.give_back(claim)

    @invariant()
    def holds(self):
        if not hasattr(self, "ring"):
            return
        self.ring.check_invariants()
        for replica in range(len(self.depths)):
            assert self.ring.finished(replica) == (self.lent_steps[replica] == self.steps)
            assert self.ring.lent_count(replica) == sum(claim.replica == replica for claim in self.lent)
        assert self.ring.all_claimed == all(count == self.steps for count in self.claimed)


RingMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestRing = RingMachine.TestCase


def test_filling_what_was_not_claimed_is_told():
    ring = SlotRing([2])
    with pytest.raises(InternalError, match="was filled, but"):
        ring.filled(Claim(0, 0, 0))


def test_a_replica_that_keeps_its_slots_holds_up_no_other():
    ring = SlotRing([1, 1])
    for _ in range(2):
        ring.filled(ring.claim())
    ring.lend(0)
    for step in range(1, 6):
        ring.give_back(ring.lend(1))
        claim = ring.claim()
        assert (claim.replica, claim.step) == (1, step)
        ring.filled(claim)
    assert ring.claim() is None
