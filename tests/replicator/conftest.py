"""Fixtures of the tests of Replicators."""

from __future__ import annotations

import pytest

from replicator import lockstep_loop
from scheduler import Stepper


@pytest.fixture
def takers(monkeypatch):
    """The replica of each batch whose result is there, in order."""
    taken = []
    results = Stepper.results

    def recorded(self):
        found = results(self)
        taken.extend(found.replicas)
        return found

    monkeypatch.setattr(Stepper, "results", recorded)
    return taken


@pytest.fixture
def launches(monkeypatch):
    """Rounds of each launch of training steps."""
    counts = []
    step = Stepper.step

    def counted(self, inputs, rounds=1):
        counts.append(rounds)
        return step(self, inputs, rounds)

    monkeypatch.setattr(Stepper, "step", counted)
    monkeypatch.setattr(lockstep_loop, "LONGEST_S", 1e3)  # however busy the machine is
    return counts
