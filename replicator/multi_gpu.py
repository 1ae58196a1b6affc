"""The Replicator of several devices of one process, with several replicas on each."""

from __future__ import annotations

from replicator.base import Replicator
from scheduler import Synchronisation
from scheduler.averaging.synchronisation import OnNan
from scheduler.replicas.replica_counts import ReplicaCounts
from tensorbow.devices import AsDevices, available_devices
from tensorbow.kinds import checked


class MultiGpuReplicator(Replicator):
    """Replicas on several GPUs, or virtual CPU devices, kept together after every step.

    By `sma` each replica takes its own step and is pulled towards their central average z; by `easgd`
    likewise, as elastic averaging SGD has it; by `ssgd` all take the same step, on the mean of their
    gradients, as TF-Replicator does; by `none` they are independent. The further options of keeping them
    together are those of `Synchronisation`.
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
        """devices: by default all GPUs there are, and without any the CPU.
        replicas_per_gpu: one count for all devices, or one for each.

        Raises InvalidArgumentError for options out of range, NotFoundError for a device that is not there.
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
