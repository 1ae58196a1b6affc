"""Fixtures of the tests of Replicators."""

from __future__ import annotations

import pytest

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
