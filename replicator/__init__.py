"""Replicators: run a step written for one device with several replicas (TF-Replicator, section 3).

They trace a user's `step_fn` once and pass it to the scheduler, which manages streams and memory.
"""

from tensorbow.shadowing import require_ours as _require_ours

_require_ours("scheduler")

# isort: split
from replicator.asynchronous import MultiWorkerAsyncReplicator
from replicator.base import Replicator
from replicator.collectives import map_gather, map_reduce
from replicator.input_functions import PER_REPLICA, PER_WORKER, InputContext
from replicator.multi_gpu import MultiGpuReplicator, TpuReplicator
from replicator.multi_worker import MultiWorkerReplicator
from replicator.single import NonReplicator
from replicator.tracing import num_replicas, per_replica, replica_id
from replicator.wrapped_optimizer import WrappedOptimizer

__all__ = [
    "PER_REPLICA",
    "PER_WORKER",
    "InputContext",
    "MultiGpuReplicator",
    "MultiWorkerAsyncReplicator",
    "MultiWorkerReplicator",
    "NonReplicator",
    "Replicator",
    "TpuReplicator",
    "WrappedOptimizer",
    "map_gather",
    "map_reduce",
    "num_replicas",
    "per_replica",
    "replica_id",
]
