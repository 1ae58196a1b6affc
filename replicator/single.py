"""Replicator with a single replica on one device."""

from __future__ import annotations

from replicator.base import Replicator
from scheduler import Synchronisation
from tensorbow.devices import AsDevice
from tensorbow.kinds import checked


class NonReplicator(Replicator):
    """Runs a step with one replica, behind the same interface as the Replicators with several."""

    @checked
    def __init__(self, device: AsDevice = "/cpu:0", *, ema: float | None = None):
        """ema: see `Synchronisation`. Raises NotFoundError for a missing device."""
        super().__init__([device], 1, Synchronisation(sync="none", ema=ema))
