"""The Replicator of one replica: the same program, on one device."""

from __future__ import annotations

from replicator.base import Replicator
from scheduler import Synchronisation
from tensorbow.devices import AsDevice
from tensorbow.kinds import checked


class NonReplicator(Replicator):
    """Runs a step on one device, by the same program as the Replicators that run it on several."""

    @checked
    def __init__(self, device: AsDevice = "/cpu:0"):
        """Raises NotFoundError for a device that is not there."""
        super().__init__([device], 1, Synchronisation(sync="none"))
