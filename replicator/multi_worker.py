"""Replicator for several processes, on one machine or many, whose replicas are synchronised together."""

from __future__ import annotations

import socket
from typing import Any

from replicator.multi_gpu import MultiGpuReplicator
from scheduler.engine.engine_arguments import AsWorkers
from scheduler.workers.find import worker_group
from tensorbow.devices import AsDevices, available_devices
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import checked

# Options that several workers have not: by name the default, the reason, and what there is instead.
REFUSED = {
    "dispatch": (
        "round_robin",
        "whose replicas step together",
        "let a tb.MultiGpuReplicator train in one process",
    ),
    "num_gpus_per_replica": (
        1,
        "each of whose replicas has one device",
        "let a tb.MultiGpuReplicator train in one process",
    ),
}


class MultiWorkerReplicator(MultiGpuReplicator):
    """Replicas on the devices of several processes, synchronised every `tau` steps over MPI.

    Every worker runs the same program (TF-Replicator, 2019, section 3.1), as `mpirun -n 4 python train.py`
    starts it, and takes part in every call: those that build and run steps, read values of z, save and
    restore. `num_replicas` and `tb.replica_id()` count the replicas of all workers; `run` and `train` give
    each worker the results of its own, `[num_local_replicas, ...]`, and so do `local_results`, `reduce_mean`,
    `reduce_sum` and `replica_values`; collectives in the step, as `tb.all_reduce`, join those of all workers.
    Collectives in another order, or options or numbers of an optimiser that differ, are an error that names
    two workers; `tb.per_replica([...])` gives replicas rates of their own.

        replicator = tb.MultiWorkerReplicator(["/cpu:0"], replicas_per_gpu=2)
        for losses in replicator.train(step_fn, input_fn, steps=100):
            if replicator.worker_id == 0:
                print(losses)

    With PER_REPLICA `input_fn` is called for each replica of this worker, with PER_WORKER once, for a batch
    that is split among them; its context has `worker_id` and `num_workers`. A `DatasetBatches` of all
    replicas gives each its own batches, as in one process. Where a worker fails, the others raise
    AbortedError, which names it. The initial values are worker 0's.
    """

    @checked
    def __init__(
        self,
        devices: AsDevices | None = None,
        replicas_per_gpu: Any = 1,
        sync: str | None = None,
        *,
        workers: AsWorkers | None = None,
        **options: Any,
    ):
        """devices: of this worker; default: the GPUs of its machine, shared out to the workers there; the CPU
            if there is none.
        workers: default: the job that has started this process (`tb.worker_group()`), which may be alone.
        replicas_per_gpu, sync, options: as of `MultiGpuReplicator`, but neither dispatch `fcfs` nor a
            replica of several GPUs.
        backup: counts the replicas of all workers. A worker gets the results of those of its own whose
            gradients counted, which may be none: `[0 to num_local_replicas, ...]`. The workers meet every 16
            steps for inputs, and wait for late gradients there; values that are read in between are those of
            the end of the 16. On CPU devices.

        Collective. Raises as `MultiGpuReplicator`, and NotFoundError where mpi4py is missing.
        """
        self.workers = worker_group() if workers is None else workers
        if self.workers.size > 1:
            for name, (default, why, instead) in REFUSED.items():
                if (given := options.get(name, default)) != default:
                    raise InvalidArgumentError(
                        f"MultiWorkerReplicator: {name}: expected {default!r} with several workers, {why}, "
                        f"got {given!r:.60}; leave it out, or {instead}"
                    )
            if devices is None and options.get("num_gpus") is None:
                devices = _own_gpus(self.workers.all_gather(socket.gethostname()), self.workers.rank)
        super().__init__(devices, replicas_per_gpu, sync, **options)

    @property
    def worker_id(self) -> int:
        """Number of this worker, from 0."""
        return self.share.worker

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return self.share.workers


def _own_gpus(hosts: list[str], rank: int) -> list[str] | None:
    """The GPUs of this machine that are this worker's: each of the workers here has its own, if they suffice.

    None if there are none.
    """
    gpus = [found["name"] for found in available_devices() if found["kind"] == "gpu"]
    here = [number for number, host in enumerate(hosts) if host == hosts[rank]]
    number = here.index(rank)
    return gpus[number :: len(here)] or [gpus[number % len(gpus)]] if gpus else None
