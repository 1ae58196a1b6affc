"""Fixtures of the tests of Replicators."""

from __future__ import annotations

import pytest

from scheduler import Stepper
from tensorbow.kernels import ReferenceBackend, backends


@pytest.fixture(params=["native", "reference"])
def backend(request, monkeypatch):
    """Code of CPU devices; tests without it take what is installed."""
    if request.param == "reference":
        monkeypatch.setitem(backends._backends, "cpu", ReferenceBackend())
        return
    pytest.importorskip("llvmlite")
    from tensorbow.kernels.native.backend import NativeBackend

    monkeypatch.setitem(backends._backends, "cpu", NativeBackend())


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
