"""Asynchronous training: workers in processes of their own around parameter shards, carried by Ray.

`pushes` says what a step pushes; `parameter_shard`, `async_worker` and `coordinator` are the three parts, and
know nothing of Ray; `ray_actors` gives each a process.
"""

from replicator.asynchronous.multi_worker_async import MultiWorkerAsyncReplicator
from replicator.asynchronous.pushes import PushingOptimizer

__all__ = ["MultiWorkerAsyncReplicator", "PushingOptimizer"]
