"""Replicator for several devices of one process, with several replicas on each."""

from __future__ import annotations

from replicator.base import Replicator
from scheduler import Synchronisation
from scheduler.averaging.synchronisation import OnNan
from scheduler.replicas.replica_counts import ReplicaCounts
from tensorbow.devices import AsDevices, available_devices
from tensorbow.kinds import checked


class MultiGpuReplicator(Replicator):
    """Replicas on several GPUs, or virtual CPU devices, synchronised every `tau` steps.

    With `sma` each replica takes its own step and is pulled towards the central average model z; `easgd` is
    elastic averaging SGD. With `ssgd` all replicas take the same step, on the mean of their gradients, as
    TF-Replicator does. With `none` they are independent. `Synchronisation` describes the other options.
    """

    @checked
    def __init__(
        self,
        devices: AsDevices | None = None,
        replicas_per_gpu: ReplicaCounts = 1,
        sync: str = "sma",
        *,
        tau: int = 1,
        alpha: float | None = None,
        mu: float = 0.0,
        staleness: int = 0,
        clear_velocity: bool = False,
        ssgd_from: int | None = None,
        on_nan: OnNan = "stop",
    ):
        """devices: default all GPUs, or the CPU if there is none.
        replicas_per_gpu: one count for all devices, or one per device.

        Raises InvalidArgumentError for options out of range, NotFoundError for a missing device.
        """
        if devices is None:
            devices = [found["name"] for found in available_devices() if found["kind"] == "gpu"] or ["/cpu:0"]
        options = Synchronisation(
            sync,
            tau=tau,
            alpha=alpha,
            mu=mu,
            staleness=staleness,
            clear_velocity=clear_velocity,
            ssgd_from=ssgd_from,
        )
        super().__init__(devices, replicas_per_gpu, options, on_nan)
