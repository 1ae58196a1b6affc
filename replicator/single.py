"""Replicator with a single replica on one device."""

from __future__ import annotations

from typing import Any

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

    def tune(self, step_fn: Any, input_fn: Any = None, *arguments: Any, **options: Any) -> int:
        """Returns 1, its number of replicas, for the arguments of `MultiGpuReplicator.tune`."""
        return 1
